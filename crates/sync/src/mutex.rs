//! Mutual exclusion with a class.

use crate::LockClass;
use crate::primitive::{self, constant};
use crate::rank::Held;
use crate::stats::{Hold, Meter};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// Mutual exclusion with a class.
pub struct Mutex<T: ?Sized> {
    class: &'static LockClass,
    meter: Meter,
    inner: primitive::Mutex<T>,
}

/// Holds a [`Mutex`] until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Dropped in this order: counted, unlocked, then off the stack of what is held.
    pub(crate) hold: Hold<'a>,
    pub(crate) inner: primitive::MutexGuard<'a, T>,
    pub(crate) held: Held,
}

impl<T> Mutex<T> {
    constant! {
        /// A new unlocked mutex of `class`.
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self { class, meter: Meter::new(), inner: primitive::Mutex::new(value) }
        }
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug and model builds, if the caller holds anything of this class's
    /// rank or above (see [`LockClass`]).
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::enter(self.class);
        let (attempt, wait) = (|| self.inner.try_lock(), || self.inner.lock());
        let (inner, hold) = self.meter.acquire(self.class, Location::caller(), attempt, wait);
        MutexGuard { hold, inner, held }
    }

    /// Takes the lock if it is free now, whatever the caller holds.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let got = self.inner.try_lock();
        let (inner, hold) = self.meter.tried(self.class, Location::caller(), got)?;
        Some(MutexGuard { hold, inner, held: Held::record(self.class) })
    }

    /// Whether somebody holds the lock at this moment; a look only, which takes nothing and
    /// orders nothing.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// The class this lock was made with.
    pub fn class(&self) -> &'static LockClass {
        self.class
    }

    /// Access without locking, by exclusive ownership.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("class", &self.class.name).finish_non_exhaustive()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
