//! Many readers or one writer, with a class.

use crate::LockClass;
use crate::primitive::{self, constant};
use crate::rank::Held;
use crate::stats::{Hold, Meter};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// Many readers or one writer, with a class.
///
/// A thread that reads may not read again: a writer waiting in between would
/// stop both. The rank check refuses it as it does any second lock of a class.
pub struct RwLock<T: ?Sized> {
    class: &'static LockClass,
    meter: Meter,
    inner: primitive::RwLock<T>,
}

/// Holds a [`RwLock`] shared until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    // Dropped in this order: counted, unlocked, then off the stack of what is held.
    _hold: Hold<'a>,
    inner: primitive::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Holds a [`RwLock`] exclusively until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    // Dropped in this order: counted, unlocked, then off the stack of what is held.
    _hold: Hold<'a>,
    inner: primitive::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    constant! {
        /// A new unlocked lock of `class`.
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self { class, meter: Meter::new(), inner: primitive::RwLock::new(value) }
        }
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    ///
    /// # Panics
    /// In debug and model builds, if the caller holds anything of this class's
    /// rank or above (see [`LockClass`]).
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = Held::enter(self.class);
        let (attempt, wait) = (|| self.inner.try_read(), || self.inner.read());
        let (inner, hold) = self.meter.acquire(self.class, Location::caller(), attempt, wait);
        RwLockReadGuard { _hold: hold, inner, _held: held }
    }

    /// Waits for exclusive access.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = Held::enter(self.class);
        let (attempt, wait) = (|| self.inner.try_write(), || self.inner.write());
        let (inner, hold) = self.meter.acquire(self.class, Location::caller(), attempt, wait);
        RwLockWriteGuard { _hold: hold, inner, _held: held }
    }

    /// Shared access if it is to be had now, whatever the caller holds.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let got = self.inner.try_read();
        let (inner, hold) = self.meter.tried(self.class, Location::caller(), got)?;
        Some(RwLockReadGuard { _hold: hold, inner, _held: Held::record(self.class) })
    }

    /// Exclusive access if it is to be had now, whatever the caller holds.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let got = self.inner.try_write();
        let (inner, hold) = self.meter.tried(self.class, Location::caller(), got)?;
        Some(RwLockWriteGuard { _hold: hold, inner, _held: Held::record(self.class) })
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

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("class", &self.class.name).finish_non_exhaustive()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
