//! Decides by its features whether a volume may be opened, and whether for reading only.

use nextent_ondisk::superblock::creator;
use nextent_ondisk::{Compat, Features, Incompat, RoCompat};

use crate::error::{Error, Result};

/// Incompatible features that are read and written.
const INCOMPAT: Incompat = Incompat::FILETYPE
    .with(Incompat::RECOVER)
    .with(Incompat::META_BG)
    .with(Incompat::EXTENTS)
    .with(Incompat::BIT64)
    .with(Incompat::FLEX_BG)
    .with(Incompat::MMP)
    .with(Incompat::CSUM_SEED)
    .with(Incompat::ENCRYPT);

/// Incompatible features of images that are opened for reading only.
const INCOMPAT_READ: Incompat = Incompat::INLINE_DATA
    .with(Incompat::LARGEDIR)
    .with(Incompat::EA_INODE)
    .with(Incompat::CASEFOLD);

/// Read-only compatible features that are read and written.
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .with(RoCompat::LARGE_FILE)
    .with(RoCompat::HUGE_FILE)
    .with(RoCompat::GDT_CSUM)
    .with(RoCompat::DIR_NLINK)
    .with(RoCompat::EXTRA_ISIZE)
    .with(RoCompat::METADATA_CSUM)
    .with(RoCompat::PROJECT)
    .with(RoCompat::VERITY)
    .with(RoCompat::ORPHAN_PRESENT);

/// Incompatible features that Linux refuses on volumes of the Hurd.
const HURD_INCOMPAT: Incompat = Incompat::BIT64.with(Incompat::EA_INODE);

/// Compatible features that forbid changes by a program that does not know them.
const COMPAT_READ: Compat =
    Compat::LAZY_BG.with(Compat::EXCLUDE_INODE).with(Compat::EXCLUDE_BITMAP);

/// Whether an image may be opened; `Some` says why it can only be read.
///
/// # Errors
/// [`Error::Unsupported`] that names the features.
pub(super) fn check(features: &Features, creator_os: u32) -> Result<Option<String>> {
    if features.has(Incompat::JOURNAL_DEV) {
        return Err(Error::unsupported("this is an external journal, not a file system"));
    }
    let unknown = features.incompat.without(INCOMPAT).without(INCOMPAT_READ);
    if !unknown.is_empty() {
        return Err(Error::unsupported(format!("feature {unknown}")));
    }
    let metadata = RoCompat::METADATA_CSUM.with(RoCompat::GDT_CSUM);
    if features.ro_compat.contains(metadata) {
        return Err(Error::unsupported("features metadata_csum and uninit_bg together"));
    }
    let mut names: Vec<String> = Vec::new();
    for word in [
        features.incompat.without(INCOMPAT).to_string(),
        features.ro_compat.without(RO_COMPAT).to_string(),
        Compat::from_bits(features.compat.bits() & COMPAT_READ.bits()).to_string(),
    ] {
        if !word.is_empty() {
            names.push(word);
        }
    }
    let mut reason = format!("feature {} can only be read", names.join(" "));
    if features.has(Incompat::CASEFOLD) {
        reason.push_str("; names are compared exactly, in directories that ignore case too");
    }
    Ok((!names.is_empty()).then_some(reason).or_else(|| hurd(features, creator_os)))
}

/// Why a volume of the Hurd can only be read, if it can only be read: the features need fields of
/// inodes that the Hurd uses for other data.
fn hurd(features: &Features, creator_os: u32) -> Option<String> {
    let (incompat, sums) = (features.incompat, RoCompat::METADATA_CSUM.bits());
    let clash = Features {
        compat: Compat::EMPTY,
        incompat: Incompat::from_bits(incompat.bits() & HURD_INCOMPAT.bits()),
        ro_compat: RoCompat::from_bits(features.ro_compat.bits() & sums),
    };
    let some = creator_os == creator::HURD && clash != Features::EMPTY;
    some.then(|| format!("feature {clash} can only be read on a volume of the Hurd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(list: &str) -> Features {
        let mut features = Features::EMPTY;
        features.apply(list).unwrap();
        features
    }

    #[test]
    fn defaults_are_written() {
        let list = "has_journal,ext_attr,resize_inode,dir_index,orphan_file,filetype,extent,64bit,\
            flex_bg,encrypt,metadata_csum_seed,sparse_super,large_file,huge_file,dir_nlink,\
            extra_isize,metadata_csum";
        assert_eq!(check(&features(list), creator::LINUX).unwrap(), None);
        assert_eq!(check(&features(""), creator::LINUX).unwrap(), None);
    }

    #[test]
    fn features_whose_fields_the_hurd_uses_are_read_only() {
        let hurd = |list| check(&features(list), creator::HURD).unwrap();
        assert_eq!(hurd("ext_attr,has_journal,extent,huge_file,flex_bg"), None);
        for list in ["64bit", "metadata_csum"] {
            let reason = format!("feature {list} can only be read on a volume of the Hurd");
            assert_eq!(hurd(list), Some(reason));
            assert_eq!(check(&features(list), creator::FREEBSD).unwrap(), None);
        }
        assert!(hurd("ea_inode").is_some());
    }

    #[test]
    fn the_rest_is_named() {
        let refused = check(&features("filetype,compression"), creator::LINUX).unwrap_err();
        assert_eq!(refused.to_string(), "not supported: feature compression");
        let reason =
            check(&features("filetype,inline_data,bigalloc"), creator::LINUX).unwrap().unwrap();
        assert_eq!(reason, "feature inline_data bigalloc can only be read");
        let folding = check(&features("filetype,casefold"), creator::LINUX).unwrap().unwrap();
        assert!(folding.starts_with("feature casefold can only be read; names are compared"));
        assert!(check(&features("FEATURE_I31"), creator::LINUX).is_err());
    }
}
