//! Every published figure of `fallocate2` beside the simulated one, and the ratios of 2003, of SDET
//! and dbench, as `churn`.

use super::{Bench, Codes, Machine};
use crate::failure::Failure;
use crate::report::{FIRST, FIRST_COUNTS, MERGED};
use nextent_bench_simulated::Course;
use serde_json::{Value, json};
use std::fmt;

/// How far off a simulated figure may be, as a part of the published one.
const NEAR: f64 = 0.25;
/// Operations of a core: enough for several truncates after those for warming up.
const OPERATIONS: u64 = 640;
/// Those of `churn`. Users' directories lay apart, which is what the groups were made for.
const CHURN: Course =
    Course { image: 256 << 30, warm: 256, operations: 200, blocks: 4, under_root: true };
/// A table of ratios: its name, the machine, instructions between two operations, then scripts or
/// clients and the throughput after in percent of that before.
type Ratios = (&'static str, &'static str, f64, &'static [(usize, f64)]);
/// What a script of SDET does beside each file: it starts a program, and fork, exec and exit alone
/// took about a millisecond on a processor of 700 MHz.
const PROGRAM: f64 = 500_000.0;
/// Before and after; ext2, which was measured, has no journal: nobody meets in this gate.
const BEFORE: &str = "ext3-2002/gate-slots";
const AFTER: &str = "ext3-2003/gate-slots";
/// Those of mail 002. Which machine the 32 clients were on is not said; they are taken to be on the
/// one that is.
const RATIOS: [Ratios; 3] = [
    (
        "mail 002, SDET on a NUMA-Q as churn, percent",
        "numaq16",
        PROGRAM,
        &[
            (1, 102.0),
            (2, 106.1),
            (4, 101.1),
            (8, 113.3),
            (16, 167.1),
            (32, 170.7),
            (64, 157.2),
            (128, 151.3),
        ],
    ),
    ("mail 002, dbench on a NUMA-Q as churn", "numaq16", 0.0, &[(256, 121.3)]),
    ("mail 002, dbench on an x440 as churn", "x440", 0.0, &[(32, 201.8), (256, 144.1)]),
];

/// A published figure and the simulated one.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Which table.
    pub table: &'static str,
    /// The design.
    pub design: String,
    /// Cores, containers, scripts or clients.
    pub cores: usize,
    /// What was published.
    pub published: f64,
    /// What was simulated.
    pub simulated: f64,
}

impl Cell {
    /// How far off, as a part of what was published.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.simulated / self.published - 1.0
    }
}

impl Cell {
    /// What the model leaves out that moves a figure this way, if it is further off than it may be.
    /// None of these was measured: they are what is known to be missing, by sign and kind.
    #[must_use]
    pub fn not_modelled(&self) -> Option<Missing> {
        let error = self.error();
        if error.abs() <= NEAR {
            return None;
        }
        Some(match () {
            () if self.table.contains("dbench") => Missing::Data,
            () if error < 0.0 => Missing::Overlap,
            () if self.design.ends_with("/s1") => Missing::Retries,
            () => Missing::Memory,
        })
    }
}

/// What the model has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// dbench's data.
    Data,
    /// Misses side by side.
    Overlap,
    /// Many who ask for one line.
    Retries,
    /// The rest of the kernel.
    Memory,
}

impl Missing {
    const ALL: [Self; 4] = [Self::Data, Self::Overlap, Self::Retries, Self::Memory];

    /// The letter that stands for it in the table, and what it is.
    #[must_use]
    pub fn told(self) -> (char, &'static str) {
        match self {
            Self::Data => {
                ('d', "dbench copies data and takes a block for each 4 KiB of it; churn takes one")
            }
            Self::Overlap => (
                'o',
                "misses on several lines at once, but for those in a row or a hundred \
                 instructions apart: a simulated core waits for each",
            ),
            Self::Retries => (
                'r',
                "what many askers cost a line beside its way: cores that ask again, and \
                 lists of groups whose links share lines with other fields",
            ),
            Self::Memory => (
                'm',
                "lines of the kernel outside the file system: its memory allocators, \
                 page cache and processes",
            ),
        }
    }
}

/// All of them, the worst first.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The cells.
    pub cells: Vec<Cell>,
}

/// Simulates every published cell; `tell` hears of each before it begins.
///
/// # Errors
/// [`Failure::Broken`] for what broke.
pub fn validate(tell: &mut dyn FnMut(&str)) -> Result<Validation, Failure> {
    let mut cells = Vec::new();
    let (kunpeng, epyc) = (Machine::get("kunpeng920")?, Machine::get("epyc9654x2")?);
    let codes = Codes::default();
    let bench = |machine| Bench::new(machine).with_codes(&codes);
    let (mut kunpeng, mut epyc) = (bench(&kunpeng), bench(&epyc));
    for (design, by_order, values) in FIRST {
        let name = named(design, by_order.unwrap_or(false));
        for (cores, published) in FIRST_COUNTS.into_iter().zip(values) {
            let table = "mail 001, Kunpeng 920";
            cells.push(cell(&mut kunpeng, table, &name, cores, published, tell)?);
        }
    }
    for (design, on_kunpeng, on_epyc) in MERGED {
        for (by_order, at) in [(false, 0), (true, 1)] {
            let name = named(design, by_order);
            let table = "mail 000, Kunpeng 920";
            for (cores, published) in [(80, on_kunpeng[at].0), (1, on_kunpeng[at].1)] {
                if published > 0.0 {
                    cells.push(cell(&mut kunpeng, table, &name, cores, published, tell)?);
                }
            }
            let table = "mail 000, EPYC 9654";
            for (cores, published) in [(96, on_epyc[at].0), (1, on_epyc[at].1)] {
                if published > 0.0 {
                    cells.push(cell(&mut epyc, table, &name, cores, published, tell)?);
                }
            }
        }
    }
    for table in &RATIOS {
        ratios(&mut cells, &codes, table, tell)?;
    }
    cells.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
    Ok(Validation { cells })
}

fn named(design: &str, by_order: bool) -> String {
    // What a design has of its own comes before what is chosen.
    format!("{design}/{}", if by_order { "s1" } else { "s0" })
}

fn cell(
    bench: &mut Bench<'_>,
    table: &'static str,
    design: &str,
    cores: usize,
    published: f64,
    tell: &mut dyn FnMut(&str),
) -> Result<Cell, Failure> {
    tell(&format!("{table}: {design}, {cores}"));
    let found = bench.run("fallocate2", design, cores, OPERATIONS)?;
    let simulated = found.ops_per_s / cores as f64;
    Ok(Cell { table, design: design.to_owned(), cores, published, simulated })
}

/// Throughput after in percent of before; more scripts than processors share them.
fn ratios(
    cells: &mut Vec<Cell>,
    codes: &Codes,
    (table, machine, between, published): &Ratios,
    tell: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let machine = Machine::get(machine)?;
    let mut bench = Bench::new(&machine).with_codes(codes).with_code_between(*between);
    // Of what has more than the machine has cores there is one.
    let mut known: Vec<(usize, f64)> = Vec::new();
    for &(scripts, published) in *published {
        tell(&format!("{table}: {scripts}"));
        let cores = scripts.min(machine.cores());
        let simulated = match known.iter().find(|one| one.0 == cores) {
            Some(one) => one.1,
            None => {
                let mut rate = |design| bench.run_course("churn", design, cores, CHURN);
                let before = rate(BEFORE)?.ops_per_s;
                rate(AFTER)?.ops_per_s / before * 100.0
            }
        };
        known.push((cores, simulated));
        let design = "ext3-2003".to_owned();
        cells.push(Cell { table, design, cores: scripts, published, simulated });
    }
    Ok(())
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
                "not_modelled": cell.not_modelled().map(|missing| missing.told().1),
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
        crate::report::curves("fallocate2, simulated and published (mail 001)", "cores", &lines)
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
            let missing = cell
                .not_modelled()
                .map_or(String::new(), |missing| format!(" {}", missing.told().0));
            writeln!(
                f,
                "{table:<44} {design:<18} {cores:>5} {published:>10.0} {simulated:>10.0} \
                 {error:>+6.0} %{missing}"
            )?;
        }
        let near = self.cells.iter().filter(|cell| cell.not_modelled().is_none()).count();
        writeln!(
            f,
            "{near} of {} within 25 %; not modelled, and likely behind the rest:",
            self.cells.len()
        )?;
        for missing in Missing::ALL {
            let (letter, what) = missing.told();
            let cells = self.cells.iter().filter(|cell| cell.not_modelled() == Some(missing));
            writeln!(f, "  {letter} ({}) {what}", cells.count())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(table: &'static str, design: &str, simulated: f64) -> Cell {
        Cell { table, design: design.into(), cores: 2, published: 100.0, simulated }
    }

    #[test]
    fn what_is_far_off_names_what_is_missing() {
        let near = cell("mail 001, Kunpeng 920", "v3-01/s1", 124.0);
        let cells = [
            (cell("mail 001, Kunpeng 920", "v3-01/s1", 126.0), 'r'),
            (cell("mail 001, Kunpeng 920", "v3-01/s0", 126.0), 'm'),
            (cell("mail 001, Kunpeng 920", "v3-01/s1", 74.0), 'o'),
            (cell("mail 002, dbench on an x440 as churn", "ext3-2003", 126.0), 'd'),
        ];
        assert_eq!(near.not_modelled(), None);
        for (cell, letter) in &cells {
            assert_eq!(cell.not_modelled().unwrap().told().0, *letter);
        }
        let mut cells: Vec<_> = cells.into_iter().map(|(cell, _)| cell).collect();
        cells.push(near);
        let told = Validation { cells }.to_string();
        assert!(told.contains("+26 % r\n") && told.contains("+24 %\n"), "{told}");
        assert!(told.contains("1 of 5 within 25 %") && told.contains("  o (1) misses"), "{told}");
    }
}
