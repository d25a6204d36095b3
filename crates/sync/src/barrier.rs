//! An asymmetric barrier, whose fast side costs almost nothing.
//!
//! For protocols in which many threads often store something of their own and then load a shared
//! word, while one thread seldom stores that word and then loads what all of them stored. Each side
//! has its barrier between its store and its loads. At least one of the two then sees the other's
//! store.
//!
//! | side | function | on Linux | elsewhere |
//! |---|---|---|---|
//! | fast | [`asymmetric_fast`] | a compiler barrier | a full fence |
//! | slow | [`asymmetric_slow`] | membarrier(2): interrupts the process's cores | a full fence |

use crate::primitive;

/// The fast side: sequentially consistent with respect to every [`asymmetric_slow`], but not to
/// another fast side.
#[inline]
pub fn asymmetric_fast() {
    primitive::asymmetric_fast();
}

/// The slow side: takes microseconds.
pub fn asymmetric_slow() {
    primitive::asymmetric_slow();
}
