//! What each of some numbers of cores of the machine at hand does, and what one does, measured in
//! rounds that can be kept.
//!
//! Each round has one thread, on some cores in turns, and then each number of threads, on cores of
//! their own, from another core on than the round before: where the cores of a virtual machine lie
//! differs, and so does how fast they are. One core alone is up to 1.6 times as fast as another,
//! by who else uses the other half of it, while many together vary by some percent; so what many
//! do is held against the mean of all that were alone. Each row is measured once, and then all
//! again. There is no more of a row than that, for a machine of many cores has many rows to
//! measure: so a curve says less of each number of cores than `rounds` say of two.

use super::MOST_CORES;
use super::calibrate::{self, Constants, Turn, Writes};
use super::host::{One, Task};
use super::kept::File;
use super::measured::{Name, known, middle};
use super::real::Real;
use super::rounds::{asked, filled};
use super::way::Way;
use crate::failure::Failure;
use nextent_device::MemoryStock;
use nextent_lab_simulated::Course;
use nextent_sync::available_cores;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Measurements of each row, all of which count.
const ROUNDS: usize = 5;
/// Operations of all cores together that are simulated before the clock counts, and while it does:
/// at most so many, however many were measured.
const MOST_SIMULATED: u64 = 60_000;
/// More operations a second than any machine makes.
const MOST_RATE: f64 = 1e12;
/// The next round begins so many cores on.
const STRIDE: usize = 3;
/// Cores that are measured alone in a round, and how far they are from each other.
const ALONE: usize = 3;
const ASIDE: usize = 5;

/// All that was measured in one run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curves {
    pub(super) constants: Constants,
    /// The numbers of cores, in order.
    pub(super) cores: Vec<usize>,
    pub(super) device: Device,
    pub(super) rows: Vec<Curve>,
}

/// What cores need to write to memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Device {
    /// One.
    pub(super) one: Writes,
    /// Each of so many at once, as in [`Curves::cores`].
    pub(super) all: Vec<Writes>,
}

/// A row as it is measured.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Curve {
    #[serde(serialize_with = "str::serialize", deserialize_with = "known")]
    pub(super) workload: Name,
    pub(super) design: String,
    pub(super) rounds: Vec<Round>,
}

/// One round: operations a second.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Round {
    /// Where two cores change a word in turns, beside it.
    pub(super) turn: Turn,
    /// How fast the cores were.
    pace: f64,
    /// Of one thread, in the mean of some cores.
    one: f64,
    /// Of so many threads together, as in [`Curves::cores`].
    all: Vec<f64>,
}

/// A file with curves says so.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    curves: Curves,
}

impl Curves {
    /// Measures each of `cores` and one, `only` one workload or all, each with each of `names`;
    /// `tell` hears of each measurement before it begins.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an unknown workload or design, for a design that a workload has no
    /// figures of, or for cores that are not there; [`Failure::Broken`] for what broke.
    pub fn measure(
        only: Option<&str>,
        names: &[String],
        cores: &[usize],
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self, Failure> {
        let wanted = asked(only, names)?;
        let cores = there(cores, available_cores())?;
        tell("constants");
        let most = cores.iter().copied().max().unwrap_or(1);
        let (constants, stock) = (Constants::measure()?, filled(most)?);
        let writes = wanted.iter().any(|(workload, _)| writes(workload));
        let device = Device::measure(&cores, writes, &stock)?;
        let of = |(workload, design): (_, &str)| {
            let design = design.to_owned();
            Curve { workload, design, rounds: Vec::new() }
        };
        let mut rows: Vec<Curve> = wanted.into_iter().map(of).collect();
        for round in 0..ROUNDS {
            for row in &mut rows {
                tell(&format!("round {}, {}: {}", round + 1, row.workload, row.design));
                row.measure(round, &cores, &stock)?;
            }
        }
        Ok(Self { constants, cores, device, rows })
    }

    /// For a file, to be read again.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "curves": self })
    }

    /// Those of a file with what [`Self::to_json`] has made: of `only` one workload or all, with
    /// each of `names`, of each of `cores`, of all if there are none.
    pub(super) fn read(
        file: &File,
        only: Option<&str>,
        names: &[String],
        cores: &[usize],
    ) -> Result<Self, Failure> {
        let wanted = asked(only, names)?;
        let Named { curves: mut found } = file.parse()?;
        found.constants.check(&file.name())?;
        if let Some(why) = found.unsound() {
            return Err(file.wrong(&why));
        }
        found.rows.retain(|row| wanted.contains(&(row.workload, &row.design[..])));
        if let Some(lacks) = cores.iter().find(|n| **n != 1 && !found.cores.contains(n)) {
            return Err(file.wrong(&format!("has no curves of {lacks} cores")));
        }
        if !cores.is_empty() {
            found.retain(cores);
        }
        let none = found.rows.is_empty() || found.cores.is_empty();
        if none { Err(file.wrong("has no curves of these")) } else { Ok(found) }
    }

    /// What nobody can have measured.
    fn unsound(&self) -> Option<String> {
        let Self { cores, device, rows, .. } = self;
        let in_order = cores.windows(2).all(|two| two[0] < two[1]);
        if !in_order || cores.iter().any(|n| !(2..=MOST_CORES).contains(n)) {
            return Some(format!("cores: numbers from 2 to {MOST_CORES}, in order"));
        }
        let all = || device.all.iter().chain([&device.one]);
        if device.all.len() != cores.len() || !all().all(Writes::is_sound) {
            return Some("device: no such writes".to_owned());
        }
        let row = rows.iter().find(|row| !row.is_sound(cores.len()))?;
        Some(format!("{}, {}: no such rounds", row.workload, row.design))
    }

    /// Leaves only those of `wanted`.
    fn retain(&mut self, wanted: &[usize]) {
        let is_wanted: Vec<bool> = self.cores.iter().map(|n| wanted.contains(n)).collect();
        only(&mut self.cores, &is_wanted);
        only(&mut self.device.all, &is_wanted);
        let rounds = self.rows.iter_mut().flat_map(|row| &mut row.rounds);
        rounds.for_each(|round| only(&mut round.all, &is_wanted));
    }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// Leaves those that are wanted.
fn only<T>(of: &mut Vec<T>, is_wanted: &[bool]) {
    let mut wanted = is_wanted.iter();
    of.retain(|_| wanted.next().copied().unwrap_or(false));
}

/// The numbers of cores of which there can be curves, in order; one is always measured.
fn there(cores: &[usize], all: usize) -> Result<Vec<usize>, Failure> {
    let most = all.min(MOST_CORES);
    let mut found: Vec<usize> = cores.iter().copied().filter(|n| *n != 1).collect();
    found.sort_unstable();
    found.dedup();
    if most < 2 {
        return Err(Failure::usage("--cores: there is one core, and no curve of it"));
    }
    if found.is_empty() || found.iter().any(|n| !(2..=most).contains(n)) {
        let text = format!("--cores: numbers from 2 to {most}, there are {all} cores");
        return Err(Failure::usage(text));
    }
    Ok(found)
}

/// Whether a workload writes so much that it matters what that costs beside others.
fn writes(workload: &str) -> bool {
    matches!(workload, "churn" | "dio-overwrite")
}

impl Device {
    /// Measures; more than two cores only where it matters, else they are taken to need what two
    /// do.
    fn measure(cores: &[usize], matters: bool, stock: &MemoryStock) -> Result<Self, Failure> {
        let (one, two) = (Writes::measure(1, stock)?, Writes::measure(2, stock)?);
        let of = |n: &usize| match *n > 2 && matters {
            true => Writes::measure(*n, stock),
            false => Ok(two),
        };
        Ok(Self { one, all: cores.iter().map(of).collect::<Result<_, _>>()? })
    }
}

impl Round {
    /// Whether such can have been measured, with so many numbers of cores.
    fn is_sound(&self, numbers: usize) -> bool {
        let Self { turn, pace, one, all } = self;
        let good = |rate: &f64| *rate > 0.0 && *rate < MOST_RATE;
        turn.is_sound() && good(pace) && good(one) && all.len() == numbers && all.iter().all(good)
    }
}

impl Curve {
    /// Whether such can have been measured, with so many numbers of cores.
    fn is_sound(&self, numbers: usize) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(|round| round.is_sound(numbers))
    }

    /// One round more.
    fn measure(
        &mut self,
        round: usize,
        cores: &[usize],
        stock: &MemoryStock,
    ) -> Result<(), Failure> {
        let (workload, design) = (self.workload, &self.design[..]);
        let rate = |first: usize, threads: usize| {
            let Way { course, warm_up, seconds, .. } = Way::of_curve(workload, threads);
            let rests = true;
            let real = Real { workload, design, course, warm_up, rests, seconds, stock };
            real.rate((round * STRIDE + first) % available_cores(), threads)
        };
        let (turn, pace) = (Turn::measure(), calibrate::pace(2));
        let ones = (0..ALONE).map(|nth| rate(nth * ASIDE, 1));
        let ones = ones.collect::<Result<Vec<f64>, Failure>>()?;
        let all: Result<_, Failure> = cores.iter().map(|threads| rate(0, *threads)).collect();
        let found = Round { turn, pace, one: mean(&ones), all: all? };
        if !found.is_sound(cores.len()) {
            return Err(Failure::broken(format!("{workload}: {design}: nothing was done")));
        }
        self.rounds.push(found);
        Ok(())
    }

    /// Operations a second of the `nth` number of cores in each round, by those of one in all.
    pub(super) fn ratios(&self, nth: usize) -> Vec<f64> {
        let one = self.rate(None);
        self.rounds.iter().map(|round| round.all[nth] / one).collect()
    }

    /// How fast the cores were.
    pub(super) fn pace(&self) -> f64 {
        self.middle_of(|round| round.pace)
    }

    /// Operations a second of one core, or of the `nth` number of them.
    pub(super) fn rate(&self, nth: Option<usize>) -> f64 {
        match nth {
            Some(nth) => self.middle_of(|round| round.all[nth]),
            None => mean(&self.rounds.iter().map(|round| round.one).collect::<Vec<f64>>()),
        }
    }

    /// What one core took.
    pub(super) fn one(&self) -> One<'_> {
        One { task: self.task(None, 1), pace: self.pace(), ns: 1e9 / self.rate(None) }
    }

    /// What one core is to do as well, or the `nth` number of them, which is `cores`.
    pub(super) fn task(&self, nth: Option<usize>, cores: usize) -> Task<'_> {
        let (workload, design) = (self.workload, &self.design[..]);
        Task { workload, design, cores, course: self.course(self.rate(nth), cores) }
    }

    /// How far so many cores go that make `rate` operations a second: as far as real ones went, or
    /// as far as can be simulated in a while.
    fn course(&self, rate: f64, cores: usize) -> Course {
        let Way { course, as_measured, warm_up, seconds, .. } = Way::of_curve(self.workload, cores);
        if !as_measured {
            return course;
        }
        let cores = cores as u64;
        let most = (MOST_SIMULATED / cores).max(1);
        let each = |seconds: f64| ((rate * seconds) as u64 / cores).clamp(1, most);
        Course { warm: each(warm_up.as_secs_f64()), operations: each(seconds), ..course }
    }

    fn middle_of(&self, of: impl Fn(&Round) -> f64) -> f64 {
        middle(&mut self.rounds.iter().map(of).collect::<Vec<f64>>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::{file, refused};
    use super::*;

    const WRITES: &str = r#"{"first": 700, "more": 200, "again": 90, "late": 150, "near": 120,
        "next": 110}"#;

    /// Two workloads with three rounds each, as a file.
    fn some() -> String {
        let round = |one: f64, two: f64| {
            format!(
                r#"{{"turn": {{"changed": 26, "look": 1, "chances": [0.4, 0.3]}}, "pace": 0.5,
                "one": {one}, "all": [{two}, 8e6]}}"#
            )
        };
        let rounds = [round(4e6, 6e6), round(5e6, 9e6), round(3e6, 3.2e6)].join(", ");
        let row = |workload: &str| {
            format!(r#"{{"workload": "{workload}", "design": "nextent", "rounds": [{rounds}]}}"#)
        };
        format!(
            r#"{{"curves": {{"constants": {{"cores": 4, "instruction": 0.1, "rmw": 2, "line": 25,
            "migrates": true, "chances": null, "wake": 2e4, "pause": 25, "offer": 5e2,
            "pace": 0.5}}, "cores": [2, 4], "device": {{"one": {WRITES}, "all": [{WRITES},
            {WRITES}]}}, "rows": [{}, {}]}}}}"#,
            row("handles"),
            row("churn")
        )
    }

    fn read(text: &str, only: Option<&str>, cores: &[usize]) -> Result<Curves, Failure> {
        Curves::read(&file(text), only, &["nextent".to_owned()], cores)
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let found = read(&some(), None, &[]).expect("it is good");
        assert_eq!((found.rows.len(), &found.cores[..]), (2, &[2, 4][..]));
        let again = read(&found.to_json().to_string(), None, &[]).expect("it is good");
        assert_eq!(format!("{found:?}"), format!("{again:?}"));
        let four = read(&some(), Some("churn"), &[1, 4]).expect("it has both");
        assert_eq!((four.rows.len(), &four.cores[..], four.device.all.len()), (1, &[4][..], 1));
        assert_eq!(four.rows[0].rounds[0].all, [8e6]);
    }

    #[test]
    fn the_middle_counts_and_so_far_is_simulated() {
        let found = read(&some(), None, &[]).expect("it is good");
        let [handles, churn] = &found.rows[..] else { panic!("there are two") };
        // Of one core the mean counts, and of more the middle.
        assert_eq!(churn.ratios(0), [1.5, 2.25, 0.8]);
        assert_eq!((churn.rate(None), churn.rate(Some(0)), churn.pace()), (4e6, 6e6, 0.5));
        assert_eq!(churn.one().ns, 250.0);
        let far = |cores, rate| {
            let Course { warm, operations, .. } = churn.course(rate, cores);
            (warm, operations)
        };
        assert_eq!(far(1, 1e6), (30_000, 30_000));
        assert_eq!(far(4, 1e6), (7_500, 7_500));
        assert_eq!(far(4, 1e8), (15_000, 15_000));
        assert_eq!(far(256, 1.0), (1, 1));
        assert_eq!(handles.task(Some(1), 4).course.operations, 1000);
        // A file is as large for both, and no larger than can be simulated in a while.
        let blocks = |cores| Way::of_curve("dio-overwrite", cores).course.operations;
        assert_eq!([1, 2, 4, 16].map(blocks), [16_000, 16_000, 16_000, 4_000]);
    }

    #[test]
    fn what_is_measured_can_have_been() {
        if available_cores() < 2 {
            eprintln!("skipped: there is one core");
            return;
        }
        let (design, stock) = ("nextent".to_owned(), MemoryStock::default());
        let mut row = Curve { workload: "handles", design, rounds: Vec::new() };
        for round in 0..2 {
            row.measure(round, &[2], &stock).expect("it runs");
        }
        assert!(row.is_sound(1) && row.rounds.len() == 2 && row.ratios(0).len() == 2, "{row:?}");
        assert!(!row.is_sound(2));
    }

    #[test]
    fn only_cores_that_are_there_are_measured() {
        assert_eq!(there(&[4, 1, 2, 2], 4).expect("they are there"), [2, 4]);
        for (cores, all) in [(&[0, 2][..], 4), (&[1], 4), (&[5], 4), (&[257], 999), (&[2], 1)] {
            let told = there(cores, all).expect_err("it is wrong").to_string();
            assert!(told.starts_with("--cores: ") && told.lines().count() == 1, "{told}");
        }
    }

    #[test]
    fn what_nobody_measured_is_told_in_a_line() {
        let changes = [
            ("handles", "nothing", "nothing"),
            ("\"cores\": [2, 4]", "\"cores\": [4, 2]", "in order"),
            ("\"cores\": [2, 4]", "\"cores\": [1, 4]", "from 2"),
            ("\"cores\": [2, 4]", "\"cores\": [2, 999]", "from 2"),
            ("\"cores\": [2, 4]", "\"cores\": [2, 3, 4]", "no such writes"),
            ("\"late\": 150", "\"late\": 1e300", "no such writes"),
            ("[6000000, 8e6]", "[6000000]", "no such rounds"),
            ("[6000000, 8e6]", "[6000000, 0]", "no such rounds"),
            ("[6000000, 8e6]", "[6000000, 1e300]", "no such rounds"),
            ("\"one\": 4000000", "\"one\": -1", "no such rounds"),
            ("\"changed\": 26", "\"changed\": -26", "no such rounds"),
            ("0.5,\n                \"one\"", "0, \"one\"", "no such rounds"),
            ("\"cores\": 4", "\"cores\": 0", "cores"),
            ("\"wake\"", "\"woke\"", "woke"),
            ("\"rows\"", "\"ways\"", "ways"),
        ];
        refused(&some(), &changes, |text| read(text, None, &[]));
        let lacks = read(&some(), None, &[2, 8]).expect_err("it has one of them").to_string();
        assert!(lacks.contains("no curves of 8 cores"), "{lacks}");
        for (only, cores) in [(Some("fallocate2"), &[][..]), (None, &[1])] {
            let none = read(&some(), only, cores).expect_err("it has none").to_string();
            assert!(none.contains("has no curves of these"), "{none}");
        }
    }
}
