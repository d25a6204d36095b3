//! The 60 bytes of an inode where its map begins.

use super::extents;
use nextent_ondisk::{Corrupt, Geometry, InodeNo};

/// Size of a root.
pub(crate) const ROOT_BYTES: usize = 60;

/// The two kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// A tree of extents (the inode has the flag for it).
    Extents,
    /// Twelve direct blocks and three of rising indirection.
    Indirect,
}

/// The root of a map, as it lies in the inode, and the change in the number of
/// blocks that the file owns since the caller last took it.
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

    /// The root found in the inode `ino`.
    ///
    /// # Errors
    /// A root that breaks a rule of the format.
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

    /// A root of any bytes, to test what verbs make of it.
    #[cfg(test)]
    pub(crate) fn unchecked(kind: MapKind, bytes: &[u8]) -> Self {
        let bytes = bytes.try_into().expect("a root's length");
        Self { bytes, kind, change: 0 }
    }

    /// The bytes for the inode.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8; ROOT_BYTES] {
        &self.bytes
    }

    /// Extents or indirect.
    #[must_use]
    pub(crate) fn kind(&self) -> MapKind {
        self.kind
    }

    /// Levels below the root at most: what credits depend on.
    #[must_use]
    pub(crate) fn depth(&self) -> u32 {
        match self.kind {
            MapKind::Extents => extents::root_depth(&self.bytes),
            MapKind::Indirect => 3,
        }
    }

    /// The change, in blocks, of what the file owns (data and nodes) since the
    /// last call. To be added to the inode's block count after every verb that
    /// changes the map, also after one that failed.
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
