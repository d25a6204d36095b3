//! What an operation computes, and which of it changes words in one step: of one thread, counted by
//! callgrind.
//!
//! The table is made by `cargo xtask instructions simulate`, on the plain engine.

use crate::designs;
use crate::failure::Failure;
use nextent_bench_simulated::Course;

const TABLE: &str = include_str!("../../machines/instructions.txt");

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) instructions: f64,
    /// Atomic read-modify-writes among them.
    pub(super) changes: f64,
}

/// What one operation of `workload` with `design` is.
pub(super) fn of(workload: &str, design: &str) -> Result<Counted, Failure> {
    let exact = designs::named(design)?;
    let same = |name: &str| designs::named(name).is_ok_and(|other| other == exact);
    let preset = exact.preset();
    let rows = || {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let (of, name) = (words.next()?, words.next()?);
            let mut number = || words.next()?.parse().ok();
            let counted = Counted { instructions: number()?, changes: number()? };
            (of == workload).then_some((name, counted))
        })
    };
    // A variant of a preset computes what the preset does, nearly.
    let found = rows().find(|(name, _)| same(name)).or_else(|| {
        rows().find(|(name, _)| designs::named(name).is_ok_and(|other| other.preset() == preset))
    });
    found.map(|(_, counted)| counted).ok_or_else(|| {
        Failure::usage(format!("{workload} with {design}: its instructions were not counted"))
    })
}

/// Over which operations of `workload` that was counted, and on what image, as `cargo xtask` has
/// it: searches are longer the more was freed since the last commit.
pub(super) fn course(workload: &str) -> Course {
    let [warm, enough] = if workload == "churn" { [300, 1300] } else { [4000, 12_000] };
    let operations = enough - warm;
    Course { image: 1 << 30, warm, operations, blocks: 1, under_root: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::WORKLOADS;

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut all = 0;
        for row in rows {
            let words: Vec<&str> = row.split_whitespace().collect();
            let [workload, design, instructions, changes] = words[..] else {
                panic!("{row}: four words");
            };
            assert!(WORKLOADS.contains(&workload), "{row}");
            let found = of(workload, design).expect("it is there");
            assert_eq!(Ok(found.instructions), instructions.parse(), "{row}");
            assert_eq!(Ok(found.changes), changes.parse(), "{row}");
            all += 1;
        }
        assert!(all > 60, "{all}");
        assert!(of("stat", "nextent").is_err());
    }
}
