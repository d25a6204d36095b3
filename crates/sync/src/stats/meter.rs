//! The part of a lock and of its guard that counts.

use super::count;
use crate::rank::Site;
use crate::{LockClass, current_slot};
use nextent_num::must_fit;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, Ordering};
use std::time::Instant;

pub(super) use count::{reset, snapshot};

/// [relaxed: a thread may see a change slightly later]
static ENABLED: AtomicBool = AtomicBool::new(false);

pub(super) fn switch(on: bool) {
    ENABLED.store(on, Ordering::Relaxed);
}

#[inline(always)]
pub(super) fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// The slot that stored to an object last, plus one; zero before the first store.
pub(super) struct LastStore(AtomicU16);

impl LastStore {
    pub(super) const fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    /// Notes a store of the caller; true if another slot stored last.
    pub(super) fn note(&self) -> bool {
        let me = must_fit::<u16, _>(current_slot().index()) + 1;
        // Counting must not move the line of an object that one slot uses.
        if self.0.load(Ordering::Relaxed) == me {
            return false;
        }
        let last = self.0.swap(me, Ordering::Relaxed);
        last != 0 && last != me
    }
}

/// Beside every lock: the slot that stored to it last, and where its holder took it.
pub(crate) struct Meter {
    last: LastStore,
    /// Of several readers the latest. [relaxed: for reports only]
    holder: AtomicPtr<Location<'static>>,
}

/// Beside every guard: when the lock was taken, if that is counted.
pub(crate) struct Hold<'a> {
    meter: &'a Meter,
    class: &'static LockClass,
    since: Option<(Instant, Site)>,
}

impl Meter {
    pub(crate) const fn new() -> Self {
        Self { last: LastStore::new(), holder: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes the lock by `wait`, counting.
    #[inline]
    pub(crate) fn acquire<'a, G>(
        &'a self,
        class: &'static LockClass,
        site: Site,
        attempt: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> (G, Hold<'a>) {
        if !enabled() {
            return (wait(), Hold { meter: self, class, since: None });
        }
        let guard = attempt().unwrap_or_else(|| self.wait(class, site, wait));
        (guard, self.taken(class, site))
    }

    /// Called before an attempt; [`tried`](Self::tried) counts it afterwards.
    #[inline(always)]
    pub(crate) fn trying(&self, _: &'static LockClass, _: Site) {}

    /// Counts an attempt that did not wait.
    #[inline]
    pub(crate) fn tried<'a, G>(
        &'a self,
        class: &'static LockClass,
        site: Site,
        got: Option<G>,
    ) -> Option<(G, Hold<'a>)> {
        if !enabled() {
            return got.map(|guard| (guard, Hold { meter: self, class, since: None }));
        }
        if got.is_none() {
            // The failed attempt moved the holder's line too.
            self.stored(class, site);
            count::failed(class);
        }
        got.map(|guard| (guard, self.taken(class, site)))
    }

    #[inline(never)]
    fn wait<G>(&self, class: &'static LockClass, site: Site, wait: impl FnOnce() -> G) -> G {
        self.stored(class, site);
        let holder = self.holder();
        let start = Instant::now();
        let guard = wait();
        count::waited(class, start.elapsed(), holder);
        guard
    }

    #[inline(never)]
    fn taken(&self, class: &'static LockClass, site: Site) -> Hold<'_> {
        count::taken(class);
        self.stored(class, site);
        self.holder.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
        Hold { meter: self, class, since: Some((Instant::now(), site)) }
    }

    fn stored(&self, class: &'static LockClass, site: Site) {
        if self.last.note() {
            count::shared(class, site);
        }
    }

    fn holder(&self) -> Option<Site> {
        let holder = self.holder.load(Ordering::Relaxed);
        // SAFETY: the pointer is null or was made from a `&'static Location`.
        unsafe { holder.as_ref() }
    }
}

impl Hold<'_> {
    /// Ends this hold, at the start of a wait on a condition.
    #[inline]
    pub(crate) fn suspend(&mut self) {
        if let Some((since, site)) = self.since.take() {
            self.released(since, site);
        }
    }

    /// Begins another hold, at the end of such a wait.
    #[inline]
    pub(crate) fn resume(&mut self, site: Site) {
        if enabled() {
            *self = self.meter.taken(self.class, site);
        }
    }

    #[inline(never)]
    fn released(&self, since: Instant, site: Site) {
        count::held(self.class, since.elapsed());
        self.meter.stored(self.class, site);
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.suspend();
    }
}
