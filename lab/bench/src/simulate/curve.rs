//! What each of some numbers of cores of this machine does, and what they do when they do not
//! meet, measured in rounds that can be kept.
//!
//! So many threads work on one volume and each on a volume of its own, all at once, in turns of
//! some milliseconds (`crate::run`). What one of them does on its own volume is what one core does:
//! one that is alone on the machine may be nearly twice as fast, where nobody uses the other half
//! of it at that moment, and those of a virtual machine are so by chance. Each round is on other
//! cores, since where they lie differs. Each row is measured once, and then all again. There is no
//! more of a row than that, for a machine of many cores has many rows to measure: so a curve says
//! less of each number of cores than `rounds` say of two.

use super::MOST_CORES;
use super::calibrate::{self, Constants, Turn, Writes};
use super::host::{One, Task};
use super::kept::File;
use super::measured::{Name, known, middle, rate};
use super::real::Real;
use super::rounds::{asked, filled};
use super::way::Way;
use crate::failure::Failure;
use crate::run::{Crowd, Part, Reach};
use nextent_bench_simulated::Course;
use nextent_device::MemoryStock;
use nextent_sync::available_cores;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Measurements of each row, all of which count.
const ROUNDS: usize = 5;
/// Operations of all cores together that are simulated before the clock counts, and while it does:
/// at most so many, however many were measured.
const MOST_SIMULATED: u64 = 60_000;
/// More operations a second than any machine makes, and more than a thread makes in a round.
const MOST_RATE: f64 = 1e12;
const MOST_DONE: u64 = 1 << 40;
/// The next round begins so many cores on.
const STRIDE: usize = 3;
/// What a number of cores does is measured so often at most until it can count: where all cores are
/// busy who calls the parts may come so late that a file of direct writes is over meanwhile.
const ATTEMPTS: usize = 5;

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

/// What each of so many cores at once needs to write to memory, as in [`Curves::cores`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Device(pub(super) Vec<Writes>);

/// A row as it is measured.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Curve {
    #[serde(serialize_with = "str::serialize", deserialize_with = "known")]
    pub(super) workload: Name,
    pub(super) design: String,
    pub(super) rounds: Vec<Round>,
}

/// One round.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Round {
    /// Where two cores change a word in turns, beside it.
    pub(super) turn: Turn,
    /// How fast the cores were.
    pace: f64,
    /// What so many threads did, as in [`Curves::cores`].
    crowds: Vec<Crowd>,
}

/// A file with curves says so.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    curves: Curves,
}

impl Curves {
    /// Measures each of `cores`, `only` one workload or all, each with each of `names`;
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
        let Device(each) = device;
        if each.len() != cores.len() || !each.iter().all(Writes::is_sound) {
            return Some("device: no such writes".to_owned());
        }
        let row = rows.iter().find(|row| !row.is_sound(cores.len()))?;
        Some(format!("{}, {}: no such rounds", row.workload, row.design))
    }

    /// How fast cores were, in the middle of all rounds: where they differ from moment to moment,
    /// those of one row say less of it than those of all.
    pub(super) fn pace(&self) -> f64 {
        let rounds = self.rows.iter().flat_map(|row| &row.rounds);
        middle(&mut rounds.map(|round| round.pace).collect::<Vec<f64>>())
    }

    /// Leaves only those of `wanted`.
    fn retain(&mut self, wanted: &[usize]) {
        let is_wanted: Vec<bool> = self.cores.iter().map(|n| wanted.contains(n)).collect();
        only(&mut self.cores, &is_wanted);
        only(&mut self.device.0, &is_wanted);
        let rounds = self.rows.iter_mut().flat_map(|row| &mut row.rounds);
        rounds.for_each(|round| only(&mut round.crowds, &is_wanted));
    }
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
        let two = Writes::measure(2, stock)?;
        let of = |n: &usize| match *n > 2 && matters {
            true => Writes::measure(*n, stock),
            false => Ok(two),
        };
        Ok(Self(cores.iter().map(of).collect::<Result<_, _>>()?))
    }
}

/// Whether such can have been measured.
fn is_crowd(crowd: &Crowd) -> bool {
    let Crowd { bouts, together, apart } = crowd;
    let good = |part: &Part| part.seconds > 0.0 && part.rate > 0.0 && part.rate < MOST_RATE;
    let ran = |reach: &Reach| reach.before <= reach.after && reach.after <= MOST_DONE;
    let all = || bouts.iter().flat_map(|bout| bout.apart.iter().chain([&bout.together]));
    ran(together) && ran(apart) && all().all(good) && bouts.iter().any(|bout| bout.apart.is_some())
}

/// The first that is good, of so many at most.
fn one_of<T>(
    attempts: usize,
    mut attempt: impl FnMut() -> Result<T, Failure>,
    is_good: impl Fn(&T) -> bool,
) -> Result<Option<T>, Failure> {
    for _ in 0..attempts {
        let found = attempt()?;
        if is_good(&found) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Operations a second of all on one volume, and of all on their own.
fn rates(crowd: &Crowd) -> [f64; 2] {
    let bouts = || crowd.bouts.iter();
    [rate(bouts().map(|bout| bout.together)), rate(bouts().filter_map(|bout| bout.apart))]
}

impl Round {
    /// Whether such can have been measured, with so many numbers of cores.
    fn is_sound(&self, numbers: usize) -> bool {
        let Self { turn, pace, crowds } = self;
        let good = *pace > 0.0 && *pace < MOST_RATE && crowds.len() == numbers;
        turn.is_sound() && good && crowds.iter().all(is_crowd)
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
        let nothing = || Failure::broken(format!("{workload}: {design}: nothing was done"));
        let crowd = |threads: &usize| {
            let Way { course, warm_up, seconds, .. } = Way::of_curve(workload, *threads);
            let rests = true;
            let real = Real { workload, design, course, warm_up, rests, seconds, stock };
            let first = round * STRIDE % available_cores();
            let found = one_of(ATTEMPTS, || real.crowd(first, *threads), is_crowd)?;
            found.ok_or_else(nothing)
        };
        let (turn, pace) = (Turn::measure(), calibrate::pace(2));
        let crowds: Result<_, Failure> = cores.iter().map(crowd).collect();
        let found = Round { turn, pace, crowds: crowds? };
        if !found.is_sound(cores.len()) {
            return Err(nothing());
        }
        self.rounds.push(found);
        Ok(())
    }

    /// Operations a second of the `nth` number of cores, which is `cores`, by those of one, in each
    /// round.
    pub(super) fn ratios(&self, nth: usize, cores: usize) -> Vec<f64> {
        let ratio = |round: &Round| {
            let [together, apart] = rates(&round.crowds[nth]);
            cores as f64 * together / apart
        };
        self.rounds.iter().map(ratio).collect()
    }

    /// Nanoseconds from one operation of a core to its next, of the `nth` number of cores, which is
    /// `cores`: on volumes of their own and on one.
    pub(super) fn ns(&self, nth: usize, cores: usize) -> [f64; 2] {
        let of = |which: usize| self.middle_of(|round| rates(&round.crowds[nth])[which]);
        [of(1), of(0)].map(|rate| cores as f64 * 1e9 / rate)
    }

    /// What one of the `nth` number of cores, which is `cores`, took on a volume of its own, while
    /// they were so fast.
    pub(super) fn one(&self, nth: usize, cores: usize, pace: f64) -> One<'_> {
        let course = self.course(nth, cores, |crowd| crowd.apart);
        One { task: self.task(1, course), pace, ns: self.ns(nth, cores)[0] }
    }

    /// What the `nth` number of cores, which is `cores`, is to do as well.
    pub(super) fn all(&self, nth: usize, cores: usize) -> Task<'_> {
        self.task(cores, self.course(nth, cores, |crowd| crowd.together))
    }

    fn task(&self, cores: usize, course: Course) -> Task<'_> {
        Task { workload: self.workload, design: &self.design, cores, course }
    }

    /// How far a core goes as one of so many: as far as real ones went, or as far as can be
    /// simulated in a while.
    fn course(&self, nth: usize, cores: usize, reach: fn(&Crowd) -> Reach) -> Course {
        let Way { course, as_measured, .. } = Way::of_curve(self.workload, cores);
        if !as_measured {
            return course;
        }
        let most = (MOST_SIMULATED / cores as u64).max(1);
        let middle = |of: fn(Reach) -> u64| {
            let reached = self.middle_of(|round| of(reach(&round.crowds[nth])) as f64);
            (reached as u64).clamp(1, most)
        };
        let (warm, operations) = (middle(|reach| reach.before), middle(|r| r.after - r.before));
        Course { warm, operations, ..course }
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
        // One was through before the third bout.
        let crowd = |together: f64, apart: f64| {
            format!(
                r#"{{"bouts": [
                {{"together": {{"seconds": 0.003, "rate": {together}}},
                "apart": {{"seconds": 0.003, "rate": {apart}}}}},
                {{"together": {{"seconds": 0.001, "rate": {together}}},
                "apart": {{"seconds": 0.005, "rate": {apart}}}}},
                {{"together": {{"seconds": 0.003, "rate": {together}}}, "apart": null}}],
                "together": {{"before": 400, "after": 10400}},
                "apart": {{"before": 90000, "after": 100000}}}}"#
            )
        };
        let round = |together: f64, apart: f64| {
            format!(
                r#"{{"turn": {{"changed": 26, "look": 1, "chances": [0.4, 0.3]}}, "pace": 0.5,
                "crowds": [{}, {}]}}"#,
                crowd(together, apart),
                crowd(8e6, 16e6)
            )
        };
        let rounds = [round(6e6, 8e6), round(9e6, 8e6), round(3e6, 7.5e6)].join(", ");
        let row = |workload: &str| {
            format!(r#"{{"workload": "{workload}", "design": "nextent", "rounds": [{rounds}]}}"#)
        };
        format!(
            r#"{{"curves": {{"constants": {{"cores": 4, "instruction": 0.1, "rmw": 2, "line": 25,
            "migrates": true, "chances": null, "wake": 2e4, "pause": 25, "offer": 5e2,
            "pace": 0.5}}, "cores": [2, 4], "device": [{WRITES}, {WRITES}],
            "rows": [{}, {}]}}}}"#,
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
        assert_eq!((four.rows.len(), &four.cores[..], four.device.0.len()), (1, &[4][..], 1));
        assert_eq!(four.rows[0].ratios(0, 4), [2.0; 3]);
    }

    #[test]
    fn the_middle_counts_and_so_far_is_simulated() {
        let found = read(&some(), None, &[]).expect("it is good");
        let [handles, churn] = &found.rows[..] else { panic!("there are two") };
        assert_eq!(churn.ratios(0, 2), [1.5, 2.25, 0.8]);
        assert_eq!((churn.ns(0, 2), found.pace()), ([250.0, 2e9 / 6e6], 0.5));
        let far = |task: Task<'_>| (task.cores, task.course.warm, task.course.operations);
        assert_eq!(far(churn.all(0, 2)), (2, 400, 10_000));
        let One { task, ns, .. } = churn.one(0, 2, 0.5);
        assert_eq!((far(task), ns), ((1, 30_000, 10_000), 250.0));
        assert_eq!(far(churn.all(1, 16)), (16, 400, 3750));
        assert_eq!(handles.all(1, 4).course.operations, 1000);
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
        assert!(row.is_sound(1) && row.rounds.len() == 2, "{row:?}");
        assert!(row.ratios(0, 2).iter().all(|ratio| *ratio > 0.0), "{row:?}");
        assert!(!row.is_sound(2));
    }

    #[test]
    fn what_cannot_count_is_measured_again() {
        let from = |first: u32| {
            let mut next = first;
            let attempt = || {
                next += 1;
                if next == 7 { Err(Failure::broken("seven".to_owned())) } else { Ok(next) }
            };
            one_of(3, attempt, |found| *found > 4).map_err(|failure| failure.to_string())
        };
        assert_eq!([from(4), from(2), from(1)], [Ok(Some(5)), Ok(Some(5)), Ok(None)]);
        assert_eq!(from(6), Err("seven".to_owned()));
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
            ("\"rate\": 6000000", "\"rate\": 0", "no such rounds"),
            ("\"rate\": 6000000", "\"rate\": 1e300", "no such rounds"),
            ("\"seconds\": 0.005", "\"seconds\": -1", "no such rounds"),
            ("\"before\": 400", "\"before\": 99999", "no such rounds"),
            ("\"after\": 100000", "\"after\": 9999999999999", "no such rounds"),
            ("\"changed\": 26", "\"changed\": -26", "no such rounds"),
            ("0.5,\n                \"crowds\"", "0, \"crowds\"", "no such rounds"),
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
