//! What a simulation charges, and for which locks and call sites.

use crate::simulation::{Site, with};
use crate::table::NumberMap;
use std::cmp::Reverse;

/// Why time was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A cache line was transferred from another core.
    Line,
    /// Another thread held a lock.
    Lock,
}

/// What was charged for one reason to a lock class at a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The reason.
    pub why: Why,
    /// The lock's class; none for an atomic.
    pub class: Option<&'static str>,
    /// The call site.
    pub site: Option<Site>,
    /// How often.
    pub count: u64,
    /// Picoseconds, of all cores together.
    pub time: u64,
}

/// What a simulation found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Accesses with code before them.
    pub accesses: u64,
    /// Read-modify-writes.
    pub rmws: u64,
    /// Instructions that the code declared.
    pub declared: u64,
    /// What was charged, the most first.
    pub charges: Vec<Charge>,
}

/// The running account.
#[derive(Default)]
pub(crate) struct Charges {
    /// Whether operations cost anything now.
    pub(crate) on: bool,
    /// Picoseconds of the code before an access, and of a declared instruction.
    pub(crate) step: u64,
    pub(crate) instruction: u64,
    pub(crate) accesses: u64,
    pub(crate) rmws: u64,
    pub(crate) declared: u64,
    /// The charges of each call site, in the order of their first charge.
    ///
    /// Invariant: they are dropped in this order. The order of the map below depends on addresses,
    /// and so would the memory that is allocated afterwards, and the cache lines in it.
    sites: Vec<Vec<Charge>>,
    /// The index in `sites` by the call site's address.
    site_index: NumberMap<usize, usize>,
    operations: u64,
    was_reset: bool,
    is_over: bool,
}

impl Charges {
    pub(crate) fn begin(&mut self, step: u64, instruction: u64) {
        (self.on, self.step, self.instruction) = (true, step, instruction);
    }

    pub(crate) fn add(
        &mut self,
        why: Why,
        class: Option<&'static str>,
        site: Option<Site>,
        time: u64,
    ) {
        if self.is_over {
            return;
        }
        let key = site.map_or(0, |site| std::ptr::from_ref(site).addr());
        let next = self.sites.len();
        let index = *self.site_index.entry(key).or_insert(next);
        if index == next {
            self.sites.push(Vec::new());
        }
        let row = &mut self.sites[index];
        let same = |one: &&mut Charge| one.why == why && one.class == class;
        match row.iter_mut().find(same) {
            Some(one) => (one.count, one.time) = (one.count + 1, one.time + time),
            None => row.push(Charge { why, class, site, count: 1, time }),
        }
    }
}

/// Counts operations of all threads together; the count before. Costs nothing and touches no line.
pub fn count_operation() -> u64 {
    with(|sim| {
        sim.charges.operations += 1;
        sim.charges.operations - 1
    })
    .unwrap_or(0)
}

/// Forgets what was charged so far. Only the first call does.
pub fn begin_measurement() {
    with(|sim| {
        let charges = &mut sim.charges;
        if !std::mem::replace(&mut charges.was_reset, true) {
            (charges.accesses, charges.rmws, charges.declared) = (0, 0, 0);
            charges.sites.clear();
            charges.site_index.clear();
        }
    });
}

/// Leaves out what is charged from now on.
pub fn end_measurement() {
    with(|sim| sim.charges.is_over = true);
}

/// Stops charging; what was charged.
pub fn finish() -> Found {
    with(|sim| {
        sim.charges.on = false;
        let mut charges: Vec<Charge> = sim.charges.sites.iter().flatten().copied().collect();
        // By what a reader sees, so that the order is the same in each process.
        charges.sort_by_key(|one| {
            let place = one.site.map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
            (Reverse(one.time), one.count, place, one.class, one.why == Why::Lock)
        });
        let (accesses, rmws) = (sim.charges.accesses, sim.charges.rmws);
        Found { accesses, rmws, declared: sim.charges.declared, charges }
    })
    .unwrap_or_default()
}
