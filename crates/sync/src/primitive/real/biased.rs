//! Biased locks: for data that nearly always the same thread uses.
//!
//! The release of a usual lock is a read-modify-write, because the word that says that the lock is
//! held also says whether a thread waits. Here these are two words, so an uncontended hold costs
//! one read-modify-write instead of two. The two sides use the asymmetric barrier, whose slow side
//! is membarrier(2):
//!
//! | step | release | a thread about to sleep |
//! |---|---|---|
//! | 1 | stores `held` | counts itself in `waiting` |
//! | 2 | passes the fast side | passes the slow side |
//! | 3 | loads `waiting`; wakes sleepers if there are any | loads `held`; sleeps if it is held |
//!
//! Fast and slow side order like two full fences: the sleeper finds the lock free, or the release
//! finds the sleeper.
//!
//! The slow side interrupts every core that runs the process. So a sleeper that has passed one sets
//! [`FENCED`] beside the count of sleepers. From then on each release finds `waiting` nonzero and
//! passes a full fence, and later sleepers need no slow side. After [`CALM_HOLDS`] holds without a
//! sleeper a release clears the bit.
//!
//! # Readers and writers
//!
//! A writer takes a reader-writer lock in two steps: it sets [`EXCLUSIVE`], which bars new readers,
//! and then waits for the present readers, the last of which wakes it. So readers never overtake a
//! writer, and a thread sleeps in the first queue only if the lock is held or wanted exclusively.
//!
//! `tests/loom_biased.rs` models both.

use super::{asymmetric_fast, asymmetric_slow};
use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, ParkToken, SpinWait};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Held exclusively, or about to be; beside it the number of readers.
const EXCLUSIVE: u32 = 1 << 31;

/// Beside the count of sleepers: a release passes a full fence.
const FENCED: u32 = 1 << 31;
/// Holds without a sleeper after which a release clears [`FENCED`].
const CALM_HOLDS: u32 = 64;

/// The access that a sleeping thread waits for.
const FOR_EXCLUSIVE: ParkToken = ParkToken(0);
const FOR_SHARED: ParkToken = ParkToken(1);

/// The words of a lock.
struct LockWords {
    /// 0 if free. Acquire when taken, Release when released.
    held: AtomicU32,
    /// Threads that sleep or are about to, and [`FENCED`]. SeqCst, see the module.
    waiting: AtomicU32,
    /// Holds since the last sleeper while [`FENCED`]. Relaxed, some may get lost.
    calm_holds: AtomicU32,
}

impl LockWords {
    const fn new() -> Self {
        Self { held: AtomicU32::new(0), waiting: AtomicU32::new(0), calm_holds: AtomicU32::new(0) }
    }

    #[inline]
    fn try_exclusive(&self) -> bool {
        self.held.compare_exchange(0, EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn try_shared(&self) -> bool {
        let mut held = self.held.load(Ordering::Relaxed);
        while held < EXCLUSIVE - 1 {
            let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.held.compare_exchange_weak(held, held + 1, order, failed) {
                Ok(_) => return true,
                Err(now) => held = now,
            }
        }
        false
    }

    /// Bars other threads from the lock and waits for the present readers; false if another thread
    /// has barred it.
    fn bar(&self) -> bool {
        let before = self.held.fetch_or(EXCLUSIVE, Ordering::Acquire);
        if before & EXCLUSIVE != 0 {
            return false;
        }
        let has_readers = || self.held.load(Ordering::Acquire) != EXCLUSIVE;
        let mut spin = SpinWait::new();
        while has_readers() {
            if !spin.spin() {
                // SAFETY: the key is an address inside this lock, which lives as long as the
                // borrow; the closures neither panic nor park.
                unsafe {
                    parking_lot_core::park(
                        self.writer_key(),
                        has_readers,
                        || (),
                        |_, _| (),
                        FOR_EXCLUSIVE,
                        None,
                    );
                }
            }
        }
        true
    }

    #[inline]
    fn leave_exclusive(&self) {
        self.held.store(0, Ordering::Release);
        asymmetric_fast();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.released();
        }
    }

    /// The rest of a release, if there are sleepers or have been.
    #[cold]
    fn released(&self) {
        fence(Ordering::SeqCst);
        if self.has_sleepers() {
            self.calm_holds.store(0, Ordering::Relaxed);
            self.wake();
            return;
        }
        let calm = self.calm_holds.load(Ordering::Relaxed) + 1;
        self.calm_holds.store(calm, Ordering::Relaxed);
        if calm >= CALM_HOLDS {
            // Fails if a thread has counted itself in.
            let (free, seq) = (0, Ordering::SeqCst);
            let _ = self.waiting.compare_exchange(FENCED, free, seq, Ordering::Relaxed);
        }
    }

    /// Whether there are sleepers, or threads about to sleep.
    #[inline]
    fn has_sleepers(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) & !FENCED != 0
    }

    #[inline]
    fn leave_shared(&self) {
        if self.held.fetch_sub(1, Ordering::Release) == EXCLUSIVE + 1 {
            self.wake_writer();
        }
    }

    #[cold]
    fn wake_writer(&self) {
        // SAFETY: no other lock parks with this key; the closure neither panics nor parks.
        unsafe { parking_lot_core::unpark_one(self.writer_key(), |_| DEFAULT_UNPARK_TOKEN) };
    }

    /// Waits until `take` has taken the lock.
    #[cold]
    fn wait(&self, access: ParkToken, take: impl Fn(&Self) -> bool) {
        let mut spin = SpinWait::new();
        while spin.spin() {
            if take(self) {
                return;
            }
        }
        // Once is enough: this thread stays counted until it has the lock.
        if self.waiting.fetch_add(1, Ordering::SeqCst) & FENCED == 0 {
            asymmetric_slow();
            self.waiting.fetch_or(FENCED, Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        while !take(self) {
            let barred = || self.held.load(Ordering::SeqCst) & EXCLUSIVE != 0;
            // SAFETY: the key is the address of this lock, which lives as long as the borrow; the
            // closures neither panic nor park.
            unsafe {
                parking_lot_core::park(self.key(), barred, || (), |_, _| (), access, None);
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the sleeping readers up to the first writer, and that one. A thread that finds the
    /// lock taken sleeps again.
    #[cold]
    fn wake(&self) {
        let mut enough = false;
        let choose = |access| {
            if enough {
                return FilterOp::Stop;
            }
            enough = access == FOR_EXCLUSIVE;
            FilterOp::Unpark
        };
        // SAFETY: the key is the address of this lock, with which no other lock parks; the closures
        // neither panic nor park.
        unsafe {
            parking_lot_core::unpark_filter(self.key(), choose, |_| DEFAULT_UNPARK_TOKEN);
        }
    }

    /// The key of threads that sleep because the lock is barred.
    fn key(&self) -> usize {
        std::ptr::from_ref(&self.held).addr()
    }

    /// The key of the writer that has barred the lock and waits for the last reader.
    fn writer_key(&self) -> usize {
        std::ptr::from_ref(&self.waiting).addr()
    }
}

/// A mutex's words.
pub(crate) struct RawBiasedMutex(LockWords);

// SAFETY: `try_exclusive` succeeds for one thread until `leave_exclusive`; taking is Acquire,
// releasing is Release.
unsafe impl lock_api::RawMutex for RawBiasedMutex {
    #[allow(clippy::declare_interior_mutable_const)] // the trait requires an initial value
    const INIT: Self = Self(LockWords::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.0.try_exclusive() {
            self.0.wait(FOR_EXCLUSIVE, LockWords::try_exclusive);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_exclusive()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.leave_exclusive();
    }
}

/// A reader-writer lock's words.
pub(crate) struct RawBiasedRwLock(LockWords);

// SAFETY: the word is EXCLUSIVE for one thread only, or counts the readers; taking is Acquire,
// releasing is Release.
unsafe impl lock_api::RawRwLock for RawBiasedRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait requires an initial value
    const INIT: Self = Self(LockWords::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.0.try_shared() {
            self.0.wait(FOR_SHARED, LockWords::try_shared);
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.0.leave_shared();
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.0.try_exclusive() {
            self.0.wait(FOR_EXCLUSIVE, LockWords::bar);
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_exclusive()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.0.leave_exclusive();
    }
}

pub(crate) type BiasedMutex<T> = lock_api::Mutex<RawBiasedMutex, T>;
pub(crate) type BiasedMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawBiasedMutex, T>;
pub(crate) type BiasedRwLock<T> = lock_api::RwLock<RawBiasedRwLock, T>;
pub(crate) type BiasedRwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawBiasedRwLock, T>;
pub(crate) type BiasedRwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawBiasedRwLock, T>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    /// More threads than cores; some hold the lock for long, so that others sleep.
    #[test]
    fn a_mutex_excludes_and_wakes() {
        let (count, start) = (BiasedMutex::new(0u64), Barrier::new(8));
        thread::scope(|scope| {
            for t in 0..8u64 {
                let (count, start) = (&count, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..2_000 {
                        let mut count = count.lock();
                        let seen = *count;
                        if n % 100 == t {
                            thread::yield_now();
                        }
                        *count = seen + 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 16_000);
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let (pair, start) = (BiasedRwLock::new((0u64, 0u64)), Barrier::new(8));
        thread::scope(|scope| {
            for t in 0..8u64 {
                let (pair, start) = (&pair, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..2_000 {
                        if (n + t) % 3 == 0 {
                            let mut pair = pair.write();
                            pair.0 += 1;
                            if n % 50 == 0 {
                                thread::yield_now();
                            }
                            pair.1 += 1;
                        } else {
                            let pair = pair.read();
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                });
            }
        });
        let (a, b) = pair.into_inner();
        assert!(a == b && a > 5_000);
    }

    #[test]
    fn readers_do_not_overtake_a_writer() {
        let (lock, done) = (BiasedRwLock::new(()), std::sync::atomic::AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _held = lock.read();
                        thread::yield_now();
                    }
                });
            }
            for _ in 0..200 {
                drop(lock.write());
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn attempts_do_not_wait() {
        let lock = BiasedRwLock::new(());
        let reader = lock.read();
        assert!(lock.try_read().is_some() && lock.try_write().is_none());
        drop(reader);
        let writer = lock.write();
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        drop(writer);
        let mutex = BiasedMutex::new(());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }
}
