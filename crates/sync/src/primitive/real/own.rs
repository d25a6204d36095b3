//! Locks that are nearly always taken by the thread that took them last.
//!
//! Letting go of a usual lock is a read-modify-write, because the word that says
//! the lock is held also says whether someone waits. Here these are two words:
//! letting go stores the one and loads the other, with a light barrier between;
//! who is about to sleep counts itself in, passes a heavy barrier and looks at
//! the lock again. Light and heavy order like two full fences: either the
//! sleeper finds the lock free, or the one who lets go finds the sleeper.
//!
//! So an uncontended hold costs one read-modify-write instead of two. A heavy
//! barrier interrupts every core that runs this process, so who has passed one
//! leaves word of it, [`SHARP`], beside the count of sleepers: from then on who
//! lets go finds that word and passes a full fence, and sleepers need no heavy
//! barrier. After [`CALM`] holds that nobody slept for the word is taken away.
//!
//! A reader-writer lock is taken alone in two steps: the word says at once that
//! nobody may join, then those who share it leave, and the last of them wakes who
//! waits for that. So readers never pass a writer, and nobody sleeps in the first
//! queue unless the lock is held, or wanted, alone.
//!
//! The order is under loom in `tests/loom_own.rs`.

use super::{heavy_barrier, light_barrier};
use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, ParkToken, SpinWait};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Held alone, or about to be; beside it the number of those who share.
const EXCLUSIVE: u32 = 1 << 31;

/// Beside the count of sleepers: who lets go passes a full fence.
const SHARP: u32 = 1 << 31;
/// Holds without a sleeper after which that ends.
const CALM: u32 = 64;

/// How a thread sleeps: it wants the lock for itself, or will share it.
const ALONE: ParkToken = ParkToken(0);
const TOGETHER: ParkToken = ParkToken(1);

/// The words of a lock.
struct Words {
    /// 0 if free. Acquire when taken, Release when let go.
    held: AtomicU32,
    /// Threads that sleep or are about to, and [`SHARP`]. SeqCst, see the module.
    waiting: AtomicU32,
    /// Holds since the last sleeper while [`SHARP`]. Relaxed, some may get lost.
    calm: AtomicU32,
}

impl Words {
    const fn new() -> Self {
        Self { held: AtomicU32::new(0), waiting: AtomicU32::new(0), calm: AtomicU32::new(0) }
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

    /// Bars others from the lock unless they are barred already, and waits for those who share it.
    fn bar(&self) -> bool {
        let before = self.held.fetch_or(EXCLUSIVE, Ordering::Acquire);
        if before & EXCLUSIVE != 0 {
            return false;
        }
        let shared = || self.held.load(Ordering::Acquire) != EXCLUSIVE;
        let mut spin = SpinWait::new();
        while shared() {
            if !spin.spin() {
                // SAFETY: the key is an address inside this lock, which lives as long as the
                // borrow; the closures neither panic nor park.
                unsafe {
                    parking_lot_core::park(self.last(), shared, || (), |_, _| (), ALONE, None);
                }
            }
        }
        true
    }

    #[inline]
    fn leave_exclusive(&self) {
        self.held.store(0, Ordering::Release);
        light_barrier();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.left();
        }
    }

    /// The lock was let go, and there are sleepers or have been.
    #[cold]
    fn left(&self) {
        fence(Ordering::SeqCst);
        if self.is_waited_for() {
            self.calm.store(0, Ordering::Relaxed);
            self.wake();
            return;
        }
        let calm = self.calm.load(Ordering::Relaxed) + 1;
        self.calm.store(calm, Ordering::Relaxed);
        if calm >= CALM {
            // Fails if somebody has counted itself in.
            let (free, seq) = (0, Ordering::SeqCst);
            let _ = self.waiting.compare_exchange(SHARP, free, seq, Ordering::Relaxed);
        }
    }

    /// Whether there are sleepers, or threads about to sleep.
    #[inline]
    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) & !SHARP != 0
    }

    #[inline]
    fn leave_shared(&self) {
        if self.held.fetch_sub(1, Ordering::Release) == EXCLUSIVE + 1 {
            self.wake_who_bars();
        }
    }

    #[cold]
    fn wake_who_bars(&self) {
        // SAFETY: nobody else parks with this key; the closure neither panics nor parks.
        unsafe { parking_lot_core::unpark_one(self.last(), |_| DEFAULT_UNPARK_TOKEN) };
    }

    /// Takes the lock by `take`.
    #[cold]
    fn wait(&self, how: ParkToken, take: impl Fn(&Self) -> bool) {
        let mut spin = SpinWait::new();
        while spin.spin() {
            if take(self) {
                return;
            }
        }
        // Once is enough: from here until it has the lock this thread stays counted.
        if self.waiting.fetch_add(1, Ordering::SeqCst) & SHARP == 0 {
            heavy_barrier();
            self.waiting.fetch_or(SHARP, Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        while !take(self) {
            let barred = || self.held.load(Ordering::SeqCst) & EXCLUSIVE != 0;
            // SAFETY: the key is the address of this lock, which lives as long as the borrow; the
            // closures neither panic nor park.
            unsafe {
                parking_lot_core::park(self.key(), barred, || (), |_, _| (), how, None);
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes those who will share the lock up to the first who wants it alone, and that one.
    /// Whoever finds the lock taken sleeps again.
    #[cold]
    fn wake(&self) {
        let mut enough = false;
        let choose = |how| {
            if enough {
                return FilterOp::Stop;
            }
            enough = how == ALONE;
            FilterOp::Unpark
        };
        // SAFETY: the key is the address of this lock, with which nobody else parks; the closures
        // neither panic nor park.
        unsafe {
            parking_lot_core::unpark_filter(self.key(), choose, |_| DEFAULT_UNPARK_TOKEN);
        }
    }

    /// Where those sleep who find the lock barred.
    fn key(&self) -> usize {
        std::ptr::from_ref(&self.held).addr()
    }

    /// Where the one sleeps who has barred it, for the last of those who share it.
    fn last(&self) -> usize {
        std::ptr::from_ref(&self.waiting).addr()
    }
}

/// A mutex's words.
pub(crate) struct RawOwnMutex(Words);

// SAFETY: `try_exclusive` succeeds for one thread until `leave_exclusive`; taking is Acquire,
// letting go Release.
unsafe impl lock_api::RawMutex for RawOwnMutex {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for: an initial value
    const INIT: Self = Self(Words::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.0.try_exclusive() {
            self.0.wait(ALONE, Words::try_exclusive);
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
pub(crate) struct RawOwnRwLock(Words);

// SAFETY: the word is EXCLUSIVE for one thread alone, or counts those who share; taking is Acquire,
// letting go Release.
unsafe impl lock_api::RawRwLock for RawOwnRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for: an initial value
    const INIT: Self = Self(Words::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.0.try_shared() {
            self.0.wait(TOGETHER, Words::try_shared);
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
            self.0.wait(ALONE, Words::bar);
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

pub(crate) type OwnMutex<T> = lock_api::Mutex<RawOwnMutex, T>;
pub(crate) type OwnMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawOwnMutex, T>;
pub(crate) type OwnRwLock<T> = lock_api::RwLock<RawOwnRwLock, T>;
pub(crate) type OwnRwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawOwnRwLock, T>;
pub(crate) type OwnRwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawOwnRwLock, T>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    /// More threads than cores, some holding the lock for long, so that they sleep.
    #[test]
    fn a_mutex_excludes_and_wakes() {
        let (count, start) = (OwnMutex::new(0u64), Barrier::new(8));
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
        let (pair, start) = (OwnRwLock::new((0u64, 0u64)), Barrier::new(8));
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
    fn who_wants_it_alone_is_not_passed_by_who_share_it() {
        let (lock, done) = (OwnRwLock::new(()), std::sync::atomic::AtomicBool::new(false));
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
        let lock = OwnRwLock::new(());
        let reader = lock.read();
        assert!(lock.try_read().is_some() && lock.try_write().is_none());
        drop(reader);
        let writer = lock.write();
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        drop(writer);
        let mutex = OwnMutex::new(());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }
}
