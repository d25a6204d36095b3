//! Atomics whose cache lines are followed: the standard ones, each access charged to its call site.
//!
//! Invariant: every execution is sequentially consistent, since one real thread runs all simulated
//! ones. So memory orders need no model. A failed compare-exchange takes the line as one that
//! succeeds does.

use crate::access::{access_from, store_from};
use crate::coherence::Access;
use std::fmt;
use std::sync::atomic as std_atomic;

pub use std::sync::atomic::{Ordering, compiler_fence};

/// A fence moves no cache line.
pub fn fence(_: Ordering) {}

macro_rules! followed {
    (
        $(#[$doc:meta])* $name:ident [$($generic:ident)?] of $value:ty;
        $($method:ident)*
    ) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name$(<$generic>)? {
            inner: std_atomic::$name$(<$generic>)?,
        }

        #[allow(missing_docs, reason = "they are the standard atomics' methods")]
        impl$(<$generic>)? $name$(<$generic>)? {
            pub const fn new(value: $value) -> Self {
                Self { inner: std_atomic::$name::new(value) }
            }

            #[inline]
            #[track_caller]
            fn access(&self, kind: Access) {
                access_from(std::ptr::from_ref(self).addr(), kind);
            }

            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.access(Access::Load);
                self.inner.load(order)
            }

            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                // A sequentially consistent store is an exchange on most machines: the core waits.
                match order {
                    Ordering::SeqCst => self.access(Access::Store),
                    _ => store_from(std::ptr::from_ref(self).addr()),
                }
                self.inner.store(value, order);
            }

            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.access(Access::Rmw);
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
                self.access(Access::Rmw);
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
                self.compare_exchange(current, new, success, failure)
            }

            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.access(Access::Rmw);
                self.inner.fetch_update(set_order, fetch_order, f)
            }

            $(
                #[inline]
                #[track_caller]
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    self.access(Access::Rmw);
                    self.inner.$method(value, order)
                }
            )*

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

macro_rules! followed_ints {
    ($($name:ident of $value:ty;)*) => {$(
        followed! {
            /// The standard atomic of this name, followed.
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

followed_ints! {
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

followed! {
    /// The standard atomic of this name, followed.
    AtomicBool [] of bool;
    fetch_and fetch_nand fetch_or fetch_xor
}

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

followed! {
    /// The standard atomic of this name, followed.
    AtomicPtr [T] of *mut T;
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
