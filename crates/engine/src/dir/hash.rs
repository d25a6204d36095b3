//! The hash of a name: which function, and the order of names it gives.

use super::layout::DirInfo;

/// The hash of a name; bit 0 of `major` is clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameHash {
    pub(super) major: u32,
    /// Orders names of one `major`; nothing on disk depends on it.
    pub(super) tie: u32,
}

/// The hash function of one directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    version: u8,
    seed: [u32; 4],
}
impl Hasher {
    pub(super) fn of_index(info: &DirInfo, version: u8) -> Option<Self> {
        let index = info.index?;
        let version = if version <= 2 && index.unsigned { version + 3 } else { version };
        (version <= 5).then_some(Self { version, seed: index.seed })
    }
    /// The function for a new index; none without feature `dir_index`.
    pub(super) fn of_new(info: &DirInfo) -> Option<Self> {
        Self::of_index(info, info.index?.version)
    }
    pub(super) fn disk_version(&self) -> u8 {
        self.version % 3
    }
    pub(super) fn hash(&self, name: &[u8]) -> NameHash {
        let major =
            nextent_ondisk::checksum::csum(self.seed[0] ^ u32::from(self.version), name) & !1;
        #[cfg(test)]
        let major = if self.seed == super::tests::COLLIDE { major & 0xc0 } else { major };
        NameHash { major, tie: nextent_ondisk::checksum::csum(!0, name) }
    }
}
