//! The report as a table for people.

use super::published::{GATES, MACHINES, of_gates, published};
use super::{Counts, Report, locks};
use crate::designs::Design;
use crate::plan::Location;
use crate::workloads::Workload;
use std::fmt::{self, Display, Formatter};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.sizes(f)?;
        writeln!(f)?;
        let width = self.columns.iter().map(|column| column.label.len()).max().unwrap_or(0);
        let unit = if self.workload == Workload::Dbench { "MB/s" } else { "ops/s" };
        writeln!(
            f,
            "{:>7}  {:<width$} {:>11} {:>7} {:>11} {:>6} {:>8} {:>9} {:>9} {:>9}{}",
            "threads",
            "target",
            unit,
            "spread",
            "a thread",
            "of 1",
            "vs first",
            "p50",
            "p99",
            "shared/op",
            if self.has_published() { format!(" {:>15}", "published") } else { String::new() }
        )?;
        for &threads in &self.threads {
            for column in 0..self.columns.len() {
                self.row(f, width, column, threads)?;
            }
        }
        self.notes(f)?;
        if self.lockstat {
            self.counts.iter().try_for_each(|counts| self.locks(f, counts))?;
        }
        Ok(())
    }
}

impl Report {
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shared = if self.shared { ", all in one directory" } else { "" };
        writeln!(f, "{}: {}{shared}", self.workload.name(), self.workload.operation())?;
        let machine = &self.machine;
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let (cores, kernel) = (machine.cores, &machine.kernel);
        let pinned = if self.pin { ", a core each" } else { "" };
        writeln!(f, "{}, {cores} cores, {gib:.0} GiB, Linux {kernel}", machine.cpu)?;
        let (repeat, seconds) = (self.repeat, self.seconds);
        writeln!(f, "rounds {repeat} of {seconds} s in turns{pinned}; medians")
    }

    fn sizes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for (column, volume_sizes) in self.columns.iter().zip(&self.volume_sizes) {
            let kind = if column.location == Location::Engine { "engine" } else { &column.label };
            if last == Some((kind, volume_sizes)) {
                continue;
            }
            last = Some((kind, volume_sizes));
            match volume_sizes {
                Some(volume_sizes) => {
                    let (image, journal) = (Bytes(volume_sizes.image), Bytes(volume_sizes.journal));
                    writeln!(f, "{kind}: image of {image}, journal of {journal}")?;
                }
                None => writeln!(f, "{kind}: sizes not known")?,
            }
        }
        Ok(())
    }

    fn row(
        &self,
        f: &mut Formatter<'_>,
        width: usize,
        column: usize,
        threads: usize,
    ) -> fmt::Result {
        let Some((median, spread)) = self.median(column, threads) else { return Ok(()) };
        let first = self.median(0, threads).filter(|_| column != 0);
        let ratio = first.map_or("-".into(), |(first, _)| format!("{:.2}x", median / first));
        let shared = self.counts(column, threads).map(Counts::shared_stores);
        let shared = shared.map_or("-".into(), |shared| format!("{shared:.4}"));
        let mut latency = hdrhistogram::Histogram::<u64>::new(2).expect("two digits are allowed");
        for one in self.cell(column, threads).filter_map(|run| run.latency.as_ref()) {
            latency.add(one).map_err(|_| fmt::Error)?;
        }
        let at = |part| match latency.is_empty() {
            true => "-".into(),
            false => Time(latency.value_at_quantile(part)).to_string(),
        };
        let each = median / threads as f64;
        let alone = self.median(column, 1).filter(|_| threads != 1);
        let kept = alone.map_or("-".into(), |(alone, _)| percent(each / alone));
        writeln!(
            f,
            "{threads:>7}  {:<width$} {:>11} {:>6.1}% {:>11} {kept:>6} {ratio:>8} {:>9} {:>9} \
             {shared:>9}{}",
            self.columns[column].label,
            Grouped(median).to_string(),
            spread * 100.0,
            Grouped(each).to_string(),
            at(0.5),
            at(0.99),
            self.published(column, threads).map_or(String::new(), |found| format!(" {found:>15}"))
        )
    }

    /// The published figure of a cell, and its share of the figure of one thread.
    fn published(&self, column: usize, threads: usize) -> Option<String> {
        let found = published(self.workload, self.columns[column].design?, threads)?;
        let kept = found.alone.filter(|_| threads != 1);
        let kept = kept.map_or(String::new(), |alone| percent(found.value / alone) + " ");
        Some(format!("{} {kept}{}", Grouped(found.value), found.machine))
    }

    /// Prints the machines of the published figures.
    fn published_on(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let designs = || self.columns.iter().filter_map(|column| column.design);
        let cells = designs().flat_map(|design| self.threads.iter().map(move |n| (design, *n)));
        let found = cells.filter_map(|(design, n)| published(self.workload, design, n));
        let letters: Vec<char> = found.map(|found| found.machine).collect();
        let used = MACHINES.iter().filter(|(letter, _)| letters.contains(letter));
        let used: Vec<String> = used.map(|(letter, name)| format!("{letter} {name}")).collect();
        if designs().any(|design| of_gates(self.workload, design)) {
            writeln!(f, "{GATES}")?;
        }
        if used.is_empty() {
            return Ok(());
        }
        let what = match self.workload {
            Workload::Dbench => "published, MB/s in all",
            _ => "published, for a thread and what it keeps of one alone",
        };
        writeln!(f, "{what}: {}", used.join("; "))
    }

    fn has_published(&self) -> bool {
        let all = |column| self.threads.iter().filter_map(move |n| self.published(column, *n));
        (0..self.columns.len()).any(|column| all(column).next().is_some())
    }

    fn notes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            let name = || {
                let label = &self.columns[run.column].label;
                format!("{label}, {} threads, round {}", run.threads, run.round + 1)
            };
            if let (Some(extents), Some(average)) = (run.extents_per_file, run.average_extent) {
                let free = run.free_extents.map_or("-".into(), |free| free.to_string());
                let average = Bytes(average as u64);
                writeln!(
                    f,
                    "{}: {extents:.1} extents a file, of {average} on average; free extents {free}",
                    name()
                )?;
            }
            if run.unexpected > 0 {
                let count = run.unexpected;
                writeln!(f, "{}: {count} operations had another result than in the load", name())?;
            }
        }
        self.published_on(f)?;
        let checked: Vec<bool> = self.runs.iter().filter_map(|run| run.is_clean).collect();
        if !checked.is_empty() {
            let clean = checked.iter().filter(|clean| **clean).count();
            writeln!(f, "fsck: {clean} of {} images clean", checked.len())?;
        }
        if self.is_interrupted() {
            writeln!(f, "interrupted by the user: the figures until then")?;
        }
        Ok(())
    }

    fn locks(&self, f: &mut Formatter<'_>, counts: &Counts) -> fmt::Result {
        let column = &self.columns[counts.column];
        let label = &column.label;
        writeln!(
            f,
            "\nlocks of {label}, {} threads, {} operations counted in a round of their own: {:.6} \
             contended and {:.6} shared stores an operation",
            counts.threads,
            Grouped(counts.ops as f64),
            counts.contended(),
            counts.shared_stores()
        )?;
        let is_historical = column.design.is_some_and(|design| design != Design::default());
        locks::table(f, &counts.classes, is_historical)
    }
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// A number in groups of three digits; numbers below 1000 with one decimal.
struct Grouped(f64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 1000.0 {
            return write!(f, "{:.1}", self.0);
        }
        let digits = format!("{:.0}", self.0);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A time in ns, us or ms.
struct Time(u64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns @ 0..10_000 => write!(f, "{ns} ns"),
            ns @ 10_000..10_000_000 => write!(f, "{} us", ns / 1000),
            ns => write!(f, "{} ms", ns / 1_000_000),
        }
    }
}

/// Bytes in the largest binary unit not above them.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.iter().find(|(shift, _)| self.0 >= 1 << shift);
        let Some((shift, name)) = unit else { return write!(f, "{} bytes", self.0) };
        let value = self.0 as f64 / (1u64 << shift) as f64;
        let digits = usize::from(value.fract() != 0.0);
        write!(f, "{value:.digits$} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(Grouped(2_055_915.4).to_string(), "2,055,915");
        assert_eq!(Grouped(12.34).to_string(), "12.3");
        assert_eq!(Time(9_999).to_string(), "9999 ns");
        assert_eq!(Time(12_345).to_string(), "12 us");
        assert_eq!(Bytes(8 << 30).to_string(), "8 GiB");
        assert_eq!(Bytes(1536 << 10).to_string(), "1.5 MiB");
    }
}
