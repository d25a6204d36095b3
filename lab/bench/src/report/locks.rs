//! Lock statistics in the layout of /proc/lock_stat, with times in microseconds. Below a class are
//! the call sites that held a lock when other threads began to wait, with their share of the
//! waits. For a historical design the kernel's name of the lock comes first.

use crate::count::ClassCounts;
use crate::kernel_names::kernel_lock;
use std::fmt::{self, Formatter};

/// Call sites shown for a class.
const SITES: usize = 4;

pub(super) fn table(
    f: &mut Formatter<'_>,
    classes: &[ClassCounts],
    is_historical: bool,
) -> fmt::Result {
    writeln!(
        f,
        "{:<22} {:>12} {:>10} {:>10} {:>12} {:>14} {:>12} {:>14}",
        "class",
        "acquired",
        "contended",
        "shared",
        "waittime-max",
        "waittime-total",
        "holdtime-max",
        "holdtime-total"
    )?;
    for class in classes {
        let [wait, wait_max] = class.wait_ns.map(micros);
        let [hold, hold_max] = class.hold_ns.map(micros);
        writeln!(
            f,
            "{:<22} {:>12} {:>10} {:>10} {wait_max:>12} {wait:>14} {hold_max:>12} {hold:>14}",
            class.class, class.acquired, class.contended, class.shared_stores
        )?;
        if let Some(name) = kernel_lock(&class.class).filter(|_| is_historical) {
            writeln!(f, "    in Linux   {name}")?;
        }
        let waits: u64 = class.holders.iter().map(|site| site.count).sum();
        for site in class.holders.iter().take(SITES) {
            let (wait, share) = (micros(site.wait_ns), share(site.count, waits));
            let times = site.count;
            writeln!(f, "    held by    {}: {times} times, {share} %, {wait} us", site.at)?;
        }
        for site in class.sharers.iter().take(SITES) {
            writeln!(f, "    shared at  {}: {} times", site.at, site.count)?;
        }
    }
    Ok(())
}

/// The share of a call site in the waits for a class, in percent.
fn share(count: u64, all: u64) -> u64 {
    (count * 100 + all / 2) / all.max(1)
}

fn micros(nanos: u64) -> String {
    format!("{}.{:02}", nanos / 1000, nanos % 1000 / 10)
}
