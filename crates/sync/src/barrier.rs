//! Fences of which the frequent side pays almost nothing.
//!
//! For protocols in which many threads often store something of their own and
//! then look at a shared word, while one thread seldom stores that word and
//! then looks at what all of them stored: each side puts its barrier between
//! its store and its loads, and then at least one of the two sees the other.
//! With membarrier(2) the light side is a matter for the compiler alone.

use crate::primitive;

/// The frequent side's fence: sequentially consistent with respect to every
/// [`heavy_barrier`], not to another light one.
#[inline]
pub fn light_barrier() {
    primitive::light_barrier();
}

/// The seldom side's fence: interrupts each core that runs this process, which
/// takes microseconds; a plain fence where the system cannot do that (there
/// the light side is one too).
pub fn heavy_barrier() {
    primitive::heavy_barrier();
}
