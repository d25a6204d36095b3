//! A reference to what many cores have references to.

use crate::Arc;
use std::ops::Deref;

/// An [`Arc`] of which the count is shared by cores, so that a simulation is to know of it: each
/// clone and each drop changes the line that it lies on.
pub struct Common<T: ?Sized>(pub(crate) Arc<T>);

impl<T> Common<T> {
    /// The first reference.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: ?Sized> Common<T> {
    /// Whether both refer to the same.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether there is no other reference just now, by a relaxed load of the count. Who changes
    /// the value because of that needs an acquire fence first, for what others did before they
    /// dropped theirs; and that nobody clones this one meanwhile the caller has to see to.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T: ?Sized> Deref for Common<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Common<T> {
    #[inline]
    #[track_caller]
    fn clone(&self) -> Self {
        #[cfg(feature = "simulated")]
        self.count();
        Self(Arc::clone(&self.0))
    }
}

#[cfg(feature = "simulated")]
impl<T: ?Sized> Drop for Common<T> {
    fn drop(&mut self) {
        self.count();
    }
}

/// Simulated cores are charged for the change of the count, which lies in front of the value.
#[cfg(feature = "simulated")]
impl<T: ?Sized> Common<T> {
    #[track_caller]
    fn count(&self) {
        // An `Arc`'s two counts.
        let counts = (2 * size_of::<usize>()).next_multiple_of(align_of_val(&*self.0));
        crate::sim::counted(Arc::as_ptr(&self.0).cast::<()>().addr() - counts);
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_knows() {
        let (one, other) = (Common::new(7), Common::new(7));
        assert!(one.is_alone() && !one.ptr_eq(&other));
        let same = one.clone();
        assert!(same.ptr_eq(&one) && *same == 7 && !one.is_alone());
        drop(one);
        assert!(same.is_alone());
    }
}
