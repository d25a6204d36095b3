//! The counts: a table for each slot, summed for a report.

use super::{CallSite, ClassStats, SITES};
use crate::rank::Site;
use crate::{LockClass, SLOTS, current_slot};
use nextent_num::must_fit;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Classes counted one by one; later ones share the last row.
const CLASSES: usize = 128;

static OTHERS: LockClass = LockClass::new("(other classes)", u16::MAX);

/// Classes in the order of their numbers, which begin at one.
static REGISTRY: Mutex<Vec<&'static LockClass>> = Mutex::new(Vec::new());

static TABLES: [OnceLock<Box<SlotTable>>; SLOTS] = [const { OnceLock::new() }; SLOTS];

/// One slot's counts. [relaxed; written by the slot's threads, read by reports]
struct SlotTable {
    classes: [Counters; CLASSES],
    sites: Mutex<HashMap<SiteKey, SiteCount>>,
}

#[derive(Default)]
struct Counters {
    acquisitions: AtomicU64,
    contentions: AtomicU64,
    shared_stores: AtomicU64,
    wait_total: AtomicU64,
    wait_max: AtomicU64,
    hold_total: AtomicU64,
    hold_max: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Holder,
    Sharer,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SiteKey {
    class: usize,
    role: Role,
    site: Site,
}

#[derive(Clone, Copy, Default)]
struct SiteCount {
    count: u64,
    wait: u64,
}

/// An acquisition.
pub(super) fn taken(class: &'static LockClass) {
    add(&here().classes[row(class)].acquisitions, 1);
}

/// An attempt that failed.
pub(super) fn failed(class: &'static LockClass) {
    add(&here().classes[row(class)].contentions, 1);
}

/// A wait that has ended, and the call site of the holder when it began.
pub(super) fn waited(class: &'static LockClass, time: Duration, holder: Option<Site>) {
    let (table, class, time) = (here(), row(class), nanos(time));
    let counters = &table.classes[class];
    add(&counters.contentions, 1);
    add(&counters.wait_total, time);
    counters.wait_max.fetch_max(time, Ordering::Relaxed);
    if let Some(site) = holder {
        table.at(SiteKey { class, role: Role::Holder, site }, time);
    }
}

/// A hold that has ended.
pub(super) fn held(class: &'static LockClass, time: Duration) {
    let counters = &here().classes[row(class)];
    add(&counters.hold_total, nanos(time));
    counters.hold_max.fetch_max(nanos(time), Ordering::Relaxed);
}

/// A shared store.
pub(super) fn shared(class: &'static LockClass, site: Site) {
    let (table, class) = (here(), row(class));
    add(&table.classes[class].shared_stores, 1);
    table.at(SiteKey { class, role: Role::Sharer, site }, 0);
}

/// See [`super::reset`].
pub(crate) fn reset() {
    for table in TABLES.iter().filter_map(OnceLock::get) {
        for counters in &table.classes {
            for counter in counters.all() {
                counter.store(0, Ordering::Relaxed);
            }
        }
        table.sites.lock().clear();
    }
}

/// See [`super::snapshot`].
pub(crate) fn snapshot() -> Vec<ClassStats> {
    let classes = REGISTRY.lock().clone();
    let sites = sites();
    let mut stats: Vec<_> = classes
        .iter()
        .enumerate()
        .map(|(row, class)| sum(row, class, &sites))
        .filter(|stats| stats.acquisitions + stats.contentions > 0)
        .collect();
    stats.sort_by_key(|stats| {
        std::cmp::Reverse((stats.contentions, stats.shared_stores, stats.acquisitions))
    });
    stats
}

impl Counters {
    fn all(&self) -> [&AtomicU64; 7] {
        [
            &self.acquisitions,
            &self.contentions,
            &self.shared_stores,
            &self.wait_total,
            &self.wait_max,
            &self.hold_total,
            &self.hold_max,
        ]
    }
}

impl SlotTable {
    fn at(&self, key: SiteKey, wait: u64) {
        let mut sites = self.sites.lock();
        let entry = sites.entry(key).or_default();
        entry.count += 1;
        entry.wait += wait;
    }
}

fn here() -> &'static SlotTable {
    TABLES[current_slot().index()].get_or_init(|| {
        Box::new(SlotTable {
            classes: std::array::from_fn(|_| Counters::default()),
            sites: Mutex::default(),
        })
    })
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The class's row in the tables.
fn row(class: &'static LockClass) -> usize {
    let number = class.number.load(Ordering::Relaxed);
    if number == 0 { register(class) } else { usize::from(number) - 1 }
}

#[cold]
fn register(class: &'static LockClass) -> usize {
    let mut registry = REGISTRY.lock();
    let number = class.number.load(Ordering::Relaxed);
    if number != 0 {
        return usize::from(number) - 1;
    }
    let row = registry.len().min(CLASSES - 1);
    if row < CLASSES - 1 {
        registry.push(class);
    } else if registry.len() < CLASSES {
        registry.push(&OTHERS);
    }
    class.number.store(must_fit::<u16, _>(row) + 1, Ordering::Relaxed);
    row
}

fn sites() -> HashMap<SiteKey, SiteCount> {
    let mut all: HashMap<SiteKey, SiteCount> = HashMap::new();
    for table in TABLES.iter().filter_map(OnceLock::get) {
        for (key, count) in &*table.sites.lock() {
            let sum = all.entry(*key).or_default();
            sum.count += count.count;
            sum.wait += count.wait;
        }
    }
    all
}

fn sum(row: usize, class: &LockClass, sites: &HashMap<SiteKey, SiteCount>) -> ClassStats {
    let tables = || TABLES.iter().filter_map(OnceLock::get).map(|table| &table.classes[row]);
    let total = |counter: fn(&Counters) -> &AtomicU64| -> u64 {
        tables().map(|counters| counter(counters).load(Ordering::Relaxed)).sum()
    };
    let most = |counter: fn(&Counters) -> &AtomicU64| -> u64 {
        tables().map(|counters| counter(counters).load(Ordering::Relaxed)).max().unwrap_or(0)
    };
    ClassStats {
        name: class.name,
        rank: class.rank,
        acquisitions: total(|counters| &counters.acquisitions),
        contentions: total(|counters| &counters.contentions),
        shared_stores: total(|counters| &counters.shared_stores),
        wait_total: Duration::from_nanos(total(|counters| &counters.wait_total)),
        wait_max: Duration::from_nanos(most(|counters| &counters.wait_max)),
        hold_total: Duration::from_nanos(total(|counters| &counters.hold_total)),
        hold_max: Duration::from_nanos(most(|counters| &counters.hold_max)),
        holders: worst(row, Role::Holder, sites),
        sharers: worst(row, Role::Sharer, sites),
    }
}

fn worst(row: usize, role: Role, sites: &HashMap<SiteKey, SiteCount>) -> Vec<CallSite> {
    let mut chosen: Vec<_> = sites
        .iter()
        .filter(|(key, _)| key.class == row && key.role == role)
        .map(|(key, sum)| CallSite {
            at: key.site,
            count: sum.count,
            wait: Duration::from_nanos(sum.wait),
        })
        .collect();
    // The call site breaks ties, so that equal counts give equal reports.
    chosen.sort_by_key(|site| {
        (std::cmp::Reverse((site.wait, site.count)), site.at.file(), site.at.line())
    });
    chosen.truncate(SITES);
    chosen
}
