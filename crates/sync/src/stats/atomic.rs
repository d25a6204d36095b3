//! Atomics that count their shared stores.
//!
//! They have the part of the standard interface that the crates above use. A failed
//! compare-exchange counts as a store, because it moves the line like one.

use super::count;
use super::meter::{LastStore, enabled};
use crate::LockClass;
use crate::primitive::{self, constant};
use std::fmt;
use std::panic::Location;

pub use primitive::atomic::{Ordering, compiler_fence, fence};

static ATOMICS: LockClass = LockClass::new("(atomics)", 0);

impl LastStore {
    #[inline]
    #[track_caller]
    fn store(&self) {
        if enabled() {
            self.store_counted(Location::caller());
        }
    }

    #[inline(never)]
    fn store_counted(&self, site: &'static Location<'static>) {
        count::taken(&ATOMICS);
        if self.note() {
            count::shared(&ATOMICS, site);
        }
    }
}

macro_rules! counted {
    (
        $(#[$doc:meta])* $name:ident [$($generic:ident)?] of $value:ty;
        $($method:ident)*
    ) => {
        $(#[$doc])*
        pub struct $name$(<$generic>)? {
            inner: primitive::atomic::$name$(<$generic>)?,
            last: LastStore,
        }

        #[allow(missing_docs, reason = "they are the standard atomics' methods")]
        impl$(<$generic>)? $name$(<$generic>)? {
            constant! {
                pub const fn new(value: $value) -> Self {
                    Self { inner: primitive::atomic::$name::new(value), last: LastStore::new() }
                }
            }

            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                self.inner.load(order)
            }

            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.last.store();
                self.inner.store(value, order);
            }

            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.last.store();
                self.inner.swap(value, order)
            }

            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.last.store();
                self.inner.compare_exchange(current, new, success, failure)
            }

            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.last.store();
                self.inner.compare_exchange_weak(current, new, success, failure)
            }

            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.last.store();
                self.inner.fetch_update(set_order, fetch_order, f)
            }

            $(
                #[inline]
                #[track_caller]
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    self.last.store();
                    self.inner.$method(value, order)
                }
            )*

            #[cfg(not(feature = "model-loom"))]
            pub fn get_mut(&mut self) -> &mut $value {
                self.inner.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.inner.into_inner()
            }
        }

        impl$(<$generic>)? From<$value> for $name$(<$generic>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl$(<$generic>)? fmt::Debug for $name$(<$generic>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.inner.fmt(f)
            }
        }
    };
}

macro_rules! counted_ints {
    ($($name:ident of $value:ty;)*) => {$(
        counted! {
            /// The atomic of this name, counted.
            $name [] of $value;
            fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max fetch_min
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    )*};
}

counted_ints! {
    AtomicU8 of u8;
    AtomicU16 of u16;
    AtomicU32 of u32;
    AtomicU64 of u64;
    AtomicUsize of usize;
    AtomicI8 of i8;
    AtomicI16 of i16;
    AtomicI32 of i32;
    AtomicI64 of i64;
    AtomicIsize of isize;
}

counted! {
    /// The atomic of this name, counted.
    AtomicBool [] of bool;
    fetch_and fetch_nand fetch_or fetch_xor
}

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

counted! {
    /// The atomic of this name, counted.
    AtomicPtr [T] of *mut T;
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
