//! Shared bytes with copy on write.

use crate::Arc;
use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};

/// Bytes shared by all clones. A change of one clone is invisible to the others.
///
/// `Arc::get_mut` needs a read-modify-write to see that a reference is the only one, because weak
/// references may exist. There are none here, so a load is enough.
pub struct SharedBytes(Arc<[u8]>);

impl Clone for SharedBytes {
    #[inline]
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl SharedBytes {
    /// The bytes for changing: the clone's own if no other clone shares them, else a copy.
    #[inline]
    pub fn make_mut(&mut self) -> &mut [u8] {
        if Arc::strong_count(&self.0) != 1 {
            self.0 = Arc::from(&*self.0);
        }
        // Pairs with the Release of each dropped clone: what its owner did comes before.
        fence(Ordering::Acquire);
        let bytes = Arc::as_ptr(&self.0).cast_mut();
        // SAFETY: this is the only reference: the count is one, the `Arc` is never downgraded (the
        // field is used in this file only), and no thread can clone it while it is borrowed
        // exclusively, as it is for as long as the result lives. The pointer is the allocation's
        // own, not made from a `&`.
        unsafe { &mut *bytes }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_do_not_see_changes() {
        let mut mine = SharedBytes::from(vec![1, 2, 3]);
        let at = mine.as_ptr();
        mine.make_mut()[0] = 9;
        assert_eq!(mine.as_ptr(), at);
        let theirs = mine.clone();
        mine.make_mut()[1] = 9;
        assert!(*mine == [9, 9, 3] && *theirs == [9, 2, 3]);
        assert!(theirs.as_ptr() == at && mine.as_ptr() != at);
        drop(theirs);
        mine.make_mut()[2] = 9;
        assert_eq!(*mine, [9, 9, 9]);
    }

    #[cfg(not(any(feature = "model-shuttle", feature = "model-loom")))]
    #[test]
    fn a_change_comes_after_the_reads_of_dropped_clones() {
        for _ in 0..200 {
            let mut mine = SharedBytes::from(vec![0; 64]);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let theirs = mine.clone();
                    scope.spawn(move || assert!(theirs.iter().all(|byte| *byte == 0)));
                }
                mine.make_mut().fill(1);
            });
            assert!(mine.iter().all(|byte| *byte == 1));
        }
    }
}
