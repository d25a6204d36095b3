//! Defaults by usage and by family, as Debian's `/etc/mke2fs.conf` has them, and the features
//! that result. No file is read: the same command means the same on every machine.

use nextent_ondisk::{Compat, Features, Incompat, RoCompat};

use super::error::MkfsError;
use super::options::{CreatorOs, FsType, MkfsOptions, Usage};

const MIB: u64 = 1 << 20;

/// What the usage decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) block_size: u32,
    pub(super) inode_size: u32,
    pub(super) inode_ratio: u64,
}

/// The usage of a volume of `bytes` when none was named.
pub(super) fn usage_by_size(bytes: u64) -> Usage {
    match bytes {
        _ if bytes < 3 * MIB => Usage::Floppy,
        _ if bytes < 512 * MIB => Usage::Small,
        _ if bytes < 4 * MIB * MIB => Usage::Default,
        _ if bytes < 16 * MIB * MIB => Usage::Big,
        _ => Usage::Huge,
    }
}

/// The defaults of the usages in `options`, later ones winning.
pub(super) fn profile(options: &MkfsOptions, bytes: u64) -> Profile {
    let mut profile = Profile { block_size: 4096, inode_size: 256, inode_ratio: 16384 };
    let mut usages = options.usage.clone();
    if usages.is_empty() {
        usages.push(Usage::Default);
    }
    if options.creator_os == CreatorOs::Hurd {
        usages.push(Usage::Hurd);
    }
    // Volumes that fit their contents have the same blocks at each size.
    let bytes = if options.fitted.is_some() { bytes.max(512 * MIB) } else { bytes };
    for usage in usages {
        let usage = if usage == Usage::Default { usage_by_size(bytes) } else { usage };
        match usage {
            Usage::Default => {}
            Usage::Floppy => (profile.block_size, profile.inode_ratio) = (1024, 8192),
            Usage::Small => (profile.block_size, profile.inode_ratio) = (1024, 4096),
            Usage::Big => profile.inode_ratio = 32768,
            Usage::Huge => profile.inode_ratio = 65536,
            Usage::News => profile.inode_ratio = 4096,
            Usage::LargeFile => profile.inode_ratio = 1 << 20,
            Usage::LargeFile4 => profile.inode_ratio = 4 << 20,
            Usage::Hurd => (profile.block_size, profile.inode_size) = (4096, 128),
        }
    }
    profile
}

fn base() -> Features {
    Features::EMPTY
        .with(RoCompat::SPARSE_SUPER.with(RoCompat::LARGE_FILE))
        .with(Incompat::FILETYPE)
        .with(Compat::RESIZE_INODE.with(Compat::DIR_INDEX).with(Compat::EXT_ATTR))
}

fn of_family(fs_type: FsType) -> Features {
    match fs_type {
        FsType::Ext2 => base(),
        FsType::Ext3 => base().with(Compat::HAS_JOURNAL),
        FsType::Ext4 => base()
            .with(Compat::HAS_JOURNAL)
            .with(Incompat::EXTENTS.with(Incompat::FLEX_BG).with(Incompat::BIT64))
            .with(RoCompat::HUGE_FILE.with(RoCompat::METADATA_CSUM))
            .with(RoCompat::DIR_NLINK.with(RoCompat::EXTRA_ISIZE)),
    }
}

fn written_by_us() -> Features {
    Features::EMPTY
        .with(Compat::HAS_JOURNAL.with(Compat::EXT_ATTR).with(Compat::RESIZE_INODE))
        .with(Compat::DIR_INDEX.with(Compat::SPARSE_SUPER2).with(Compat::FAST_COMMIT))
        .with(Compat::STABLE_INODES.with(Compat::ORPHAN_FILE))
        .with(Incompat::FILETYPE.with(Incompat::META_BG).with(Incompat::EXTENTS))
        .with(Incompat::BIT64.with(Incompat::FLEX_BG).with(Incompat::CSUM_SEED))
        .with(Incompat::MMP)
        .with(RoCompat::SPARSE_SUPER.with(RoCompat::LARGE_FILE).with(RoCompat::HUGE_FILE))
        .with(RoCompat::GDT_CSUM.with(RoCompat::DIR_NLINK).with(RoCompat::EXTRA_ISIZE))
        .with(RoCompat::METADATA_CSUM.with(RoCompat::VERITY))
}

/// The names of all features that a new file system may have.
#[must_use]
pub fn written_features() -> Vec<String> {
    written_by_us().names()
}

/// The features of the family with the changes of the caller.
pub(super) fn asked(options: &MkfsOptions) -> Result<Features, MkfsError> {
    let mut features = of_family(options.fs_type);
    if options.creator_os == CreatorOs::Hurd {
        features.set(Incompat::FILETYPE, false);
        features.set(RoCompat::HUGE_FILE.with(RoCompat::METADATA_CSUM), false);
    }
    features.apply(&options.features).map_err(|error| MkfsError::option(error.to_string()))?;
    Ok(features)
}

/// The features of the new file system, or why they cannot be.
pub(super) fn features(options: &MkfsOptions) -> Result<Features, MkfsError> {
    if options.revision_0 {
        if !options.features.is_empty() {
            let text = "revision 0 file systems have no features; leave out -O";
            return Err(MkfsError::option(text));
        }
        if options.force_journal || options.journal.size.is_some() {
            return Err(MkfsError::option("revision 0 file systems have no journal"));
        }
        return contradictions(options, Features::EMPTY);
    }
    let mut features = asked(options)?;
    if options.force_journal || options.journal.size.is_some() {
        features.set(Compat::HAS_JOURNAL, true);
    }
    if features.metadata_csum() {
        // The newer checksums include those of the descriptors.
        features.set(RoCompat::GDT_CSUM, false);
    }
    let ours = written_by_us();
    let foreign = Features {
        compat: features.compat.without(ours.compat),
        incompat: features.incompat.without(ours.incompat),
        ro_compat: features.ro_compat.without(ours.ro_compat),
    };
    match foreign.names().first() {
        Some(name) => Err(MkfsError::Unsupported(name.clone())),
        None => contradictions(options, features),
    }
}

fn contradictions(options: &MkfsOptions, features: Features) -> Result<Features, MkfsError> {
    let fail = |text: &str| Err(MkfsError::option(text));
    if features.has(Compat::RESIZE_INODE) && features.has(Incompat::META_BG) {
        return fail("resize_inode and meta_bg exclude each other; add ^resize_inode");
    }
    let sparse = features.has(RoCompat::SPARSE_SUPER) || features.has(Compat::SPARSE_SUPER2);
    if features.has(Compat::RESIZE_INODE) && !sparse {
        return fail("resize_inode needs sparse_super; add ^resize_inode");
    }
    if features.has(Incompat::BIT64) && !features.has(Incompat::EXTENTS) {
        return fail("64bit needs extents; add -O extents");
    }
    if features.has(Incompat::CSUM_SEED) && !features.metadata_csum() {
        return fail("metadata_csum_seed needs metadata_csum");
    }
    if features.has(Compat::ORPHAN_FILE) && !features.has(Compat::HAS_JOURNAL) {
        return fail("orphan_file needs has_journal");
    }
    if options.flex_groups.is_some() && !features.has(Incompat::FLEX_BG) {
        return fail("a flex group size needs flex_bg");
    }
    if options.creator_os == CreatorOs::Hurd
        && (features.has(Incompat::FILETYPE) || features.has(RoCompat::HUGE_FILE))
    {
        return fail("the Hurd does not support filetype and huge_file");
    }
    Ok(features)
}
