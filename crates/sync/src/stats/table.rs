//! Statistics as text, laid out like /proc/lock_stat.

use super::{CallSite, ClassStats};
use std::fmt;
use std::time::Duration;

/// Shows classes as a table, each with its call sites below it; times are in
/// microseconds, as they are in /proc/lock_stat.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(pub &'a [ClassStats]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>5} {:>12} {:>11} {:>12} {:>12} {:>14} {:>12} {:>14}",
            "class",
            "rank",
            "acquisitions",
            "contentions",
            "shared",
            "waittime-max",
            "waittime-total",
            "holdtime-max",
            "holdtime-total",
        )?;
        self.0.iter().try_for_each(|class| class.fmt(f))
    }
}

/// A row of a [`Table`] and the call sites below it.
impl fmt::Display for ClassStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>5} {:>12} {:>11} {:>12} {:>12} {:>14} {:>12} {:>14}",
            self.name,
            self.rank,
            self.acquisitions,
            self.contentions,
            self.shared_stores,
            Micros(self.wait_max),
            Micros(self.wait_total),
            Micros(self.hold_max),
            Micros(self.hold_total),
        )?;
        for CallSite { at, count, wait } in &self.holders {
            writeln!(f, "    waited for {at}: {count} times, {} us", Micros(*wait))?;
        }
        for CallSite { at, count, .. } in &self.sharers {
            writeln!(f, "    shared at  {at}: {count} times")?;
        }
        Ok(())
    }
}

struct Micros(Duration);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        f.pad(&format!("{}.{:02}", nanos / 1_000, nanos % 1_000 / 10))
    }
}
