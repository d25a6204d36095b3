//! References of transfers in flight, counted by slots.
//!
//! Protocol, with the roles of a per-core reader-writer lock. A transfer counts itself in at its
//! slot (a plain store: the slot is its thread's own), passes a light barrier and loads `open`: if
//! it is set the transfer is inside, else it counts itself out again and goes the long way. Who
//! holds the lock exclusively clears `open`, passes a heavy barrier and sums all slots. A light and
//! a heavy barrier order like two full fences, so either the sum has the transfer or the transfer
//! sees the way closed: nobody is inside unseen. `open` is set under the lock held shared only.
//!
//! Coming and going are counted apart, so that a transfer may end on another thread than it began
//! on. The one who sums reads all departures before all arrivals: equal sums mean that at the
//! moment between nobody was inside, and nobody comes while the way is closed.
//!
//! Leaving is the same the other way round: count out (Release, which hands what the transfer did
//! to the exclusive holder), light barrier, load `waiting`: either the holder's sum has the
//! departure, or the one who leaves finds the holder waiting and wakes it.
//!
//! Threads beyond the number of slots share them and count by read-modify-writes in counters of
//! their own.

use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{
    BiasedMutex, CachePadded, Condvar, Duration, Mutex, PerCore, asymmetric_fast, asymmetric_slow,
    current_slot_owned,
};

use super::super::locks;
use super::Seen;
use super::combine::Combiner;
use super::counted::Counted;
use super::deferred::Deferred;

/// References taken the long way after an exclusive hold before the short way is opened again: a
/// heavy barrier costs as much as some of those.
pub(super) const CALM: u32 = 8;

/// The same where the short way was seldom gone before it was closed again, at most.
const MOST_CALM: u32 = 4096;

/// References that must come by the short way to make up for closing it.
const WORTH: u64 = 256;

/// One slot's counts. Each is stored by the slot's own thread, or the shared ones by any.
#[derive(Default)]
struct Count {
    /// Came, went. Relaxed and Release, see the module.
    own: [AtomicU64; 2],
    /// The same of threads that share the slot.
    shared: [AtomicU64; 2],
}

pub(super) struct Slot {
    count: Count,
    /// What the slot's thread knows of the file.
    seen: BiasedMutex<Seen>,
    /// What the slot's thread has put off.
    pub(super) deferred: Deferred,
}

/// What the transfers of one file share.
pub(crate) struct Refs {
    /// Read by every transfer, written when the lock is taken exclusively and after.
    pub(super) state: CachePadded<State>,
    pub(super) slots: PerCore<Slot>,
    pub(super) counted: Counted,
    /// [inode.drain] Guards the condition.
    drain: Mutex<()>,
    drained: Condvar,
    /// What was written past the end and is to be converted, with the size.
    pub(crate) finished: Combiner,
    /// [inode.settle] Held by who converts what was put off.
    pub(super) settling: Mutex<()>,
}

pub(super) struct State {
    /// The short way is open. Release when set, Acquire when loaded: who goes it sees what the
    /// last exclusive holder did.
    open: AtomicBool,
    /// An exclusive holder waits. As `open`, cleared by the holder that set it.
    pub(super) waiting: AtomicBool,
    /// Exclusive holds. Stored by their holders, read with a reference.
    edition: AtomicU64,
    /// References that are still to be taken the long way. Relaxed: a guess.
    calm: AtomicU32,
    /// How many that are after the next exclusive hold. As `edition`.
    patience: AtomicU32,
    /// Arrivals when the short way was opened. Relaxed: a guess.
    opened_at: AtomicU64,
    /// Conversions that had mostly nothing to do: what slots know of unwritten blocks is old.
    /// Relaxed: who knows too much converts once more.
    idle: AtomicU64,
    /// Whether conversions were put off; see `deferred`.
    pub(super) deferred: AtomicU32,
    /// When the times were last set, in nanoseconds. Relaxed: who is late sets them again.
    touched: AtomicU64,
}

const CAME: usize = 0;
const WENT: usize = 1;

impl Refs {
    pub(super) fn new() -> Self {
        let slot = |_| Slot {
            count: Count::default(),
            seen: BiasedMutex::new(&locks::SEEN, Seen::default()),
            deferred: Deferred::new(),
        };
        Self {
            state: CachePadded::new(State {
                open: AtomicBool::new(false),
                waiting: AtomicBool::new(false),
                edition: AtomicU64::new(1),
                calm: AtomicU32::new(0),
                patience: AtomicU32::new(CALM),
                opened_at: AtomicU64::new(0),
                idle: AtomicU64::new(0),
                deferred: AtomicU32::new(0),
                touched: AtomicU64::new(0),
            }),
            slots: PerCore::new(slot),
            counted: Counted::default(),
            drain: Mutex::new(&locks::DRAIN, ()),
            drained: Condvar::new(),
            finished: Combiner::new(),
            settling: Mutex::new(&locks::SETTLE, ()),
        }
    }

    #[inline]
    fn count(&self, what: usize) {
        let (slot, owned) = current_slot_owned();
        let count = &self.slots.get(slot).count;
        if owned {
            let own = &count.own[what];
            own.store(own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        } else {
            count.shared[what].fetch_add(1, Ordering::Release);
        }
    }

    /// Takes a reference the short way; false if that is closed.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        self.count(CAME);
        asymmetric_fast();
        if self.state.open.load(Ordering::Acquire) {
            return true;
        }
        self.leave();
        false
    }

    /// Takes a reference under the lock, which the caller holds shared, and opens the short way
    /// when it has been calm for long enough.
    pub(super) fn enter_shared(&self) {
        self.count(CAME);
        self.calm_down();
    }

    /// Counts down to the opening of the short way. The caller holds the lock shared.
    pub(super) fn calm_down(&self) {
        let state = &self.state;
        let calm = state.calm.load(Ordering::Relaxed);
        match calm.checked_sub(1) {
            Some(less) => state.calm.store(less, Ordering::Relaxed),
            None if self.is_open() => {}
            None => {
                state.opened_at.store(self.sum(CAME), Ordering::Relaxed);
                state.open.store(true, Ordering::Release);
            }
        }
    }

    /// Whether the short way is open, as far as one can see from outside.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state.open.load(Ordering::Relaxed)
    }

    /// Ends a reference, on any thread.
    #[inline]
    pub(super) fn leave(&self) {
        self.count(WENT);
        asymmetric_fast();
        if self.state.waiting.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    pub(super) fn wake(&self) {
        // Taken and let go, so that a waiter who has summed is asleep before the notification.
        drop(self.drain.lock());
        self.drained.notify_all();
    }

    fn sum(&self, what: usize) -> u64 {
        let of = |slot: &Slot| {
            let count = &slot.count;
            let own = count.own[what].load(Ordering::Acquire);
            own.wrapping_add(count.shared[what].load(Ordering::Acquire))
        };
        self.slots.used().map(of).fold(0, u64::wrapping_add)
    }

    /// Whether nobody is inside, if the way is closed and a heavy barrier was passed since.
    fn is_idle(&self) -> bool {
        let went = self.sum(WENT);
        went == self.sum(CAME) && self.counted.is_none()
    }

    /// Begins an exclusive hold: another edition, the short way closed.
    fn close(&self) {
        let state = &self.state;
        state.edition.store(state.edition.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        state.touched.store(0, Ordering::Relaxed);
        // Who came the long way did so before the lock was had, and is seen.
        if self.is_open() {
            state.open.store(false, Ordering::Relaxed);
            asymmetric_slow();
            let served = self.sum(CAME).wrapping_sub(state.opened_at.load(Ordering::Relaxed));
            let patience = match served < WORTH {
                true => (state.patience.load(Ordering::Relaxed) * 2).min(MOST_CALM),
                false => CALM,
            };
            state.patience.store(patience, Ordering::Relaxed);
        }
        state.calm.store(state.patience.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Waits until no transfer is in flight. The caller holds the lock exclusively, and no
    /// transfer of its own.
    #[cold]
    pub(super) fn exclude(&self) {
        self.close();
        if self.is_idle() {
            return;
        }
        let mut guard = self.drain.lock();
        self.state.waiting.store(true, Ordering::Relaxed);
        asymmetric_slow();
        while !self.is_idle() {
            // The timeout is for a slot first used while we wait.
            self.drained.wait_for(&mut guard, Duration::from_millis(20));
        }
        self.state.waiting.store(false, Ordering::Relaxed);
    }

    /// The same without waiting; false if a transfer is in flight.
    #[cold]
    pub(super) fn try_exclude(&self) -> bool {
        self.close();
        self.is_idle()
    }

    /// The present edition; it stays what it is while the caller has a reference.
    #[inline]
    pub(super) fn edition(&self) -> u64 {
        self.state.edition.load(Ordering::Relaxed)
    }

    /// Uses what the caller's slot knows of the file, unless a thread that shares the slot does so
    /// now. `use_it` takes no lock.
    #[inline]
    pub(crate) fn try_with_seen<R>(&self, use_it: impl FnOnce(&mut Seen) -> R) -> Option<R> {
        let (slot, _) = current_slot_owned();
        self.slots.get(slot).seen.try_lock().map(|mut seen| use_it(&mut seen))
    }

    /// Conversions that had mostly nothing to do, so far.
    #[inline]
    pub(crate) fn idle(&self) -> u64 {
        self.state.idle.load(Ordering::Relaxed)
    }

    /// Notes one.
    pub(crate) fn note_idle(&self) {
        self.state.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// When the file's times were last set by a transfer, in nanoseconds.
    #[inline]
    pub(crate) fn touched(&self) -> u64 {
        self.state.touched.load(Ordering::Relaxed)
    }

    /// Notes when they were.
    pub(crate) fn set_touched(&self, nanos: u64) {
        self.state.touched.store(nanos, Ordering::Relaxed);
    }
}
