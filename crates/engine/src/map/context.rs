//! The context of operations on a map.

use super::{BlockKind, BlockRequest, MapRoot, Privilege, Space};
use crate::error::{Error, Result};
use nextent_ondisk::{BlockNo, Corrupt, Geometry, InodeNo, Structure, extent};
use nextent_store::{Handle, Seal, Store};

/// The context of operations on one file's map.
#[derive(Clone, Copy)]
pub(crate) struct MapCx<'a> {
    /// Reads and changes nodes.
    pub(crate) store: &'a Store,
    /// Allocates nodes, and frees nodes and data.
    pub(crate) space: &'a dyn Space,
    /// The file.
    pub(crate) ino: InodeNo,
    /// The inode's checksum seed, if the volume has metadata checksums.
    pub(crate) csum_seed: Option<u32>,
    /// The geometry of the volume.
    pub(crate) geometry: &'a Geometry,
    /// The kind of the mapped blocks. The journal forgets freed blocks of metadata.
    pub(crate) contents: BlockKind,
    /// Whether entries that map the system zone are errors. False for maps of system files, such
    /// as the journal's.
    pub(crate) refuse_system_blocks: bool,
    /// The reserves from which nodes may be allocated.
    pub(crate) privilege: Privilege,
}

impl MapCx<'_> {
    /// The seal with which the commit fills in the checksum of an extent node.
    pub(super) fn extent_seal(&self) -> Seal {
        match self.csum_seed {
            Some(seed) => Seal { f: extent::seal, seed },
            None => Seal::NONE,
        }
    }

    /// The goal for the first node of a map: the inode's group. The goal of other nodes is after
    /// their sibling.
    pub(crate) fn node_goal(&self) -> Option<BlockNo> {
        let (group, _) = self.geometry.inode_group(self.ino).ok()?;
        Some(self.geometry.group_first_block(group))
    }

    /// Allocates a block for a node, if possible right after the node `near`.
    pub(super) fn allocate_node(
        &self,
        h: &Handle<'_>,
        root: &mut MapRoot,
        near: Option<BlockNo>,
    ) -> Result<BlockNo> {
        let goal = near.map(|no| BlockNo(no.get() + 1)).or_else(|| self.node_goal());
        let run = self.space.allocate(
            h,
            &BlockRequest {
                goal,
                want: 1,
                min: 1,
                kind: BlockKind::Metadata,
                privilege: self.privilege,
                ino: self.ino,
            },
        )?;
        root.add_change(1);
        Ok(run.start)
    }

    /// Frees the block of a node that is no longer in the tree.
    pub(super) fn free_node(&self, h: &Handle<'_>, root: &mut MapRoot, no: BlockNo) -> Result<()> {
        root.add_change(-1);
        self.space.free(h, no, 1, BlockKind::Metadata)
    }

    /// The error for a field `name` with the wrong value `value` in the node `no`; none is the
    /// root.
    pub(super) fn corrupt(
        &self,
        what: Structure,
        no: Option<BlockNo>,
        name: &'static str,
        value: u64,
    ) -> Error {
        self.place(Corrupt::field(what, name, value), no).into()
    }

    /// `corrupt` with its inode and block.
    pub(super) fn place(&self, corrupt: Corrupt, no: Option<BlockNo>) -> Corrupt {
        let corrupt = corrupt.at_inode(self.ino);
        match no {
            Some(no) => corrupt.at_block(no),
            None => corrupt,
        }
    }
}
