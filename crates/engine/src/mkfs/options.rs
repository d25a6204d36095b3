//! The options of mke2fs as typed values.
//!
//! Nothing is derived or checked here: [`super::plan`] does that, so that all front ends have the
//! same rules and messages.

use nextent_ondisk::superblock::mount_opts;
use uuid::Uuid;

use super::fit::Fitted;

/// The family of features to start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FsType {
    /// No journal, block maps.
    Ext2,
    /// A journal, block maps.
    Ext3,
    /// A journal, extents, checksums, flexible groups.
    #[default]
    Ext4,
}

/// How the volume will be used: sets the defaults of block size and inode count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// By size: floppy below 3 MiB, small below 512 MiB, big from 4 TiB, huge from 16 TiB.
    Default,
    /// Blocks of 1 KiB, an inode for each 8 KiB.
    Floppy,
    /// Blocks of 1 KiB, an inode for each 4 KiB.
    Small,
    /// An inode for each 32 KiB.
    Big,
    /// An inode for each 64 KiB.
    Huge,
    /// An inode for each 4 KiB.
    News,
    /// An inode for each MiB.
    LargeFile,
    /// An inode for each 4 MiB.
    LargeFile4,
    /// Blocks of 4 KiB and inodes of 128 bytes.
    Hurd,
}

/// The operating system that the superblock names as the creator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreatorOs {
    /// Linux.
    #[default]
    Linux,
    /// GNU Hurd, which has no file types in directories.
    Hurd,
    /// Masix.
    Masix,
    /// FreeBSD.
    FreeBsd,
    /// Lites.
    Lites,
}

/// What a kernel that mounts the volume does when it finds an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Continues.
    #[default]
    Continue,
    /// Allows reading only.
    ReadOnly,
    /// Stops the machine.
    Panic,
}

/// The function that hashes names in indexed directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameHash {
    /// The first function.
    Legacy,
    /// Half MD4.
    #[default]
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
}

/// The journal. A volume has one if its features say so or if `size` is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalOptions {
    /// Size in bytes; `None` chooses it by the size of the volume.
    pub size: Option<u64>,
    /// Bytes of the fast-commit area; `None` for a 64th of the journal.
    pub fast_commit_size: Option<u64>,
    /// The block at which the search for space starts; `None` for the middle of the volume. Only
    /// for journals that are mapped by extents.
    pub location: Option<u64>,
}

/// A user and a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The `-E` options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtendedOptions {
    /// Blocks that go to one disk of an array before the next disk follows.
    pub stride: u32,
    /// Blocks of a whole stripe of an array.
    pub stripe_width: u32,
    /// Blocks to which the volume can grow while mounted.
    pub resize: Option<u64>,
    /// Leaves zeroing the inode tables to the kernel; `None` does so where checksums make it safe.
    pub lazy_itable_init: Option<bool>,
    /// Does not zero the journal.
    pub lazy_journal_init: bool,
    /// Seed of directory hashes; random if `None`.
    pub hash_seed: Option<Uuid>,
    /// User and group of the root directory.
    pub root_owner: Owner,
    /// Permission bits of the root directory.
    pub root_mode: u16,
    /// Discards the device first.
    pub discard: bool,
    /// The device reads as zeros already.
    pub prezeroed: bool,
    /// Backups with `sparse_super2`, 0 to 2.
    pub backup_supers: u8,
    /// All bitmaps and inode tables at the volume's start.
    pub packed_meta_blocks: bool,
    /// Bytes of the orphan file; `None` chooses them by the size of the volume.
    pub orphan_file_size: Option<u64>,
    /// Seconds between heartbeats with `mmp`, at most 300. `None` or 0: 5.
    pub mmp_update_interval: Option<u16>,
    /// Marks the volume as one for tests of file systems under development.
    pub test_fs: bool,
    /// Bytes of a group descriptor with `64bit`: 64 to 1024.
    pub desc_size: Option<u16>,
}

impl Default for ExtendedOptions {
    fn default() -> Self {
        Self {
            stride: 0,
            stripe_width: 0,
            resize: None,
            lazy_itable_init: None,
            lazy_journal_init: false,
            hash_seed: None,
            root_owner: Owner::default(),
            root_mode: 0o755,
            discard: true,
            prezeroed: false,
            backup_supers: 2,
            packed_meta_blocks: false,
            orphan_file_size: None,
            mmp_update_interval: None,
            test_fs: false,
            desc_size: None,
        }
    }
}

/// All options. `Default` is ext4 with mke2fs's default features on the whole device.
///
/// ```
/// use nextent::mkfs::MkfsOptions;
///
/// let mut options = MkfsOptions::default();
/// options.label = "root".into();
/// options.extended.root_owner.uid = 1000;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MkfsOptions {
    /// Bytes of the device that the volume uses; all if `None`.
    pub size: Option<u64>,
    /// The family of features.
    pub fs_type: FsType,
    /// The usage, applied in order; `[Usage::Default]` when empty.
    pub usage: Vec<Usage>,
    /// Bytes of a block.
    pub block_size: Option<u32>,
    /// Bytes of an inode.
    pub inode_size: Option<u32>,
    /// Bytes of the volume for each inode.
    pub bytes_per_inode: Option<u64>,
    /// The number of inodes.
    pub inode_count: Option<u64>,
    /// Blocks of a group.
    pub blocks_per_group: Option<u32>,
    /// Groups whose metadata lies together.
    pub flex_groups: Option<u32>,
    /// Makes a journal even if the family has none.
    pub force_journal: bool,
    /// Size and place of the journal.
    pub journal: JournalOptions,
    /// Changes to the features of the family, in the syntax of mke2fs's `-O`.
    pub features: String,
    /// The `-E` options.
    pub extended: ExtendedOptions,
    /// The label, cut to 16 bytes.
    pub label: String,
    /// The directory of the last mount.
    pub last_mounted: String,
    /// Percent of the blocks that only root may use, 0 to 50.
    pub reserved_percent: f64,
    /// The creator.
    pub creator_os: CreatorOs,
    /// The UUID of the volume; random if `None`.
    pub uuid: Option<Uuid>,
    /// Makes the first revision of the format, without any feature.
    pub revision_0: bool,
    /// What a kernel does about errors.
    pub on_error: OnError,
    /// Mount options that are in effect by default: bits of [`mount_opts`].
    ///
    /// [`mount_opts`]: nextent_ondisk::superblock::mount_opts
    pub default_mount_options: u32,
    /// The function that hashes names.
    pub name_hash: NameHash,
    /// Whether e2fsck checks the volume after 20 to 39 mounts and after 180 days.
    pub periodic_checks: bool,
    /// The time of all timestamps, in seconds since 1970; the present time if `None`.
    pub clock: Option<u64>,
    /// The size follows from the contents.
    pub(crate) fitted: Option<Fitted>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            size: None,
            fs_type: FsType::Ext4,
            usage: Vec::new(),
            block_size: None,
            inode_size: None,
            bytes_per_inode: None,
            inode_count: None,
            blocks_per_group: None,
            flex_groups: None,
            force_journal: false,
            journal: JournalOptions::default(),
            features: String::new(),
            extended: ExtendedOptions::default(),
            label: String::new(),
            last_mounted: String::new(),
            reserved_percent: 5.0,
            creator_os: CreatorOs::Linux,
            uuid: None,
            revision_0: false,
            on_error: OnError::Continue,
            default_mount_options: mount_opts::XATTR_USER | mount_opts::ACL,
            name_hash: NameHash::HalfMd4,
            periodic_checks: false,
            clock: None,
            fitted: None,
        }
    }
}
