//! The volume that is being resized: its metadata with the changes that are not committed yet.
//!
//! Invariants:
//! - No block in use changes on the device outside of a commit (`commit`), so a crash leaves the
//!   volume as of the last commit.
//! - A block that becomes free is not allocated again before the commit that frees it.
//! - A *trial* writes nothing; it only finds out whether everything has room.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::group_desc::{self, flags};
use nextent_ondisk::inode::{self as format, Inode};
use nextent_ondisk::{
    BlockNo, Corrupt, Geometry, GroupDesc, GroupNo, InodeNo, Structure, Superblock, bitmap,
};
use nextent_sync::{Arc, HashMap};

use super::free_runs::FreeRuns;
use super::vacate::Vacated;
use crate::error::{Cause, Error, Result};
use crate::open::{Located, locate_journal};

/// The most bytes copied at once.
const CHUNK: u64 = 1 << 20;
/// Bytes that a device writes all or not at all.
const SECTOR: u64 = 512;

/// What a change leaves for after a commit.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// First block, and where the blocks go.
    pub(super) copies: Vec<(u64, Range<u64>)>,
    /// Blocks that become free.
    pub(super) frees: Vec<Range<u64>>,
}

/// The volume.
pub(super) struct Volume {
    pub(super) device: Arc<dyn BlockDevice>,
    /// The superblock with all changes.
    pub(super) sb: Superblock,
    pub(super) geo: Geometry,
    /// Every group's descriptor with all changes.
    pub(super) descs: Vec<GroupDesc>,
    /// Block bitmaps that were read, by group.
    blocks: HashMap<u32, Vec<u8>>,
    /// Inode bitmaps that were read, by group.
    inodes: HashMap<u32, Vec<u8>>,
    /// Groups whose descriptor or bitmaps changed.
    pub(super) changed: BTreeSet<u32>,
    /// Other metadata blocks that changed.
    pub(super) images: BTreeMap<BlockNo, Vec<u8>>,
    /// The log, which is empty between commits.
    pub(super) journal: Option<Located>,
    /// The blocks that a commit can log.
    pub(super) room: usize,
    /// The superblock's state before the resize.
    pub(super) state: u16,
    /// The superblock on the device asks for a check.
    pub(super) check_required: bool,
    /// Nothing is written.
    pub(super) trial: bool,
    pub(super) vacated: Vacated,
    free: FreeRuns,
    /// Blocks that are free after the next commit.
    freed: Vec<Range<u64>>,
    /// Copies and frees for later, while they are deferred.
    deferred: Option<Deferred>,
    /// The block of an inode table that was read last.
    table_block: RefCell<Option<(BlockNo, Vec<u8>)>>,
    /// In a trial: where moved tables really are, by their new start.
    tables: BTreeMap<u64, Range<u64>>,
    /// Bytes of the device that are no hole: the search for the end of data may take long.
    data: Range<u64>,
    /// Blocks that moved.
    pub(super) moved_blocks: u64,
    /// Inodes that moved.
    pub(super) moved_inodes: u64,
}

impl Volume {
    /// Reads the volume, whose log must be empty.
    pub(super) fn read(device: &Arc<dyn BlockDevice>, sb: Superblock, trial: bool) -> Result<Self> {
        let geo = sb.check(device.size())?;
        let journal = locate_journal(device, &sb, &geo)?;
        let room = match &journal {
            Some(journal) => journal.log_room(device, &geo)?,
            None => 0,
        };
        let mut volume = Self {
            device: Arc::clone(device),
            descs: Vec::with_capacity(to_usize(geo.group_count)),
            geo,
            blocks: HashMap::default(),
            inodes: HashMap::default(),
            changed: BTreeSet::new(),
            images: BTreeMap::new(),
            journal,
            room,
            state: sb.state.get(),
            check_required: false,
            sb,
            trial,
            vacated: Vacated::default(),
            free: FreeRuns::default(),
            freed: Vec::new(),
            deferred: None,
            table_block: RefCell::new(None),
            tables: BTreeMap::new(),
            data: 0..0,
            moved_blocks: 0,
            moved_inodes: 0,
        };
        volume.read_descriptors()?;
        Ok(volume)
    }

    fn read_descriptors(&mut self) -> Result<()> {
        let size = usize::from(self.geo.desc_size);
        for index in 0..self.geo.gdt_blocks() {
            let bytes = self.block(self.geo.gdt_block(index))?;
            let first = index * self.geo.descs_per_block;
            let groups = (first..self.geo.group_count).map(GroupNo);
            for (group, raw) in groups.zip(bytes.chunks_exact(size)) {
                group_desc::verify(&self.geo, group, raw)?;
                let desc = GroupDesc::read(raw)?;
                desc.check(&self.geo, group)?;
                self.descs.push(desc);
            }
        }
        Ok(())
    }

    /// Keeps everything that is allocated from now on out of `vacated`, and below `end`.
    pub(super) fn begin_moves(&mut self, vacated: Vacated, end: u64) -> Result<()> {
        self.vacated = vacated;
        for group in self.geo.groups() {
            let start = self.geo.group_first_block(group).0;
            if start >= end {
                break;
            }
            let len = self.geo.group_blocks(group);
            let bits = self.block_bitmap(group)?;
            let mut runs = Vec::new();
            let mut at = 0;
            while let Some(from) = bitmap::find_clear(bits, at, len) {
                at = bitmap::find_set(bits, from, len).unwrap_or(len);
                runs.push(start + u64::from(from)..start + u64::from(at));
            }
            runs.into_iter().for_each(|run| self.add_free(run));
        }
        Ok(())
    }

    /// Adds the parts of a free run that may be allocated.
    fn add_free(&mut self, run: Range<u64>) {
        for (part, leaves) in self.vacated.split(run) {
            if !leaves {
                self.free.add(part);
            }
        }
    }

    /// Reads a block of metadata, with its changes.
    pub(super) fn block(&self, no: BlockNo) -> Result<Vec<u8>> {
        if let Some(image) = self.images.get(&no) {
            return Ok(image.clone());
        }
        let mut bytes = vec![0; self.geo.block_len()];
        let at = self.place(no) << self.geo.block_bits;
        self.device.read_at(at, &mut bytes).map_err(|error| self.io("read", no, &error))?;
        Ok(bytes)
    }

    /// The place of a block on the device, which differs in a trial.
    fn place(&self, no: BlockNo) -> u64 {
        match self.tables.range(..=no.0).next_back() {
            Some((start, from)) if no.0 - start < from.end - from.start => {
                from.start + (no.0 - start)
            }
            _ => no.0,
        }
    }

    /// Changes a block of metadata.
    pub(super) fn put(&mut self, no: BlockNo, bytes: Vec<u8>) {
        debug_assert_eq!(bytes.len(), self.geo.block_len());
        self.table_block.take();
        self.images.insert(no, bytes);
    }

    pub(super) fn io(&self, op: &str, block: BlockNo, source: &std::io::Error) -> Error {
        Error::Io(Cause::new(format!("{op} of block {block}: {source}")))
    }

    /// Copies blocks to free blocks, which are not written by the next commit.
    pub(super) fn copy(&mut self, from: u64, to: &Range<u64>) -> Result<()> {
        if let Some(deferred) = &mut self.deferred {
            deferred.copies.push((from, to.clone()));
            return Ok(());
        }
        self.table_block.take();
        if self.trial {
            return Ok(());
        }
        let bits = self.geo.block_bits;
        let (mut done, len) = (0, (to.end - to.start) << bits);
        let (from, to) = (from << bits, to.start << bits);
        let mut buf = vec![0; to_usize(CHUNK.min(len))];
        while done < len {
            let part = &mut buf[..to_usize((len - done).min(CHUNK))];
            let (source, target) = (from + done, to + done);
            let hole = is_hole(&*self.device, source..source + to_u64(part.len()), &mut self.data);
            let failed = |op, at: u64, error| Err(self.io(op, BlockNo(at >> bits), &error));
            if hole {
                if let Err(error) = self.device.write_zeroes(target, to_u64(part.len())) {
                    return failed("write", target, error);
                }
            } else {
                if let Err(error) = self.device.read_at(source, part) {
                    return failed("read", source, error);
                }
                if let Err(error) = self.device.write_at(target, part) {
                    return failed("write", target, error);
                }
            }
            done += to_u64(part.len());
        }
        Ok(())
    }

    /// The inode's place: block and offset.
    pub(super) fn inode_place(&self, ino: InodeNo) -> Result<(BlockNo, usize)> {
        let place = self.geo.inode_location(ino)?;
        let table = self.descs[to_usize(place.group.0)].inode_table;
        Ok((BlockNo(table.0 + u64::from(place.table_block)), place.offset))
    }

    /// Writes the bytes of an inode in place, which has a checksum. An inode of up to 512 bytes
    /// lies in one sector, so a crash leaves the old one or the new one.
    pub(super) fn write_inode_in_place(&mut self, ino: InodeNo, raw: &[u8]) -> Result<()> {
        self.table_block.take();
        let (block, at) = self.inode_place(ino)?;
        if self.trial {
            let mut bytes = self.block(block)?;
            bytes[at..at + raw.len()].copy_from_slice(raw);
            self.put(block, bytes);
            return Ok(());
        }
        let start = (block.0 << self.geo.block_bits) + to_u64(at);
        let first = start / SECTOR * SECTOR;
        let end = (start + to_u64(raw.len())).next_multiple_of(SECTOR);
        let mut bytes = vec![0; to_usize(end - first)];
        let read = self.device.read_at(first, &mut bytes);
        read.map_err(|error| self.io("read", block, &error))?;
        let at = to_usize(start - first);
        bytes[at..at + raw.len()].copy_from_slice(raw);
        let written = self.device.write_at(first, &bytes);
        written.map_err(|error| self.io("write", block, &error))
    }

    /// Reads an inode and its bytes.
    pub(super) fn inode(&self, ino: InodeNo) -> Result<(Inode, Vec<u8>)> {
        let (block, at) = self.inode_place(ino)?;
        let len = usize::from(self.geo.inode_size);
        let mut last = self.table_block.borrow_mut();
        let raw = match (&*last, self.images.get(&block)) {
            (_, Some(image)) => image[at..at + len].to_vec(),
            (Some((no, bytes)), None) if *no == block => bytes[at..at + len].to_vec(),
            _ => {
                let (_, bytes) = last.insert((block, self.block(block)?));
                bytes[at..at + len].to_vec()
            }
        };
        format::verify(&self.geo, ino, &raw)?;
        Ok((Inode::read(&self.geo, &raw)?, raw))
    }

    /// Stores the bytes of an inode, with a new checksum.
    pub(super) fn put_inode(&mut self, ino: InodeNo, raw: &[u8]) -> Result<()> {
        let (block, at) = self.inode_place(ino)?;
        let mut bytes = self.block(block)?;
        let slot = &mut bytes[at..at + usize::from(self.geo.inode_size)];
        slot.copy_from_slice(raw);
        format::seal(&self.geo, ino, slot);
        self.put(block, bytes);
        Ok(())
    }

    /// The inodes in use of a group.
    pub(super) fn used_inodes(&mut self, group: GroupNo) -> Result<Vec<InodeNo>> {
        let touched = self.descs[to_usize(group.0)].inodes_touched(&self.geo);
        let geo = self.geo.clone();
        let bits = self.inode_bitmap(group)?;
        let used = (0..touched).filter(|index| bitmap::test(bits, *index));
        Ok(used.map(|index| geo.inode_at(group, index)).collect())
    }

    /// A group's block bitmap.
    pub(super) fn block_bitmap(&mut self, group: GroupNo) -> Result<&mut Vec<u8>> {
        if !self.blocks.contains_key(&group.0) {
            let desc = self.descs[to_usize(group.0)];
            let bits = if desc.has_flag(&self.geo.features, flags::BLOCK_UNINIT) {
                let mut bits = bitmap::implied(&self.geo, group, &desc);
                bits.resize(self.geo.block_len(), 0);
                bitmap::pad(&mut bits, self.geo.group_blocks(group));
                bits
            } else {
                let bits = self.block(desc.block_bitmap)?;
                bitmap::verify_block_bitmap(&self.geo, group, &desc, &bits)?;
                bits
            };
            self.blocks.insert(group.0, bits);
        }
        Ok(self.blocks.entry(group.0).or_default())
    }

    /// A group's inode bitmap.
    pub(super) fn inode_bitmap(&mut self, group: GroupNo) -> Result<&mut Vec<u8>> {
        if !self.inodes.contains_key(&group.0) {
            let desc = self.descs[to_usize(group.0)];
            let bits = if desc.has_flag(&self.geo.features, flags::INODE_UNINIT) {
                let mut bits = vec![0; self.geo.block_len()];
                bitmap::pad(&mut bits, self.geo.inodes_per_group);
                bits
            } else {
                let bits = self.block(desc.inode_bitmap)?;
                bitmap::verify_inode_bitmap(&self.geo, group, &desc, &bits)?;
                bits
            };
            self.inodes.insert(group.0, bits);
        }
        Ok(self.inodes.entry(group.0).or_default())
    }

    /// Marks blocks as in use, or as free, whatever they were; counts those that changed.
    pub(super) fn mark(&mut self, run: Range<u64>, used: bool) -> Result<()> {
        let mut at = run.start;
        while at < run.end {
            let Some((group, first)) = self.geo.locate(BlockNo(at)) else {
                let error = Corrupt::field(Structure::BlockBitmap, "block of a run", at);
                return Err(error.into());
            };
            let len: u32 =
                must_fit((run.end - at).min((self.geo.group_blocks(group) - first).into()));
            let bits = self.block_bitmap(group)?;
            let before = bitmap::count_clear(bits, u32::MAX);
            match used {
                true => bitmap::set_run(bits, first, len),
                false => bitmap::clear_run(bits, first, len),
            }
            let after = bitmap::count_clear(bits, u32::MAX);
            let desc = &mut self.descs[to_usize(group.0)];
            desc.flags &= !flags::BLOCK_UNINIT;
            desc.free_clusters = (desc.free_clusters + after).saturating_sub(before);
            self.changed.insert(group.0);
            at += u64::from(len);
        }
        Ok(())
    }

    /// Allocates up to `len` blocks in one piece.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn allocate(&mut self, len: u64) -> Result<Range<u64>> {
        let run = self.free.take(len).ok_or(Error::NoSpace)?;
        self.mark(run.clone(), true)?;
        Ok(run)
    }

    /// Allocates `len` blocks in one piece inside `within`.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn allocate_inside(&mut self, len: u64, within: &Range<u64>) -> Result<BlockNo> {
        let run = self.free.take_inside(len, within).ok_or(Error::NoSpace)?;
        self.mark(run.clone(), true)?;
        Ok(BlockNo(run.start))
    }

    /// Allocates one block with 32 bits for files that map blocks by pointers, or any block.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn allocate_block(&mut self, narrow: bool) -> Result<BlockNo> {
        match narrow {
            true => self.allocate_inside(1, &(0..1 << 32)),
            false => self.allocate(1).map(|run| BlockNo(run.start)),
        }
    }

    /// Frees blocks.
    pub(super) fn free(&mut self, run: Range<u64>) -> Result<()> {
        if let Some(deferred) = &mut self.deferred {
            deferred.frees.push(run);
            return Ok(());
        }
        for no in run.clone() {
            self.images.remove(&BlockNo(no));
        }
        self.mark(run.clone(), false)?;
        self.freed.push(run);
        Ok(())
    }

    /// Lets `change` run without its copies and frees, which are returned.
    pub(super) fn defer<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Deferred)> {
        self.deferred = Some(Deferred::default());
        let done = change(self);
        let deferred = self.deferred.take().unwrap_or_default();
        Ok((done?, deferred))
    }

    /// Notes that a table moved, so that a trial finds it.
    pub(super) fn table_moved(&mut self, from: Range<u64>, to: BlockNo) {
        if !self.trial {
            return;
        }
        for (at, no) in (to.0..).zip(from.clone()) {
            if let Some(image) = self.images.remove(&BlockNo(no)) {
                self.images.insert(BlockNo(at), image);
            }
        }
        let start = self.place(BlockNo(from.start));
        self.tables.insert(to.0, start..start + (from.end - from.start));
    }

    /// Lets blocks that a commit freed be allocated.
    pub(super) fn release_freed(&mut self) {
        for run in std::mem::take(&mut self.freed) {
            self.add_free(run);
        }
    }

    /// The bitmaps of a group that were read.
    pub(super) fn loaded(&self, group: u32) -> (Option<&Vec<u8>>, Option<&Vec<u8>>) {
        (self.blocks.get(&group), self.inodes.get(&group))
    }

    /// Forgets what belongs to groups that no longer exist.
    pub(super) fn forget_groups(&mut self, from: u32) {
        self.blocks.retain(|group, _| *group < from);
        self.inodes.retain(|group, _| *group < from);
        self.changed.retain(|group| *group < from);
        self.descs.truncate(to_usize(from));
    }
}

/// Whether bytes of the device are a hole, as far as it knows. `data` is the data found last.
fn is_hole(device: &dyn BlockDevice, part: Range<u64>, data: &mut Range<u64>) -> bool {
    if data.contains(&part.start) {
        return false;
    }
    match device.next_data(part.start) {
        Ok(Some(found)) => {
            *data = found;
            data.start >= part.end
        }
        Ok(None) => true,
        Err(_) => false,
    }
}
