//! Changing a file's size.

use nextent_ondisk::{FileBlock, RoCompat};
use nextent_store::Handle;
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use super::{permission, touch_change};
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::{Inode, credits, truncate};
use crate::map::{self, MapKind, Mapping};
use crate::volume::Volume;
use crate::{Cred, FileType};

/// Sizes that need the feature `large_file`.
const LARGE: u64 = 1 << 31;

impl Volume {
    /// Sets the size of a regular file whose `[inode.rw]` is held exclusively.
    pub(super) fn set_size(&self, inode: &Arc<Inode>, cred: &Cred, size: u64) -> Result<()> {
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
        self.shorten(inode, cred, size)
    }

    fn shorten(&self, inode: &Arc<Inode>, cred: &Cred, size: u64) -> Result<()> {
        let fs = &self.fs;
        let h = fs.start(credits::RUN + 2 * credits::ORPHAN + 24)?;
        // An inode without a name is an orphan already and stays one.
        let mapped = inode.with(|state| state.disk.sectors(&fs.geometry) > 0);
        if mapped {
            fs.orphans.add(fs, &h, inode);
        }
        self.note_size(&h, inode, size);
        self.note_write(&h, inode, cred);
        self.zero_tail(inode, size)?;
        if mapped {
            let from = size.div_ceil(fs.block_size());
            truncate::remove_from(fs, &h, inode, FileBlock(from as u32))?;
            if inode.with(|state| state.disk.links > 0) {
                if !h.ensure(credits::ORPHAN)? {
                    fs.restart(&h, credits::ORPHAN)?;
                }
                fs.orphans.remove(fs, &h, inode);
            }
        }
        Ok(())
    }

    /// Zeroes what lies between `size` and the end of its block on the device, if the block holds
    /// data: what is past the end of a file must read as zeros once the file grows.
    pub(super) fn zero_tail(&self, inode: &Inode, size: u64) -> Result<()> {
        let block_size = self.fs.block_size();
        let within = size % block_size;
        if within == 0 || !inode.with(|state| state.has_map()) {
            return Ok(());
        }
        self.zero_within(inode, size, size - within + block_size)
    }

    /// Zeroes the bytes from `start` to `end`, which lie in one block, if the block holds data.
    pub(super) fn zero_within(&self, inode: &Inode, start: u64, end: u64) -> Result<()> {
        let block_size = self.fs.block_size();
        let at = FileBlock((start / block_size) as u32);
        let cx = self.fs.map_cx(inode, Privilege::User);
        let found = map::lookup(&cx, &inode.map.read(), at, 1)?;
        if let Mapping::Written { start: block, .. } = found {
            let offset = block.0 * block_size + start % block_size;
            let zeros = vec![0; (end - start) as usize];
            self.device_write(offset, &[&zeros])?;
            inode.unflushed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The largest size the file's map and the format allow.
    pub(super) fn max_size(&self, inode: &Inode) -> u64 {
        let bits = self.fs.geometry.block_bits;
        match inode.map.read().kind() {
            MapKind::Extents => self.fs.geometry.max_extent_size(),
            MapKind::Indirect => {
                let pointers = self.fs.block_size() / 4;
                let blocks = 12 + pointers + pointers.pow(2) + pointers.pow(3);
                // The count of sectors must fit, with the blocks of pointers.
                let huge = self.fs.geometry.features.has(RoCompat::HUGE_FILE);
                let sectors = if huge { 1u64 << 48 } else { 1 << 32 } >> (bits - 9);
                let counted = sectors - sectors / pointers - pointers - 3;
                blocks.min(counted).min(u64::from(u32::MAX)) << bits
            }
        }
    }

    /// Records a size inside `h`; needs a credit for the superblock as well.
    pub(super) fn note_size(&self, h: &Handle<'_>, inode: &Arc<Inode>, size: u64) {
        if size >= LARGE && inode.file_type() == Some(FileType::Regular) {
            self.fs.sup.set_feature(h, RoCompat::LARGE_FILE);
        }
        inode.change(h, |state| {
            state.disk.size = size;
            state.data_changed = Some(h.tid());
        });
    }

    /// Records that the contents changed: times, and set-id bits unless `cred` keeps them.
    pub(super) fn note_write(&self, h: &Handle<'_>, inode: &Arc<Inode>, cred: &Cred) {
        inode.change(h, |state| {
            touch_change(&self.fs, state);
            state.disk.mtime = state.disk.ctime;
            if !cred.privileged {
                state.disk.mode = permission::without_setid(state.disk.mode);
            }
        });
    }
}
