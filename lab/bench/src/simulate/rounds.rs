//! What two cores and one of the machine at hand do, measured in rounds that can be kept.
//!
//! The machine's constants are measured first; how far its cores are from each other and how fast
//! they are, in each round: where the cores of a virtual machine lie changes some tens of times a
//! second. In a round both cores and each of them alone work in turns of a few milliseconds, of
//! which those count for which the cores were as far from each other as for most of all rows. Each
//! row is measured once, and then all again, so that what is slow for some seconds meets all rows
//! alike.
//!
//! Kept in a file they can be simulated again, by another build or on another day: measuring takes
//! minutes and comes out otherwise each time, and a change of the simulation shows by rounds that
//! stay the same.

use super::calibrate::Constants;
use super::kept::File;
use super::measured::{Measured, usual};
use super::{WORKLOADS, counted, instructions};
use crate::designs;
use crate::failure::Failure;
use nextent_device::{BlockDevice, MemoryDevice, MemoryStock};
use nextent_sync::available_cores;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// All that was measured in one run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rounds {
    pub(super) constants: Constants,
    pub(super) rows: Vec<Measured>,
}

impl Rounds {
    /// Measures two cores and one, `only` one workload or all, each with each of `names`; `tell`
    /// hears of each measurement before it begins.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an unknown workload or design, for a design that a workload has no
    /// figures of, or on one core; [`Failure::Broken`] for what broke.
    pub fn measure(
        only: Option<&str>,
        names: &[String],
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self, Failure> {
        let wanted = asked(only, names)?;
        if available_cores() < 2 {
            return Err(Failure::usage("--measure: there is one core, and two are measured"));
        }
        tell("constants");
        let (constants, stock) = (Constants::measure()?, filled(2)?);
        let of = |(workload, design): &(&'static str, &str)| Measured::of(workload, design, &stock);
        let mut rows = wanted.iter().map(of).collect::<Result<Vec<Measured>, Failure>>()?;
        for pass in 0.. {
            let usual = usual(&rows);
            let wanting = |row: &&mut Measured| row.is_wanting(usual);
            let mut left = rows.iter_mut().filter(wanting).peekable();
            if left.peek().is_none() {
                break;
            }
            for row in left {
                tell(&format!("round {}, {}: {}", pass + 1, row.workload, row.design));
                row.measure(&stock, usual)?;
            }
        }
        Ok(Self { constants, rows })
    }

    /// For a file, to be read again.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// Those of a file with what [`Self::to_json`] has made: of `only` one workload or all, with
    /// each of `names`.
    pub(super) fn read(file: &File, only: Option<&str>, names: &[String]) -> Result<Self, Failure> {
        let wanted = asked(only, names)?;
        let mut found: Self = file.parse()?;
        found.constants.check(&file.name())?;
        if let Some(row) = found.rows.iter().find(|row| !row.is_sound()) {
            let why = format!("{}, {}: no such rounds", row.workload, row.design);
            return Err(file.wrong(&why));
        }
        let is_wanted = |row: &Measured| wanted.contains(&(row.workload, &row.design[..]));
        found.rows.retain(is_wanted);
        if found.rows.is_empty() { Err(file.wrong("has no rounds of these")) } else { Ok(found) }
    }
}

/// Each workload that is asked for with each design that there are figures of.
pub(super) fn asked<'n>(
    only: Option<&str>,
    names: &'n [String],
) -> Result<Vec<(&'static str, &'n str)>, Failure> {
    only.map_or(Ok(()), counted)?;
    for name in names {
        designs::named(name)?;
    }
    let workloads =
        WORKLOADS.into_iter().filter(|workload| only.is_none_or(|only| only == *workload));
    let all = workloads.flat_map(|workload| names.iter().map(move |name| (workload, &name[..])));
    // Those that were never written down anywhere are left out, if there are others.
    let found = all.clone().filter(|(workload, name)| instructions::of(workload, name).is_ok());
    let found: Vec<_> = found.collect();
    match all.last().filter(|_| found.is_empty()) {
        Some((workload, name)) => instructions::of(workload, name).map(|_| found),
        None => Ok(found),
    }
}

/// Memory for images of so many cores that the system has given before anything is measured:
/// getting it takes longer than anything that is done with it.
pub(super) fn filled(cores: usize) -> Result<MemoryStock, Failure> {
    const LEAST: u64 = 2 << 30;
    const EACH: u64 = 256 << 20;
    const CHUNK: u64 = 16 << 10;
    let memory = LEAST.max(EACH * cores as u64);
    let stock = MemoryStock::default();
    let device = MemoryDevice::with_stock(memory, &stock);
    for at in 0..memory / CHUNK {
        let written = device.write_at(at * CHUNK, &[1; CHUNK as usize]);
        written.map_err(|error| Failure::broken(error.to_string()))?;
    }
    Ok(stock)
}

#[cfg(test)]
mod tests {
    use super::super::kept::{file, refused};
    use super::*;

    #[test]
    fn what_is_asked_for_has_figures() {
        let names = ["ext3-2002", "nextent"].map(str::to_owned);
        let found = asked(None, &names).expect("they are known");
        let dio = |(workload, _): &&(&str, &str)| *workload == "dio-overwrite";
        assert_eq!(found.iter().filter(dio).collect::<Vec<_>>(), [&("dio-overwrite", "nextent")]);
        assert_eq!(found.len(), 7);
        assert_eq!(asked(Some("churn"), &names[..1]).expect("known"), [("churn", "ext3-2002")]);
        for (only, names) in [("dio-overwrite", &names[..1]), ("nothing", &names), ("stat", &names)]
        {
            assert!(matches!(asked(Some(only), names), Err(Failure::Usage(_))), "{only}");
        }
    }

    /// Two workloads with a round each, as a file.
    fn some() -> String {
        let round = r#"{"turn": {"changed": 26, "look": 1, "chances": [0.4, 0.3]},
            "pace": 0.5, "pair": {"together": {"before": 9, "after": 99},
            "alone": {"before": 9, "after": 199}, "cycles": [{"both": {"seconds": 0.003,
            "rate": 4e6}, "turns": [26, null], "alone": [{"seconds": 0.003, "rate": 2e6},
            null]}]}}"#;
        let writes = r#"{"first": 700, "more": 200, "again": 90, "late": 150}"#;
        let row = |workload: &str| {
            format!(
                r#"{{"workload": "{workload}", "design": "nextent", "rounds": [{round}],
                "device": [{writes}, {writes}]}}"#
            )
        };
        format!(
            r#"{{"constants": {{"cores": 2, "instruction": 0.1, "rmw": 2, "line": 25,
            "migrates": true, "chances": null, "wake": 2e4, "pause": 25, "offer": 5e2,
            "pace": 0.5}}, "rows": [{}, {}]}}"#,
            row("handles"),
            row("churn")
        )
    }

    fn read(text: &str, only: Option<&str>) -> Result<Rounds, Failure> {
        Rounds::read(&file(text), only, &["nextent".to_owned()])
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let found = read(&some(), None).expect("it is good");
        let names: Vec<&str> = found.rows.iter().map(|row| row.workload).collect();
        assert_eq!(names, ["handles", "churn"]);
        // A meeting that was broken off has no turns.
        assert_eq!(found.rows[0].rounds[0].pair.cycles[0].turns, [26.0, f64::INFINITY]);
        let again = read(&found.to_json().to_string(), None).expect("it is good");
        assert_eq!(format!("{found:?}"), format!("{again:?}"));
        let one = read(&some(), Some("churn")).expect("it has it");
        assert_eq!(one.rows.iter().map(|row| row.workload).collect::<Vec<_>>(), ["churn"]);
    }

    #[test]
    fn what_nobody_measured_is_told_in_a_line() {
        let changes = [
            ("handles", "nothing", "nothing"),
            ("\"after\": 99", "\"after\": 8", "no such rounds"),
            ("\"after\": 99", "\"after\": 1000000000000", "no such rounds"),
            ("0.5, \"pair\"", "0, \"pair\"", "no such rounds"),
            ("\"changed\": 26", "\"changed\": -26", "no such rounds"),
            ("\"seconds\": 0.003", "\"seconds\": 0", "no such rounds"),
            ("\"late\": 150", "\"late\": 1e300", "no such rounds"),
            ("[26, null]", "[26, -1]", "no such rounds"),
            ("\"cores\": 2", "\"cores\": 0", "cores"),
            ("\"instruction\": 0.1", "\"instruction\": 0", "instruction_ps"),
            ("0.5}, \"rows\"", "0}, \"rows\"", "pace"),
            ("\"wake\"", "\"woke\"", "woke"),
        ];
        refused(&some(), &changes, |text| read(text, None));
        let none = read(&some(), Some("fallocate2")).expect_err("it has none").to_string();
        assert!(none.contains("has no rounds of these"), "{none}");
    }
}
