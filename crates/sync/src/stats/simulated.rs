//! In a simulated build: tells the simulation which lock, taken where, time passes for.

use super::ClassStats;
use crate::LockClass;
use crate::primitive::sim::world;
use crate::rank::Site;
use std::marker::PhantomData;

pub(crate) struct Meter;

/// Where a lock was taken, so that letting go is charged to that place.
pub(crate) struct Hold<'a> {
    class: &'static LockClass,
    site: Site,
    meter: PhantomData<&'a Meter>,
}

impl Meter {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn acquire<'a, G>(
        &'a self,
        class: &'static LockClass,
        site: Site,
        _: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> (G, Hold<'a>) {
        world::at(Some(class), site);
        (wait(), Hold { class, site, meter: PhantomData })
    }

    /// Before an attempt.
    pub(crate) fn trying(&self, class: &'static LockClass, site: Site) {
        world::at(Some(class), site);
    }

    pub(crate) fn tried<'a, G>(
        &'a self,
        class: &'static LockClass,
        site: Site,
        got: Option<G>,
    ) -> Option<(G, Hold<'a>)> {
        got.map(|guard| (guard, Hold { class, site, meter: PhantomData }))
    }
}

impl Hold<'_> {
    pub(crate) fn suspend(&mut self) {
        world::at(Some(self.class), self.site);
    }

    pub(crate) fn resume(&mut self, _: Site) {}
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        world::at(Some(self.class), self.site);
    }
}

pub(super) fn switch(_: bool) {}

pub(super) fn reset() {}

pub(super) fn snapshot() -> Vec<ClassStats> {
    Vec::new()
}
