//! Statistics left out of the build. Each operation is passed to the back end; the real and the
//! model-checked ones have no code for it.

use super::ClassStats;
use crate::LockClass;
use crate::primitive::Operation;
use crate::rank::Site;
use std::marker::PhantomData;

pub(crate) struct Meter;

/// The operation that took a lock. Its release is charged to the same call site.
pub(crate) struct Hold<'a>(Operation, PhantomData<&'a Meter>);

impl Meter {
    pub(crate) const fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn acquire<'a, G>(
        &'a self,
        class: &'static LockClass,
        site: Site,
        _: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> (G, Hold<'a>) {
        let operation = Operation::new(class, site);
        operation.begin();
        (wait(), Hold(operation, PhantomData))
    }

    #[inline(always)]
    pub(crate) fn trying(&self, class: &'static LockClass, site: Site) {
        Operation::new(class, site).begin();
    }

    #[inline(always)]
    pub(crate) fn tried<'a, G>(
        &'a self,
        class: &'static LockClass,
        site: Site,
        got: Option<G>,
    ) -> Option<(G, Hold<'a>)> {
        got.map(|guard| (guard, Hold(Operation::new(class, site), PhantomData)))
    }
}

impl Hold<'_> {
    #[inline(always)]
    pub(crate) fn suspend(&mut self) {
        self.0.begin();
    }

    #[inline(always)]
    pub(crate) fn resume(&mut self, _: Site) {}
}

impl Drop for Hold<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.begin();
    }
}

pub(super) fn switch(_: bool) {}

pub(super) fn reset() {}

pub(super) fn snapshot() -> Vec<ClassStats> {
    Vec::new()
}
