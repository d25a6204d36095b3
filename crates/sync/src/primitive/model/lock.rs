//! A model's locks: the checker's lock of `()` beside the value, so that conditions and unsized
//! values have the same interface as with real locks.

use super::{base, time};
use crate::primitive::constant;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// A panic while locked leaves the lock usable, as with parking_lot.
fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn try_ignoring_poison<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

pub(crate) struct Mutex<T: ?Sized> {
    lock: base::sync::Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only under the lock or by exclusive ownership.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above; the lock hands the value from thread to thread.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

pub(crate) struct MutexGuard<'a, T: ?Sized> {
    /// `None` only inside a wait.
    lock: Option<base::sync::MutexGuard<'a, ()>>,
    mutex: &'a base::sync::Mutex<()>,
    value: *mut T,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    constant! {
        pub(crate) const fn new(value: T) -> Self {
            Self { lock: base::sync::Mutex::new(()), value: UnsafeCell::new(value) }
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let lock = ignore_poison(self.lock.lock());
        MutexGuard { lock: Some(lock), mutex: &self.lock, value: self.value.get() }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let lock = try_ignoring_poison(self.lock.try_lock())?;
        Some(MutexGuard { lock: Some(lock), mutex: &self.lock, value: self.value.get() })
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for as long as it lends the value.
        unsafe { &*self.value }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is itself borrowed exclusively.
        unsafe { &mut *self.value }
    }
}

pub(crate) struct RwLock<T: ?Sized> {
    lock: base::sync::RwLock<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only under the lock or by exclusive ownership.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above; readers on several threads share the value.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

pub(crate) struct RwLockReadGuard<'a, T: ?Sized> {
    value: *const T,
    _lock: base::sync::RwLockReadGuard<'a, ()>,
}

pub(crate) struct RwLockWriteGuard<'a, T: ?Sized> {
    value: *mut T,
    _lock: base::sync::RwLockWriteGuard<'a, ()>,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    constant! {
        pub(crate) const fn new(value: T) -> Self {
            Self { lock: base::sync::RwLock::new(()), value: UnsafeCell::new(value) }
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { _lock: ignore_poison(self.lock.read()), value: self.value.get() }
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { _lock: ignore_poison(self.lock.write()), value: self.value.get() }
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let lock = try_ignoring_poison(self.lock.try_read())?;
        Some(RwLockReadGuard { _lock: lock, value: self.value.get() })
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let lock = try_ignoring_poison(self.lock.try_write())?;
        Some(RwLockWriteGuard { _lock: lock, value: self.value.get() })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock shared for as long as it lends the value.
        unsafe { &*self.value }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for as long as it lends the value.
        unsafe { &*self.value }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is itself borrowed exclusively.
        unsafe { &mut *self.value }
    }
}

/// A mutex; a model does not distinguish how a thread waits.
pub(crate) fn kind_mutex<T>(_: crate::LockKind, value: T) -> Mutex<T> {
    Mutex::new(value)
}

/// A reader-writer lock, likewise.
pub(crate) fn kind_rwlock<T>(_: crate::LockKind, value: T) -> RwLock<T> {
    RwLock::new(value)
}

pub(crate) struct Condvar(base::sync::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    constant! {
        pub(crate) const fn new() -> Self {
            Self(base::sync::Condvar::new())
        }
    }

    pub(crate) fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        let lock = guard.lock.take().expect("a guard outside a wait holds its lock");
        guard.lock = Some(ignore_poison(self.0.wait(lock)));
    }

    /// Releases the lock, lets other threads run, takes it again and reports a time-out. A caller
    /// must expect a clock that coarse, and a model that waited for a notification would report a
    /// deadlock where there is none.
    pub(crate) fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> bool {
        drop(guard.lock.take());
        time::sleep(timeout);
        guard.lock = Some(ignore_poison(guard.mutex.lock()));
        true
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
