//! Moves the blocks of files out of the blocks that the new layout needs.
//!
//! A run is copied to a free place, and the map names that place in the next commit. That holds for
//! the blocks of directories, too: no commit before has changed them. So a directory of any size
//! moves in one commit.

use std::ops::Range;

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::extent::{self, Extent, Index, NodeMut, ROOT_ENTRIES};
use nextent_ondisk::inode::{self as format, BLOCK_AREA, Inode, flags};
use nextent_ondisk::{
    BlockNo, Compat, Corrupt, FileBlock, Incompat, InodeNo, RoCompat, Structure, indirect, numbers,
    orphan, xattr,
};
use nextent_sync::HashMap;

use super::map::add_extent;
use super::volume::Volume;
use crate::error::{Error, Result};
use crate::inode::object::has_map;

/// Attribute blocks that moved. Several inodes may share one, and move from it one at a time: the
/// old block stays until the last has moved.
#[derive(Debug, Default)]
pub(super) struct MovedAttributes(HashMap<BlockNo, BlockNo>);

/// One inode whose blocks move.
struct File {
    ino: InodeNo,
    inode: Inode,
    /// Blocks carry their own number in their checksum: the orphan file's.
    numbered: bool,
    /// No block that the file has may be written, since the log is in use until the inode changes.
    fresh_nodes: bool,
    /// Blocks that the map gained and lost.
    added: u64,
    removed: u64,
    /// Pointers that were followed.
    visited: u64,
}

impl Volume {
    /// Moves the blocks of one inode, unless it is one that the format gives another meaning.
    pub(super) fn move_blocks(
        &mut self,
        ino: InodeNo,
        attributes: &mut MovedAttributes,
    ) -> Result<()> {
        let journal = InodeNo(self.sb.journal_inum.get());
        if ino == numbers::BAD_BLOCKS_INO || (self.journal.is_some() && ino == journal) {
            return Ok(());
        }
        if ino == numbers::RESIZE_INO {
            return self.move_resize_inode();
        }
        let (inode, mut raw) = self.inode(ino)?;
        let before = raw.clone();
        let mut file = self.file(ino, inode);
        self.move_attributes(&mut file, attributes)?;
        self.move_translator(&mut raw)?;
        if has_map(&file.inode) {
            self.move_map(&mut file)?;
        }
        file.inode.write(&self.geo, &mut raw);
        if raw != before {
            self.put_inode(ino, &raw)?;
        }
        Ok(())
    }

    /// Moves the blocks of the journal. Returns the bytes of its inode, which the caller writes;
    /// `None` if nothing moves.
    pub(super) fn move_journal_blocks(&mut self) -> Result<Option<(Inode, Vec<u8>)>> {
        let ino = InodeNo(self.sb.journal_inum.get());
        let (inode, mut raw) = self.inode(ino)?;
        let mut file = self.file(ino, inode.clone());
        file.fresh_nodes = true;
        self.move_map(&mut file)?;
        if file.inode == inode {
            return Ok(None);
        }
        file.inode.write(&self.geo, &mut raw);
        format::seal(&self.geo, ino, &mut raw);
        Ok(Some((file.inode, raw)))
    }

    fn file(&self, ino: InodeNo, inode: Inode) -> File {
        let orphan_file =
            self.geo.features.has(Compat::ORPHAN_FILE) && ino.0 == self.sb.orphan_file_inum.get();
        File {
            ino,
            numbered: orphan_file,
            inode,
            fresh_nodes: false,
            added: 0,
            removed: 0,
            visited: 0,
        }
    }

    /// Moves the block of extended attributes.
    fn move_attributes(&mut self, file: &mut File, moved: &mut MovedAttributes) -> Result<()> {
        let block = file.inode.file_acl;
        if block.0 == 0 || !self.vacated.contains(block) {
            return Ok(());
        }
        let mut bytes = self.block(block)?;
        let sharers = xattr::in_block(&self.geo, &bytes)?.0.refcount;
        let to = match moved.0.get(&block) {
            // A trial has not kept the copy.
            Some(to) if self.trial => *to,
            Some(to) => {
                let mut copy = self.block(*to)?;
                let users = xattr::in_block(&self.geo, &copy)?.0.refcount;
                xattr::set_refcount(&mut copy, users.saturating_add(1));
                self.put_attributes(*to, copy);
                *to
            }
            None => {
                let narrow = !self.geo.features.has(Incompat::BIT64);
                let to = self.allocate_block(narrow)?;
                moved.0.insert(block, to);
                self.moved_blocks += 1;
                let mut copy = bytes.clone();
                xattr::set_refcount(&mut copy, 1);
                self.put_attributes(to, copy);
                to
            }
        };
        if sharers > 1 {
            xattr::set_refcount(&mut bytes, sharers - 1);
            self.put_attributes(block, bytes);
        } else {
            self.free(block.0..block.0 + 1)?;
        }
        file.inode.file_acl = to;
        Ok(())
    }

    /// Changes a block of attributes, with a new checksum.
    pub(super) fn put_attributes(&mut self, block: BlockNo, mut bytes: Vec<u8>) {
        if self.geo.features.metadata_csum() {
            xattr::seal(self.geo.csum_seed, block, &mut bytes);
        }
        self.put(block, bytes);
    }

    /// Refuses a volume with blocks that cannot move: bad blocks, and the block by which other
    /// nodes see that this one has the volume.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(super) fn refuse_fixed_blocks(&self) -> Result<()> {
        let (inode, _) = self.inode(numbers::BAD_BLOCKS_INO)?;
        if inode.blocks > 0 {
            return Err(Error::unsupported("moving blocks of a volume that has bad blocks"));
        }
        let mmp = self.geo.features.has(Incompat::MMP);
        if mmp && self.vacated.contains(BlockNo(self.sb.mmp_block.get())) {
            return Err(Error::unsupported("moving the block of multiple mount protection"));
        }
        Ok(())
    }

    /// Moves the block of a translator, on a volume of the Hurd.
    fn move_translator(&mut self, raw: &mut [u8]) -> Result<()> {
        let block = format::translator(&self.geo, raw);
        if block.0 == 0 || !self.vacated.contains(block) {
            return Ok(());
        }
        let to = self.allocate_block(true)?;
        self.copy(block.0, &(to.0..to.0 + 1))?;
        self.free(block.0..block.0 + 1)?;
        self.moved_blocks += 1;
        format::set_translator(&self.geo, raw, to);
        Ok(())
    }

    fn move_map(&mut self, file: &mut File) -> Result<()> {
        match file.inode.has_flag(flags::EXTENTS) {
            true => self.move_extents(file)?,
            false => self.move_pointers(file)?,
        }
        if file.added != file.removed {
            let each = u64::from(self.geo.block_size / 512);
            let sectors = file.inode.sectors(&self.geo) + file.added * each;
            if self.geo.features.has(RoCompat::QUOTA) {
                let text = "moving blocks of a fragmented file on a volume with quota";
                return Err(Error::unsupported(text));
            }
            let sectors = sectors.saturating_sub(file.removed * each);
            file.inode.set_sectors(&self.geo, sectors)?;
        }
        Ok(())
    }

    /// Copies a run of a file's blocks to free places, and frees it.
    fn move_run(&mut self, file: &File, run: &Range<u64>, copied: bool) -> Result<Vec<Range<u64>>> {
        let mut places = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let narrow = !file.inode.has_flag(flags::EXTENTS);
            let to = match narrow {
                true => self.allocate_block(true).map(|block| block.0..block.0 + 1)?,
                false => self.allocate(run.end - at)?,
            };
            let len = to.end - to.start;
            if file.numbered && self.geo.features.metadata_csum() {
                for offset in 0..len {
                    let mut bytes = self.block(BlockNo(at + offset))?;
                    let block = BlockNo(to.start + offset);
                    orphan::seal(file.inode.csum_seed(&self.geo, file.ino), block, &mut bytes);
                    self.put(block, bytes);
                }
            } else if copied {
                self.copy(at, &to)?;
            }
            at += len;
            places.push(to);
        }
        self.moved_blocks += run.end - run.start;
        self.free(run.clone())?;
        Ok(places)
    }

    fn move_extents(&mut self, file: &mut File) -> Result<()> {
        let tree = self.read_map(file.ino, &file.inode)?;
        let touched = |volume: &Self| {
            let runs =
                tree.extents.iter().any(|run| volume.vacated.touches(run.start, run.len.into()));
            runs || tree.nodes.iter().any(|node| volume.vacated.contains(*node))
        };
        if !touched(self) {
            return Ok(());
        }
        let mut extents = Vec::with_capacity(tree.extents.len());
        for extent in &tree.extents {
            let mut block = extent.block.0;
            let run = extent.start.0..extent.start.0 + u64::from(extent.len);
            for (part, moves) in self.vacated.split(run) {
                let places = match moves {
                    true => self.move_run(file, &part, !extent.unwritten)?,
                    false => vec![part],
                };
                for place in places {
                    let len = must_fit(place.end - place.start);
                    add_extent(
                        &mut extents,
                        Extent {
                            block: FileBlock(block),
                            len,
                            start: BlockNo(place.start),
                            unwritten: extent.unwritten,
                        },
                    );
                    block += len;
                }
            }
        }
        self.build_tree(file, &extents, &tree.nodes)
    }

    /// Builds the tree of `extents`. Uses the old nodes that stay.
    fn build_tree(&mut self, file: &mut File, extents: &[Extent], old: &[BlockNo]) -> Result<()> {
        let (mut stay, mut leave): (Vec<_>, Vec<_>) =
            old.iter().partition(|node| !file.fresh_nodes && !self.vacated.contains(**node));
        stay.reverse();
        let per_node = usize::from(extent::capacity(self.geo.block_len() - 4));
        let mut level: Vec<Index> = Vec::new();
        let mut depth = 0;
        if extents.len() > usize::from(ROOT_ENTRIES) {
            for part in extents.chunks(per_node) {
                let child = self.add_node(file, &mut stay, 0, |node| {
                    part.iter().enumerate().for_each(|(at, run)| node.insert_extent(at, *run));
                })?;
                level.push(Index { block: part[0].block, child });
            }
            depth = 1;
        }
        while level.len() > usize::from(ROOT_ENTRIES) {
            let mut above = Vec::new();
            for part in level.chunks(per_node) {
                let child = self.add_node(file, &mut stay, depth, |node| {
                    part.iter().enumerate().for_each(|(at, index)| node.insert_index(at, *index));
                })?;
                above.push(Index { block: part[0].block, child });
            }
            (level, depth) = (above, depth + 1);
        }
        let mut root = [0; BLOCK_AREA];
        let mut node = NodeMut::init(&mut root, depth);
        match depth {
            0 => extents.iter().enumerate().for_each(|(at, run)| node.insert_extent(at, *run)),
            _ => level.iter().enumerate().for_each(|(at, index)| node.insert_index(at, *index)),
        }
        file.inode.block = root;
        leave.append(&mut stay);
        file.removed += to_u64(leave.len());
        leave.into_iter().try_for_each(|node| self.free(node.0..node.0 + 1))
    }

    fn add_node(
        &mut self,
        file: &mut File,
        stay: &mut Vec<BlockNo>,
        depth: u16,
        fill: impl FnOnce(&mut NodeMut<'_>),
    ) -> Result<BlockNo> {
        let block = match stay.pop() {
            Some(block) => block,
            None => {
                file.added += 1;
                self.allocate_block(false)?
            }
        };
        let mut bytes = vec![0; self.geo.block_len()];
        fill(&mut NodeMut::init(&mut bytes, depth));
        if self.geo.features.metadata_csum() {
            extent::seal(file.inode.csum_seed(&self.geo, file.ino), block, &mut bytes);
        }
        self.put(block, bytes);
        Ok(block)
    }

    /// Moves blocks in place of which pointers name others; the tree keeps its form.
    fn move_pointers(&mut self, file: &mut File) -> Result<()> {
        let mut root = file.inode.block;
        for slot in 0..indirect::count(&root) {
            let level = slot.saturating_sub(to_usize(indirect::DIRECT) - 1);
            let block = indirect::pointer(&root, slot);
            if block.0 != 0 {
                let to = self.move_pointer(file, block, level)?;
                indirect::set_pointer(&mut root, slot, to);
            }
        }
        file.inode.block = root;
        Ok(())
    }

    /// Moves the tree below a pointer, `level` levels above the file's blocks. Returns the pointer.
    fn move_pointer(&mut self, file: &mut File, block: BlockNo, level: usize) -> Result<BlockNo> {
        file.visited += 1;
        // No map leads to more blocks than the volume has.
        if !self.geo.holds_run(block, 1) || file.visited > self.geo.blocks_count {
            let error = Corrupt::field(Structure::IndirectBlock, "block pointer", block.0);
            return Err(error.at_inode(file.ino).into());
        }
        let leaves = self.vacated.contains(block);
        if level == 0 {
            if !leaves {
                return Ok(block);
            }
            let places = self.move_run(file, &(block.0..block.0 + 1), true)?;
            return Ok(places.first().map_or(block, |place| BlockNo(place.start)));
        }
        let before = self.block(block)?;
        let mut bytes = before.clone();
        for slot in 0..indirect::count(&bytes) {
            let pointer = indirect::pointer(&bytes, slot);
            if pointer.0 != 0 {
                let to = self.move_pointer(file, pointer, level - 1)?;
                indirect::set_pointer(&mut bytes, slot, to);
            }
        }
        if leaves || (file.fresh_nodes && bytes != before) {
            let to = self.allocate_block(true)?;
            self.free(block.0..block.0 + 1)?;
            self.moved_blocks += 1;
            self.put(to, bytes);
            return Ok(to);
        }
        if bytes != before {
            self.put(block, bytes);
        }
        Ok(block)
    }
}
