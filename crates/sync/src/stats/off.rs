//! Statistics left out of the build: empty types and no code.

use super::ClassStats;
use crate::LockClass;
use crate::rank::Site;
use std::marker::PhantomData;

pub(crate) struct Meter;

pub(crate) struct Hold<'a>(PhantomData<&'a Meter>);

impl Meter {
    pub(crate) const fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn acquire<'a, G>(
        &'a self,
        _: &'static LockClass,
        _: Site,
        _: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> (G, Hold<'a>) {
        (wait(), Hold(PhantomData))
    }

    #[inline(always)]
    pub(crate) fn trying(&self, _: &'static LockClass, _: Site) {}

    #[inline(always)]
    pub(crate) fn tried<'a, G>(
        &'a self,
        _: &'static LockClass,
        _: Site,
        got: Option<G>,
    ) -> Option<(G, Hold<'a>)> {
        got.map(|guard| (guard, Hold(PhantomData)))
    }
}

impl Hold<'_> {
    #[inline(always)]
    pub(crate) fn suspend(&mut self) {}

    #[inline(always)]
    pub(crate) fn resume(&mut self, _: Site) {}
}

pub(super) fn switch(_: bool) {}

pub(super) fn reset() {}

pub(super) fn snapshot() -> Vec<ClassStats> {
    Vec::new()
}
