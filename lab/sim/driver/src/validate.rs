//! Published figures beside the simulated ones.
//!
//! - rates of `fallocate2` (mails 000 and 001)
//! - ratios of SDET and dbench, as `churn` (mail 002)
//! - ratios of direct writes into preallocated blocks, as `dio-overwrite` (mail 004)

use crate::{Bench, Machine};
use nextent_bench::published::{COUNTS, FIRST, MERGED};
use nextent_bench::simulated::Length;
use nextent_bench::{Failure, curves};
use serde_json::{Value, json};
use std::fmt;

/// A figure is close if it is off by this part of the published one at most.
const CLOSE: f64 = 0.25;
/// Operations of a core: five rounds of `fallocate2`.
const OPERATIONS: u64 = 640;
/// Users' directories lie in different groups.
const CHURN: Length = Length {
    image: 256 << 30,
    warm_up: 256,
    operations: 200,
    blocks: 4,
    write: 4096,
    depth: 1,
    under_root: true,
};
/// A script of SDET starts a program beside each file: fork, exec and exit took about a millisecond
/// on a processor of 700 MHz.
const PROGRAM: u64 = 500_000;
/// Before and after. The figures are of ext2, which has no journal and no contention for one.
const BEFORE: &str = "ext3-2002/gate-slots";
const AFTER: &str = "ext3-2003/gate-slots";

/// A table of ratios: throughput after in percent of that before.
struct Ratios {
    table: &'static str,
    machine: &'static str,
    /// Instructions between two operations.
    between: u64,
    /// Scripts or clients, and the ratio.
    published: &'static [(usize, f64)],
}

/// The tables of mail 002. It does not name the machine of the 32 clients; they are taken to be on
/// the x440.
const RATIOS: [Ratios; 3] = [
    Ratios {
        table: "mail 002, SDET on a NUMA-Q as churn, percent",
        machine: "numaq16",
        between: PROGRAM,
        published: &[
            (1, 102.0),
            (2, 106.1),
            (4, 101.1),
            (8, 113.3),
            (16, 167.1),
            (32, 170.7),
            (64, 157.2),
            (128, 151.3),
        ],
    },
    Ratios {
        table: "mail 002, dbench on a NUMA-Q as churn",
        machine: "numaq16",
        between: 0,
        published: &[(256, 121.3)],
    },
    Ratios {
        table: "mail 002, dbench on an x440 as churn",
        machine: "x440",
        between: 0,
        published: &[(32, 201.8), (256, 144.1)],
    },
];

/// The jobs of mail 004, and the writes of each in flight.
const JOBS: usize = 10;
const DEPTH: usize = 10;
/// A table of mail 004.
struct DirectWrites {
    table: &'static str,
    /// The size of a write.
    kib: u64,
    /// Designs and writes a second. The others are compared with the first.
    rates: &'static [(&'static str, f64)],
}

const DIRECT: [DirectWrites; 3] = [
    DirectWrites {
        table: "mail 004, Xeon 6140, 4 KiB, percent of ext4-6.3",
        kib: 4,
        rates: &[("ext4-6.3", 41_400.0), ("ext4-6.2", 11_100.0), ("ext4-7.0-dio", 52_900.0)],
    },
    DirectWrites {
        table: "mail 004, Xeon 6140, 16 KiB, percent of ext4-6.3",
        kib: 16,
        rates: &[("ext4-6.3", 41_300.0), ("ext4-6.2", 11_100.0)],
    },
    DirectWrites {
        table: "mail 004, Xeon 6140, 64 KiB, percent of ext4-6.3",
        kib: 64,
        rates: &[("ext4-6.3", 13_500.0), ("ext4-6.2", 11_200.0)],
    },
];

/// A published figure and the simulated one.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The table.
    pub table: &'static str,
    /// The design.
    pub design: String,
    /// Cores, containers, scripts or clients.
    pub cores: usize,
    /// The published figure.
    pub published: f64,
    /// The simulated figure.
    pub simulated: f64,
}

impl Cell {
    /// The error, as a part of the published figure.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.simulated / self.published - 1.0
    }

    /// Whether the error is at most a quarter.
    #[must_use]
    pub fn is_close(&self) -> bool {
        self.error().abs() <= CLOSE
    }
}

/// All cells, the largest errors first.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The cells.
    pub cells: Vec<Cell>,
}

/// Simulates every published cell, and calls `tell` before each.
///
/// # Errors
/// [`Failure::Broken`] for a run that fails.
pub fn validate(tell: &mut dyn FnMut(&str)) -> Result<Validation, Failure> {
    let mut tables = Tables { bench: Bench::default(), cells: Vec::new(), tell };
    let (kunpeng, epyc) = (Machine::get("kunpeng920")?, Machine::get("epyc9654x2")?);
    for (design, by_order, values) in FIRST {
        let name = named(design, by_order.unwrap_or(false));
        for (cores, published) in COUNTS.into_iter().zip(values) {
            tables.cell(&kunpeng, "mail 001, Kunpeng 920", &name, cores, published)?;
        }
    }
    for (design, on_kunpeng, on_epyc) in MERGED {
        for (by_order, at) in [(false, 0), (true, 1)] {
            let name = named(design, by_order);
            for (cores, published) in [(80, on_kunpeng[at].0), (1, on_kunpeng[at].1)] {
                tables.cell(&kunpeng, "mail 000, Kunpeng 920", &name, cores, published)?;
            }
            for (cores, published) in [(96, on_epyc[at].0), (1, on_epyc[at].1)] {
                tables.cell(&epyc, "mail 000, EPYC 9654", &name, cores, published)?;
            }
        }
    }
    for ratios in &RATIOS {
        tables.ratios(ratios)?;
    }
    tables.direct()?;
    let mut cells = tables.cells;
    cells.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
    Ok(Validation { cells })
}

/// The name of a design that searches linearly or by order.
fn named(design: &str, by_order: bool) -> String {
    format!("{design}/{}", if by_order { "s1" } else { "s0" })
}

/// The tables as far as they are simulated.
struct Tables<'a> {
    bench: Bench,
    cells: Vec<Cell>,
    tell: &'a mut dyn FnMut(&str),
}

impl Tables<'_> {
    /// A cell of `fallocate2`, unless it was not published.
    fn cell(
        &mut self,
        machine: &Machine,
        table: &'static str,
        design: &str,
        cores: usize,
        published: f64,
    ) -> Result<(), Failure> {
        if published == 0.0 {
            return Ok(());
        }
        (self.tell)(&format!("{table}: {design}, {cores}"));
        let length = Length::of(OPERATIONS);
        let found = self.bench.run(machine, ("fallocate2", design), cores, length, 0)?;
        let simulated = found.ops_per_s / cores as f64;
        self.cells.push(Cell { table, design: design.to_owned(), cores, published, simulated });
        Ok(())
    }

    /// A table of ratios. More scripts than cores share the cores.
    fn ratios(&mut self, ratios: &Ratios) -> Result<(), Failure> {
        let &Ratios { table, between, .. } = ratios;
        let machine = Machine::get(ratios.machine)?;
        let mut last = None;
        for &(scripts, published) in ratios.published {
            (self.tell)(&format!("{table}: {scripts}"));
            let cores = scripts.min(machine.cores());
            let mut rate = |design| {
                let found = self.bench.run(&machine, ("churn", design), cores, CHURN, between);
                Ok::<f64, Failure>(found?.ops_per_s)
            };
            let simulated = match last {
                Some((same, simulated)) if same == cores => simulated,
                _ => 100.0 * rate(AFTER)? / rate(BEFORE)?,
            };
            last = Some((cores, simulated));
            let design = "ext3-2003".to_owned();
            self.cells.push(Cell { table, design, cores: scripts, published, simulated });
        }
        Ok(())
    }
}

impl Tables<'_> {
    /// Direct writes into preallocated blocks.
    fn direct(&mut self) -> Result<(), Failure> {
        let machine = Machine::get("xeon6140")?;
        for DirectWrites { table, kib, rates } in DIRECT {
            (self.tell)(table);
            let mut base = None;
            for &(design, rate) in rates {
                let length = Length { write: kib << 10, depth: DEPTH, ..Length::of(OPERATIONS) };
                let found = self.bench.run(&machine, ("dio-overwrite", design), JOBS, length, 0)?;
                let Some((first, first_simulated)) = base else {
                    base = Some((rate, found.ops_per_s));
                    continue;
                };
                let published = 100.0 * rate / first;
                let simulated = 100.0 * found.ops_per_s / first_simulated;
                let design = design.to_owned();
                self.cells.push(Cell { table, design, cores: JOBS, published, simulated });
            }
        }
        Ok(())
    }
}

impl Validation {
    /// As `{"cells": [...]}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cell = |cell: &Cell| {
            json!({
                "table": cell.table,
                "design": cell.design,
                "cores": cell.cores,
                "published": cell.published,
                "simulated": cell.simulated,
                "error": cell.error(),
            })
        };
        json!({ "cells": self.cells.iter().map(cell).collect::<Vec<_>>() })
    }

    /// Published and simulated curves of mail 001.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut lines: Vec<(String, Vec<(usize, f64)>)> = Vec::new();
        let mut add = |name: String, cores: usize, value: f64| match lines
            .iter_mut()
            .find(|line| line.0 == name)
        {
            Some(line) => line.1.push((cores, value)),
            None => lines.push((name, vec![(cores, value)])),
        };
        for cell in self.cells.iter().filter(|cell| cell.table.starts_with("mail 001")) {
            add(cell.design.clone(), cell.cores, cell.simulated);
            add(format!("{}, published", cell.design), cell.cores, cell.published);
        }
        lines.iter_mut().for_each(|line| line.1.sort_by_key(|point| point.0));
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        let lines: Vec<_> = lines.iter().map(|(name, points)| (&**name, points.clone())).collect();
        curves("fallocate2, simulated and published (mail 001)", "cores", &lines)
    }
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = ["table", "design", "cores", "published", "simulated", "error"];
        let [table, design, cores, published, simulated, error] = row;
        writeln!(
            f,
            "{table:<44} {design:<18} {cores:>5} {published:>10} {simulated:>10} {error:>8}"
        )?;
        for cell in &self.cells {
            let Cell { table, design, cores, published, simulated } = cell;
            let error = cell.error() * 100.0;
            writeln!(
                f,
                "{table:<44} {design:<18} {cores:>5} {published:>10.0} {simulated:>10.0} \
                 {error:>+6.0} %"
            )?;
        }
        let close = self.cells.iter().filter(|cell| cell.is_close()).count();
        writeln!(f, "{close} of {} within 25 %; see lab/docs/MODEL.md", self.cells.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_within_a_quarter_are_close() {
        let cell = |simulated| {
            let (table, design) = ("mail 001, Kunpeng 920", "v3-01/s1".to_owned());
            Cell { table, design, cores: 2, published: 100.0, simulated }
        };
        let cells: Vec<Cell> = [126.0, 74.0, 124.0].map(cell).into();
        let text = Validation { cells }.to_string();
        assert!(text.contains("+26 %\n") && text.contains("+24 %\n"), "{text}");
        assert!(text.contains("1 of 3 within 25 %"), "{text}");
    }
}
