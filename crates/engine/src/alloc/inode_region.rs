//! A region of inode numbers: a range of a group's numbers under one lock.
//!
//! - A region covers whole blocks of the inode table. Threads that create files in one directory
//!   thus share neither a lock nor a block.
//! - A freed number is allocatable at once, without images of older transactions: the journal logs
//!   everything that belongs to an inode.
//! - Only the image that an older commit has not rendered yet is kept.

use super::bits;
use super::core::Core;
use super::descriptors::{CommittedDesc, Freed};
use super::locks;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, Tid};
use nextent_store::{BlockRef, Dirty, Handle, RenderSink, Result};
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{Arc, BiasedMutex, injected};

/// Inodes in a region, unless one block of the table has more.
const SIZE: u32 = 256;
/// Words for the largest region: blocks of 64 KiB with inodes of 128 bytes.
const WORDS: usize = 8;

/// One region. It shares no cache line with another object.
#[repr(align(128))]
pub(crate) struct InodeRegion {
    /// Index in the group of the first inode.
    first: u32,
    len: u32,
    desc: Arc<CommittedDesc>,
    bitmap: BlockRef,
    state: BiasedMutex<InodeRegionState>,
    /// The region's blocks of the table are initialised. Set with Release after they are.
    table_initialised: AtomicBool,
    /// Free numbers as last published to searches. Relaxed: a hint.
    published: AtomicU32,
}

#[derive(Clone, Copy)]
struct InodeImage {
    used: [u64; WORDS],
    /// Directories created since the last rendering, less those removed.
    dirs: i64,
}

/// `[alloc.inodes]`
struct InodeRegionState {
    now: InodeImage,
    /// The state at the end of an older transaction that is not rendered yet.
    frozen: Option<(Tid, InodeImage)>,
    /// The transaction that changed `now` and is neither frozen nor rendered.
    dirty: Option<Tid>,
    rendered_free: u32,
    /// Index at which a search begins.
    cursor: u32,
    /// Numbers below this index are reserved.
    first_unreserved: u32,
}

impl InodeRegion {
    /// Divides a group's inodes into regions. `bytes` is the inode bitmap.
    pub(crate) fn cut(
        group: GroupNo,
        core: &Core,
        desc: &Arc<CommittedDesc>,
        bitmap: &BlockRef,
        bytes: &[u8],
    ) -> Box<[Arc<Self>]> {
        let geo = &core.geo;
        let size = SIZE.max(geo.inodes_per_block);
        let reserved = if group.0 == 0 { geo.first_inode.0 - 1 } else { 0 };
        let region = |first: u32| {
            let len = size.min(geo.inodes_per_group - first);
            let mut used = [0; WORDS];
            bits::load(&mut used, &bytes[to_usize(first / 8)..]);
            bits::set(&mut used, len, must_fit::<u32, _>(WORDS) * 64);
            let free = len - bits::count(&used, 0, len);
            let first_unreserved = reserved.saturating_sub(first).min(len);
            let state = InodeRegionState {
                now: InodeImage { used, dirs: 0 },
                frozen: None,
                dirty: None,
                rendered_free: free,
                cursor: first_unreserved,
                first_unreserved,
            };
            Arc::new(Self {
                first,
                len,
                desc: desc.clone(),
                bitmap: bitmap.clone(),
                state: BiasedMutex::new(&locks::INODES, state),
                table_initialised: AtomicBool::new(false),
                published: AtomicU32::new(free),
            })
        };
        (0..geo.inodes_per_group).step_by(to_usize(size)).map(region).collect()
    }

    /// Inodes in a region, except for the last one of a group.
    pub(crate) fn size(core: &Core) -> u32 {
        SIZE.max(core.geo.inodes_per_block)
    }

    /// Index in the group after the last inode.
    pub(crate) fn end(&self) -> u32 {
        self.first + self.len
    }

    /// Whether the region's blocks of the table are initialised.
    pub(crate) fn is_table_initialised(&self) -> bool {
        self.table_initialised.load(Ordering::Acquire)
    }

    /// Records that the region's blocks of the table are initialised.
    pub(crate) fn set_table_initialised(&self) {
        self.table_initialised.store(true, Ordering::Release);
    }

    /// Whether the region had free numbers when it was last published.
    pub(crate) fn may_have_free(&self) -> bool {
        self.published.load(Ordering::Relaxed) > 0
    }

    /// Publishes the number of free inodes to searches if it changed.
    pub(crate) fn publish(&self) {
        let free = self.free_count(&self.state.lock().now);
        if self.published.load(Ordering::Relaxed) != free {
            self.published.store(free, Ordering::Relaxed);
        }
    }

    fn free_count(&self, image: &InodeImage) -> u32 {
        self.len - bits::count(&image.used, 0, self.len)
    }

    fn begin(self: &Arc<Self>, state: &mut InodeRegionState, h: &Handle<'_>) {
        match state.dirty {
            Some(owner) if owner == h.tid() => return,
            Some(owner) => {
                debug_assert!(state.frozen.is_none(), "at most one commit at a time");
                state.frozen = Some((owner, state.now));
                state.now.dirs = 0;
            }
            None => {}
        }
        state.dirty = Some(h.tid());
        h.join(&self.bitmap);
        h.join(self.desc.block());
        h.dirty(self.clone());
    }

    /// Allocates a free number and returns its index in the group.
    pub(crate) fn allocate(self: &Arc<Self>, h: &Handle<'_>, is_dir: bool) -> Option<u32> {
        let mut state = self.state.lock();
        let used = &state.now.used;
        let at = bits::next_clear(used, state.cursor, self.len)
            .or_else(|| bits::next_clear(used, state.first_unreserved, self.len))?;
        if injected("inode-bit-unchecked") {
            drop(state);
            state = self.state.lock();
        }
        self.begin(&mut state, h);
        bits::set(&mut state.now.used, at, at + 1);
        state.now.dirs += i64::from(is_dir);
        state.cursor = at + 1;
        Some(self.first + at)
    }

    /// Marks a number as in use; false if it was already.
    pub(crate) fn mark_used(self: &Arc<Self>, h: &Handle<'_>, index: u32, is_dir: bool) -> bool {
        let at = index - self.first;
        let mut state = self.state.lock();
        if bits::test(&state.now.used, at) {
            return false;
        }
        self.begin(&mut state, h);
        bits::set(&mut state.now.used, at, at + 1);
        state.now.dirs += i64::from(is_dir);
        true
    }

    /// Frees a number; false if it was free already.
    pub(crate) fn free(self: &Arc<Self>, h: &Handle<'_>, index: u32, was_dir: bool) -> bool {
        let at = index - self.first;
        let mut state = self.state.lock();
        if !bits::test(&state.now.used, at) {
            return false;
        }
        self.begin(&mut state, h);
        bits::clear(&mut state.now.used, at, at + 1);
        state.now.dirs -= i64::from(was_dir);
        state.cursor = state.cursor.min(at);
        true
    }

    /// Whether the bitmap in the block cache is the whole state of the region. The caller must have
    /// the only reference.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.dirty.is_none() && state.frozen.is_none()
    }

    /// Whether a number is in use.
    pub(crate) fn is_used(&self, index: u32) -> bool {
        bits::test(&self.state.lock().now.used, index - self.first)
    }
}

impl Dirty for InodeRegion {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> Result<()> {
        let mut state = self.state.lock();
        let image = match state.frozen.take_if(|(owner, _)| *owner == tid) {
            Some((_, image)) => image,
            None if state.dirty == Some(tid) => {
                state.dirty = None;
                let image = state.now;
                state.now.dirs = 0;
                image
            }
            None => return Ok(()),
        };
        let free = self.free_count(&image);
        let inodes = i64::from(free) - i64::from(state.rendered_free);
        state.rendered_free = free;
        let last = (0..self.len).rev().find(|&at| bits::test(&image.used, at));
        let end = last.map_or(0, |at| self.first + at + 1);
        let freed = Freed { clusters: 0, inodes, dirs: image.dirs };
        self.desc.inodes_changed(out, &self.bitmap, freed, end);
        let from = to_usize(self.first / 8);
        let bytes = from..from + to_usize(self.len.div_ceil(8));
        out.patch(&self.bitmap, |block| bits::store(&image.used, &mut block[bytes]));
        Ok(())
    }
}
