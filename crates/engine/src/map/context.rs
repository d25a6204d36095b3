//! What verbs need besides the root.

use super::{BlockKind, BlockRequest, MapRoot, Privilege, Space};
use crate::error::{Error, Result};
use nextent_ondisk::{BlockNo, Corrupt, Geometry, InodeNo, Structure, extent};
use nextent_store::{Handle, Seal, Store};

/// The surroundings of one file's map.
#[derive(Clone, Copy)]
pub(crate) struct MapCx<'a> {
    /// Where nodes are read and changed.
    pub(crate) store: &'a Store,
    /// Where nodes are allocated and everything is freed.
    pub(crate) space: &'a dyn Space,
    /// The file.
    pub(crate) ino: InodeNo,
    /// The inode's checksum seed, if the volume has metadata checksums.
    pub(crate) csum_seed: Option<u32>,
    /// The volume's numbers.
    pub(crate) geometry: &'a Geometry,
    /// What the mapped blocks hold: the journal forgets those that it logged when they are
    /// freed.
    pub(crate) contents: BlockKind,
    /// Whether entries that lead to the volume's own blocks are errors: not in the journal's map
    /// and its like, which are there for that.
    pub(crate) refuse_system_blocks: bool,
    /// How deep into the reserves nodes may go.
    pub(crate) privilege: Privilege,
}

impl MapCx<'_> {
    /// How the commit fills in the checksum of a node of the extent tree.
    pub(super) fn extent_seal(&self) -> Seal {
        match self.csum_seed {
            Some(seed) => Seal { f: extent::seal, seed },
            None => Seal::NONE,
        }
    }

    /// Where the first node of a map should lie: in the inode's group. Later ones follow their
    /// sibling.
    pub(crate) fn node_goal(&self) -> Option<BlockNo> {
        let (group, _) = self.geometry.inode_group(self.ino).ok()?;
        Some(self.geometry.group_first_block(group))
    }

    /// A block for a node, after the node `near` if there is one.
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

    /// Gives the block of a node that nothing points to any more back.
    pub(super) fn free_node(&self, h: &Handle<'_>, root: &mut MapRoot, no: BlockNo) -> Result<()> {
        root.add_change(-1);
        self.space.free(h, no, 1, BlockKind::Metadata)
    }

    /// The error that `name` has the value `value` in the node `no` (the root if none).
    pub(super) fn corrupt(
        &self,
        what: Structure,
        no: Option<BlockNo>,
        name: &'static str,
        value: u64,
    ) -> Error {
        self.place(Corrupt::field(what, name, value), no).into()
    }

    /// `corrupt` with its place.
    pub(super) fn place(&self, corrupt: Corrupt, no: Option<BlockNo>) -> Corrupt {
        let corrupt = corrupt.at_inode(self.ino);
        match no {
            Some(no) => corrupt.at_block(no),
            None => corrupt,
        }
    }
}
