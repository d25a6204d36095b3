//! Block maps of the files a new volume starts with: extents, or the older pointers.

use nextent_ondisk::extent::{self, Extent, Index, MAX_WRITTEN_LEN, NodeMut, ROOT_ENTRIES};
use nextent_ondisk::indirect;
use nextent_ondisk::inode::{self, BLOCK_AREA};
use nextent_ondisk::{BlockNo, FileBlock, Inode, InodeNo};

use super::error::MkfsError;
use super::files::Files;
use super::space::Run;

/// Cuts runs into extents of the longest length there is.
fn to_extents(runs: &[Run]) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut block = 0;
    for run in runs {
        let mut start = run.start;
        while start < run.end() {
            let len = (run.end() - start).min(u64::from(MAX_WRITTEN_LEN)) as u32;
            let extent =
                Extent { block: FileBlock(block), len, start: BlockNo(start), unwritten: false };
            extents.push(extent);
            block += len;
            start += u64::from(len);
        }
    }
    extents
}

impl Files<'_> {
    /// Takes `count` blocks from `goal` for the file, maps them, and returns them.
    ///
    /// # Errors
    ///
    /// No room.
    pub(super) fn give_blocks(
        &mut self,
        ino: InodeNo,
        inode: &mut Inode,
        goal: u64,
        count: u64,
    ) -> Result<Vec<Run>, MkfsError> {
        let what = format!("inode {ino}");
        let (runs, nodes) = if self.uses_extents() {
            let runs = self.take_blocks(goal, count, &what)?;
            let nodes = self.map_extents(ino, inode, &runs)?;
            (runs, nodes)
        } else {
            self.map_pointers(inode, goal, count, &what)?
        };
        self.set_blocks(inode, count + nodes)?;
        Ok(runs)
    }

    /// Builds the extent tree; returns the blocks its nodes take.
    fn map_extents(
        &mut self,
        ino: InodeNo,
        inode: &mut Inode,
        runs: &[Run],
    ) -> Result<u64, MkfsError> {
        let extents = to_extents(runs);
        let mut root = [0; BLOCK_AREA];
        if extents.len() <= usize::from(ROOT_ENTRIES) {
            let mut node = NodeMut::init(&mut root, 0);
            for (at, extent) in extents.iter().enumerate() {
                node.insert_extent(at, *extent);
            }
            Self::set_root(inode, root, true);
            return Ok(0);
        }
        let seed = inode::csum_seed(self.geometry, ino, inode.generation);
        let leaf_entries = usize::from(extent::capacity(self.geometry.block_len() - 4));
        let leaves: Vec<&[Extent]> = extents.chunks(leaf_entries).collect();
        if leaves.len() > usize::from(ROOT_ENTRIES) {
            let text = format!("inode {ino} in {} pieces", extents.len());
            return Err(MkfsError::TooSmall(text));
        }
        let mut node = NodeMut::init(&mut root, 1);
        for (at, leaf) in leaves.iter().enumerate() {
            // The block before the data, if free, keeps the data itself in one piece.
            let goal = runs[0].start.saturating_sub(1);
            let child = self.take_block(goal, "an extent node")?;
            node.insert_index(at, Index { block: leaf[0].block, child });
            let mut bytes = self.new_block();
            let mut leaf_node = NodeMut::init(&mut bytes, 0);
            for (at, extent) in leaf.iter().enumerate() {
                leaf_node.insert_extent(at, *extent);
            }
            if self.geometry.features.metadata_csum() {
                extent::seal(seed, child, &mut bytes);
            }
            self.blocks.push((child, bytes));
        }
        Self::set_root(inode, root, true);
        Ok(leaves.len() as u64)
    }

    /// Takes data and pointer blocks in the order a reader meets them, so that the file and its
    /// map lie in one piece. Returns the data's runs and the number of pointer blocks.
    fn map_pointers(
        &mut self,
        inode: &mut Inode,
        goal: u64,
        count: u64,
        what: &str,
    ) -> Result<(Vec<Run>, u64), MkfsError> {
        let mut map = PointerMap { files: self, next: goal, what, runs: Vec::new(), nodes: 0 };
        let mut root = [0; BLOCK_AREA];
        let direct = count.min(u64::from(indirect::DIRECT));
        for at in 0..direct {
            let block = map.data()?;
            indirect::set_pointer(&mut root, at as usize, block);
        }
        let mut left = count - direct;
        for level in 0..3u32 {
            if left == 0 {
                break;
            }
            let block = map.node(level, &mut left)?;
            indirect::set_pointer(&mut root, indirect::SINGLE + level as usize, block);
        }
        if left > 0 {
            return Err(MkfsError::option(format!("{what} is too large for a block map")));
        }
        let (runs, nodes) = (map.runs, map.nodes);
        Self::set_root(inode, root, false);
        Ok((runs, nodes))
    }
}

struct PointerMap<'a, 'b, 'c> {
    files: &'a mut Files<'b>,
    next: u64,
    what: &'c str,
    runs: Vec<Run>,
    nodes: u64,
}

impl PointerMap<'_, '_, '_> {
    fn take(&mut self) -> Result<BlockNo, MkfsError> {
        let block = self.files.take_block(self.next, self.what)?;
        if block.0 > u64::from(u32::MAX) {
            return Err(MkfsError::option("block maps reach 32-bit block numbers only"));
        }
        self.next = block.0 + 1;
        Ok(block)
    }

    fn data(&mut self) -> Result<BlockNo, MkfsError> {
        let block = self.take()?;
        match self.runs.last_mut() {
            Some(run) if run.end() == block.0 => run.len += 1,
            _ => self.runs.push(Run { start: block.0, len: 1 }),
        }
        Ok(block)
    }

    /// A block of pointers to data (`level` 0) or to lower blocks of pointers.
    fn node(&mut self, level: u32, left: &mut u64) -> Result<BlockNo, MkfsError> {
        let this = self.take()?;
        self.nodes += 1;
        let mut bytes = self.files.new_block();
        for at in 0..indirect::count(&bytes) {
            if *left == 0 {
                break;
            }
            let block = if level == 0 {
                *left -= 1;
                self.data()?
            } else {
                self.node(level - 1, left)?
            };
            indirect::set_pointer(&mut bytes, at, block);
        }
        self.files.blocks.push((this, bytes));
        Ok(this)
    }
}
