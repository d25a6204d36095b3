//! The part of the running transaction that one per-thread slot holds.

use super::sink::Dirty;
use crate::cache::BlockRef;
use crate::locks;
use nextent_ondisk::BlockNo;
use nextent_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use nextent_sync::{Arc, BiasedMutex, PerCore, current_slot_owned};

/// A slot's pins, credits and changes. The slot's thread touches it, threads that share the slot in
/// the fields that say so, and the committer while no handle is inside.
pub(super) struct JournalSlot {
    /// Handles of the slot's own thread inside the transaction. Only that thread stores it; Release
    /// when a handle leaves, Acquire by the committer.
    pins: AtomicU32,
    /// Handles of threads that share the slot. Read-modify-writes.
    shared_pins: AtomicU32,
    /// Credits leased from the transaction's budget. Relaxed, by plain loads and stores: the slot's
    /// own thread while it is pinned, else the committer.
    credits: AtomicI64,
    /// Handles that found the gate `OpenFenced`. Relaxed, by plain loads and stores: a hint.
    fenced_joins: AtomicU32,
    /// Whether the lists hold a change. Set relaxed, inside a handle. The committer clears it with
    /// Release while the gate is closed; readers load it with Acquire and then the gate again.
    pub(super) used: AtomicBool,
    /// `[journal.slot]`
    pub(super) lists: BiasedMutex<ChangeLists>,
}

/// A slot as one thread uses it: it owns the slot, or shares it.
#[derive(Clone, Copy)]
pub(super) struct SlotRef<'s> {
    pub(super) slot: &'s JournalSlot,
    owned: bool,
}

impl<'s> SlotRef<'s> {
    /// The calling thread's slot.
    #[inline]
    pub(super) fn of_caller(slots: &'s PerCore<JournalSlot>) -> Self {
        let (id, owned) = current_slot_owned();
        Self { slot: slots.get(id), owned }
    }

    /// The calling thread's slot under a replacement admission, for its lists only.
    pub(super) fn for_lists(slots: &'s PerCore<JournalSlot>) -> Self {
        Self { slot: slots.get(current_slot_owned().0), owned: false }
    }

    /// Whether no other thread uses it.
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

    /// Counts a handle that found the gate `OpenFenced`; true for one in `period`.
    pub(super) fn is_fenced_join(self, period: u32) -> bool {
        let joins = self.slot.fenced_joins.load(Ordering::Relaxed).wrapping_add(1);
        self.slot.fenced_joins.store(joins, Ordering::Relaxed);
        joins.is_multiple_of(period)
    }

    /// Takes `n` of the leased credits, if the lease has as many. The slot is pinned.
    #[inline]
    pub(super) fn take_credits(self, n: i64) -> bool {
        let left = self.slot.credits.load(Ordering::Relaxed) - n;
        let enough = self.owned && left >= 0;
        if enough {
            self.slot.credits.store(left, Ordering::Relaxed);
        }
        enough
    }

    /// Adds `n` credits to the lease; false if the slot is shared and holds none. The slot is
    /// pinned.
    #[inline]
    pub(super) fn give_credits(self, n: i64) -> bool {
        if self.owned {
            let have = self.slot.credits.load(Ordering::Relaxed);
            self.slot.credits.store(have + n, Ordering::Relaxed);
        }
        self.owned
    }
}

/// Changes of one transaction: of one slot, or merged of all.
#[derive(Default)]
pub(super) struct ChangeLists {
    /// Blocks changed in place. A block that was freed and created again may be there twice.
    pub(super) blocks: Vec<BlockRef>,
    /// Objects to be rendered.
    pub(super) objects: Vec<Arc<dyn Dirty>>,
    /// Freed blocks that were in memory.
    pub(super) forgotten: Vec<BlockRef>,
    /// Freed blocks with older images in the log, possibly.
    pub(super) revokes: Vec<BlockNo>,
}

impl JournalSlot {
    pub(super) fn new() -> Self {
        Self {
            pins: AtomicU32::new(0),
            shared_pins: AtomicU32::new(0),
            credits: AtomicI64::new(0),
            fenced_joins: AtomicU32::new(0),
            used: AtomicBool::new(false),
            lists: BiasedMutex::new(&locks::SLOT, ChangeLists::default()),
        }
    }

    /// Whether a handle is inside.
    pub(super) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0 || self.shared_pins.load(Ordering::SeqCst) != 0
    }

    /// Ends the slot's lease and returns its credits. Only the committer, while the gate is closed.
    pub(super) fn end_lease(&self) -> i64 {
        let left = self.credits.load(Ordering::Relaxed);
        self.credits.store(0, Ordering::Relaxed);
        left
    }
}

impl ChangeLists {
    pub(super) fn append(&mut self, other: &mut ChangeLists) {
        self.blocks.append(&mut other.blocks);
        self.objects.append(&mut other.objects);
        self.forgotten.append(&mut other.forgotten);
        self.revokes.append(&mut other.revokes);
    }
}
