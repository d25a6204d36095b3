//! The table of a sparse memory device: a tree of fixed shape whose leaves hold shared chunks, each
//! behind its own lock.
//!
//! A node is created once and never moves, so a lookup of a chunk's slot takes no lock and stores
//! nothing.
//!
//! Access without the lock: a slot has a pointer to its chunk if the chunk exists and no snapshot
//! shares it. A thread inside the device's gate may use the pointer and copies bytes word by word.
//! Two threads that use one chunk therefore share no stores but those to its bytes.
//!
//! Invariants:
//!
//! - The pointer is set under the slot's lock, and only for a chunk that is exclusive to this
//!   table.
//! - The pointer is cleared, and a chunk is freed or shared, only while the gate is closed.
//! - The first write to a chunk that a snapshot shares copies it.

#![allow(unsafe_code)]

use super::gate::{Closed, Gate};
use super::slabs::{Bytes, MemoryStock, SlabChunk, Slabs};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicPtr, Ordering};
use nextent_sync::{Arc, LockClass, OnceLock, RwLock};
use std::ptr;

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 16 * 1024;

/// The number of chunks of a leaf, and of leaves of a branch.
const FAN: usize = 256;

/// Bytes of a branch: 1 GiB.
const BRANCH: u64 = to_u64(CHUNK * FAN * FAN);

static CHUNK_SLOT: LockClass = LockClass::new("device.memory", 900);

/// A chunk that snapshots may share.
pub(super) type Chunk = Arc<SlabChunk>;
type Leaf = Box<[ChunkSlot]>;
type Branch = Box<[OnceLock<Leaf>]>;

/// The slot of one chunk.
struct ChunkSlot {
    held: RwLock<Option<Chunk>>,
    /// The chunk in `held`, if it is exclusive to this table. Store: release. Load: acquire.
    own: AtomicPtr<Bytes>,
}

/// Chunks by number, absent ones meaning zeros.
pub(super) struct Chunks {
    branches: Box<[OnceLock<Branch>]>,
    gate: Gate,
    slabs: Slabs,
}

fn nodes<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

fn leaf() -> Leaf {
    let slot = |_| ChunkSlot {
        held: RwLock::new(&CHUNK_SLOT, None),
        own: AtomicPtr::new(ptr::null_mut()),
    };
    (0..FAN).map(slot).collect()
}

impl ChunkSlot {
    /// Calls `copy` with the chunk, without the slot's lock. `None` if that is impossible now.
    #[inline]
    fn inside<R>(&self, gate: &Gate, copy: impl FnOnce(&Bytes) -> R) -> Option<R> {
        gate.inside(|| {
            let own = self.own.load(Ordering::Acquire);
            // SAFETY: the pointer is null or that of the chunk in `held`. The slot releases a chunk
            // only with the gate closed and the pointer cleared, and this thread is inside the gate
            // until `copy` has returned.
            unsafe { own.as_ref() }.map(copy)
        })
    }

    /// Creates or copies the chunk, so that it is exclusive to this table. Memory allocation
    /// happens outside the lock: a new chunk is allocated before, and the caller writes its bytes
    /// after. If two threads allocate one concurrently, the second one's is dropped.
    #[cold]
    fn make(&self, slabs: &Slabs) {
        let empty = self.held.read().is_none();
        let new = empty.then(|| Arc::new(slabs.chunk()));
        self.exclusive(slabs, &mut self.held.write(), new);
    }

    /// Calls `copy` with the chunk under its lock. Creates or copies the chunk if necessary.
    #[cold]
    fn change(&self, slabs: &Slabs, copy: impl FnOnce(&Bytes)) {
        let mut held = self.held.write();
        copy(self.exclusive(slabs, &mut held, None));
    }

    /// The chunk, exclusive to this table from now on. Without a chunk it installs `new`.
    fn exclusive<'c>(
        &self,
        slabs: &Slabs,
        held: &'c mut Option<Chunk>,
        new: Option<Chunk>,
    ) -> &'c Bytes {
        let fresh = || Arc::new(slabs.chunk());
        let chunk = held.get_or_insert_with(|| new.unwrap_or_else(fresh));
        if self.own.load(Ordering::Relaxed).is_null() {
            if Arc::get_mut(chunk).is_none() {
                let copy = fresh();
                copy.copy_from(chunk);
                *chunk = copy;
            }
            let bytes: &Bytes = chunk;
            self.own.store(ptr::from_ref(bytes).cast_mut(), Ordering::Release);
        }
        chunk
    }

    /// Releases the chunk.
    fn free(&self, _: &Closed<'_>) {
        let mut held = self.held.write();
        self.own.store(ptr::null_mut(), Ordering::Relaxed);
        *held = None;
    }

    /// The chunk, shared with the caller from now on.
    fn share(&self, _: &Closed<'_>) -> Option<Chunk> {
        let held = self.held.write();
        self.own.store(ptr::null_mut(), Ordering::Relaxed);
        held.clone()
    }
}

impl Chunks {
    /// An empty table for `size` bytes.
    pub(super) fn new(size: u64, stock: Option<MemoryStock>) -> Self {
        Self {
            branches: nodes(to_usize(size.div_ceil(BRANCH))),
            gate: Gate::new(),
            slabs: Slabs::new(stock),
        }
    }

    fn path(chunk: u64) -> (usize, usize, usize) {
        let (low, high) = (to_usize(chunk) % FAN, to_usize(chunk) / FAN);
        (high / FAN, high % FAN, low)
    }

    fn find(&self, chunk: u64) -> Option<&ChunkSlot> {
        let (branch, leaf, slot) = Self::path(chunk);
        Some(&self.branches[branch].get()?[leaf].get()?[slot])
    }

    fn slot(&self, chunk: u64) -> &ChunkSlot {
        let (at, below, slot) = Self::path(chunk);
        let branch = self.branches[at].get_or_init(|| nodes(FAN));
        &branch[below].get_or_init(leaf)[slot]
    }

    /// Calls `read` once with the chunk, or with `None` if it is all zeros.
    #[inline]
    pub(super) fn read(&self, chunk: u64, mut read: impl FnMut(Option<&Bytes>)) {
        let Some(slot) = self.find(chunk) else { return read(None) };
        if slot.inside(&self.gate, |words| read(Some(words))).is_none() {
            read(slot.held.read().as_deref().map(|piece| &**piece));
        }
    }

    /// Calls `write` with the chunk. Creates or copies the chunk if necessary.
    #[inline]
    pub(super) fn write(&self, chunk: u64, mut write: impl FnMut(&Bytes)) {
        let slot = self.slot(chunk);
        if slot.inside(&self.gate, &mut write).is_some() {
            return;
        }
        slot.make(&self.slabs);
        // A thread that shares its per-thread slot stays outside the gate, and a closed gate admits
        // no thread. Both use the lock.
        if slot.inside(&self.gate, &mut write).is_none() {
            self.gate.outside(|| slot.change(&self.slabs, write));
        }
    }

    /// As [`write`](Self::write), but does nothing if the chunk is all zeros.
    pub(super) fn write_present(&self, chunk: u64, write: impl FnMut(&Bytes)) {
        let mut present = false;
        self.read(chunk, |words| present = words.is_some());
        if present {
            self.write(chunk, write);
        }
    }

    /// Closes the gate, as freeing a chunk requires.
    pub(super) fn close(&self) -> Closed<'_> {
        self.gate.close()
    }

    /// Frees the chunk, so that it reads as zeros.
    pub(super) fn clear(&self, chunk: u64, closed: &Closed<'_>) {
        if let Some(slot) = self.find(chunk) {
            slot.free(closed);
        }
    }

    /// Installs a shared chunk in an empty slot.
    pub(super) fn put(&self, chunk: u64, words: Chunk) {
        *self.slot(chunk).held.write() = Some(words);
    }

    /// Calls `visit` with every chunk, in rising order, after making it shareable.
    pub(super) fn share_each(&self, mut visit: impl FnMut(u64, Chunk)) {
        let closed = self.close();
        self.each(|chunk, slot| {
            if let Some(words) = slot.share(&closed) {
                visit(chunk, words);
            }
        });
    }

    /// The first existing chunk in `chunk..end`.
    pub(super) fn next_held(&self, mut chunk: u64, end: u64) -> Option<u64> {
        let fan = to_u64(FAN);
        while chunk < end {
            let (branch, leaf, slot) = Self::path(chunk);
            let Some(branch) = self.branches[branch].get() else {
                chunk = (chunk / (fan * fan) + 1) * (fan * fan);
                continue;
            };
            match branch[leaf].get() {
                None => chunk = (chunk / fan + 1) * fan,
                Some(slots) if slots[slot].held.read().is_some() => return Some(chunk),
                Some(_) => chunk += 1,
            }
        }
        None
    }

    /// Calls `visit` with every chunk, in rising order.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, &Chunk)) {
        self.each(|chunk, slot| {
            if let Some(words) = &*slot.held.read() {
                visit(chunk, words);
            }
        });
    }

    fn each(&self, mut visit: impl FnMut(u64, &ChunkSlot)) {
        let end = to_u64(self.branches.len() * FAN * FAN);
        let mut chunk = 0;
        while let Some(held) = self.next_held(chunk, end) {
            if let Some(slot) = self.find(held) {
                visit(held, slot);
            }
            chunk = held + 1;
        }
    }
}
