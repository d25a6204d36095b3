//! Properties of the volume and of the inode on which the blocks of a directory depend.

use nextent_ondisk::htree::{HashVersion, Hasher, NameHash};
use nextent_ondisk::{Compat, Geometry, InodeNo, Superblock, checksum, superblock};

/// Facts about a directory that do not change while the volume is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirInfo<'g> {
    /// The directory's own inode.
    pub(crate) ino: InodeNo,
    /// The volume's numbers and features.
    pub(crate) geometry: &'g Geometry,
    /// The inode's checksum seed; without meaning but with feature `metadata_csum`.
    pub(crate) seed: u32,
    /// How to index, with feature `dir_index`.
    pub(crate) index: Option<IndexInfo>,
}

/// How directories of a volume are indexed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexInfo {
    /// The number of the hash for new indexes.
    pub(crate) code: u8,
    /// Whether names hash as unsigned bytes.
    pub(crate) unsigned: bool,
    /// The seed of all hashes.
    pub(crate) seed: [u32; 4],
}

impl IndexInfo {
    /// What the superblock says; `None` without feature `dir_index`.
    pub(crate) fn of(superblock: &Superblock) -> Option<Self> {
        superblock.features().has(Compat::DIR_INDEX).then(|| Self {
            code: superblock.def_hash_version,
            unsigned: superblock.flags.get() & superblock::flags::UNSIGNED_HASH != 0,
            seed: superblock.hash_seed_words(),
        })
    }
}

impl DirInfo<'_> {
    /// The hash function number `code`; none if it is unknown or needs a key of its own.
    pub(super) fn hasher(&self, code: u8) -> Option<Hasher> {
        let index = self.index?;
        let version = HashVersion::of_code(code, index.unsigned)?;
        (version != HashVersion::SipHash).then_some(Hasher { version, seed: index.seed })
    }

    /// The hash function for a new index; none if there shall be no index.
    pub(super) fn new_hasher(&self) -> Option<Hasher> {
        self.hasher(self.index?.code)
    }
}

/// The hash of a name. Where the function gives no second word, a sum of the name orders names of
/// one `major`; nothing on disk depends on it.
pub(super) fn hash(hasher: &Hasher, name: &[u8]) -> NameHash {
    let mut hash = hasher.hash(name);
    if matches!(hasher.version, HashVersion::Legacy | HashVersion::LegacyUnsigned) {
        hash.minor = checksum::csum(checksum::START, name);
    }
    #[cfg(test)]
    if hasher.seed == super::tests::COLLIDE {
        hash.major &= 0xc0;
    }
    hash
}
