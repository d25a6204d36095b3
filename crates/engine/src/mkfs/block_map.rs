//! Block maps of the files of a new volume: extents, or the older pointers.
//!
//! A map is made whole, from the ranges of the file that have data, so each node is rendered once.

use std::ops::Range;

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::extent::{self, Extent, Index, MAX_WRITTEN_LEN, NodeMut, ROOT_ENTRIES};
use nextent_ondisk::indirect;
use nextent_ondisk::inode::{self, BLOCK_AREA, flags};
use nextent_ondisk::{BlockNo, FileBlock, Incompat, Inode, InodeNo};

use super::error::MkfsError;
use super::room::{Room, What};

/// Adds a block to a list of extents, each as long as an extent may be.
fn add(extents: &mut Vec<Extent>, block: u32, start: u64, len: u32) {
    if let Some(last) = extents.last_mut()
        && last.end() == u64::from(block)
        && last.start.0 + u64::from(last.len) == start
        && last.len + len <= MAX_WRITTEN_LEN
    {
        last.len += len;
        return;
    }
    let (block, start) = (FileBlock(block), BlockNo(start));
    extents.push(Extent { block, len, start, unwritten: false });
}

impl Room<'_> {
    /// Takes blocks from `goal` on for the ranges of the file's blocks, which rise and do not
    /// touch, maps them in `inode`, stores their count and returns where they are. The first are
    /// those in `have`, which were taken before.
    ///
    /// # Errors
    ///
    /// Too little space, or more ranges than a map can hold.
    pub(super) fn give_blocks(
        &mut self,
        ino: InodeNo,
        inode: &mut Inode,
        goal: u64,
        ranges: &[Range<u32>],
        have: &[BlockNo],
    ) -> Result<Vec<Extent>, MkfsError> {
        let (extents, nodes) = if self.geometry.features.has(Incompat::EXTENTS) {
            let extents = self.take_extents(ino, goal, ranges, have)?;
            let nodes = self.map_extents(ino, inode, &extents)?;
            (extents, nodes)
        } else {
            self.map_pointers(ino, inode, goal, (ranges, have))?
        };
        let data: u64 = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
        self.set_blocks(inode, data + nodes)?;
        Ok(extents)
    }

    fn take_extents(
        &mut self,
        ino: InodeNo,
        mut goal: u64,
        ranges: &[Range<u32>],
        have: &[BlockNo],
    ) -> Result<Vec<Extent>, MkfsError> {
        let mut extents = Vec::with_capacity(ranges.len());
        let mut have = have.iter();
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                if let Some(block) = have.next() {
                    add(&mut extents, at, block.0, 1);
                    at += 1;
                    continue;
                }
                let most = (range.end - at).min(MAX_WRITTEN_LEN);
                let run = self.take_run(goal, u64::from(most), What::File(ino))?;
                add(&mut extents, at, run.start, must_fit(run.len));
                at += must_fit::<u32, _>(run.len);
                goal = run.end();
            }
        }
        Ok(extents)
    }

    /// Builds the extent tree; returns the blocks its nodes take.
    fn map_extents(
        &mut self,
        ino: InodeNo,
        inode: &mut Inode,
        extents: &[Extent],
    ) -> Result<u64, MkfsError> {
        let mut root = [0; BLOCK_AREA];
        inode.flags |= flags::EXTENTS;
        if extents.len() <= usize::from(ROOT_ENTRIES) {
            let mut node = NodeMut::init(&mut root, 0);
            for (at, extent) in extents.iter().enumerate() {
                node.insert_extent(at, *extent);
            }
            inode.block = root;
            return Ok(0);
        }
        let seed = inode::csum_seed(self.geometry, ino, inode.generation);
        let room = usize::from(extent::capacity(self.geometry.block_len() - 4));
        // The block before the data, if free, keeps the data itself in one piece.
        let goal = extents[0].start.0.saturating_sub(1);
        let mut level = Vec::new();
        for part in extents.chunks(room) {
            let fill = |node: &mut NodeMut<'_>| {
                part.iter().enumerate().for_each(|(at, extent)| node.insert_extent(at, *extent));
            };
            level.push(self.add_node(seed, goal, (part[0].block, 0), fill)?);
        }
        let (mut depth, mut nodes) = (1, level.len());
        while level.len() > usize::from(ROOT_ENTRIES) {
            let mut above = Vec::new();
            for part in level.chunks(room) {
                let fill = |node: &mut NodeMut<'_>| {
                    part.iter().enumerate().for_each(|(at, index)| node.insert_index(at, *index));
                };
                above.push(self.add_node(seed, goal, (part[0].block, depth), fill)?);
            }
            (level, depth, nodes) = (above, depth + 1, nodes + level.len().div_ceil(room));
        }
        let mut node = NodeMut::init(&mut root, depth);
        level.iter().enumerate().for_each(|(at, index)| node.insert_index(at, *index));
        inode.block = root;
        Ok(to_u64(nodes))
    }

    /// A node of an extent tree, and its parent's entry.
    fn add_node(
        &mut self,
        seed: u32,
        goal: u64,
        (block, depth): (FileBlock, u16),
        fill: impl FnOnce(&mut NodeMut<'_>),
    ) -> Result<Index, MkfsError> {
        let child = self.take_block(goal, What::Block("an extent node"))?;
        let mut bytes = self.new_block();
        fill(&mut NodeMut::init(&mut bytes, depth));
        if self.geometry.features.metadata_csum() {
            extent::seal(seed, child, &mut bytes);
        }
        self.blocks.push((child, bytes));
        Ok(Index { block, child })
    }

    /// Takes data and pointer blocks in the order a reader meets them, so that the file and its
    /// map lie in one piece. Returns the data's places and the number of pointer blocks.
    fn map_pointers(
        &mut self,
        ino: InodeNo,
        inode: &mut Inode,
        goal: u64,
        (ranges, have): (&[Range<u32>], &[BlockNo]),
    ) -> Result<(Vec<Extent>, u64), MkfsError> {
        let (extents, nodes) = (Vec::new(), 0);
        let mut map =
            PointerMap { room: self, next: goal, ino, ranges, done: 0, have, extents, nodes };
        let mut root = [0; BLOCK_AREA];
        for at in 0..indirect::DIRECT {
            if map.wants_below(u64::from(at) + 1) {
                let block = map.data()?;
                indirect::set_pointer(&mut root, to_usize(at), block);
            }
        }
        let per_block = u64::from(map.room.geometry.block_size / 4);
        let (mut base, mut span) = (u64::from(indirect::DIRECT), per_block);
        for level in 0..3u32 {
            if map.wants_below(base + span) {
                let block = map.node(base, span)?;
                indirect::set_pointer(&mut root, indirect::SINGLE + to_usize(level), block);
            }
            base += span;
            span *= per_block;
        }
        if map.wants_below(u64::MAX) {
            return Err(MkfsError::option(format!("inode {ino} is too large for a block map")));
        }
        let (extents, nodes) = (map.extents, map.nodes);
        inode.block = root;
        Ok((extents, nodes))
    }
}

struct PointerMap<'a, 'b> {
    room: &'a mut Room<'b>,
    next: u64,
    ino: InodeNo,
    /// Ranges to map; the first `done` blocks of the first range are mapped.
    ranges: &'a [Range<u32>],
    done: u32,
    /// Blocks for data that were taken before.
    have: &'a [BlockNo],
    extents: Vec<Extent>,
    nodes: u64,
}

impl PointerMap<'_, '_> {
    /// Whether the next block of the file to map lies below `end`.
    fn wants_below(&self, end: u64) -> bool {
        self.ranges.first().is_some_and(|range| u64::from(range.start + self.done) < end)
    }

    fn take(&mut self) -> Result<BlockNo, MkfsError> {
        let block = self.room.take_block(self.next, What::File(self.ino))?;
        if block.0 > u64::from(u32::MAX) {
            return Err(MkfsError::option("block maps reach 32-bit block numbers only"));
        }
        self.next = block.0 + 1;
        Ok(block)
    }

    fn data(&mut self) -> Result<BlockNo, MkfsError> {
        let block = match self.have.split_first() {
            Some((block, rest)) => {
                self.have = rest;
                *block
            }
            None => self.take()?,
        };
        let range = &self.ranges[0];
        add(&mut self.extents, range.start + self.done, block.0, 1);
        self.done += 1;
        if range.start + self.done == range.end {
            (self.ranges, self.done) = (&self.ranges[1..], 0);
        }
        Ok(block)
    }

    /// A block of pointers that cover the `span` blocks of the file from `base`.
    fn node(&mut self, base: u64, span: u64) -> Result<BlockNo, MkfsError> {
        let this = self.take()?;
        self.nodes += 1;
        let mut bytes = self.room.new_block();
        let count = indirect::count(&bytes);
        let each = span / to_u64(count);
        for at in 0..count {
            let from = base + to_u64(at) * each;
            if !self.wants_below(base + span) {
                break;
            }
            if self.wants_below(from + each) {
                let block = if each == 1 { self.data()? } else { self.node(from, each)? };
                indirect::set_pointer(&mut bytes, at, block);
            }
        }
        self.room.blocks.push((this, bytes));
        Ok(this)
    }
}
