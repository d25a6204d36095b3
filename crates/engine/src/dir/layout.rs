//! The constants of one directory: what the volume and the inode say about its blocks.

use nextent_ondisk::InodeNo;

/// Facts about a directory that do not change while the volume is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirInfo {
    /// The directory's own inode.
    pub(crate) ino: InodeNo,
    /// Bytes in a block: 1024 to 65536.
    pub(crate) block_size: usize,
    /// The highest inode number of the volume.
    pub(crate) inodes_count: u32,
    /// Whether entries carry a file type (feature `filetype`).
    pub(crate) filetype: bool,
    /// The inode's checksum seed, with feature `metadata_csum`.
    pub(crate) csum: Option<u32>,
    /// How to index, with feature `dir_index`.
    pub(crate) index: Option<IndexInfo>,
}

/// How directories of a volume are indexed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexInfo {
    /// The hash version for new indexes, as the superblock has it (0 to 2 or more).
    pub(crate) version: u8,
    /// Whether the superblock says that names hash as unsigned bytes.
    pub(crate) unsigned: bool,
    /// The superblock's hash seed.
    pub(crate) seed: [u32; 4],
    /// Levels of index blocks allowed: 2, or 3 with feature `largedir`.
    pub(crate) max_levels: u8,
}

/// Bytes of the false entry that ends a block and holds its checksum.
pub(super) const TAIL_SIZE: usize = 12;
/// The file type that marks it.
pub(super) const TAIL_TYPE: u8 = 0xDE;
/// Bytes of an entry before its name.
pub(super) const HEAD: usize = 8;
/// The least length of an entry.
pub(super) const MIN_ENTRY: usize = 12;

impl DirInfo {
    /// Bytes of a leaf block that entries may fill.
    pub(super) fn usable(&self) -> usize {
        self.block_size - if self.csum.is_some() { TAIL_SIZE } else { 0 }
    }
}

/// Bytes an entry with a name of `name_len` bytes needs.
pub(super) const fn entry_size(name_len: usize) -> usize {
    (HEAD + name_len + 3) & !3
}
