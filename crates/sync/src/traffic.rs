//! Declarations of what code under a lock accesses and computes, for back ends that charge for it.
//!
//! Real and model-checked back ends have no code for them.

use crate::primitive;
use nextent_num::to_u64;

/// Declares that the caller loads all of `data`.
#[inline(always)]
pub fn reads<T: ?Sized>(data: &T) {
    access(data, false);
}

/// Declares that the caller stores to all of `data`.
#[inline(always)]
pub fn writes<T: ?Sized>(data: &T) {
    access(data, true);
}

#[inline(always)]
fn access<T: ?Sized>(data: &T, stores: bool) {
    let address = std::ptr::from_ref(data).cast::<()>().addr();
    primitive::access_bytes(address, size_of_val(data), stores);
}

/// Declares a binary search that ends at `at`: each step loads an entry and depends on the one
/// before.
#[inline(always)]
pub fn searches<T>(data: &[T], at: usize) {
    if !primitive::CHARGES {
        return;
    }
    let (mut from, mut to) = (0, data.len());
    while from < to {
        let middle = from + (to - from) / 2;
        reads(&data[middle]);
        primitive::wait_for_last_access();
        if middle < at { from = middle + 1 } else { to = middle }
    }
}

/// Declares that the caller executes about so many instructions here, without an operation on a
/// lock or an atomic among them. Other code is taken to be spread evenly over such operations.
#[inline(always)]
pub fn computes(instructions: u64) {
    primitive::declare_instructions(instructions, true);
}

/// Computes a checksum of all of `data` by `sum`, and declares it: two instructions for eight
/// bytes, which are not among the counted instructions of an operation.
#[inline(always)]
pub fn sums<T>(data: &[u8], sum: impl FnOnce(&[u8]) -> T) -> T {
    if primitive::CHARGES {
        reads(data);
        primitive::declare_instructions(to_u64(data.len()) / 4, false);
    }
    sum(data)
}

/// Declares that the caller's next accesses depend on its last one, so that the processor cannot
/// begin them before.
#[inline(always)]
pub fn leads_on() {
    primitive::wait_for_last_access();
}

/// Declares that the next operation on a lock or an atomic follows at once: the time between the
/// two decides how often other threads come in between.
#[inline(always)]
pub fn at_once() {
    primitive::at_once();
}
