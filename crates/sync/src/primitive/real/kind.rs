//! Locks that sleep or spin, as chosen when they are made.
//!
//! A sleeping one is parking_lot's. A spinning one polls its word. In a kernel the holder of a spin
//! lock is running; here it may have lost its core, so a spinning thread yields its own from time
//! to time. A writer sets [`WANTED`], which bars new readers, so a stream of readers cannot starve
//! it.

use super::hint;
use super::thread;
use crate::LockKind;
use lock_api::{RawMutex as _, RawRwLock as _};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Polls before a spinning thread yields its core.
const POLLS: u32 = 1 << 12;

/// Spins until `take` succeeds; `free` checks by a load whether it can.
#[cold]
fn spin(take: impl Fn() -> bool, free: impl Fn() -> bool) {
    loop {
        let mut polls = 0;
        while !free() {
            polls += 1;
            if polls % POLLS == 0 {
                thread::yield_now();
            }
            hint::spin_loop();
        }
        if take() {
            return;
        }
    }
}

/// A mutex's words.
pub(crate) struct RawKindMutex {
    kind: LockKind,
    sleeping: parking_lot::RawMutex,
    /// Held. Acquire when taken, Release when released.
    spinning: AtomicBool,
}

impl RawKindMutex {
    const fn new(kind: LockKind) -> Self {
        Self { kind, sleeping: parking_lot::RawMutex::INIT, spinning: AtomicBool::new(false) }
    }

    #[inline]
    fn take(&self) -> bool {
        !self.spinning.swap(true, Ordering::Acquire)
    }
}

// SAFETY: a lock uses the same one of the two words for as long as it lives, and each excludes all
// threads but one until that one releases it; Acquire and Release.
unsafe impl lock_api::RawMutex for RawKindMutex {
    #[allow(clippy::declare_interior_mutable_const)] // the trait requires an initial value
    const INIT: Self = Self::new(LockKind::Sleep);
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        match self.kind {
            LockKind::Sleep => self.sleeping.lock(),
            LockKind::Spin if self.take() => {}
            LockKind::Spin => spin(|| self.take(), || !self.spinning.load(Ordering::Relaxed)),
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        match self.kind {
            LockKind::Sleep => self.sleeping.try_lock(),
            LockKind::Spin => self.take(),
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        match self.kind {
            // SAFETY: the caller holds the lock, hence this one.
            LockKind::Sleep => unsafe { self.sleeping.unlock() },
            LockKind::Spin => self.spinning.store(false, Ordering::Release),
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        match self.kind {
            LockKind::Sleep => self.sleeping.is_locked(),
            LockKind::Spin => self.spinning.load(Ordering::Relaxed),
        }
    }
}

/// Held exclusively; below the two bits the number of readers.
const EXCLUSIVE: u32 = 1 << 31;
/// A writer waits.
const WANTED: u32 = 1 << 30;

/// A reader-writer lock's words.
pub(crate) struct RawKindRwLock {
    kind: LockKind,
    sleeping: parking_lot::RawRwLock,
    /// Readers, and the bits above. Acquire when taken, Release when released.
    spinning: AtomicU32,
}

impl RawKindRwLock {
    const fn new(kind: LockKind) -> Self {
        Self { kind, sleeping: parking_lot::RawRwLock::INIT, spinning: AtomicU32::new(0) }
    }

    #[inline]
    fn share(&self) -> bool {
        // As kernels did: counts itself in first, and out again if the lock is not free.
        if self.spinning.fetch_add(1, Ordering::Acquire) < WANTED {
            return true;
        }
        self.spinning.fetch_sub(1, Ordering::Relaxed);
        false
    }

    #[inline]
    fn own(&self) -> bool {
        let held = self.spinning.load(Ordering::Relaxed) & !WANTED;
        let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
        held == 0
            && (self.spinning.compare_exchange(0, EXCLUSIVE, order, failed).is_ok()
                || self.spinning.compare_exchange(WANTED, EXCLUSIVE, order, failed).is_ok())
    }

    fn wait_to_own(&self) {
        let free = || {
            let held = self.spinning.load(Ordering::Relaxed);
            if held & WANTED == 0 {
                // Each writer that takes the lock clears the bit.
                self.spinning.fetch_or(WANTED, Ordering::Relaxed);
            }
            held & !WANTED == 0
        };
        spin(|| self.own(), free);
    }
}

// SAFETY: a lock uses the same one of the two words for as long as it lives. The spinning one
// becomes EXCLUSIVE only while there are no readers; a reader that counts itself in meanwhile finds
// a bit above its count and leaves again; Acquire and Release.
unsafe impl lock_api::RawRwLock for RawKindRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait requires an initial value
    const INIT: Self = Self::new(LockKind::Sleep);
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        match self.kind {
            LockKind::Sleep => self.sleeping.lock_shared(),
            LockKind::Spin if self.share() => {}
            LockKind::Spin => {
                spin(|| self.share(), || self.spinning.load(Ordering::Relaxed) < WANTED);
            }
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        match self.kind {
            LockKind::Sleep => self.sleeping.try_lock_shared(),
            LockKind::Spin => self.share(),
        }
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        match self.kind {
            // SAFETY: the caller shares the lock, hence this one.
            LockKind::Sleep => unsafe { self.sleeping.unlock_shared() },
            LockKind::Spin => drop(self.spinning.fetch_sub(1, Ordering::Release)),
        }
    }

    #[inline]
    fn lock_exclusive(&self) {
        match self.kind {
            LockKind::Sleep => self.sleeping.lock_exclusive(),
            LockKind::Spin if self.own() => {}
            LockKind::Spin => self.wait_to_own(),
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        match self.kind {
            LockKind::Sleep => self.sleeping.try_lock_exclusive(),
            LockKind::Spin => self.own(),
        }
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        match self.kind {
            // SAFETY: the caller holds the lock, hence this one.
            LockKind::Sleep => unsafe { self.sleeping.unlock_exclusive() },
            // Keeps concurrent changes: a reader's count on its way in and out, a writer's
            // `WANTED`.
            LockKind::Spin => drop(self.spinning.fetch_and(!EXCLUSIVE, Ordering::Release)),
        }
    }
}

pub(crate) type KindMutex<T> = lock_api::Mutex<RawKindMutex, T>;
pub(crate) type KindMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawKindMutex, T>;
pub(crate) type KindRwLock<T> = lock_api::RwLock<RawKindRwLock, T>;
pub(crate) type KindRwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawKindRwLock, T>;
pub(crate) type KindRwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawKindRwLock, T>;

/// A mutex that waits as `kind` says.
pub(crate) const fn kind_mutex<T>(kind: LockKind, value: T) -> KindMutex<T> {
    lock_api::Mutex::from_raw(RawKindMutex::new(kind), value)
}

/// A reader-writer lock that waits as `kind` says.
pub(crate) const fn kind_rwlock<T>(kind: LockKind, value: T) -> KindRwLock<T> {
    lock_api::RwLock::from_raw(RawKindRwLock::new(kind), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// More threads than cores, in both kinds.
    #[test]
    fn both_kinds_exclude() {
        for kind in [LockKind::Sleep, LockKind::Spin] {
            let (count, start) = (kind_mutex(kind, 0u64), Barrier::new(6));
            thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        start.wait();
                        for n in 0..500 {
                            let mut count = count.lock();
                            let seen = *count;
                            if n % 100 == 0 {
                                thread::yield_now();
                            }
                            *count = seen + 1;
                        }
                    });
                }
            });
            assert_eq!(count.into_inner(), 3_000);
        }
    }

    #[test]
    fn readers_share_and_writers_get_their_turn() {
        for kind in [LockKind::Sleep, LockKind::Spin] {
            let (pair, start) = (kind_rwlock(kind, (0u64, 0u64)), Barrier::new(6));
            thread::scope(|scope| {
                for t in 0..6u64 {
                    let (pair, start) = (&pair, &start);
                    scope.spawn(move || {
                        start.wait();
                        for n in 0..300 {
                            if t < 2 {
                                let mut pair = pair.write();
                                pair.0 += 1;
                                if n % 100 == 0 {
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
            assert_eq!(pair.into_inner(), (600, 600));
        }
    }

    #[test]
    fn attempts_do_not_wait() {
        for kind in [LockKind::Sleep, LockKind::Spin] {
            let lock = kind_rwlock(kind, ());
            let reader = lock.read();
            assert!(lock.try_read().is_some() && lock.try_write().is_none());
            drop(reader);
            let writer = lock.write();
            assert!(lock.try_read().is_none() && lock.try_write().is_none());
            drop(writer);
            assert!(lock.try_write().is_some());
            let mutex = kind_mutex(kind, ());
            let guard = mutex.lock();
            assert!(mutex.try_lock().is_none() && mutex.is_locked());
            drop(guard);
            assert!(mutex.try_lock().is_some());
        }
    }
}
