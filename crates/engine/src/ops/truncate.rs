//! Changing a file's size.

use nextent_num::to_usize;
use nextent_ondisk::inode::flags;
use nextent_ondisk::{Geometry, RoCompat, indirect};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::{file_block, permission, touch_change};
use crate::alloc::{BlockKind, Privilege, Window};
use crate::error::{Error, Result};
use crate::inode::{Change, Inode, InodeState, credits, truncate};
use crate::map::{self, MapKind, Mapping};
use crate::ops::Inodes;
use crate::{Cred, FileType};

/// The blocks of the file's last extent, if that ends where the window begins.
fn blocks_before(inode: &Inode, window: &Window) -> u32 {
    let tail = map::tail(&inode.map.read()).filter(|tail| tail.after == window.start_block);
    tail.map_or(0, |tail| tail.len())
}

/// Sizes from here on need the feature `large_file`.
pub(crate) const LARGE: u64 = 1 << 31;

impl Inodes {
    /// `ftruncate(2)` of an inode that was opened for writing.
    pub(crate) fn truncate_in(&self, cred: &Cred, inode: &Arc<Inode>, size: u64) -> Result<()> {
        self.fs.check_writable()?;
        self.attempt(|| {
            let mut window = inode.rw.write();
            let (bits, free) = inode.with(|state| (state.disk.flags, state.free));
            if free {
                return Err(Error::NotFound);
            }
            // Under the lock and after the check: the number may have become a directory's
            // meanwhile.
            self.check_regular(inode)?;
            if bits & (flags::FIXED_CONTENTS | flags::APPEND) != 0 {
                return Err(Error::Perm);
            }
            self.begin_change(inode)?;
            self.set_size(inode, &mut window, cred, size)
        })?;
        self.sync_if_flagged(inode)
    }

    /// Sets the size of a regular file whose `[inode.rw]` is held exclusively.
    pub(super) fn set_size(
        &self,
        inode: &Arc<Inode>,
        window: &mut Window,
        cred: &Cred,
        size: u64,
    ) -> Result<()> {
        if size > self.max_size(inode) {
            return Err(Error::TooBig);
        }
        let old = inode.with(|state| state.disk.size);
        if size >= old {
            self.zero_tail(inode, old)?;
            let h = self.fs.start(credits::INODE + 1)?;
            self.note_size(&h, inode, size);
            self.note_write(&h, inode, cred);
            return Ok(());
        }
        self.shorten(inode, window, cred, size)
    }

    fn shorten(
        &self,
        inode: &Arc<Inode>,
        window: &mut Window,
        cred: &Cred,
        size: u64,
    ) -> Result<()> {
        let fs = &self.fs;
        let at_once = map::remove_all_credits(&inode.map.read(), &fs.geometry, BlockKind::Data);
        let more =
            at_once.map_or(credits::REMOVAL, |need| need + credits::RUN + 2 * credits::ORPHAN);
        let h = fs.start(more)?;
        let mapped = inode.with(|state| state.disk.sectors(&fs.geometry) > 0);
        // First, because it may fail and a new size cannot be taken back.
        self.zero_tail(inode, size)?;
        // An inode without a name is an orphan already. A removal that fits in one transaction
        // needs no orphan, since recovery has nothing to continue.
        if mapped && at_once.is_none() {
            fs.orphans.add(fs, &h, inode);
        }
        inode.change(&h, Change::Contents, |state| {
            state.disk.size = size;
            state.data_changed = Some(h.tid());
            self.note_write_in(state, cred);
        });
        // A file that is truncated to zero while it is open is usually rewritten at once.
        let empties_open_file = size == 0 && !window.is_empty() && inode.is_open_or_pinned();
        let before = empties_open_file.then(|| blocks_before(inode, window));
        if before.is_none() {
            fs.blocks.release(window);
        }
        let from = file_block(size.div_ceil(fs.block_size()))?;
        let removed = match at_once {
            Some(_) if mapped => truncate::remove_in_handle(fs, &h, inode, from),
            _ => Ok(!mapped),
        };
        if let Ok(true) = removed {
            if let Some(before) = before {
                fs.blocks.keep_for_rewrite(window, before);
            }
            return Ok(());
        }
        // Also after a failure: the next open of the volume continues.
        fs.orphans.add(fs, &h, inode);
        removed?;
        truncate::remove_from(fs, &h, inode, window, from)?;
        if inode.with(|state| state.disk.links > 0) {
            if !h.ensure(credits::ORPHAN)? {
                fs.restart(&h, credits::ORPHAN)?;
            }
            fs.orphans.remove(fs, &h, inode);
        }
        Ok(())
    }

    /// Zeroes the rest of the block that contains `size`, if it holds data: once the file grows,
    /// the bytes past its old end must read as zeros.
    pub(super) fn zero_tail(&self, inode: &Inode, size: u64) -> Result<()> {
        let block_size = self.fs.block_size();
        let within = size % block_size;
        if within == 0 || !inode.with(|state| state.has_map()) {
            return Ok(());
        }
        self.zero_within(inode, size, size - within + block_size)
    }

    /// Zeroes the bytes from `start` to `end`, which are in one block, if that holds data.
    pub(super) fn zero_within(&self, inode: &Inode, start: u64, end: u64) -> Result<()> {
        let block_size = self.fs.block_size();
        // A damaged size may exceed what a map can address: there is no block.
        let Ok(at) = file_block(start / block_size) else { return Ok(()) };
        let cx = self.fs.map_cx(inode, Privilege::User);
        let found = map::lookup(&cx, &inode.map.read(), at, 1)?;
        if let Mapping::Written { start: block, .. } = found {
            let offset = block.0 * block_size + start % block_size;
            let zeros = vec![0; to_usize(end - start)];
            self.device_write(offset, &[&zeros])?;
            self.set_unflushed(inode);
        }
        Ok(())
    }

    /// The largest size that the file's map and the format allow.
    pub(super) fn max_size(&self, inode: &Inode) -> u64 {
        max_size(&self.fs.geometry, inode.map.read().kind() == MapKind::Extents)
    }

    /// Sets the size inside `h`. It needs a credit for the superblock too.
    pub(super) fn note_size(&self, h: &Handle<'_>, inode: &Arc<Inode>, size: u64) {
        if size >= LARGE && inode.file_type() == Some(FileType::Regular) {
            self.fs.sup.set_feature(h, RoCompat::LARGE_FILE);
        }
        inode.change(h, Change::Contents, |state| {
            state.disk.size = size;
            state.data_changed = Some(h.tid());
        });
    }

    /// Notes a change of contents inside `h`: sets the times, and drops set-id bits unless `cred`
    /// may keep them.
    pub(super) fn note_write(&self, h: &Handle<'_>, inode: &Arc<Inode>, cred: &Cred) {
        inode.change(h, Change::Contents, |state| self.note_write_in(state, cred));
    }

    /// [`note_write`](Self::note_write) for fields whose lock the caller holds.
    pub(super) fn note_write_in(&self, state: &mut InodeState, cred: &Cred) {
        touch_change(&self.fs, state);
        state.disk.mtime = state.disk.ctime;
        state.disk.mode = permission::after_write(cred, &state.disk);
    }
}

/// The largest size of a file with an extent map, or with a map of pointers.
#[inline]
pub(crate) fn max_size(geometry: &Geometry, extents: bool) -> u64 {
    let bits = geometry.block_bits;
    // Without the feature an inode counts its sectors in 32 bits.
    let huge = geometry.features.has(RoCompat::HUGE_FILE);
    let counted = u64::from(u32::MAX) >> (bits - 9);
    if extents {
        let mapped = geometry.max_extent_size();
        return if huge { mapped } else { mapped.min(counted << bits) };
    }
    let blocks = indirect::max_blocks(geometry);
    let pointers = u64::from(geometry.block_size) / 4;
    let fits = huge || blocks + tables(blocks, pointers) <= counted;
    (if fits { blocks } else { counted - tables(counted, pointers) }) << bits
}

/// The number of tables of `pointers` pointers that map the first `blocks` blocks of a file.
fn tables(blocks: u64, pointers: u64) -> u64 {
    let mut left = blocks.saturating_sub(u64::from(indirect::DIRECT));
    let mut tables = 0;
    // The blocks that one table of each height maps.
    for (height, reach) in [(0, pointers), (1, pointers.pow(2)), (2, pointers.pow(3))] {
        let here = left.min(reach);
        tables += (0..=height).map(|level| here.div_ceil(pointers.pow(level + 1))).sum::<u64>();
        left -= here;
    }
    tables
}
