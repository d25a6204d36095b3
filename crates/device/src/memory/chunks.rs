//! The sparse table beneath a memory device: a tree of fixed shape whose
//! leaves hold shared chunks, each behind its own lock.
//!
//! A node is made once and never moves, so finding a chunk's slot takes no
//! lock and stores nothing; two threads meet only in the slot of one chunk.
//! A chunk that a snapshot shares is copied by the first later write to it.

use nextent_sync::{Arc, LockClass, OnceLock, RwLock};

/// Bytes in a chunk.
pub(super) const CHUNK: usize = 16 * 1024;

/// Chunks in a leaf and leaves in a branch.
const FAN: usize = 256;

/// Bytes under one branch: a gibibyte.
const BRANCH: u64 = (CHUNK * FAN * FAN) as u64;

static SLOT: LockClass = LockClass::new("device.memory", 900);

type Slot = RwLock<Option<Arc<[u8]>>>;
type Leaf = Box<[Slot]>;
type Branch = Box<[OnceLock<Leaf>]>;

/// Chunks by number, absent ones meaning zeros.
pub(super) struct Chunks {
    branches: Box<[OnceLock<Branch>]>,
}

fn nodes<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

fn leaf() -> Leaf {
    (0..FAN).map(|_| RwLock::new(&SLOT, None)).collect()
}

fn zeros() -> Arc<[u8]> {
    std::iter::repeat_n(0, CHUNK).collect()
}

impl Chunks {
    /// An empty table for `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        Self { branches: nodes(size.div_ceil(BRANCH) as usize) }
    }

    fn path(chunk: u64) -> (usize, usize, usize) {
        let (low, high) = (chunk as usize % FAN, chunk as usize / FAN);
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

    /// Calls `read` with the chunk's bytes, or `None` if it holds zeros.
    pub(super) fn read<R>(&self, chunk: u64, read: impl FnOnce(Option<&[u8]>) -> R) -> R {
        match self.find(chunk) {
            Some(slot) => read(slot.read().as_deref()),
            None => read(None),
        }
    }

    /// Calls `write` with the chunk's bytes, made or copied as needed.
    pub(super) fn write(&self, chunk: u64, write: impl FnOnce(&mut [u8])) {
        let mut slot = self.slot(chunk).write();
        let held = slot.get_or_insert_with(zeros);
        if Arc::get_mut(held).is_none() {
            *held = Arc::from(&held[..]);
        }
        write(Arc::get_mut(held).expect("the chunk was just made unique under its lock"));
    }

    /// As [`write`](Self::write), but does nothing to a chunk of zeros.
    pub(super) fn write_present(&self, chunk: u64, write: impl FnOnce(&mut [u8])) {
        if self.read(chunk, |bytes| bytes.is_some()) {
            self.write(chunk, write);
        }
    }

    /// Makes the chunk zeros and frees it.
    pub(super) fn clear(&self, chunk: u64) {
        if let Some(slot) = self.find(chunk) {
            *slot.write() = None;
        }
    }

    /// Puts a shared chunk in place.
    pub(super) fn put(&self, chunk: u64, bytes: Arc<[u8]>) {
        debug_assert_eq!(bytes.len(), CHUNK);
        *self.slot(chunk).write() = Some(bytes);
    }

    /// The first chunk at or after `chunk` and below `end` that is held.
    pub(super) fn next_held(&self, mut chunk: u64, end: u64) -> Option<u64> {
        let fan = FAN as u64;
        while chunk < end {
            let (branch, leaf, slot) = Self::path(chunk);
            let Some(branch) = self.branches[branch].get() else {
                chunk = (chunk / (fan * fan) + 1) * (fan * fan);
                continue;
            };
            match branch[leaf].get() {
                None => chunk = (chunk / fan + 1) * fan,
                Some(slots) if slots[slot].read().is_some() => return Some(chunk),
                Some(_) => chunk += 1,
            }
        }
        None
    }

    /// Calls `visit` with every chunk that is held, in rising order.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, &Arc<[u8]>)) {
        let end = (self.branches.len() * FAN * FAN) as u64;
        let mut chunk = 0;
        while let Some(held) = self.next_held(chunk, end) {
            let bytes = self.find(held).and_then(|slot| slot.read().clone());
            if let Some(bytes) = bytes {
                visit(held, &bytes);
            }
            chunk = held + 1;
        }
    }
}
