//! Mutual exclusion with a class.

use crate::primitive::{self, constant};
use crate::rank::Held;
use crate::stats::{Hold, Meter};
use crate::{LockClass, LockKind};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

macro_rules! kind {
    ($(#[$meta:meta])* $name:ident, $guard:ident) => {
        $(#[$meta])*
        pub struct $name<T: ?Sized> {
            class: &'static LockClass,
            meter: Meter,
            inner: primitive::$name<T>,
        }

        /// Holds the lock until dropped.
        #[must_use = "the lock is released when this is dropped"]
        pub struct $guard<'a, T: ?Sized> {
            // Dropped in this order: counted, unlocked, then off the stack of held locks.
            #[allow(dead_code)] // a condition uses it, other locks only drop it
            pub(crate) hold: Hold<'a>,
            pub(crate) inner: primitive::$guard<'a, T>,
            #[allow(dead_code)] // as `hold`
            pub(crate) held: Held,
        }

        impl<T> $name<T> {
            constant! {
                /// A new unlocked mutex of `class`.
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
            /// Waits for the lock.
            ///
            /// # Panics
            /// In debug and model builds, if the caller holds anything of this class's
            /// rank or above (see [`LockClass`]).
            #[inline]
            #[track_caller]
            pub fn lock(&self) -> $guard<'_, T> {
                let held = Held::enter(self.class);
                let (attempt, wait) = (|| self.inner.try_lock(), || self.inner.lock());
                let here = Location::caller();
                let (inner, hold) = self.meter.acquire(self.class, here, attempt, wait);
                $guard { hold, inner, held }
            }

            /// Takes the lock if it is free now, whatever the caller holds.
            #[inline]
            #[track_caller]
            pub fn try_lock(&self) -> Option<$guard<'_, T>> {
                self.meter.trying(self.class, Location::caller());
                let got = self.inner.try_lock();
                let (inner, hold) = self.meter.tried(self.class, Location::caller(), got)?;
                Some($guard { hold, inner, held: Held::record(self.class) })
            }

            /// Whether a thread holds the lock at this moment. It takes nothing and orders nothing.
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

        impl<T: ?Sized> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                shown.field("class", &self.class.name).finish_non_exhaustive()
            }
        }

        impl<T: ?Sized> Deref for $guard<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                &self.inner
            }
        }

        impl<T: ?Sized> DerefMut for $guard<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.inner
            }
        }
    };
}

kind! {
    /// Mutual exclusion with a class.
    Mutex, MutexGuard
}

kind! {
    /// A biased mutex: cheap for data that nearly always the same thread uses.
    ///
    /// An uncontended hold costs half as much as a [`Mutex`]'s, because the release is a plain
    /// store. In return a thread that must wait may use membarrier(2), which interrupts every core
    /// that runs the process. No condition can wait with it.
    BiasedMutex, BiasedMutexGuard
}

kind! {
    /// As [`Mutex`]; how a thread waits is chosen when the lock is made.
    KindMutex, KindMutexGuard
}

impl<T> KindMutex<T> {
    /// A new unlocked mutex of `class`, for which threads wait as `kind` says.
    pub fn of_kind(kind: LockKind, class: &'static LockClass, value: T) -> Self {
        Self { class, meter: Meter::new(), inner: primitive::kind_mutex(kind, value) }
    }
}
