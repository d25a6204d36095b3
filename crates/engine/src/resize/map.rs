//! Reads the block map of a file.

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::extent::{self, Expected, Extent, Node};
use nextent_ondisk::inode::{Inode, flags};
use nextent_ondisk::{BlockNo, Corrupt, FileBlock, InodeNo, Structure, indirect};

use super::volume::Volume;
use crate::error::Result;

/// A file's block map.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The file's extents, in order.
    pub(super) extents: Vec<Extent>,
    /// Blocks of the map itself.
    pub(super) nodes: Vec<BlockNo>,
    /// Blocks of all extents.
    blocks: u64,
}

impl Tree {
    /// Adds a node. No map has more nodes than the volume has blocks.
    fn add_node(&mut self, blocks: u64, kind: Structure, node: BlockNo) -> Result<()> {
        if to_u64(self.nodes.len()) >= blocks {
            return Err(Corrupt::field(kind, "nodes", blocks).into());
        }
        self.nodes.push(node);
        Ok(())
    }

    /// Counts blocks of the file. No file has more than the volume.
    fn add_blocks(&mut self, blocks: u64, kind: Structure, len: u64) -> Result<()> {
        self.blocks += len;
        if self.blocks > blocks {
            return Err(Corrupt::field(kind, "blocks", self.blocks).into());
        }
        Ok(())
    }
}

impl Volume {
    /// Reads the map of an inode that [has one](crate::inode::object::has_map).
    pub(super) fn read_map(&self, ino: InodeNo, inode: &Inode) -> Result<Tree> {
        let mut tree = Tree::default();
        if inode.has_flag(flags::EXTENTS) {
            let seed = inode.csum_seed(&self.geo, ino);
            self.read_extents(seed, &inode.block, &Expected::ROOT, &mut tree)?;
            return Ok(tree);
        }
        let per_block = u64::from(self.geo.block_size / 4);
        let (mut at, mut reach) = (0, 1);
        for slot in 0..indirect::count(&inode.block) {
            let level = slot.saturating_sub(to_usize(indirect::DIRECT) - 1);
            if level > 0 {
                reach *= per_block;
            }
            let block = indirect::pointer(&inode.block, slot);
            self.read_pointer(ino, (block, at), (level, reach), &mut tree)?;
            at += reach;
        }
        Ok(tree)
    }

    /// Collects the extents and nodes below a node.
    fn read_extents(
        &self,
        seed: u32,
        bytes: &[u8],
        expected: &Expected,
        tree: &mut Tree,
    ) -> Result<()> {
        extent::check(&self.geo, bytes, expected)?;
        let node = Node::new(bytes)?;
        if node.depth() == 0 {
            let len = node.extents().map(|run| u64::from(run.len)).sum();
            tree.add_blocks(self.geo.blocks_count, Structure::ExtentNode, len)?;
            tree.extents.extend(node.extents());
            return Ok(());
        }
        for at in 0..node.len() {
            let index = node.index(at);
            let end = match at + 1 < node.len() {
                true => u64::from(node.key(at + 1).0),
                false => expected.range.end,
            };
            tree.add_node(self.geo.blocks_count, Structure::ExtentNode, index.child)?;
            let child = self.block(index.child)?;
            if self.geo.features.metadata_csum() {
                extent::verify(seed, &child)?;
            }
            let range = u64::from(index.block.0)..end;
            let expected = Expected { depth: Some(node.depth() - 1), range };
            self.read_extents(seed, &child, &expected, tree)?;
        }
        Ok(())
    }

    /// Collects the blocks below a pointer for `reach` blocks of the file from `at` on, `level`
    /// levels above them.
    fn read_pointer(
        &self,
        ino: InodeNo,
        (block, at): (BlockNo, u64),
        (level, reach): (usize, u64),
        tree: &mut Tree,
    ) -> Result<()> {
        if block.0 == 0 {
            return Ok(());
        }
        if !self.geo.holds_run(block, 1) || at >= extent::END_OF_FILE_BLOCKS {
            let error = Corrupt::field(Structure::IndirectBlock, "block pointer", block.0);
            return Err(error.at_inode(ino).into());
        }
        if level == 0 {
            tree.add_blocks(self.geo.blocks_count, Structure::IndirectBlock, 1)?;
            let new =
                Extent { block: FileBlock(must_fit(at)), len: 1, start: block, unwritten: false };
            add_extent(&mut tree.extents, new);
            return Ok(());
        }
        tree.add_node(self.geo.blocks_count, Structure::IndirectBlock, block)?;
        let bytes = self.block(block)?;
        let reach = reach / u64::from(self.geo.block_size / 4);
        for slot in 0..indirect::count(&bytes) {
            let at = at + to_u64(slot) * reach;
            let pointer = indirect::pointer(&bytes, slot);
            self.read_pointer(ino, (pointer, at), (level - 1, reach), tree)?;
        }
        Ok(())
    }
}

/// Adds an extent, or makes the last one longer.
pub(super) fn add_extent(extents: &mut Vec<Extent>, new: Extent) {
    if let Some(last) = extents.last_mut()
        && last.unwritten == new.unwritten
        && last.end() == u64::from(new.block.0)
        && last.start.0 + u64::from(last.len) == new.start.0
        && last.len + new.len <= Extent::max_len(new.unwritten)
    {
        last.len += new.len;
        return;
    }
    extents.push(new);
}
