//! Writes a plan: clears old signatures, writes metadata in parallel, then the superblock.
//!
//! Invariant: the superblock is written last, after a flush, so an interrupted run leaves no file
//! system.

use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::group_desc::{self, flags};
use nextent_ondisk::{
    BlockNo, GroupDesc, GroupNo, Incompat, InodeNo, RoCompat, Superblock, bitmap,
};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, available_cores, try_parallel_for};

use super::error::MkfsError;
use super::plan::Plan;
use super::space::Run;
use super::super_block;
use super::tables::Tables;

/// Old signatures of other file systems and volume managers lie this close to either end.
const SIGNATURES: u64 = 64 * 1024;
/// Groups that one worker handles at a time.
const CHUNK: u32 = 1024;

/// The device, and a count of the bytes written.
#[derive(Clone)]
pub(super) struct Out<'a> {
    pub(super) device: &'a dyn BlockDevice,
    block_bits: u32,
    written: Arc<AtomicU64>,
}

impl<'a> Out<'a> {
    /// Nothing written yet, of blocks of `1 << block_bits` bytes.
    pub(super) fn new(device: &'a dyn BlockDevice, block_bits: u32) -> Self {
        Self { device, block_bits, written: Arc::new(AtomicU64::new(0)) }
    }

    /// Counts bytes that other code wrote.
    pub(super) fn count(&self, bytes: u64) {
        // Only a sum, read after all writers have finished.
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// KiB that were written. Never zero, which would mean that there is no count.
    pub(super) fn kbytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed) / 1024 + 1
    }

    pub(super) fn put(
        &self,
        what: &'static str,
        block: BlockNo,
        bytes: &[u8],
    ) -> Result<(), MkfsError> {
        self.put_at(what, block, block.0 << self.block_bits, bytes)
    }

    fn put_at(
        &self,
        what: &'static str,
        block: BlockNo,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), MkfsError> {
        self.count(to_u64(bytes.len()));
        let done = self.device.write_at(offset, bytes);
        done.map_err(|source| MkfsError::Io { what, block, source })
    }

    pub(super) fn zero(&self, what: &'static str, run: Run) -> Result<(), MkfsError> {
        let (offset, len) = (run.start << self.block_bits, run.len << self.block_bits);
        let done = self.device.write_zeroes(offset, len);
        done.map_err(|source| MkfsError::Io { what, block: BlockNo(run.start), source })
    }

    pub(super) fn flush(&self) -> Result<(), MkfsError> {
        let block = BlockNo(0);
        self.device.flush().map_err(|source| MkfsError::Io { what: "flushing", block, source })
    }
}

/// Discards the old contents of the first `blocks`; returns whether these now read as zeros. If
/// not, it overwrites both ends, where signatures of other formats lie.
pub(super) fn clear(
    out: &Out<'_>,
    blocks: u64,
    (prezeroed, discard): (bool, bool),
) -> Result<bool, MkfsError> {
    if prezeroed {
        return Ok(true);
    }
    let end = blocks << out.block_bits;
    if discard {
        // A device that cannot discard keeps what it has, which is allowed.
        let _ = out.device.discard(0, end);
    }
    let clean = match out.device.next_data(0) {
        Ok(data) => data.is_none_or(|range| range.start >= end),
        Err(_) => false,
    };
    if !clean {
        let edge = (SIGNATURES >> out.block_bits).max(1);
        let last = blocks.saturating_sub(edge);
        out.zero("wiping signatures", Run { start: 0, len: edge.min(blocks) })?;
        out.zero("wiping signatures", Run { start: last, len: blocks - last })?;
    }
    Ok(clean)
}

impl Plan {
    /// Writes the volume to the device and flushes it.
    ///
    /// # Errors
    ///
    /// An error of the device, or one that is smaller than the plan.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<(), MkfsError> {
        let out = Out::new(device, self.geometry.block_bits);
        let tables_zeroed = self.begin(&out)?;
        let mut tables = Tables::new(&self.geometry);
        self.put_inodes(&out, &mut tables, &|_| false)?;
        self.end(&out, &mut tables, tables_zeroed)
    }

    /// Clears old signatures; returns whether inode tables read as zeros.
    pub(super) fn begin(&self, out: &Out<'_>) -> Result<bool, MkfsError> {
        let bytes = self.geometry.blocks_count << self.geometry.block_bits;
        if out.device.size() < bytes {
            let have = out.device.size();
            let text = format!("the plan needs {bytes} bytes, the device has {have}");
            return Err(MkfsError::TooSmall(text));
        }
        let clean = clear(out, self.geometry.blocks_count, (self.prezeroed, self.discard))?;
        if !clean {
            self.zero_stale(out)?;
        }
        Ok(clean || !self.lazy_tables)
    }

    /// Writes everything but files' data and what `tables` have written already.
    pub(super) fn end(
        &self,
        out: &Out<'_>,
        tables: &mut Tables,
        tables_zeroed: bool,
    ) -> Result<(), MkfsError> {
        for (block, bytes) in tables.finish((&self.geometry, &self.places), self.highest_inode)? {
            out.put("writing inodes", block, &bytes)?;
        }
        for (block, bytes) in &self.blocks {
            out.put("writing a block", *block, bytes)?;
        }
        let table = self.write_groups(out, tables_zeroed)?;
        let sb = self.final_superblock(out);
        self.write_tables(out, &sb, &table)?;
        out.flush()?;
        self.write_primary(out, &sb)?;
        out.flush()
    }

    /// Zeroes tables and files that must read as zeros.
    fn zero_stale(&self, out: &Out<'_>) -> Result<(), MkfsError> {
        for run in &self.zeroed {
            out.zero("zeroing a file", *run)?;
        }
        if self.lazy_tables {
            return Ok(());
        }
        let len = u64::from(self.geometry.inode_table_blocks);
        let mut runs: Vec<Run> = Vec::new();
        for place in &self.places {
            match runs.last_mut() {
                Some(run) if run.end() == place.inode_table.0 => run.len += len,
                _ => runs.push(Run { start: place.inode_table.0, len }),
            }
        }
        try_parallel_for(available_cores(), runs, |run| out.zero("zeroing inode tables", run))
    }

    /// Puts the planned inodes into their tables, and blank ones for those reserved; not those
    /// that `later` says will come.
    pub(super) fn put_inodes(
        &self,
        out: &Out<'_>,
        tables: &mut Tables,
        later: &dyn Fn(InodeNo) -> bool,
    ) -> Result<(), MkfsError> {
        let mut planned = self.inodes.iter().peekable();
        for ino in (1..=self.highest_inode).map(InodeNo).filter(|ino| !later(*ino)) {
            let inode = planned.next_if(|(next, _)| *next == ino).map(|(_, inode)| inode);
            let full = tables.put((&self.geometry, &self.places), ino, inode, &[])?;
            if let Some((block, bytes)) = full {
                out.put("writing inodes", block, &bytes)?;
            }
        }
        Ok(())
    }

    /// Writes the bitmaps that must exist and returns the descriptor table.
    fn write_groups(&self, out: &Out<'_>, tables_zeroed: bool) -> Result<Vec<u8>, MkfsError> {
        let block_len = self.geometry.block_len();
        let mut table = vec![0; to_usize(self.geometry.gdt_blocks()) * block_len];
        let size = usize::from(self.geometry.desc_size);
        let chunks = table.chunks_mut(size * to_usize(CHUNK)).enumerate();
        try_parallel_for(available_cores(), chunks, |(chunk, bytes)| {
            let first = must_fit::<u32, _>(chunk) * CHUNK;
            let last = self.geometry.group_count.min(first + CHUNK);
            for (group, slot) in (first..last).map(GroupNo).zip(bytes.chunks_exact_mut(size)) {
                let mut desc = self.descriptor(group, tables_zeroed);
                self.write_bitmaps(out, group, &mut desc)?;
                desc.write(slot);
                group_desc::seal(&self.geometry, group, slot);
            }
            Ok::<(), MkfsError>(())
        })?;
        Ok(table)
    }

    fn write_bitmaps(
        &self,
        out: &Out<'_>,
        group: GroupNo,
        desc: &mut GroupDesc,
    ) -> Result<(), MkfsError> {
        let geometry = &self.geometry;
        let checked = geometry.features.metadata_csum();
        if desc.flags & flags::BLOCK_UNINIT == 0 {
            let (start, end) = self.group_range(group);
            let mut bits = vec![0; geometry.block_len()];
            for run in self.space.taken_in(start, end) {
                bitmap::set_run(&mut bits, must_fit(run.start - start), must_fit(run.len));
            }
            bitmap::pad(&mut bits, must_fit(end - start));
            if checked {
                desc.block_bitmap_csum = bitmap::block_checksum(geometry, &bits);
            }
            out.put("writing a block bitmap", desc.block_bitmap, &bits)?;
        }
        if desc.flags & flags::INODE_UNINIT == 0 {
            let mut bits = vec![0; geometry.block_len()];
            bitmap::set_run(&mut bits, 0, self.used_inodes(group));
            bitmap::pad(&mut bits, geometry.inodes_per_group);
            if checked {
                desc.inode_bitmap_csum = bitmap::inode_checksum(geometry, &bits);
            }
            out.put("writing an inode bitmap", desc.inode_bitmap, &bits)?;
        }
        Ok(())
    }

    /// Writes the descriptor table and all backups of it and of the superblock.
    fn write_tables(&self, out: &Out<'_>, sb: &Superblock, table: &[u8]) -> Result<(), MkfsError> {
        let geometry = &self.geometry;
        let what = "writing group descriptors";
        if geometry.contiguous_gdt_blocks() == geometry.gdt_blocks() {
            let groups: Vec<GroupNo> =
                geometry.groups().filter(|group| geometry.has_super(*group)).collect();
            try_parallel_for(available_cores(), groups, |group| {
                let block = geometry.super_block_of(group).map_or(0, |block| block.0);
                out.put(what, BlockNo(block + 1), table)?;
                self.write_backup(out, sb, group)
            })
        } else {
            for (index, bytes) in table.chunks_exact(geometry.block_len()).enumerate() {
                out.put(what, geometry.gdt_block(must_fit(index)), bytes)?;
                for copy in geometry.gdt_backups(must_fit(index)) {
                    out.put(what, copy, bytes)?;
                }
            }
            let groups = geometry.groups().filter(|group| geometry.has_super(*group));
            groups.into_iter().try_for_each(|group| self.write_backup(out, sb, group))
        }
    }

    fn write_backup(
        &self,
        out: &Out<'_>,
        sb: &Superblock,
        group: GroupNo,
    ) -> Result<(), MkfsError> {
        let Some(block) = self.geometry.super_block_of(group).filter(|_| group.0 != 0) else {
            return Ok(());
        };
        let mut bytes = vec![0; self.geometry.block_len()];
        let copy = super_block::copy_for(sb, group);
        bytes[..copy.bytes().len()].copy_from_slice(copy.bytes());
        out.put("writing a backup superblock", block, &bytes)
    }

    /// The superblock with a count of what has been written, where features of ext4 ask for one.
    fn final_superblock(&self, out: &Out<'_>) -> Superblock {
        let counted = RoCompat::GDT_CSUM
            .with(RoCompat::METADATA_CSUM)
            .with(RoCompat::HUGE_FILE)
            .with(RoCompat::DIR_NLINK)
            .with(RoCompat::EXTRA_ISIZE);
        let features = &self.geometry.features;
        let mut sb = self.sb.clone();
        if features.ro_compat.intersects(counted) || features.has(Incompat::FLEX_BG) {
            sb.kbytes_written.set(out.kbytes_written());
        }
        sb
    }

    /// Writes the primary superblock, with the boot sectors before it cleared.
    fn write_primary(&self, out: &Out<'_>, sb: &Superblock) -> Result<(), MkfsError> {
        let (block, at) = self.geometry.super_location();
        let mut sb = sb.clone();
        sb.seal();
        let mut bytes = vec![0; self.geometry.block_len()];
        bytes[at..at + sb.bytes().len()].copy_from_slice(sb.bytes());
        out.put("writing the superblock", block, &bytes)
    }
}
