//! The in-core inode: its locks, its fields, and how it gets into its table block.
//!
//! Protocol with the commit. Every change of a field happens in [`Inode::change`], under the state
//! lock and inside a handle. If the inode is still dirty in the transaction before, which then is
//! being committed, its bytes as of the end of that transaction are kept first (`frozen`). The
//! commit renders once per transaction: the frozen bytes if there are any, else the present ones.
//! The root of the block map counts as a field: whoever changed it under the map lock copies it
//! into the state before the handle stops ([`Inode::change_map`]).

use std::ops::Range;

use nextent_num::must_fit;
use nextent_ondisk::inode::{self as format, Inode as Fields, flags};
use nextent_ondisk::{Geometry, InodeNo, Tid};
use nextent_store::{BlockRef, Dirty, Handle, RenderSink};
use nextent_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Arc, BiasedMutex, BiasedRwLock, CachePadded, injected};

use super::change::Change;
use super::locks;
use super::long::{LongLock, Refs};
use super::told::{Facts, Told, Traits};
use crate::FileType;
use crate::error::Result;
use crate::map::{MapKind, MapRoot};

/// Where an inode is kept so that recovery finds it when it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// Nowhere: it has a name, or is free.
    No,
    /// In the list that starts at the superblock.
    Listed,
    /// In the orphan file.
    Filed {
        /// Block of the orphan file.
        block: u32,
        /// Entry of that block.
        entry: u32,
    },
}

/// Everything about an inode but its long lock and its map. `[inode.state]`
pub(crate) struct InodeState {
    /// The fields.
    pub(crate) disk: Fields,
    /// The bytes they came from: what the fields do not cover, the attributes' area above all.
    /// Nothing before the first change: then they are those of the table block.
    raw: Option<Box<[u8]>>,
    /// Where it is kept as an orphan.
    pub(crate) orphan: Orphan,
    /// The number belongs to no file: it was freed, or its next file is still being made.
    pub(crate) free: bool,
    /// The transaction of the last change.
    pub(crate) changed: Option<Tid>,
    /// The transaction of the last change that `fdatasync` must wait for.
    pub(crate) data_changed: Option<Tid>,
    /// The transaction of the last change that the records of a fast commit do not carry.
    pub(super) unrecorded: Option<Tid>,
    /// Changes so far, and how many of them fast commits have made durable.
    pub(super) change: u64,
    /// See [`change`](Self::change).
    pub(super) synced: u64,
    /// What is told of it.
    told: Option<Facts>,
    /// The transaction that has changes not yet rendered.
    dirty: Option<Tid>,
    /// The bytes as of the transaction before, not yet taken by its commit.
    frozen: Option<Box<[u8]>>,
}

/// One inode in use.
pub(crate) struct Inode {
    /// The number.
    pub(crate) ino: InodeNo,
    geometry: Arc<Geometry>,
    table: BlockRef,
    offset: usize,
    told: CachePadded<Told>,
    /// Shared to read or overwrite, exclusive for size, privileges and entries. What is set aside
    /// for the file's growth belongs to whoever holds it exclusively. Direct transfers hold
    /// references instead.
    pub(crate) rw: LongLock,
    /// The block map's root.
    pub(crate) map: BiasedRwLock<MapRoot>,
    state: BiasedMutex<InodeState>,
    /// Opens not yet released. Changed by read-modify-write with sequential order, together with
    /// the state's link count when it falls to zero.
    pub(crate) opens: AtomicU32,
    /// Pins not yet taken back: like opens, they keep a file without a name.
    pub(crate) pins: AtomicU64,
    /// Whether there is an attribute `security.capability`, as far as somebody looked. Relaxed:
    /// set and used under `[inode.rw]`.
    pub(super) capability: AtomicU32,
    /// Sequence number of the attributes, odd while a change is under way. Stored with Release by
    /// the thread that holds `inode.rw` exclusively or makes the inode; a reader without the lock
    /// compares it before and after (`attributes::stable`).
    pub(super) attributes: AtomicU32,
    /// The device's flush that makes stable what was written to this file; 0 for none. Relaxed:
    /// raised after the write, before it returns to a caller whose fsync reads it.
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
            told: None,
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
            told: CachePadded::default(),
            rw: LongLock::new(),
            map: BiasedRwLock::new(&locks::MAP, root),
            state: BiasedMutex::new(&locks::STATE, state),
            opens: AtomicU32::new(0),
            pins: AtomicU64::new(0),
            capability: AtomicU32::new(0),
            attributes: AtomicU32::new(0),
            unflushed: AtomicU64::new(0),
        };
        inode.tell(&mut inode.state.lock());
        inode
    }

    /// Publishes changed attributes to readers without the lock; whether there were any.
    #[inline]
    fn tell(&self, state: &mut InodeState) -> bool {
        let facts = match &state.raw {
            Some(raw) => Facts::of(&state.disk, raw, state.free),
            None => Facts::of(&state.disk, &self.table.image()[self.place()], state.free),
        };
        let changed = state.told != Some(facts);
        if changed {
            state.told = Some(facts);
            self.told.tell(facts, &state.disk, &self.geometry, self.ino);
        }
        changed
    }

    /// Where the inode is in its table block.
    fn place(&self) -> Range<usize> {
        self.offset..self.offset + usize::from(self.geometry.inode_size)
    }

    /// Says whether the number was free when its inode was loaded, before anyone else sees it.
    pub(super) fn set_free_at_load(&self, free: bool) {
        let mut state = self.state.lock();
        state.free = free;
        self.tell(&mut state);
    }

    /// Ends the making of an inode: from here on calls that name it by its number find it. The
    /// creator has named it, or made it an orphan, and has counted its own open.
    pub(crate) fn appear(&self) {
        let mut state = self.state.lock();
        state.free = false;
        self.tell(&mut state);
    }

    /// Marks the inode free when it has neither names nor opens; true for the one who did it.
    pub(super) fn claim_if_gone(&self) -> bool {
        let mut state = self.state.lock();
        let gone = state.disk.links == 0 && !state.free && !self.is_held();
        state.free |= gone;
        self.tell(&mut state);
        gone
    }

    /// Notes that the inode was found in the list of orphans, at open; its map must be set.
    pub(super) fn adopt_orphan(&self) {
        let mut state = self.state.lock();
        state.orphan = Orphan::Listed;
        state.free = false;
        self.tell(&mut state);
    }

    /// Looks at the fields. Takes `[inode.state]`.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&InodeState) -> R) -> R {
        look(&self.state.lock())
    }

    /// Looks at the fields and at the bytes they came from. Takes `[inode.state]` and in it
    /// `[cache.block]`.
    pub(crate) fn with_raw<R>(&self, look: impl FnOnce(&InodeState, &[u8]) -> R) -> R {
        let state = self.state.lock();
        match &state.raw {
            Some(raw) => look(&state, raw),
            None => look(&state, &self.table.image()[self.place()]),
        }
    }

    /// Changes the fields inside `h`. A change of mode, owner, flags or generation needs a full
    /// commit whatever `kind` says: a write may take rights away. Takes `[inode.state]`; `change`
    /// must not wait for anything.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        h: &Handle,
        kind: Change,
        change: impl FnOnce(&mut InodeState) -> R,
    ) -> R {
        let mut state = self.state.lock();
        self.begin(&mut state, h, kind);
        let changed = change(&mut state);
        if self.tell(&mut state) {
            state.unrecorded = Some(h.tid());
        }
        changed
    }

    /// Takes map and fields at once, for a step that needs both and waits for nothing. Whoever
    /// changes a field calls [`begin`](Self::begin) before, copies a changed root, and changes
    /// nothing that is published to readers without the lock.
    ///
    /// Takes `[inode.map]` and `[inode.state]`.
    pub(super) fn both<R>(&self, step: impl FnOnce(&mut MapRoot, &mut InodeState) -> R) -> R {
        let mut root = self.map.write();
        step(&mut root, &mut self.state.lock())
    }

    /// Joins the fields, which are about to change as `kind` says, to the transaction of `h`.
    #[inline]
    pub(super) fn begin(self: &Arc<Self>, state: &mut InodeState, h: &Handle, kind: Change) {
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

    /// Runs verbs on the map inside `h` and copies root and block count into the state, also after
    /// a failure. `kind` says whether the verb may take blocks away, or move them. Takes
    /// `[inode.map]`.
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

    /// Mode, flags and what else is told without a lock.
    #[inline]
    pub(crate) fn traits(&self) -> Traits {
        self.told.traits()
    }

    /// User and group, as told without a lock.
    #[inline]
    pub(crate) fn owner(&self) -> (u32, u32) {
        self.told.owner()
    }

    /// The kind of file; a freed inode keeps its last one.
    #[inline]
    pub(crate) fn file_type(&self) -> Option<FileType> {
        self.traits().file_type()
    }

    /// The edition of a directory's entries.
    #[inline]
    pub(crate) fn edition(&self) -> u64 {
        self.told.edition()
    }

    /// Begins another edition: entries are about to change. `[inode.rw]` is held exclusively, or
    /// nobody can find the directory yet.
    #[inline]
    pub(crate) fn begin_edition(&self) {
        if !injected("generation-forgotten") {
            self.told.begin_edition();
        }
    }

    /// The seed of the checksums of this inode's blocks.
    #[inline]
    pub(crate) fn csum_seed(&self) -> u32 {
        self.told.csum_seed()
    }

    /// Whether someone has it open or pinned.
    pub(crate) fn is_held(&self) -> bool {
        self.opens.load(Ordering::SeqCst) != 0 || self.pins.load(Ordering::SeqCst) != 0
    }

    /// Whether its table block has all of it, so that nothing is lost with the object: no one has
    /// it open, it has a name or is free, and its changes are rendered. They are durable then too:
    /// a commit has all objects that it renders until it is. Pins do not count. Only for who knows
    /// that nobody else has the object.
    pub(super) fn is_idle(&self) -> bool {
        let settled = self.rw.deferring().is_none_or(Refs::is_settled);
        let state = self.state.lock();
        settled
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

    /// The device's flush that makes stable what was written to this file.
    pub(super) fn unflushed(&self) -> u64 {
        self.unflushed.load(Ordering::Relaxed)
    }

    /// Looks at the fields, the bytes as of now and those that were rendered last. Takes
    /// `[inode.state]` and in it `[cache.block]`.
    pub(super) fn now<R>(&self, look: impl FnOnce(&InodeState, Box<[u8]>, &[u8]) -> R) -> R {
        let mut state = self.state.lock();
        let bytes = self.bytes(&mut state);
        let image = self.table.image();
        let rendered = &image[self.offset..self.offset + bytes.len()];
        look(&state, bytes, rendered)
    }

    /// The transaction of the last change, or of the last that `fdatasync` must wait for, and the
    /// number of changes so far; none if fast commits have made all of them durable.
    pub(crate) fn unsynced(&self, data_only: bool) -> Option<Tid> {
        self.with(|state| {
            let tid = if data_only { state.data_changed } else { state.changed };
            tid.filter(|_| state.synced < state.change)
        })
    }

    /// A fast commit has made the first `change` changes durable.
    pub(crate) fn set_synced(&self, change: u64) {
        let mut state = self.state.lock();
        state.synced = state.synced.max(change);
    }

    /// The inode's bytes as of now, checksum included.
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
    /// The bytes that the fields came from, for a change of what the fields do not cover.
    ///
    /// # Panics
    /// Outside of a change, which begins with them.
    pub(crate) fn raw_mut(&mut self) -> &mut [u8] {
        self.raw.as_mut().expect("a change begins with the inode's bytes")
    }

    /// Adds to what the file occupies, in file system blocks.
    pub(crate) fn add_blocks(&mut self, geometry: &Geometry, blocks: i64) -> Result<()> {
        let per_block = i64::from(geometry.block_size / 512);
        let now: i64 = must_fit(self.disk.sectors(geometry));
        let sectors = now.saturating_add(blocks.saturating_mul(per_block)).max(0);
        Ok(self.disk.set_sectors(geometry, sectors.cast_unsigned())?)
    }

    /// Whether all of `flag` is set.
    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.disk.has_flag(flag)
    }

    /// Whether the block area holds a block map.
    pub(crate) fn has_map(&self) -> bool {
        has_map(&self.disk)
    }
}

/// Whether the block area of `disk` holds a block map.
pub(crate) fn has_map(disk: &Fields) -> bool {
    match disk.file_type() {
        Some(FileType::Regular | FileType::Directory) => !disk.has_flag(flags::INLINE_DATA),
        Some(FileType::Symlink) => !disk.is_fast_symlink() && !disk.has_flag(flags::INLINE_DATA),
        _ => false,
    }
}

/// The kind of map that `disk` says it has.
pub(crate) fn map_kind(disk: &Fields) -> MapKind {
    if disk.has_flag(flags::EXTENTS) { MapKind::Extents } else { MapKind::Indirect }
}
