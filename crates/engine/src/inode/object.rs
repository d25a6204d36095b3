//! The in-core inode: its locks, its fields, and how a commit renders it into its table block.
//!
//! Protocol with the commit:
//!
//! 1. Every change of a field happens in [`Inode::change`], under the state lock and inside a
//!    handle.
//! 2. If the inode is still dirty in the previous transaction, which is committing then, the change
//!    first saves the bytes as of the end of that transaction (`frozen`).
//! 3. The commit renders once per transaction: the frozen bytes if there are any, else the current
//!    ones.
//! 4. The root of the block map counts as a field. A thread that changes it under the map lock
//!    copies it into the state before the handle stops ([`Inode::change_map`]).

use std::ops::Range;

use nextent_num::must_fit;
use nextent_ondisk::inode::{self as format, Inode as Fields, flags};
use nextent_ondisk::{Geometry, InodeNo, Tid};
use nextent_store::{BlockRef, Dirty, Handle, RenderSink};
use nextent_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Arc, BiasedMutex, BiasedRwLock, CachePadded, injected};

use super::change::Change;
use super::locks;
use super::rw_lock::{InodeRwLock, SharedIo};
use super::snapshot::{AttrValues, PublishedAttrs, Snapshot};
use crate::FileType;
use crate::error::Result;
use crate::map::{MapKind, MapRoot};

/// Where an inode is recorded so that recovery finds it when it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// Nowhere: it has a name, or is free.
    No,
    /// In the list whose head is in the superblock.
    Listed,
    /// In the orphan file.
    Filed { block: u32, entry: u32 },
}

/// Everything about an inode except its lock and its map. `[inode.state]`
pub(crate) struct InodeState {
    pub(crate) disk: Fields,
    /// The bytes that the fields were read from. Keeps what the fields do not contain, mainly the
    /// attribute area. `None` before the first change: then they are in the table block.
    raw: Option<Box<[u8]>>,
    /// Where it is recorded as an orphan.
    pub(crate) orphan: Orphan,
    /// The number is not in use: the file was freed, or the next one is still being created.
    pub(crate) free: bool,
    /// The transaction of the last change.
    pub(crate) changed: Option<Tid>,
    /// The transaction of the last change that `fdatasync` must wait for.
    pub(crate) data_changed: Option<Tid>,
    /// The transaction of the last change that the records of a fast commit do not contain.
    pub(super) unrecorded: Option<Tid>,
    /// The number of changes so far.
    pub(super) change: u64,
    /// How many of the changes fast commits have made durable.
    pub(super) synced: u64,
    /// The attributes published last.
    published: Option<AttrValues>,
    /// The transaction that has changes not yet rendered.
    dirty: Option<Tid>,
    /// The bytes as of the end of the previous transaction, until its commit takes them.
    frozen: Option<Box<[u8]>>,
}

/// An inode in memory.
pub(crate) struct Inode {
    /// The number.
    pub(crate) ino: InodeNo,
    geometry: Arc<Geometry>,
    table: BlockRef,
    offset: usize,
    published: CachePadded<PublishedAttrs>,
    /// Shared to read or overwrite, exclusive for size, privileges and entries; it contains the
    /// window for the file's growth. Direct transfers are counted in flight instead.
    pub(crate) rw: InodeRwLock,
    /// The block map's root.
    pub(crate) map: BiasedRwLock<MapRoot>,
    state: BiasedMutex<InodeState>,
    /// Opens not yet released. SeqCst read-modify-writes, ordered with the link count of the state
    /// that becomes zero.
    pub(crate) opens: AtomicU32,
    /// Pins not yet removed; like opens they keep a file without a name.
    pub(crate) pins: AtomicU64,
    /// Cached state of the attribute `security.capability`. Relaxed: stored and used under
    /// `[inode.rw]`.
    pub(super) capability: AtomicU32,
    /// Sequence number of the attributes, odd while a change is in progress. Stored with Release by
    /// the exclusive holder of `inode.rw` or the creator of the inode. A reader without the lock
    /// compares it before and after (`attributes::read_validated`).
    pub(super) attributes: AtomicU32,
    /// The device's flush that makes the last write to this file stable; 0 for none. Relaxed:
    /// raised after the write, before it returns to a caller that then calls fsync.
    pub(crate) unflushed: AtomicU64,
}

impl Inode {
    /// An inode from the bytes of the table block; `root` is its map.
    pub(super) fn new(
        ino: InodeNo,
        geometry: Arc<Geometry>,
        table: BlockRef,
        offset: usize,
        disk: Fields,
        root: MapRoot,
    ) -> Self {
        let state = InodeState {
            disk,
            raw: None,
            published: None,
            orphan: Orphan::No,
            free: false,
            changed: None,
            data_changed: None,
            unrecorded: None,
            change: 0,
            synced: 0,
            dirty: None,
            frozen: None,
        };
        let inode = Self {
            ino,
            geometry,
            table,
            offset,
            published: CachePadded::default(),
            rw: InodeRwLock::new(),
            map: BiasedRwLock::new(&locks::MAP, root),
            state: BiasedMutex::new(&locks::STATE, state),
            opens: AtomicU32::new(0),
            pins: AtomicU64::new(0),
            capability: AtomicU32::new(0),
            attributes: AtomicU32::new(0),
            unflushed: AtomicU64::new(0),
        };
        inode.publish(&mut inode.state.lock());
        inode
    }

    /// Publishes the attributes to lock-free readers if they changed; returns whether they did.
    #[inline]
    fn publish(&self, state: &mut InodeState) -> bool {
        let attrs = match &state.raw {
            Some(raw) => AttrValues::of(&state.disk, raw, state.free),
            None => AttrValues::of(&state.disk, &self.table.image()[self.place()], state.free),
        };
        let changed = state.published != Some(attrs);
        if changed {
            state.published = Some(attrs);
            self.published.publish(attrs, &state.disk, &self.geometry, self.ino);
        }
        changed
    }

    /// The inode's bytes in its table block.
    fn place(&self) -> Range<usize> {
        self.offset..self.offset + usize::from(self.geometry.inode_size)
    }

    /// Sets whether the number was free on load, before other threads see the object.
    pub(super) fn set_free_at_load(&self, free: bool) {
        let mut state = self.state.lock();
        state.free = free;
        self.publish(&mut state);
    }

    /// Ends the creation of an inode: from now on a lookup by number finds it. The creator has
    /// named it, or made it an orphan, and has counted its own open.
    pub(crate) fn finish_creation(&self) {
        let mut state = self.state.lock();
        state.free = false;
        self.publish(&mut state);
    }

    /// Marks the inode free if it has neither names nor opens. Returns true in the one call that
    /// did so.
    pub(super) fn claim_if_unused(&self) -> bool {
        let mut state = self.state.lock();
        let gone = state.disk.links == 0 && !state.free && !self.is_open_or_pinned();
        state.free |= gone;
        self.publish(&mut state);
        gone
    }

    /// Notes at open that the inode was found in the list of orphans; its map must be set.
    pub(super) fn adopt_orphan(&self) {
        let mut state = self.state.lock();
        state.orphan = Orphan::Listed;
        state.free = false;
        self.publish(&mut state);
    }

    /// Calls `look` with the fields. Takes `[inode.state]`.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&InodeState) -> R) -> R {
        look(&self.state.lock())
    }

    /// Calls `look` with the fields and the bytes they were read from. Takes `[inode.state]` and in
    /// it `[cache.block]`.
    pub(crate) fn with_raw<R>(&self, look: impl FnOnce(&InodeState, &[u8]) -> R) -> R {
        let state = self.state.lock();
        match &state.raw {
            Some(raw) => look(&state, raw),
            None => look(&state, &self.table.image()[self.place()]),
        }
    }

    /// Changes the fields inside `h`. A change of mode, owner, flags or generation needs a full
    /// commit whatever `kind` says, because a write may drop rights. Takes `[inode.state]`;
    /// `change` must not wait.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        h: &Handle,
        kind: Change,
        change: impl FnOnce(&mut InodeState) -> R,
    ) -> R {
        let mut state = self.state.lock();
        self.begin_change(&mut state, h, kind);
        let changed = change(&mut state);
        if self.publish(&mut state) {
            state.unrecorded = Some(h.tid());
        }
        changed
    }

    /// Runs `step` with map and fields, for a change of both that does not wait. Before it changes
    /// a field, `step` calls [`begin_change`](Self::begin_change). It copies a changed root, and
    /// changes no published attribute.
    ///
    /// Takes `[inode.map]` and `[inode.state]`.
    pub(super) fn with_map_and_fields<R>(
        &self,
        step: impl FnOnce(&mut MapRoot, &mut InodeState) -> R,
    ) -> R {
        let mut root = self.map.write();
        step(&mut root, &mut self.state.lock())
    }

    /// Joins the fields to the transaction of `h`, before a change of `kind`.
    #[inline]
    pub(super) fn begin_change(self: &Arc<Self>, state: &mut InodeState, h: &Handle, kind: Change) {
        let tid = h.tid();
        if state.dirty != Some(tid) {
            self.join(state, h);
        }
        if !kind.is_in_records() {
            state.unrecorded = Some(tid);
        }
        state.changed = Some(tid);
        state.change += 1;
    }

    #[cold]
    fn join(self: &Arc<Self>, state: &mut InodeState, h: &Handle) {
        if state.dirty.is_some() && !injected("frozen-state-forgotten") {
            state.frozen = Some(self.bytes(state));
        }
        if state.raw.is_none() {
            state.raw = Some(self.table.image()[self.place()].into());
        }
        state.dirty = Some(h.tid());
        h.join(&self.table);
        h.dirty(Arc::clone(self) as Arc<dyn Dirty>);
    }

    /// Runs `verb` on the map inside `h` and copies root and block count into the state, also after
    /// a failure. `kind` says whether `verb` may unmap or move blocks. Takes `[inode.map]`.
    pub(crate) fn change_map<R>(
        self: &Arc<Self>,
        h: &Handle,
        kind: Change,
        verb: impl FnOnce(&mut MapRoot) -> Result<R>,
    ) -> Result<R> {
        let mut root = self.map.write();
        let result = verb(&mut root);
        let blocks = root.take_change();
        let counted = self.change(h, kind, |state| {
            state.disk.block = *root.bytes();
            state.data_changed = Some(h.tid());
            state.add_blocks(&self.geometry, blocks)
        });
        let value = result?;
        counted?;
        Ok(value)
    }

    /// Mode, flags and other published attributes.
    #[inline]
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.published.snapshot()
    }

    /// User and group, as published.
    #[inline]
    pub(crate) fn owner(&self) -> (u32, u32) {
        self.published.owner()
    }

    /// The file type; a freed inode keeps its last one.
    #[inline]
    pub(crate) fn file_type(&self) -> Option<FileType> {
        self.snapshot().file_type()
    }

    /// The sequence number of a directory's entries.
    #[inline]
    pub(crate) fn entries_seq(&self) -> u64 {
        self.published.entries_seq()
    }

    /// Raises that number before entries change. `[inode.rw]` is held exclusively, or no other
    /// thread can find the directory yet.
    #[inline]
    pub(crate) fn bump_entries_seq(&self) {
        if !injected("generation-forgotten") {
            self.published.bump_entries_seq();
        }
    }

    /// The seed of the checksums of this inode's blocks.
    #[inline]
    pub(crate) fn csum_seed(&self) -> u32 {
        self.published.csum_seed()
    }

    /// Whether it is open or pinned.
    pub(crate) fn is_open_or_pinned(&self) -> bool {
        self.opens.load(Ordering::SeqCst) != 0 || self.pins.load(Ordering::SeqCst) != 0
    }

    /// Whether its table block contains all of its state, so that the object can be dropped: it is
    /// not open, it has a name or is free, and its changes are rendered. They are durable then,
    /// since a commit references the objects that it renders until it is durable. Pins do not
    /// count. The caller must know that no other thread has a reference.
    pub(super) fn is_idle(&self) -> bool {
        let completed = self.rw.io_with_deferred().is_none_or(SharedIo::map_is_current);
        let state = self.state.lock();
        completed
            && state.dirty.is_none()
            && state.frozen.is_none()
            && self.opens.load(Ordering::SeqCst) == 0
            && (state.disk.links > 0 || state.free)
            && state.orphan == Orphan::No
    }

    /// Whether it was changed since it was loaded.
    pub(super) fn was_changed(&self) -> bool {
        self.with(|state| state.change > 0)
    }

    /// The device's flush that makes the last write to this file stable.
    pub(super) fn unflushed(&self) -> u64 {
        self.unflushed.load(Ordering::Relaxed)
    }

    /// Calls `look` with the fields, the current bytes and the bytes rendered last. Takes
    /// `[inode.state]` and in it `[cache.block]`.
    pub(super) fn with_bytes<R>(&self, look: impl FnOnce(&InodeState, Box<[u8]>, &[u8]) -> R) -> R {
        let mut state = self.state.lock();
        let bytes = self.bytes(&mut state);
        let image = self.table.image();
        let rendered = &image[self.offset..self.offset + bytes.len()];
        look(&state, bytes, rendered)
    }

    /// The transaction of the last change, or of the last change that `fdatasync` must wait for.
    /// `None` if fast commits have made all changes durable.
    pub(crate) fn unsynced(&self, data_only: bool) -> Option<Tid> {
        self.with(|state| {
            let tid = if data_only { state.data_changed } else { state.changed };
            tid.filter(|_| state.synced < state.change)
        })
    }

    /// Notes that a fast commit has made the first `change` changes durable.
    pub(crate) fn set_synced(&self, change: u64) {
        let mut state = self.state.lock();
        state.synced = state.synced.max(change);
    }

    /// The inode's current bytes, including the checksum.
    fn bytes(&self, state: &mut InodeState) -> Box<[u8]> {
        let image = || self.table.image()[self.place()].into();
        let raw = state.raw.get_or_insert_with(image);
        state.disk.write(&self.geometry, raw);
        format::seal(&self.geometry, self.ino, raw);
        raw.clone()
    }
}

impl Dirty for Inode {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> nextent_store::Result<()> {
        let mut state = self.state.lock();
        let bytes = match state.frozen.take() {
            Some(bytes) => bytes,
            None if state.dirty == Some(tid) => {
                state.dirty = None;
                self.bytes(&mut state)
            }
            None => return Ok(()),
        };
        drop(state);
        let at = self.offset..self.offset + bytes.len();
        out.patch(&self.table, |block| block[at].copy_from_slice(&bytes));
        Ok(())
    }
}

impl InodeState {
    /// The bytes that the fields were read from, for a change of what the fields do not contain.
    ///
    /// # Panics
    /// Outside of a change, which loads them.
    pub(crate) fn raw_mut(&mut self) -> &mut [u8] {
        self.raw.as_mut().expect("a change begins with the inode's bytes")
    }

    /// Adds file system blocks to the file's block count.
    pub(crate) fn add_blocks(&mut self, geometry: &Geometry, blocks: i64) -> Result<()> {
        let per_block = i64::from(geometry.block_size / 512);
        let now: i64 = must_fit(self.disk.sectors(geometry));
        let sectors = now.saturating_add(blocks.saturating_mul(per_block)).max(0);
        Ok(self.disk.set_sectors(geometry, sectors.cast_unsigned())?)
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.disk.has_flag(flag)
    }

    /// Whether the block area contains a block map.
    pub(crate) fn has_map(&self) -> bool {
        has_map(&self.disk)
    }
}

/// Whether the block area of `disk` contains a block map.
pub(crate) fn has_map(disk: &Fields) -> bool {
    match disk.file_type() {
        Some(FileType::Regular | FileType::Directory) => !disk.has_flag(flags::INLINE_DATA),
        Some(FileType::Symlink) => !disk.is_fast_symlink() && !disk.has_flag(flags::INLINE_DATA),
        _ => false,
    }
}

/// The kind of map that the flags of `disk` say.
pub(crate) fn map_kind(disk: &Fields) -> MapKind {
    if disk.has_flag(flags::EXTENTS) { MapKind::Extents } else { MapKind::Indirect }
}
