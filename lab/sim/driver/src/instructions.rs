//! Instructions and atomic read-modify-writes of an operation on one thread, as callgrind counts
//! them in the real engine. `cargo xtask instructions simulate` makes the table.

use nextent_bench::simulated::Length;
use nextent_bench::{Failure, designs};

const TABLE: &str = include_str!("../../machines/instructions.txt");

/// What one operation has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) instructions: f64,
    /// Atomic read-modify-writes among them.
    pub(super) rmws: f64,
}

/// The counts of an operation of `workload` with `design`.
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
            let counted = Counted { instructions: number()?, rmws: number()? };
            (of == workload).then_some((name, counted))
        })
    };
    // A variant of a preset has nearly the counts of the preset.
    let found = rows().find(|(name, _)| same(name)).or_else(|| {
        rows().find(|(name, _)| designs::named(name).is_ok_and(|other| other.preset() == preset))
    });
    found.map(|(_, counted)| counted).ok_or_else(|| {
        Failure::usage(format!("{workload} with {design}: its instructions were not counted"))
    })
}

/// The run that `cargo xtask` counts: searches get longer the more was freed since the last commit.
pub(super) fn length(workload: &str) -> Length {
    let [warm_up, all] = if workload == "churn" { [300, 1300] } else { [4000, 12_000] };
    let operations = all - warm_up;
    Length { image: 1 << 30, warm_up, blocks: 1, under_root: true, ..Length::of(operations) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WORKLOADS;

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut all = 0;
        for row in rows {
            let words: Vec<&str> = row.split_whitespace().collect();
            let [workload, design, instructions, rmws] = words[..] else {
                panic!("{row}: four words");
            };
            assert!(WORKLOADS.contains(&workload), "{row}");
            let found = of(workload, design).expect("it is there");
            assert_eq!(Ok(found.instructions), instructions.parse(), "{row}");
            assert_eq!(Ok(found.rmws), rmws.parse(), "{row}");
            all += 1;
        }
        assert!(all > 60, "{all}");
        assert!(of("stat", "nextent").is_err());
    }
}
