//! Which transaction handles may join, and who is inside.
//!
//! Protocol: the read side of a per-core reader-writer lock, which is told before it is locked. A
//! handle pins its slot (a plain store: the slot is its thread's own), passes a light barrier and
//! loads the gate word. If it is Running the handle is inside. The commit first stores Closing
//! and passes a heavy barrier. A light and a heavy barrier order like two full fences, so from
//! then on a handle either had its pin seen or sees Closing; who does passes a full fence and
//! loads the word again, to be inside unless it is Locked by now. So the commit needs no more
//! than a full fence between storing Locked and reading every slot's pins: either it sees the
//! pin, or the handle sees Locked, and nobody is inside unseen. The heavy barrier, which
//! interrupts every core and may take longer than all the rest, is thus passed while the gate is
//! open.
//!
//! Where commits come often, by many who sync, even that is too much: each interrupts whatever the
//! others do. So a transaction that follows the last commit soon is opened as Sharp, which is to
//! handles what Closing is, and its commit locks the gate at once, without a heavy barrier. Sharp
//! costs a handle two fences; who has passed many of them makes it Running again. The commit leaves
//! Sharp by a compare-exchange, so that it knows which of the two it was.
//!
//! Leaving is the same the other way round: unpin (Release, which hands what the handle did to
//! the commit), light barrier, load; who sees anything but Running passes a full fence and looks
//! whether the commit sleeps. A pin always belongs to the word's transaction, since the word
//! moves on only at zero pins.
//!
//! A gate is closed for as long as handles take to leave, mostly a few microseconds: less than it
//! takes to sleep and be woken. So both sides first look again and again, and give way to those who
//! have no core. Only then does the commit say that it sleeps (`awaited`), passes a fence and looks
//! once more, and those who leave wake it; else they take no lock.
//!
//! Threads beyond the number of slots share them; they pin in a second counter
//! of the slot, by read-modify-writes, under the same protocol.

use super::seam::{Access, AdmissionFactory, Joiner, Replacement};
use super::slot::{Place, Slot};
use nextent_num::low_half;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use nextent_sync::{
    CachePadded, Condvar, Instant, Mutex, PerCore, heavy_barrier, hint, injected, light_barrier,
    thread,
};
use std::time::Duration;

/// How often one looks again before it gives way, and before it sleeps.
const LOOKS: (u32, u32) = if nextent_sync::SMALL_LIMITS { (0, 0) } else { (200, 220) };

/// Handles of a slot that find the gate sharp before one makes it Running.
const LATE: u32 = if cfg!(feature = "model-shuttle") { 2 } else { 4096 };

/// What takes longer is slept for.
pub(super) const SHORT: Duration = Duration::from_micros(150);

/// State of the running transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// The same, for those who pass a fence before they look again.
    Sharp,
    /// The same, and a commit is about to lock the gate.
    Closing,
    Locked,
    Switch,
    /// Held closed by a freeze.
    Frozen,
}

impl State {
    /// The handles that may join.
    pub(super) const fn access(self) -> Access {
        match self {
            Self::Running | Self::Sharp | Self::Closing => Access::Open,
            Self::Locked => Access::Reserved,
            Self::Switch | Self::Frozen => Access::Shut,
        }
    }

    /// Whether handles may join and no commit has begun.
    pub(super) const fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Sharp)
    }

    /// What the upper half of the gate's word says.
    const fn code(self) -> u64 {
        match self {
            Self::Running => 0,
            Self::Sharp => 1,
            Self::Closing => 2,
            Self::Locked => 3,
            Self::Switch => 4,
            Self::Frozen => 5,
        }
    }
}

/// The word that every handle reads and only a commit writes.
pub(super) struct Gate {
    word: CachePadded<AtomicU64>,
    /// The commit sleeps until the last handle has left. Stored by it alone.
    awaited: AtomicBool,
    pub(super) slots: PerCore<Slot>,
    /// If it is there, handles join and leave by it instead of by their slots' pins. It stores the
    /// word before it admits a handle, so a handle finds its own transaction there.
    pub(super) replacement: Replacement,
}

impl Gate {
    pub(super) fn new(tid: Tid, admission: &AdmissionFactory, capacity: i64) -> Self {
        Self {
            replacement: Replacement::new(admission, tid, capacity),
            word: CachePadded::new(AtomicU64::new(pack(State::Running, tid))),
            awaited: AtomicBool::new(false),
            slots: PerCore::new(|_| Slot::new()),
        }
    }

    pub(super) fn load(&self) -> (State, Tid) {
        // Acquire: what the commit prepared for the transaction is seen by its handles.
        unpack(self.word.load(Ordering::Acquire))
    }

    /// Whether ordinary handles may join `tid`.
    pub(super) fn is_open(&self, tid: Tid) -> bool {
        let (state, running) = self.load();
        state.access().admits(Joiner::Ordinary) && running == tid
    }

    /// Pins `place` into the running transaction, if that admits `joiner`. If not, the place stays
    /// pinned until [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(&self, place: Place<'_>, joiner: Joiner) -> Option<Tid> {
        match self.enter_open(place, joiner) {
            None if !injected("gate-checked-early") => self.enter_late(place, joiner),
            entered => entered,
        }
    }

    /// The fast path of `enter`: pins `place` into the running transaction, if it is simply open.
    #[inline(always)]
    pub(super) fn enter_open(&self, place: Place<'_>, joiner: Joiner) -> Option<Tid> {
        if injected("gate-checked-early") {
            let (state, tid) = self.load();
            place.pin();
            return state.access().admits(joiner).then_some(tid);
        }
        place.pin();
        light_barrier();
        let word = self.word.load(Ordering::Acquire);
        is_running(word).then(|| Tid(low_half(word)))
    }

    /// The same for one who is pinned, and saw that the gate is not simply open.
    #[cold]
    pub(super) fn enter_late(&self, place: Place<'_>, joiner: Joiner) -> Option<Tid> {
        fence(Ordering::SeqCst);
        let (state, tid) = self.load();
        if state == State::Sharp && place.counts_late(LATE) {
            // Fails if a commit has begun.
            let (sharp, running) = (pack(State::Sharp, tid), pack(State::Running, tid));
            let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.word.compare_exchange(sharp, running, order, failed);
        }
        state.access().admits(joiner).then_some(tid)
    }

    /// Undoes `enter`; true if a commit may be asleep until this.
    #[inline(always)]
    pub(super) fn leave(&self, place: Place<'_>) -> bool {
        place.unpin();
        light_barrier();
        !is_running(self.word.load(Ordering::Acquire)) && self.is_awaited()
    }

    #[cold]
    fn is_awaited(&self) -> bool {
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it, and there is nothing behind it.
        self.awaited.load(Ordering::Relaxed)
    }

    /// Closes the gate to new handles and waits until the last has left.
    ///
    /// `control` guards the condition `left`; those who leave while this sleeps take it before
    /// they notify, so no wake-up is lost. It is not held while this looks.
    pub(super) fn drain<T>(&self, tid: Tid, control: &Mutex<T>, left: &Condvar) {
        let (sharp, locked) = (pack(State::Sharp, tid), pack(State::Locked, tid));
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let was_sharp = self.word.compare_exchange(sharp, locked, order, failed).is_ok();
        if self.replacement.get().is_none() && !was_sharp {
            self.store(State::Closing, tid);
            heavy_barrier();
        }
        loop {
            self.store(State::Locked, tid);
            fence(Ordering::SeqCst);
            if !soon(|| !self.is_entered()) {
                self.sleep_until_left(control, left);
            }
            // A reserved handle may still have joined: shut it out and look again.
            if self.switch(tid) {
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
            // The timeout is for a slot first used while we wait.
            left.wait_for(&mut control, Duration::from_millis(20));
        }
        self.awaited.store(false, Ordering::Relaxed);
    }

    /// Shuts everyone out; false if somebody is inside still.
    fn switch(&self, tid: Tid) -> bool {
        if let Some(replacement) = self.replacement.get() {
            let word = pack(State::Switch, tid);
            return replacement.switch(tid, &|| self.word.store(word, Ordering::Release));
        }
        self.store(State::Switch, tid);
        fence(Ordering::SeqCst);
        !self.is_entered()
    }

    /// Lets handles join `tid`.
    pub(super) fn open(&self, tid: Tid) {
        self.store(State::Running, tid);
    }

    /// Lets handles join `tid`, whose commit is expected soon.
    pub(super) fn open_sharp(&self, tid: Tid) {
        let state = if self.replacement.get().is_none() { State::Sharp } else { State::Running };
        self.store(state, tid);
    }

    /// Keeps everyone out of `tid` until `open`.
    pub(super) fn freeze(&self, tid: Tid) {
        self.store(State::Frozen, tid);
    }

    /// Whether a handle is inside.
    pub(super) fn is_entered(&self) -> bool {
        match self.replacement.get() {
            Some(replacement) => replacement.is_entered(),
            None => self.slots.used().any(Slot::is_pinned),
        }
    }

    fn store(&self, state: State, tid: Tid) {
        let publish = || self.word.store(pack(state, tid), Ordering::Release);
        match self.replacement.get() {
            None => publish(),
            Some(replacement) => replacement.set(state.access(), tid, &publish),
        }
    }
}

/// Looks whether `over` becomes true in a moment; false if that takes longer.
pub(super) fn soon(over: impl Fn() -> bool) -> bool {
    let (idle, all) = LOOKS;
    (0..all).any(|look| {
        let yes = over();
        match look {
            _ if yes => {}
            _ if look < idle => hint::spin_loop(),
            _ => thread::yield_now(),
        }
        yes
    })
}

/// The same for what takes `usual` on average: if that is about as short as going to sleep and
/// being woken, looks twice as long.
pub(super) fn within(usual: Duration, over: impl Fn() -> bool) -> bool {
    if soon(&over) {
        return true;
    }
    let patience =
        if nextent_sync::SMALL_LIMITS || usual > SHORT { Duration::ZERO } else { 2 * usual };
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if over() {
            return true;
        }
        thread::yield_now();
    }
    false
}

fn pack(state: State, tid: Tid) -> u64 {
    state.code() << 32 | u64::from(tid.0)
}

/// Whether the word is that of [`State::Running`].
#[inline(always)]
fn is_running(word: u64) -> bool {
    word >> 32 == State::Running.code()
}

fn unpack(word: u64) -> (State, Tid) {
    let state = match word >> 32 {
        0 => State::Running,
        1 => State::Sharp,
        2 => State::Closing,
        3 => State::Locked,
        4 => State::Switch,
        _ => State::Frozen,
    };
    (state, Tid(low_half(word)))
}

/// Takes and drops the control lock, so that a waiter who has checked its
/// condition is asleep before the notification.
pub(super) fn notify<T>(control: &Mutex<T>, condition: &Condvar) {
    drop(control.lock());
    condition.notify_all();
}
