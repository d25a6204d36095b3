//! References that many cores clone and drop.

use crate::{Arc, primitive};
use std::ops::Deref;

/// An [`Arc`] that many cores clone and drop. A back end that charges for accesses charges for the
/// changes of its count.
pub struct Common<T: ?Sized>(pub(crate) Arc<T>);

impl<T> Common<T> {
    /// The first reference.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: ?Sized> Common<T> {
    /// Whether both refer to the same object.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether this is the only reference at this moment, by a relaxed load of the count.
    ///
    /// A caller that changes the value because of that first passes an acquire fence, which pairs
    /// with the drops of other references. The caller makes sure that no thread clones this
    /// reference meanwhile.
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
        self.charge();
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Drop for Common<T> {
    #[inline]
    fn drop(&mut self) {
        self.charge();
    }
}

impl<T: ?Sized> Common<T> {
    /// Charges for the change of the count, where a back end does that.
    #[inline(always)]
    #[track_caller]
    fn charge(&self) {
        if primitive::CHARGES {
            // The count lies in front of the value, beside that of weak references.
            let counts = (2 * size_of::<usize>()).next_multiple_of(align_of_val(&*self.0));
            primitive::access_count(Arc::as_ptr(&self.0).cast::<()>().addr() - counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_reference_is_alone() {
        let (one, other) = (Common::new(7), Common::new(7));
        assert!(one.is_alone() && !one.ptr_eq(&other));
        let same = one.clone();
        assert!(same.ptr_eq(&one) && *same == 7 && !one.is_alone());
        drop(one);
        assert!(same.is_alone());
    }
}
