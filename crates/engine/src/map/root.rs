//! The root of a map: 60 bytes of the inode.

use super::extents;
use nextent_ondisk::{Corrupt, Geometry, InodeNo};

/// Size of a root.
pub(crate) const ROOT_BYTES: usize = 60;

/// The kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// An extent tree. The inode has the flag `EXTENTS`.
    Extents,
    /// Twelve direct pointers, and a singly, a doubly and a triply indirect one.
    Indirect,
}

/// The root of a map in the inode's format, and the change of the file's block count that the
/// caller has not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct MapRoot {
    bytes: [u8; ROOT_BYTES],
    kind: MapKind,
    change: i64,
}

impl MapRoot {
    /// The root of an empty file.
    #[must_use]
    pub(crate) fn empty(kind: MapKind) -> Self {
        let mut bytes = [0; ROOT_BYTES];
        if kind == MapKind::Extents {
            extents::init_root(&mut bytes);
        }
        Self { bytes, kind, change: 0 }
    }

    /// The root with the bytes of the inode `ino`.
    ///
    /// # Errors
    /// A corrupt root.
    pub(crate) fn load(
        kind: MapKind,
        bytes: [u8; ROOT_BYTES],
        ino: InodeNo,
        geometry: &Geometry,
    ) -> Result<Self, Corrupt> {
        if kind == MapKind::Extents {
            extents::check_root(&bytes, geometry).map_err(|c| c.at_inode(ino))?;
        }
        Ok(Self { bytes, kind, change: 0 })
    }

    /// A root of any bytes, for tests of corrupt maps.
    #[cfg(test)]
    pub(crate) fn unchecked(kind: MapKind, bytes: &[u8]) -> Self {
        let bytes = bytes.try_into().expect("a root's length");
        Self { bytes, kind, change: 0 }
    }

    /// The bytes in the inode's format.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8; ROOT_BYTES] {
        &self.bytes
    }

    /// The kind of the map.
    #[must_use]
    pub(crate) fn kind(&self) -> MapKind {
        self.kind
    }

    /// The most levels below the root. Credits depend on it.
    #[must_use]
    pub(crate) fn depth(&self) -> u32 {
        match self.kind {
            MapKind::Extents => extents::root_depth(&self.bytes),
            MapKind::Indirect => 3,
        }
    }

    /// The change of the file's block count, data and nodes, since the last call. The caller adds
    /// it to the inode's block count after each operation that may change the map, also after an
    /// error.
    #[must_use = "the inode's block count must follow"]
    pub(crate) fn take_change(&mut self) -> i64 {
        std::mem::take(&mut self.change)
    }

    pub(super) fn add_change(&mut self, blocks: i64) {
        self.change += blocks;
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8; ROOT_BYTES] {
        &mut self.bytes
    }
}
