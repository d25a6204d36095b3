//! What an operation computes: instructions of one thread, counted by callgrind.
//!
//! The table is made by `cargo xtask instructions simulate`, on the plain engine.

use crate::designs;
use crate::failure::Failure;

const TABLE: &str = include_str!("../../machines/instructions.txt");

/// Instructions of one operation of `workload` with `design`.
pub(super) fn of(workload: &str, design: &str) -> Result<f64, Failure> {
    let exact = designs::named(design)?;
    let same = |name: &str| designs::named(name).is_ok_and(|other| other == exact);
    let preset = exact.preset();
    let rows = || {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let (of, name) = (words.next()?, words.next()?);
            let count: f64 = words.next()?.parse().ok()?;
            (of == workload).then_some((name, count))
        })
    };
    // A variant of a preset computes what the preset does, nearly.
    let found = rows().find(|(name, _)| same(name)).or_else(|| {
        rows().find(|(name, _)| designs::named(name).is_ok_and(|other| other.preset() == preset))
    });
    found.map(|(_, count)| count).ok_or_else(|| {
        Failure::usage(format!("{workload} with {design}: its instructions were not counted"))
    })
}
