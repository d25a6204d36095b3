//! The gate: admits handles to the running transaction, and closes for a commit.
//!
//! The gate is a readers-writer lock with a reader count per per-thread slot. Handles are its
//! readers, the committer is its only writer. A handle pins its slot, and then loads the gate word,
//! which holds the state and the transaction:
//!
//! | state | ordinary handle | reserved handle | committer |
//! |---|---|---|---|
//! | `Open` | joins | joins | next stores `Closing` |
//! | `OpenFenced` | joins fenced | joins fenced | next stores `ReservedOnly` |
//! | `Closing` | joins fenced | joins fenced | passes the slow side of the barrier |
//! | `ReservedOnly` | waits | joins fenced | waits until no slot is pinned |
//! | `Shut` | waits | waits | checks the pins again, opens the next transaction |
//! | `Frozen` | waits | waits | sleeps until a thaw |
//!
//! To join fenced, a handle passes a full fence, loads the word again, and does what the table says
//! of the new state. A handle that waits unpins its slot first.
//!
//! A pin always belongs to the transaction in the word, because the word moves to the next one only
//! while no slot is pinned.
//!
//! # Joining
//!
//! The asymmetric barrier is a compiler barrier on the fast side (a handle) and membarrier(2) on
//! the slow side (the committer). The pin of a slot that one thread owns is a plain store.
//!
//! | step | handle | committer |
//! |---|---|---|
//! | 1 | pins its slot | stores `Closing` |
//! | 2 | passes the fast side | passes the slow side, while the gate is still open |
//! | 3 | loads the word; `Open`: is inside | stores `ReservedOnly`, passes a full fence |
//! | 4 | else passes a full fence and loads the word again | waits until no slot is pinned |
//!
//! The two sides of the barrier order like two full fences. So after step 2 the committer sees the
//! pin, or the handle sees `Closing` and passes a full fence of its own. From then on both sides
//! have full fences: the committer sees the pin, or the handle sees `ReservedOnly`. The slow side
//! interrupts every core that runs the process, and takes longer than all other steps.
//!
//! # Frequent commits
//!
//! Threads that sync often would interrupt all others at each commit. So a transaction that begins
//! shortly after a commit is opened as `OpenFenced`, and its commit needs no slow side. The
//! committer leaves `OpenFenced` by a compare-exchange. Each handle that finds `OpenFenced` pays a
//! full fence; one in [`FENCED_JOINS`] of a slot makes the gate `Open` again.
//!
//! # Leaving
//!
//! A handle unpins (Release, which hands what it did to the committer), passes the fast side, and
//! loads the word. If it is not `Open`, the handle passes a full fence and wakes the committer if
//! that has stored `awaited`. A gate is closed for as long as handles take to leave, mostly a few
//! microseconds: less than a sleep and a wake-up take. So both sides poll first, and yield their
//! core while they poll. Only then does the committer store `awaited`, pass a full fence, look at
//! the pins once more, and sleep.
//!
//! # Shared slots
//!
//! Threads beyond the number of slots share them. They pin in a second counter of the slot, by
//! read-modify-writes, under the same protocol.
//!
//! Lock ranks: the committer sleeps under `[journal.control]`, 610.

use super::seam::{Access, AdmissionFactory, Joiner, Replacement};
use super::slot::{JournalSlot, SlotRef};
use nextent_num::low_half;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use nextent_sync::{
    CachePadded, Condvar, Instant, Mutex, PerCore, asymmetric_fast, asymmetric_slow, hint,
    injected, thread,
};
use std::time::Duration;

/// Polls in a spin loop, and all polls before a thread sleeps; from the first number on it yields.
const POLLS: (u32, u32) = if nextent_sync::SMALL_LIMITS { (0, 0) } else { (200, 220) };

/// Handles of a slot that find the gate `OpenFenced` before one of them makes it `Open`.
const FENCED_JOINS: u32 = if cfg!(feature = "model-shuttle") { 2 } else { 4096 };

/// A wait that is longer than this is worth a sleep and a wake-up.
pub(super) const WORTH_SLEEPING: Duration = Duration::from_micros(150);

/// The state of the gate; the module's table says what a handle must do in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateState {
    Open,
    OpenFenced,
    Closing,
    ReservedOnly,
    Shut,
    Frozen,
}

impl GateState {
    /// The handles that may join.
    pub(super) const fn access(self) -> Access {
        match self {
            Self::Open | Self::OpenFenced | Self::Closing => Access::Open,
            Self::ReservedOnly => Access::Reserved,
            Self::Shut | Self::Frozen => Access::Shut,
        }
    }

    /// Whether handles may join and no commit has begun.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::OpenFenced)
    }

    /// The upper half of the gate's word.
    const fn code(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::OpenFenced => 1,
            Self::Closing => 2,
            Self::ReservedOnly => 3,
            Self::Shut => 4,
            Self::Frozen => 5,
        }
    }
}

/// The gate of a journal.
pub(super) struct Gate {
    /// State and transaction. Every handle loads it; the committer stores it, and a handle only to
    /// make `OpenFenced` `Open`.
    word: CachePadded<AtomicU64>,
    /// The committer sleeps until the last handle has left. Only the committer stores it.
    awaited: AtomicBool,
    pub(super) slots: PerCore<JournalSlot>,
    /// If it is there, handles join and leave by it instead of by their slots' pins. It stores the
    /// word before it admits a handle, so a handle finds its own transaction there.
    pub(super) replacement: Replacement,
}

impl Gate {
    pub(super) fn new(tid: Tid, admission: &AdmissionFactory, capacity: i64) -> Self {
        Self {
            replacement: Replacement::new(admission, tid, capacity),
            word: CachePadded::new(AtomicU64::new(pack(GateState::Open, tid))),
            awaited: AtomicBool::new(false),
            slots: PerCore::new(|_| JournalSlot::new()),
        }
    }

    pub(super) fn load(&self) -> (GateState, Tid) {
        // Acquire: the transaction's handles see what the committer prepared for it.
        unpack(self.word.load(Ordering::Acquire))
    }

    /// Whether ordinary handles may join `tid`.
    pub(super) fn is_open(&self, tid: Tid) -> bool {
        let (state, running) = self.load();
        state.access().admits(Joiner::Ordinary) && running == tid
    }

    /// Pins `slot` into the running transaction, if that admits `joiner`. If not, the slot stays
    /// pinned until [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(&self, slot: SlotRef<'_>, joiner: Joiner) -> Option<Tid> {
        match self.enter_open(slot, joiner) {
            None if !injected("gate-checked-early") => self.enter_fenced(slot, joiner),
            entered => entered,
        }
    }

    /// The fast path of `enter`: pins `slot` into the running transaction, if the state is `Open`.
    #[inline(always)]
    pub(super) fn enter_open(&self, slot: SlotRef<'_>, joiner: Joiner) -> Option<Tid> {
        if injected("gate-checked-early") {
            let (state, tid) = self.load();
            slot.pin();
            return state.access().admits(joiner).then_some(tid);
        }
        slot.pin();
        asymmetric_fast();
        let word = self.word.load(Ordering::Acquire);
        is_open(word).then(|| Tid(low_half(word)))
    }

    /// The rest of `enter` for a pinned slot, if the state is not `Open`.
    #[cold]
    pub(super) fn enter_fenced(&self, slot: SlotRef<'_>, joiner: Joiner) -> Option<Tid> {
        fence(Ordering::SeqCst);
        let (state, tid) = self.load();
        if state == GateState::OpenFenced && slot.is_fenced_join(FENCED_JOINS) {
            // Fails if a commit has begun.
            let (fenced, open) = (pack(GateState::OpenFenced, tid), pack(GateState::Open, tid));
            let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.word.compare_exchange(fenced, open, order, failed);
        }
        state.access().admits(joiner).then_some(tid)
    }

    /// Undoes `enter`; true if the committer may sleep until this.
    #[inline(always)]
    pub(super) fn leave(&self, slot: SlotRef<'_>) -> bool {
        slot.unpin();
        asymmetric_fast();
        !is_open(self.word.load(Ordering::Acquire)) && self.is_awaited()
    }

    #[cold]
    fn is_awaited(&self) -> bool {
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it, and it publishes no data.
        self.awaited.load(Ordering::Relaxed)
    }

    /// Closes the gate to new handles and waits until the last has left.
    ///
    /// `control` guards the condition `left`. A handle that leaves while the committer sleeps takes
    /// `control` before it notifies, so no wake-up is lost. The committer polls without `control`.
    pub(super) fn drain<T>(&self, tid: Tid, control: &Mutex<T>, left: &Condvar) {
        let fenced = pack(GateState::OpenFenced, tid);
        let reserved_only = pack(GateState::ReservedOnly, tid);
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let was_fenced = self.word.compare_exchange(fenced, reserved_only, order, failed).is_ok();
        if self.replacement.get().is_none() && !was_fenced {
            self.store(GateState::Closing, tid);
            asymmetric_slow();
        }
        loop {
            self.store(GateState::ReservedOnly, tid);
            fence(Ordering::SeqCst);
            if !poll(|| !self.is_entered()) {
                self.sleep_until_left(control, left);
            }
            // A reserved handle may have joined meanwhile: shut it out and check the pins again.
            if self.shut(tid) {
                return;
            }
        }
    }

    #[cold]
    fn sleep_until_left<T>(&self, control: &Mutex<T>, left: &Condvar) {
        let mut control = control.lock();
        self.awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.is_entered() {
            // The timeout is for a slot that a thread uses for the first time during the wait.
            left.wait_for(&mut control, Duration::from_millis(20));
        }
        self.awaited.store(false, Ordering::Relaxed);
    }

    /// Shuts all handles out; false if one is still inside.
    fn shut(&self, tid: Tid) -> bool {
        if let Some(replacement) = self.replacement.get() {
            let word = pack(GateState::Shut, tid);
            return replacement.switch(tid, &|| self.word.store(word, Ordering::Release));
        }
        self.store(GateState::Shut, tid);
        fence(Ordering::SeqCst);
        !self.is_entered()
    }

    /// Lets handles join `tid`.
    pub(super) fn open(&self, tid: Tid) {
        self.store(GateState::Open, tid);
    }

    /// Lets handles join `tid`, whose commit is expected soon.
    pub(super) fn open_fenced(&self, tid: Tid) {
        let replaced = self.replacement.get().is_some();
        self.store(if replaced { GateState::Open } else { GateState::OpenFenced }, tid);
    }

    /// Keeps all handles out of `tid` until `open`.
    pub(super) fn freeze(&self, tid: Tid) {
        self.store(GateState::Frozen, tid);
    }

    /// Whether a handle is inside.
    pub(super) fn is_entered(&self) -> bool {
        match self.replacement.get() {
            Some(replacement) => replacement.is_entered(),
            None => self.slots.used().any(JournalSlot::is_pinned),
        }
    }

    fn store(&self, state: GateState, tid: Tid) {
        let publish = || self.word.store(pack(state, tid), Ordering::Release);
        match self.replacement.get() {
            None => publish(),
            Some(replacement) => replacement.set(state.access(), tid, &publish),
        }
    }
}

/// Polls `over` for a moment; false if it did not become true.
pub(super) fn poll(over: impl Fn() -> bool) -> bool {
    let (spins, all) = POLLS;
    (0..all).any(|n| {
        let yes = over();
        match n {
            _ if yes => {}
            _ if n < spins => hint::spin_loop(),
            _ => thread::yield_now(),
        }
        yes
    })
}

/// Polls `over`, which takes `usual` on average: if that is no longer than a sleep and a wake-up,
/// for up to twice that time.
pub(super) fn poll_for(usual: Duration, over: impl Fn() -> bool) -> bool {
    if poll(&over) {
        return true;
    }
    let patience = if nextent_sync::SMALL_LIMITS || usual > WORTH_SLEEPING {
        Duration::ZERO
    } else {
        2 * usual
    };
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if over() {
            return true;
        }
        thread::yield_now();
    }
    false
}

fn pack(state: GateState, tid: Tid) -> u64 {
    state.code() << 32 | u64::from(tid.0)
}

/// Whether the word's state is [`GateState::Open`].
#[inline(always)]
fn is_open(word: u64) -> bool {
    word >> 32 == GateState::Open.code()
}

fn unpack(word: u64) -> (GateState, Tid) {
    let state = match word >> 32 {
        0 => GateState::Open,
        1 => GateState::OpenFenced,
        2 => GateState::Closing,
        3 => GateState::ReservedOnly,
        4 => GateState::Shut,
        _ => GateState::Frozen,
    };
    (state, Tid(low_half(word)))
}

/// Takes and drops the control lock first, so that a waiter that has checked its condition sleeps
/// before the notification.
pub(super) fn notify<T>(control: &Mutex<T>, condition: &Condvar) {
    drop(control.lock());
    condition.notify_all();
}
