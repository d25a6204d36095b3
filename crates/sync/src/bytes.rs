//! Bytes that are shared to be read and changed by who has them alone.

use crate::{Arc, Common};
use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};

/// Bytes shared by all clones. What one clone changes the others do not see.
///
/// An `Arc` asks by a read-modify-write whether it is alone, since there might be weak references.
/// There are none here, so a load tells.
pub struct SharedBytes(Common<[u8]>);

impl Clone for SharedBytes {
    #[inline]
    #[track_caller]
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl SharedBytes {
    /// The bytes for changing: its own if no other clone shares them, else a copy.
    #[inline]
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.0.is_alone() {
            self.0 = Common(Arc::from(&*self.0));
        }
        // What others did before they dropped their clones (a release each) comes before.
        fence(Ordering::Acquire);
        let bytes = Arc::as_ptr(&self.0.0).cast_mut();
        // SAFETY: this is the only reference: the count is one, no `Common` is ever downgraded (its
        // field is used here and there alone), and nobody can clone it while it is borrowed
        // exclusively, as it is for as long as the result lives. The pointer is the allocation's
        // own, not made from a `&`.
        unsafe { &mut *bytes }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Common(bytes.into()))
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
    fn who_is_alone_again_comes_after_those_who_read() {
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
