//! What locks did, laid out like /proc/lock_stat: times in microseconds, call sites below a class.

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
        for site in class.holders.iter().take(SITES) {
            let wait = micros(site.wait_ns);
            writeln!(f, "    waited for {}: {} times, {wait} us", site.at, site.count)?;
        }
        for site in class.sharers.iter().take(SITES) {
            writeln!(f, "    shared at  {}: {} times", site.at, site.count)?;
        }
    }
    Ok(())
}

fn micros(nanos: u64) -> String {
    format!("{}.{:02}", nanos / 1000, nanos % 1000 / 10)
}
