//! The sparse table beneath a memory device: a tree of fixed shape whose
//! leaves hold shared chunks, each behind its own lock.
//!
//! A node is made once and never moves, so finding a chunk's slot takes no
//! lock and stores nothing. A chunk that is there and not shared with a
//! snapshot is used without its lock: the slot has a pointer to it, good for
//! who is inside the device's gate, and bytes are copied word by word. So two
//! threads that use one chunk store to nothing in common but its bytes.
//!
//! The pointer is set under the slot's lock when the chunk is this table's
//! alone. It is taken away, and chunks are freed or shared, only while the gate
//! is closed. A chunk that a snapshot shares is copied by the first later write.

#![allow(unsafe_code)]

use super::gate::{Closed, Gate};
use super::slabs::{Bytes, MemoryStock, Piece, Slabs};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicPtr, Ordering};
use nextent_sync::{Arc, LockClass, OnceLock, RwLock};
use std::ptr;

/// Bytes in a chunk.
pub(super) const CHUNK: usize = 16 * 1024;

/// Chunks in a leaf and leaves in a branch.
const FAN: usize = 256;

/// Bytes under one branch: a gibibyte.
const BRANCH: u64 = to_u64(CHUNK * FAN * FAN);

static SLOT: LockClass = LockClass::new("device.memory", 900);

/// A chunk that snapshots may share.
pub(super) type Chunk = Arc<Piece>;
type Leaf = Box<[Slot]>;
type Branch = Box<[OnceLock<Leaf>]>;

/// A chunk's place.
struct Slot {
    held: RwLock<Option<Chunk>>,
    /// The chunk that is held, if it is this table's alone. Release when set, acquire when used.
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
    let slot = |_| Slot { held: RwLock::new(&SLOT, None), own: AtomicPtr::new(ptr::null_mut()) };
    (0..FAN).map(slot).collect()
}

impl Slot {
    /// Calls `copy` with the chunk, without its lock.
    #[inline]
    fn inside<R>(&self, gate: &Gate, copy: impl FnOnce(&Bytes) -> R) -> Option<R> {
        gate.inside(|| {
            let own = self.own.load(Ordering::Acquire);
            // SAFETY: the pointer is null or that of the chunk which the slot holds. The slot lets
            // go of a chunk that it points to only with the gate closed and the pointer taken
            // away, and we are inside the gate until `copy` has returned.
            unsafe { own.as_ref() }.map(copy)
        })
    }

    /// Makes or copies the chunk as needed, so that it is this table's alone. What the system has
    /// to find memory for is not done under the lock: a new chunk is made before, and its bytes
    /// are written after. Of two who make one at a time the second's is not used.
    #[cold]
    fn make(&self, slabs: &Slabs) {
        let empty = self.held.read().is_none();
        let new = empty.then(|| Arc::new(slabs.piece()));
        self.alone(slabs, &mut self.held.write(), new);
    }

    /// Calls `copy` with the chunk, made or copied as needed, under its lock.
    #[cold]
    fn change(&self, slabs: &Slabs, copy: impl FnOnce(&Bytes)) {
        let mut held = self.held.write();
        copy(self.alone(slabs, &mut held, None));
    }

    /// The chunk, this table's alone from now on; made of `new` if there is none.
    fn alone<'c>(
        &self,
        slabs: &Slabs,
        held: &'c mut Option<Chunk>,
        new: Option<Chunk>,
    ) -> &'c Bytes {
        let fresh = || Arc::new(slabs.piece());
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

    /// Lets go of the chunk.
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

    fn find(&self, chunk: u64) -> Option<&Slot> {
        let (branch, leaf, slot) = Self::path(chunk);
        Some(&self.branches[branch].get()?[leaf].get()?[slot])
    }

    fn slot(&self, chunk: u64) -> &Slot {
        let (at, below, slot) = Self::path(chunk);
        let branch = self.branches[at].get_or_init(|| nodes(FAN));
        &branch[below].get_or_init(leaf)[slot]
    }

    /// Calls `read` once with the chunk, or `None` if it holds zeros.
    #[inline]
    pub(super) fn read(&self, chunk: u64, mut read: impl FnMut(Option<&Bytes>)) {
        let Some(slot) = self.find(chunk) else { return read(None) };
        if slot.inside(&self.gate, |words| read(Some(words))).is_none() {
            read(slot.held.read().as_deref().map(|piece| &**piece));
        }
    }

    /// Calls `write` with the chunk, made or copied as needed.
    #[inline]
    pub(super) fn write(&self, chunk: u64, mut write: impl FnMut(&Bytes)) {
        let slot = self.slot(chunk);
        if slot.inside(&self.gate, &mut write).is_some() {
            return;
        }
        slot.make(&self.slabs);
        // Who has no slot of its own is not let in, nor anybody while chunks are shared or freed.
        if slot.inside(&self.gate, &mut write).is_none() {
            slot.change(&self.slabs, write);
        }
    }

    /// As [`write`](Self::write), but does nothing to a chunk of zeros.
    pub(super) fn write_present(&self, chunk: u64, write: impl FnMut(&Bytes)) {
        let mut present = false;
        self.read(chunk, |words| present = words.is_some());
        if present {
            self.write(chunk, write);
        }
    }

    /// Closes the gate, which freeing chunks needs.
    pub(super) fn close(&self) -> Closed<'_> {
        self.gate.close()
    }

    /// Makes the chunk zeros and frees it.
    pub(super) fn clear(&self, chunk: u64, closed: &Closed<'_>) {
        if let Some(slot) = self.find(chunk) {
            slot.free(closed);
        }
    }

    /// Puts a shared chunk in place of none.
    pub(super) fn put(&self, chunk: u64, words: Chunk) {
        *self.slot(chunk).held.write() = Some(words);
    }

    /// Calls `visit` with every chunk that is held, in rising order, to be shared.
    pub(super) fn share_each(&self, mut visit: impl FnMut(u64, Chunk)) {
        let closed = self.close();
        self.each(|chunk, slot| {
            if let Some(words) = slot.share(&closed) {
                visit(chunk, words);
            }
        });
    }

    /// The first chunk at or after `chunk` and below `end` that is held.
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

    /// Calls `visit` with every chunk that is held, in rising order.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, &Chunk)) {
        self.each(|chunk, slot| {
            if let Some(words) = &*slot.held.read() {
                visit(chunk, words);
            }
        });
    }

    fn each(&self, mut visit: impl FnMut(u64, &Slot)) {
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
