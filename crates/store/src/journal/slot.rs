//! What one slot holds of the running transaction.

use super::sink::Dirty;
use crate::cache::BlockRef;
use crate::locks;
use nextent_ondisk::BlockNo;
use nextent_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use nextent_sync::{Arc, OwnMutex, PerCore, current_slot_owned};

/// A slot's pins, credits and lists. Touched by the slot's own thread, by those
/// that share it in what is marked so, and by the commit while no handle is inside.
pub(super) struct Slot {
    /// Handles of the slot's own thread inside the transaction. Stored by that
    /// thread alone; Release when one leaves, Acquire by the commit.
    pins: AtomicU32,
    /// The same of threads that share the slot. Read-modify-write.
    shared_pins: AtomicU32,
    /// Credits leased from the transaction's budget. Relaxed, and by plain loads
    /// and stores: the slot's own thread while it is pinned, else the commit.
    credits: AtomicI64,
    /// Handles that found the gate sharp. Relaxed, and by plain loads and stores: a hint.
    late: AtomicU32,
    /// Whether anything was changed. Set relaxed, inside a handle. Cleared with Release by the
    /// commit behind a closed gate, for those who look with Acquire and then at the gate again.
    pub(super) used: AtomicBool,
    /// `[journal.slot]`
    pub(super) lists: OwnMutex<Lists>,
}

/// A slot as one thread has it: alone, or with others.
#[derive(Clone, Copy)]
pub(super) struct Place<'s> {
    pub(super) slot: &'s Slot,
    owned: bool,
}

impl<'s> Place<'s> {
    /// The calling thread's place.
    #[inline]
    pub(super) fn of_caller(slots: &'s PerCore<Slot>) -> Self {
        let (id, owned) = current_slot_owned();
        Self { slot: slots.get(id), owned }
    }

    /// The calling thread's place under a replacement admission: it holds neither pins nor credits.
    pub(super) fn for_lists(slots: &'s PerCore<Slot>) -> Self {
        Self { slot: slots.get(current_slot_owned().0), owned: false }
    }

    /// Whether no other thread has it.
    #[inline]
    pub(super) fn is_owned(self) -> bool {
        self.owned
    }

    /// Counts a handle in. A barrier must follow.
    #[inline]
    pub(super) fn pin(self) {
        if self.owned {
            let pins = self.slot.pins.load(Ordering::Relaxed);
            self.slot.pins.store(pins + 1, Ordering::Relaxed);
        } else {
            self.slot.shared_pins.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Counts a handle out. A barrier must follow.
    #[inline]
    pub(super) fn unpin(self) {
        if self.owned {
            let pins = self.slot.pins.load(Ordering::Relaxed);
            self.slot.pins.store(pins - 1, Ordering::Release);
        } else {
            self.slot.shared_pins.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Counts a handle that found the gate sharp; true for one of `many`.
    pub(super) fn counts_late(self, many: u32) -> bool {
        let late = self.slot.late.load(Ordering::Relaxed).wrapping_add(1);
        self.slot.late.store(late, Ordering::Relaxed);
        late.is_multiple_of(many)
    }

    /// Takes `n` of the leased credits, if there are so many. The caller is pinned.
    #[inline]
    pub(super) fn take_credits(self, n: i64) -> bool {
        let left = self.slot.credits.load(Ordering::Relaxed) - n;
        let enough = self.owned && left >= 0;
        if enough {
            self.slot.credits.store(left, Ordering::Relaxed);
        }
        enough
    }

    /// Adds `n` credits to the lease; false if the place can hold none. The caller is pinned.
    #[inline]
    pub(super) fn give_credits(self, n: i64) -> bool {
        if self.owned {
            let have = self.slot.credits.load(Ordering::Relaxed);
            self.slot.credits.store(have + n, Ordering::Relaxed);
        }
        self.owned
    }
}

/// Changes of one slot, or merged of all, in one transaction.
#[derive(Default)]
pub(super) struct Lists {
    /// Changed in place; may repeat a block that was freed and created again.
    pub(super) blocks: Vec<BlockRef>,
    /// To be rendered.
    pub(super) objects: Vec<Arc<dyn Dirty>>,
    /// Freed blocks that were in memory.
    pub(super) forgotten: Vec<BlockRef>,
    /// Freed blocks of which the log may hold older images.
    pub(super) revokes: Vec<BlockNo>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            pins: AtomicU32::new(0),
            shared_pins: AtomicU32::new(0),
            credits: AtomicI64::new(0),
            late: AtomicU32::new(0),
            used: AtomicBool::new(false),
            lists: OwnMutex::new(&locks::SLOT, Lists::default()),
        }
    }

    /// Whether a handle is inside.
    pub(super) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0 || self.shared_pins.load(Ordering::SeqCst) != 0
    }

    /// Ends the slot's lease; what was left of it. Only the commit, gate closed.
    pub(super) fn end_lease(&self) -> i64 {
        let left = self.credits.load(Ordering::Relaxed);
        self.credits.store(0, Ordering::Relaxed);
        left
    }
}

impl Lists {
    pub(super) fn append(&mut self, other: &mut Lists) {
        self.blocks.append(&mut other.blocks);
        self.objects.append(&mut other.objects);
        self.forgotten.append(&mut other.forgotten);
        self.revokes.append(&mut other.revokes);
    }
}
