//! What moves with a lock: plain data that a simulation is told of.
//!
//! Code that uses much data under a lock says so here. Only a simulated build listens.

/// Says that the caller reads all of `data`.
#[inline(always)]
pub fn reads<T: ?Sized>(data: &T) {
    tell(data, false);
}

/// Says that the caller stores in all of `data`.
#[inline(always)]
pub fn writes<T: ?Sized>(data: &T) {
    tell(data, true);
}

#[cfg(not(feature = "simulated"))]
#[inline(always)]
fn tell<T: ?Sized>(_: &T, _: bool) {}

#[cfg(feature = "simulated")]
fn tell<T: ?Sized>(data: &T, stores: bool) {
    crate::sim::traffic(std::ptr::from_ref(data).cast::<()>().addr(), size_of_val(data), stores);
}
