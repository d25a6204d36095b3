//! Many readers or one writer, with a class.

use crate::primitive::{self, constant};
use crate::rank::Held;
use crate::stats::{Hold, Meter};
use crate::{LockClass, LockKind};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

macro_rules! kind {
    ($(#[$meta:meta])* $name:ident, $read:ident, $write:ident) => {
        $(#[$meta])*
        pub struct $name<T: ?Sized> {
            class: &'static LockClass,
            meter: Meter,
            inner: primitive::$name<T>,
        }

        /// Holds the lock shared until dropped.
        #[must_use = "the lock is released when this is dropped"]
        pub struct $read<'a, T: ?Sized> {
            // Dropped in this order: counted, unlocked, then off the stack of held locks.
            _hold: Hold<'a>,
            inner: primitive::$read<'a, T>,
            _held: Held,
        }

        /// Holds the lock exclusively until dropped.
        #[must_use = "the lock is released when this is dropped"]
        pub struct $write<'a, T: ?Sized> {
            // Dropped in this order: counted, unlocked, then off the stack of held locks.
            _hold: Hold<'a>,
            inner: primitive::$write<'a, T>,
            _held: Held,
        }

        impl<T> $name<T> {
            constant! {
                /// A new unlocked lock of `class`.
                pub const fn new(class: &'static LockClass, value: T) -> Self {
                    Self { class, meter: Meter::new(), inner: primitive::$name::new(value) }
                }
            }

            /// Unwraps the value.
            pub fn into_inner(self) -> T {
                self.inner.into_inner()
            }
        }

        impl<T: ?Sized> $name<T> {
            /// Waits for shared access.
            ///
            /// # Panics
            /// In debug and model builds, if the caller holds anything of this class's
            /// rank or above (see [`LockClass`]).
            #[inline]
            #[track_caller]
            pub fn read(&self) -> $read<'_, T> {
                let held = Held::enter(self.class);
                let (attempt, wait) = (|| self.inner.try_read(), || self.inner.read());
                let here = Location::caller();
                let (inner, hold) = self.meter.acquire(self.class, here, attempt, wait);
                $read { _hold: hold, inner, _held: held }
            }

            /// Waits for exclusive access.
            ///
            /// # Panics
            /// As [`read`](Self::read).
            #[inline]
            #[track_caller]
            pub fn write(&self) -> $write<'_, T> {
                let held = Held::enter(self.class);
                let (attempt, wait) = (|| self.inner.try_write(), || self.inner.write());
                let here = Location::caller();
                let (inner, hold) = self.meter.acquire(self.class, here, attempt, wait);
                $write { _hold: hold, inner, _held: held }
            }

            /// Shared access if the lock is free for it now, whatever the caller holds.
            #[inline]
            #[track_caller]
            pub fn try_read(&self) -> Option<$read<'_, T>> {
                self.meter.trying(self.class, Location::caller());
                let got = self.inner.try_read();
                let (inner, hold) = self.meter.tried(self.class, Location::caller(), got)?;
                Some($read { _hold: hold, inner, _held: Held::record(self.class) })
            }

            /// Exclusive access if the lock is free now, whatever the caller holds.
            #[inline]
            #[track_caller]
            pub fn try_write(&self) -> Option<$write<'_, T>> {
                self.meter.trying(self.class, Location::caller());
                let got = self.inner.try_write();
                let (inner, hold) = self.meter.tried(self.class, Location::caller(), got)?;
                Some($write { _hold: hold, inner, _held: Held::record(self.class) })
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

        impl<T: ?Sized> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                shown.field("class", &self.class.name).finish_non_exhaustive()
            }
        }

        impl<T: ?Sized> Deref for $read<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                &self.inner
            }
        }

        impl<T: ?Sized> Deref for $write<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                &self.inner
            }
        }

        impl<T: ?Sized> DerefMut for $write<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.inner
            }
        }
    };
}

kind! {
    /// Many readers or one writer, with a class.
    ///
    /// A thread that holds it shared may not take it shared again: a writer that waits in between
    /// would block both. The rank check refuses it like any second lock of a class.
    RwLock, RwLockReadGuard, RwLockWriteGuard
}

kind! {
    /// A biased [`RwLock`]: cheap for data that nearly always the same thread uses.
    ///
    /// The release of exclusive access is a plain store. In return a thread that must wait may use
    /// membarrier(2), which interrupts every core that runs the process.
    BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard
}

kind! {
    /// As [`RwLock`]; how a thread waits is chosen when the lock is made.
    KindRwLock, KindRwLockReadGuard, KindRwLockWriteGuard
}

impl<T> KindRwLock<T> {
    /// A new unlocked lock of `class`, for which threads wait as `kind` says.
    pub fn of_kind(kind: LockKind, class: &'static LockClass, value: T) -> Self {
        Self { class, meter: Meter::new(), inner: primitive::kind_rwlock(kind, value) }
    }
}
