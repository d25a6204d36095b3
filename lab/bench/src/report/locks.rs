//! What locks did, laid out like /proc/lock_stat: times in microseconds, call sites below a class:
//! who held a lock when others began to wait for it, and what part of the waits that was.

use crate::count::ClassCounts;
use std::fmt::{self, Formatter};

/// Call sites shown of each kind.
const SITES: usize = 4;

pub(super) fn table(f: &mut Formatter<'_>, classes: &[ClassCounts]) -> fmt::Result {
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

/// Of the waits for a class, the part in hundredths that a place was waited for.
fn share(count: u64, all: u64) -> u64 {
    (count * 100 + all / 2) / all.max(1)
}

fn micros(nanos: u64) -> String {
    format!("{}.{:02}", nanos / 1000, nanos % 1000 / 10)
}
