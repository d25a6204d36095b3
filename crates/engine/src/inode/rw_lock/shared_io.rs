//! What the transfers of one file share: the in-flight I/O count, per-slot caches and deferrals.
//!
//! The in-flight I/O count works like a per-core reader-writer lock.
//!
//! | transfer begins | exclusive holder |
//! |---|---|
//! | adds one to its slot's begun count (a plain store) | clears `fast_path_open` |
//! | `asymmetric_fast()` | `asymmetric_slow()` |
//! | reads `fast_path_open`; if clear, undoes its count, takes the slow path | sums all slots |
//!
//! The pair of barriers orders like two full fences: either the sum contains the transfer, or the
//! transfer finds the fast path closed. `fast_path_open` is set only under the lock held shared.
//!
//! Begun and ended transfers have separate counts, so a transfer may end on another thread. The
//! holder reads all ended counts before all begun counts. Equal sums mean that no transfer was in
//! flight between the two reads, and none can begin while the fast path is closed.
//!
//! | transfer ends | exclusive holder that must wait |
//! |---|---|
//! | adds one to the ended count (Release: publishes its stores to the holder) | sets `holder_waits` |
//! | `asymmetric_fast()` | `asymmetric_slow()` |
//! | reads `holder_waits`; if set, wakes the holder | sums again, then sleeps |
//!
//! Threads beyond the number of slots share slots. They count by read-modify-write in separate
//! counters.

use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{
    BiasedMutex, CachePadded, Condvar, Duration, Mutex, PerCore, asymmetric_fast, asymmetric_slow,
    current_slot_owned,
};

use super::super::locks;
use super::ExtentCache;
use super::deferred::SlotDeferred;
use super::group_conversion::GroupConversion;
use super::word_count::WordCount;

/// Slow-path transfers after an exclusive hold before the fast path is opened again. The slow
/// barrier that closes it costs about as much as a few of those.
pub(super) const SLOW_BEGINS: u32 = 8;

/// The upper bound of that number where the fast path is closed again after few transfers.
const MAX_SLOW_BEGINS: u32 = 4096;

/// Fast-path transfers that make up for closing the fast path once.
const WORTHWHILE_BEGINS: u64 = 256;

/// The transfers of one slot.
#[derive(Default)]
struct SlotCounts {
    /// Begun and ended, stored by the slot's own thread only. See the module for orderings.
    own: [AtomicU64; 2],
    /// Begun and ended, of threads that share the slot.
    shared: [AtomicU64; 2],
}

pub(super) struct IoSlot {
    count: SlotCounts,
    /// The extents that the slot's thread remembers.
    extent_cache: BiasedMutex<ExtentCache>,
    /// The conversions that the slot's thread has deferred.
    pub(super) deferred: SlotDeferred,
}

/// What the transfers of one file share.
pub(crate) struct SharedIo {
    /// Read by every transfer; written by exclusive holders and on the slow path.
    pub(super) words: CachePadded<SharedWords>,
    pub(super) slots: PerCore<IoSlot>,
    pub(super) word_count: WordCount,
    /// [inode.drain] Guards the condition.
    drain_lock: Mutex<()>,
    drained: Condvar,
    /// Conversion of writes past the end, together with the size.
    pub(crate) group: GroupConversion,
    /// [inode.complete-deferred] Held while deferred conversions are completed.
    pub(super) completing: Mutex<()>,
}

pub(super) struct SharedWords {
    /// Transfers may take the fast path. Release when set, Acquire when loaded: a transfer on the
    /// fast path sees the stores of the last exclusive holder.
    fast_path_open: AtomicBool,
    /// An exclusive holder waits. Relaxed, ordered by the barriers; cleared by the holder that set
    /// it.
    pub(super) holder_waits: AtomicBool,
    /// Exclusive holds so far. Stored by the holder, read by transfers in flight.
    generation: AtomicU64,
    /// Slow-path transfers until the fast path is opened. Relaxed: a heuristic.
    slow_begins_left: AtomicU32,
    /// The start value after the next exclusive hold. Stored by the holder.
    slow_begins_to_reopen: AtomicU32,
    /// The sum of begun transfers when the fast path was opened. Relaxed: a heuristic.
    begun_at_open: AtomicU64,
    /// Conversions that found mostly written blocks, so that cached unwritten extents are out of
    /// date. Relaxed: a transfer that reads an old value converts once too often.
    needless_conversions: AtomicU64,
    /// Flags of deferred conversions, see `deferred`.
    pub(super) deferred_flags: AtomicU32,
    /// When a transfer last set the times, in nanoseconds. Relaxed: a transfer that reads an old
    /// value sets them again.
    times_set_at: AtomicU64,
}

const BEGUN: usize = 0;
const ENDED: usize = 1;

impl SharedIo {
    pub(super) fn new() -> Self {
        let slot = |_| IoSlot {
            count: SlotCounts::default(),
            extent_cache: BiasedMutex::new(&locks::EXTENT_CACHE, ExtentCache::default()),
            deferred: SlotDeferred::new(),
        };
        Self {
            words: CachePadded::new(SharedWords {
                fast_path_open: AtomicBool::new(false),
                holder_waits: AtomicBool::new(false),
                generation: AtomicU64::new(1),
                slow_begins_left: AtomicU32::new(0),
                slow_begins_to_reopen: AtomicU32::new(SLOW_BEGINS),
                begun_at_open: AtomicU64::new(0),
                needless_conversions: AtomicU64::new(0),
                deferred_flags: AtomicU32::new(0),
                times_set_at: AtomicU64::new(0),
            }),
            slots: PerCore::new(slot),
            word_count: WordCount::default(),
            drain_lock: Mutex::new(&locks::DRAIN, ()),
            drained: Condvar::new(),
            group: GroupConversion::new(),
            completing: Mutex::new(&locks::COMPLETE_DEFERRED, ()),
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

    /// Begins a transfer on the fast path; false if that is closed.
    #[inline]
    pub(super) fn try_begin(&self) -> bool {
        self.count(BEGUN);
        asymmetric_fast();
        if self.words.fast_path_open.load(Ordering::Acquire) {
            return true;
        }
        self.end();
        false
    }

    /// Begins a transfer while the caller holds the lock shared. Opens the fast path after enough
    /// of them.
    pub(super) fn begin_locked(&self) {
        self.count(BEGUN);
        self.count_slow_begin();
    }

    /// Counts a slow-path transfer and opens the fast path when it is due. The caller holds the
    /// lock shared.
    pub(super) fn count_slow_begin(&self) {
        let words = &self.words;
        let left = words.slow_begins_left.load(Ordering::Relaxed);
        match left.checked_sub(1) {
            Some(fewer) => words.slow_begins_left.store(fewer, Ordering::Relaxed),
            None if self.fast_path_is_open() => {}
            None => {
                words.begun_at_open.store(self.sum(BEGUN), Ordering::Relaxed);
                words.fast_path_open.store(true, Ordering::Release);
            }
        }
    }

    /// Whether the fast path is open; a hint.
    #[inline]
    pub(super) fn fast_path_is_open(&self) -> bool {
        self.words.fast_path_open.load(Ordering::Relaxed)
    }

    /// Ends a transfer, on any thread.
    #[inline]
    pub(super) fn end(&self) {
        self.count(ENDED);
        asymmetric_fast();
        if self.words.holder_waits.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    pub(super) fn wake(&self) {
        // A holder that has summed is asleep once this has had the lock, so it gets the
        // notification.
        drop(self.drain_lock.lock());
        self.drained.notify_all();
    }

    fn sum(&self, what: usize) -> u64 {
        let of = |slot: &IoSlot| {
            let count = &slot.count;
            let own = count.own[what].load(Ordering::Acquire);
            own.wrapping_add(count.shared[what].load(Ordering::Acquire))
        };
        self.slots.used().map(of).fold(0, u64::wrapping_add)
    }

    /// Whether no transfer is in flight. The fast path is closed and a slow barrier has passed
    /// since.
    fn is_drained(&self) -> bool {
        let ended = self.sum(ENDED);
        ended == self.sum(BEGUN) && self.word_count.is_none()
    }

    /// Begins an exclusive hold: raises the generation and closes the fast path.
    fn begin_exclusive(&self) {
        let words = &self.words;
        words.generation.store(words.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        words.times_set_at.store(0, Ordering::Relaxed);
        // Slow-path transfers began under the shared lock, so the sums contain them.
        if self.fast_path_is_open() {
            words.fast_path_open.store(false, Ordering::Relaxed);
            asymmetric_slow();
            let begun = self.sum(BEGUN).wrapping_sub(words.begun_at_open.load(Ordering::Relaxed));
            let slow_begins = match begun < WORTHWHILE_BEGINS {
                true => {
                    (words.slow_begins_to_reopen.load(Ordering::Relaxed) * 2).min(MAX_SLOW_BEGINS)
                }
                false => SLOW_BEGINS,
            };
            words.slow_begins_to_reopen.store(slow_begins, Ordering::Relaxed);
        }
        words
            .slow_begins_left
            .store(words.slow_begins_to_reopen.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Waits until no transfer is in flight. The caller holds the lock exclusively and has no
    /// transfer in flight itself.
    #[cold]
    pub(super) fn drain(&self) {
        self.begin_exclusive();
        if self.is_drained() {
            return;
        }
        let mut guard = self.drain_lock.lock();
        self.words.holder_waits.store(true, Ordering::Relaxed);
        asymmetric_slow();
        while !self.is_drained() {
            // The timeout covers a slot whose first transfer begins during the wait.
            self.drained.wait_for(&mut guard, Duration::from_millis(20));
        }
        self.words.holder_waits.store(false, Ordering::Relaxed);
    }

    /// Like [`drain`](Self::drain), without waiting; false if a transfer is in flight.
    #[cold]
    pub(super) fn try_drain(&self) -> bool {
        self.begin_exclusive();
        self.is_drained()
    }

    /// The current generation. It does not change while the caller has a transfer in flight.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.words.generation.load(Ordering::Relaxed)
    }

    /// Runs `use_it` on the caller's extent cache, unless another thread of the slot is using it.
    /// `use_it` takes no lock.
    #[inline]
    pub(crate) fn try_with_extent_cache<R>(
        &self,
        use_it: impl FnOnce(&mut ExtentCache) -> R,
    ) -> Option<R> {
        let (slot, _) = current_slot_owned();
        self.slots
            .get(slot)
            .extent_cache
            .try_lock()
            .map(|mut extent_cache| use_it(&mut extent_cache))
    }

    /// Conversions so far that found mostly written blocks.
    #[inline]
    pub(crate) fn needless_conversions(&self) -> u64 {
        self.words.needless_conversions.load(Ordering::Relaxed)
    }

    /// Counts a conversion that found mostly written blocks.
    pub(crate) fn note_needless_conversion(&self) {
        self.words.needless_conversions.fetch_add(1, Ordering::Relaxed);
    }

    /// When a transfer last set the file's times, in nanoseconds.
    #[inline]
    pub(crate) fn times_set_at(&self) -> u64 {
        self.words.times_set_at.load(Ordering::Relaxed)
    }

    /// Notes when the file's times were set.
    pub(crate) fn note_times_set(&self, nanos: u64) {
        self.words.times_set_at.store(nanos, Ordering::Relaxed);
    }
}
