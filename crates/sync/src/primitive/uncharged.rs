//! For back ends that charge nothing: call sites and declared accesses without a size and without
//! code.

use crate::LockClass;
use crate::rank::Site;

/// Whether operations and declarations cost anything.
pub(crate) const CHARGES: bool = false;

/// Tables hash as the standard library's do.
pub(crate) type HashKeys = std::collections::hash_map::RandomState;

/// Only an external back end injects bugs.
#[cfg(feature = "mutants")]
pub(crate) fn is_injected(_: &str) -> bool {
    false
}

/// The lock and the call site of an operation. Statistics have their own.
#[cfg_attr(feature = "lockstat", allow(dead_code))]
#[derive(Clone, Copy)]
pub(crate) struct Operation;

#[cfg_attr(feature = "lockstat", allow(dead_code))]
impl Operation {
    #[inline(always)]
    pub(crate) fn new(_: &'static LockClass, _: Site) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn begin(self) {}
}

#[inline(always)]
pub(crate) fn access_bytes(_: usize, _: usize, _: bool) {}

#[inline(always)]
pub(crate) fn at_once() {}

#[inline(always)]
pub(crate) fn declare_instructions(_: u64, _: bool) {}

#[inline(always)]
pub(crate) fn wait_for_last_access() {}
