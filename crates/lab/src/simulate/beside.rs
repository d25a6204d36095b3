//! What a second core brings, simulated and measured on the machine at hand, in one run.
//!
//! The machine's constants are measured first; how far its cores are from each other and how fast
//! they are, in each round: where the cores of a virtual machine lie changes some tens of times a
//! second. In a round both cores and each of them alone work in turns of a few milliseconds, of
//! which those count for which the cores were as far from each other as for most of all rows. Each
//! row is measured once, and then all again, so that what is slow for some seconds meets all rows
//! alike. All is measured before anything is simulated: one way of a line is found then from the
//! rounds of all rows.

use super::calibrate::{self, Constants, Turn, Writes, near};
use super::dearness::{Dearness, Sample};
use super::real::Real;
use super::side_by_side::side_by_side;
use super::way::Way;
use super::{Bench, Codes, Machine, WORKLOADS, counted, instructions};
use crate::designs;
use crate::failure::Failure;
use crate::run::{Cycle, Pair, Part, Reach};
use nextent_device::{BlockDevice, MemoryDevice, MemoryStock};
use nextent_lab_simulated::Course;
use nextent_sync::available_cores;
use serde_json::{Value, json};
use std::fmt;

/// Measurements of each row that are to count, where its way is not to make more; at most twice as
/// many are made.
pub(super) const ROUNDS: usize = 7;
/// The least share of a measurement's time for which the cores must have been where they usually
/// are, or it does not count.
const SHARE: f64 = 0.2;
/// Simulations of each.
const SIMULATIONS: usize = 3;

/// One design under one workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// The design's name.
    pub design: String,
    /// The machine, with a line's way as it was found between the rounds of all rows for which its
    /// cores were as near to each other.
    pub machine: Machine,
    /// What this workload's operations take beyond what the machine says.
    pub dearness: Dearness,
    /// Operations a second of two cores by those of one: the middle of all simulations.
    pub simulated: f64,
    /// The same as measured: the middle of all rounds that count, in each of which both were
    /// measured.
    pub measured: f64,
    /// All those rounds.
    pub rounds: Vec<f64>,
    /// Nanoseconds from one operation of a core to its next, with one core and with two.
    pub simulated_ns: [f64; 2],
    /// The same as measured.
    pub measured_ns: [f64; 2],
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The rows.
    pub rows: Vec<Row>,
}

impl Row {
    fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }
}

/// Measures two cores and one, `only` one workload or all, each with each of `names`, and simulates
/// both; `tell` hears of each measurement and of each workload that is simulated before it begins.
///
/// # Errors
/// [`Failure::Usage`] for an unknown workload or design, for a design that a workload has no
/// figures of, or on one core; [`Failure::Broken`] for what broke.
pub fn beside(
    only: Option<&str>,
    names: &[String],
    tell: &mut dyn FnMut(&str),
) -> Result<Beside, Failure> {
    let wanted = asked(only, names)?;
    if available_cores() < 2 {
        return Err(Failure::usage("--measure: there is one core, and two are measured"));
    }
    tell("constants");
    let (constants, stock) = (Constants::measure()?, filled()?);
    let of = |(workload, design): &(&'static str, &str)| Measured::of(workload, design, &stock);
    let mut all = wanted.iter().map(of).collect::<Result<Vec<Measured>, Failure>>()?;
    for pass in 0.. {
        let usual = usual(&all);
        let wanting = |row: &&mut Measured| row.is_wanting(pass, usual);
        let mut rows = all.iter_mut().filter(wanting).peekable();
        if rows.peek().is_none() {
            break;
        }
        for row in rows {
            tell(&format!("round {}, {}: {}", pass + 1, row.workload, row.design));
            row.measure(&stock)?;
        }
    }
    let mut rows = Vec::new();
    let run = Run::of(constants, &all);
    for workload in WORKLOADS {
        let these: Vec<&Measured> = all.iter().filter(|row| row.workload == workload).collect();
        if these.is_empty() {
            continue;
        }
        tell(&format!("{workload}: how dear its code is"));
        let run = run.for_code_of(&these)?;
        tell(&format!("{workload}: {} designs simulated", these.len()));
        rows.extend(side_by_side(&these, &|row| row.simulated(&run))?);
    }
    Ok(Beside { rows })
}

/// Each workload that is asked for with each design that there are figures of.
fn asked<'n>(
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

/// Memory for images that the system has given before anything is measured: getting it takes
/// longer than anything that is done with it.
fn filled() -> Result<MemoryStock, Failure> {
    const MEMORY: u64 = 2 << 30;
    const CHUNK: u64 = 16 << 10;
    let stock = MemoryStock::default();
    let device = MemoryDevice::with_stock(MEMORY, &stock);
    for at in 0..MEMORY / CHUNK {
        let written = device.write_at(at * CHUNK, &[1; CHUNK as usize]);
        written.map_err(|error| Failure::broken(error.to_string()))?;
    }
    Ok(stock)
}

/// One round.
struct Round {
    /// Where two cores change a word in turns, beside it.
    turn: Turn,
    /// How fast the cores were.
    pace: f64,
    /// What both did together, and each alone, in turns.
    pair: Pair,
}

impl Round {
    /// Operations a second of two threads by those of one, while a turn took about `usual`; none if
    /// that was hardly ever so.
    fn ratio(&self, usual: f64) -> Option<f64> {
        let is_usual = |cycle: &&Cycle| cycle.turns.iter().all(|turn| near(*turn, usual));
        let good: Vec<&Cycle> = self.pair.cycles.iter().filter(is_usual).collect();
        if good.is_empty() || (good.len() as f64) < SHARE * self.pair.cycles.len() as f64 {
            return None;
        }
        let both = rate(good.iter().map(|cycle| cycle.both));
        let one = one(&good);
        (one > 0.0).then(|| both / one)
    }

    /// Operations a second of one thread, in the mean of both cores.
    fn one(&self) -> f64 {
        one(&self.pair.cycles.iter().collect::<Vec<_>>())
    }

    /// Operations a second of two threads.
    fn two(&self) -> f64 {
        rate(self.pair.cycles.iter().map(|cycle| cycle.both))
    }
}

/// Operations a second in all of those parts.
fn rate(parts: impl Iterator<Item = Part> + Clone) -> f64 {
    let seconds: f64 = parts.clone().map(|part| part.seconds).sum();
    let done: f64 = parts.map(|part| part.rate * part.seconds).sum();
    done / seconds
}

/// Operations a second of one thread in those cycles, in the mean of both cores.
fn one(cycles: &[&Cycle]) -> f64 {
    let of = |core: usize| rate(cycles.iter().filter_map(move |cycle| cycle.alone[core]));
    (of(0) + of(1)) / 2.0
}

/// A row as it is measured.
struct Measured {
    workload: &'static str,
    design: String,
    way: Way,
    rounds: Vec<Round>,
    /// What one core and two need to write to memory.
    device: [Writes; 2],
}

impl Measured {
    /// One without rounds.
    fn of(workload: &'static str, design: &str, stock: &MemoryStock) -> Result<Self, Failure> {
        // The way to memory is others' too, for seconds at a time.
        let device = [Writes::measure(1, stock)?, Writes::measure(2, stock)?];
        let (design, way) = (design.to_owned(), Way::of(workload));
        Ok(Self { workload, design, way, rounds: Vec::new(), device })
    }

    /// One round more.
    fn measure(&mut self, stock: &MemoryStock) -> Result<(), Failure> {
        let Way { course, warm_up, seconds, .. } = self.way;
        let (workload, design) = (self.workload, &self.design[..]);
        let real = Real { workload, design, course, warm_up, seconds, stock };
        let (turn, pace) = (Turn::measure(), calibrate::pace(2));
        self.rounds.push(Round { turn, pace, pair: real.pair()? });
        Ok(())
    }

    /// Whether it is to be measured again in that pass over all.
    fn is_wanting(&self, pass: usize, usual: f64) -> bool {
        pass < 2 * self.way.rounds && self.ratios(usual).len() < self.way.rounds
    }

    /// What the rounds that count say.
    fn ratios(&self, usual: f64) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round.ratio(usual)).collect()
    }

    /// How fast the cores were.
    fn pace(&self) -> f64 {
        middle(&mut self.rounds.iter().map(|round| round.pace).collect::<Vec<f64>>())
    }

    /// Nanoseconds from one operation of a core to its next, with one core and with two.
    fn ns(&self) -> [f64; 2] {
        [(Round::one as fn(&Round) -> f64, 1.0), (Round::two, 2.0)].map(|(of, cores)| {
            cores * 1e9 / middle(&mut self.rounds.iter().map(of).collect::<Vec<f64>>())
        })
    }

    /// What one core takes, simulated and real.
    fn sample(&self, run: &Run) -> Result<Sample, Failure> {
        let machine = run.machine(self.pace())?;
        let time = |times: f64| {
            let dearness = Dearness { times, ..Dearness::NONE };
            let mut bench = self.bench(&machine, run).with_dearness(dearness);
            Ok::<f64, Failure>(1e9 / self.rate(&mut bench, 1)?)
        };
        // The rest is the same with both.
        let (once, twice) = (time(1.0)?, time(2.0)?);
        Ok(Sample { code: twice - once, rest: 2.0 * once - twice, real: self.ns()[0] })
    }

    fn bench<'a>(&self, machine: &'a Machine, run: &Run) -> Bench<'a> {
        Bench::new(machine)
            .with_device(&run.device)
            .with_codes(&run.codes)
            .with_dearness(run.dearness)
    }

    /// What so many cores are to do as well: as many operations as in the middle of all rounds.
    fn course(&self, cores: usize) -> Course {
        let Way { course, as_measured, .. } = self.way;
        if !as_measured || self.rounds.is_empty() {
            return course;
        }
        let reach = |round: &Round| match cores {
            1 => round.pair.alone,
            _ => round.pair.together,
        };
        let middle_of = |of: fn(Reach) -> u64| {
            let all = self.rounds.iter().map(|round| of(reach(round)) as f64);
            middle(&mut all.collect::<Vec<f64>>()) as u64
        };
        let warm = middle_of(|reach| reach.before);
        let operations = middle_of(|reach| reach.after - reach.before).max(1);
        Course { warm, operations, ..course }
    }

    /// Operations a second of simulated cores.
    fn rate(&self, bench: &mut Bench<'_>, cores: usize) -> Result<f64, Failure> {
        let found = bench.run_course(self.workload, &self.design, cores, self.course(cores));
        found.map(|found| found.ops_per_s)
    }

    /// Simulates the same on the machine that was found in the whole of `run`.
    fn simulated(&self, run: &Run) -> Result<Row, Failure> {
        let (workload, design) = (self.workload, self.design.clone());
        let rounds = self.ratios(run.usual);
        if rounds.is_empty() {
            let why = "the cores were never for long where they usually are";
            return Err(Failure::broken(format!("{workload}: {design}: {why}")));
        }
        let machine = run.machine(self.pace())?;
        let mut bench = self.bench(&machine, run);
        // Where memory lies differs each time, as it does for what is measured.
        let mut pairs = Vec::new();
        for _ in 0..SIMULATIONS {
            pairs.push([self.rate(&mut bench, 1)?, self.rate(&mut bench, 2)?]);
        }
        pairs.sort_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])));
        let [one, two] = pairs[SIMULATIONS / 2];
        Ok(Row {
            workload,
            design,
            machine,
            dearness: run.dearness,
            simulated: two / one,
            measured: middle(&mut rounds.clone()),
            rounds,
            simulated_ns: [1e9 / one, 2e9 / two],
            measured_ns: self.ns(),
        })
    }
}

/// Nanoseconds of a turn in the middle of all that two cores did together.
fn usual(rows: &[Measured]) -> f64 {
    let cycles = rows.iter().flat_map(|row| &row.rounds).flat_map(|round| &round.pair.cycles);
    let mut turns: Vec<f64> = cycles.flat_map(|cycle| cycle.turns).collect();
    if turns.is_empty() { f64::NAN } else { middle(&mut turns) }
}

/// What all of a run's rows say of the machine: what is measured for one of them, in some tenths of
/// a second, varies by more than rows differ.
#[derive(Clone)]
struct Run {
    constants: Constants,
    /// Nanoseconds of a turn in most parts.
    usual: f64,
    /// All turns that were taken while the cores were there.
    turn: Turn,
    /// What one core and two need to write to memory.
    device: [Writes; 2],
    codes: Codes,
    /// Of one workload.
    dearness: Dearness,
}

impl Run {
    fn of(constants: Constants, rows: &[Measured]) -> Self {
        let usual = usual(rows);
        let turns = rows.iter().flat_map(|row| &row.rounds).map(|round| round.turn);
        let turn = settled(usual, &turns.collect::<Vec<Turn>>());
        let device = [0, 1].map(|cores| {
            let all = || rows.iter().map(|row| &row.device[cores]);
            Writes::by(|of| middle(&mut all().map(of).collect::<Vec<f64>>()))
        });
        Self { constants, usual, turn, device, codes: Codes::default(), dearness: Dearness::NONE }
    }

    /// The same with how dear one workload's operations are.
    fn for_code_of(&self, rows: &[&Measured]) -> Result<Self, Failure> {
        let found = side_by_side(rows, &|row| row.sample(self))?;
        Ok(Self { dearness: Dearness::fit(&found), ..self.clone() })
    }

    /// The machine while its cores are as fast as `pace`.
    fn machine(&self, pace: f64) -> Result<Machine, Failure> {
        Machine::parse("host", &self.constants.at(self.turn, pace)?.text())
    }
}

/// The middle of those of `all` that were taken with the cores as near as `usual`; of all if there
/// are none.
fn settled(usual: f64, all: &[Turn]) -> Turn {
    let there: Vec<Turn> = all.iter().filter(|turn| near(turn.changed, usual)).copied().collect();
    let turns = if there.is_empty() { all } else { &there };
    let of = |what: fn(&Turn) -> f64| middle(&mut turns.iter().map(what).collect::<Vec<f64>>());
    let chances = [of(|turn| turn.chances[0]), of(|turn| turn.chances[1])];
    Turn { changed: of(|turn| turn.changed), look: of(|turn| turn.look), chances }
}

pub(super) fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Beside {
    /// As `{"rows": [...]}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "workload": row.workload,
                "design": row.design,
                "simulated": row.simulated,
                "measured": row.measured,
                "rounds": row.rounds,
                "error": row.error(),
                "constants": row.machine.constants(),
                "dearness": row.dearness.times,
                "besides_ns": row.dearness.besides,
                "simulated_ns": row.simulated_ns,
                "measured_ns": row.measured_ns,
            })
        };
        json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two cores by one, simulated and measured here")?;
        let mut last = None;
        for Row { workload, machine, dearness, .. } in &self.rows {
            if last.replace(*workload) != Some(*workload) {
                let (constants, Dearness { times, besides }) = (machine.constants(), dearness);
                writeln!(
                    f,
                    "{}, {workload}: {constants}, code {times:.1} times, {besides:.0} ns besides",
                    machine.about
                )?;
            }
        }
        let row = ["workload", "design", "line", "simulated", "measured", "error"];
        let [workload, design, line, simulated, measured, error] = row;
        writeln!(
            f,
            "{workload:<14} {design:<18} {line:>7} {simulated:>9} {measured:>9} {error:>8}"
        )?;
        for row in &self.rows {
            let Row { workload, design, machine, simulated, measured, .. } = row;
            let (line, error) = (machine.line(), row.error() * 100.0);
            let ratios = format!("{simulated:>9.2} {measured:>9.2} {error:>+6.0} %");
            writeln!(f, "{workload:<14} {design:<18} {line:>4.0} ns {ratios}")?;
        }
        let near = self.rows.iter().filter(|row| row.error().abs() <= 0.15).count();
        writeln!(f, "{near} of {} within 15 %", self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(turns: [f64; 2], seconds: f64, both: f64, alone: [f64; 2]) -> Cycle {
        let part = |rate| Part { seconds, rate };
        let alone = alone.map(|rate| (rate > 0.0).then(|| part(rate)));
        Cycle { both: part(both), turns, alone }
    }

    #[test]
    fn cycles_for_which_cores_were_elsewhere_do_not_count() {
        let turn = Turn { changed: 26.0, look: 1.0, chances: [0.7, 0.5] };
        let round = |cycles: &[Cycle]| Round {
            turn,
            pace: 1.0,
            pair: Pair { cycles: cycles.to_vec(), ..Pair::default() },
        };
        let near = [
            cycle([26.0, 27.0], 3.0, 8.0, [11.0, 9.0]),
            cycle([30.0, 24.0], 1.0, 4.0, [11.0, 9.0]),
        ];
        let moved = cycle([26.0, 120.0], 4.0, 3.0, [1.0, 1.0]);
        let far = cycle([130.0, 120.0], 3.0, 2.0, [5.0, 15.0]);
        assert_eq!(round(&near).ratio(26.0), Some(0.7));
        assert_eq!(round(&[near[0], moved, far]).ratio(26.0), Some(0.8));
        assert_eq!(round(&[near[0], moved, far]).ratio(120.0), Some(0.2));
        assert_eq!(round(&[moved, far, moved, moved, moved, moved]).ratio(120.0), None);
        assert_eq!(round(&[near[1], moved]).ratio(120.0), None);
        assert_eq!(round(&[]).ratio(26.0), None);
        // Who had nothing left to do says nothing of one core.
        let over = cycle([26.0, 26.0], 3.0, 8.0, [0.0, 9.0]);
        assert_eq!(round(&[near[0], over]).ratio(26.0), Some(0.8));
        assert_eq!(round(&[over]).ratio(26.0), None);
        assert_eq!(round(&near).one(), 10.0);
    }

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

    #[test]
    fn as_many_operations_are_simulated_as_were_measured() {
        let turn = Turn { changed: 26.0, look: 1.0, chances: [0.7, 0.5] };
        let round = |before, after| {
            let alone = Reach { before, after };
            let together = Reach { before: before / 2, after: after / 2 };
            Round { turn, pace: 1.0, pair: Pair { alone, together, ..Pair::default() } }
        };
        let course = |workload, cores| {
            let rounds = vec![round(100, 400), round(120, 500), round(300, 340)];
            let (design, way) = ("nextent".to_owned(), Way::of(workload));
            let none = Writes { first: 0.0, more: 0.0, again: 0.0, late: 0.0 };
            let row = Measured { workload, design, way, rounds, device: [none; 2] };
            let Course { warm, operations, .. } = row.course(cores);
            (warm, operations)
        };
        assert_eq!((course("churn", 1), course("churn", 2)), ((120, 300), (60, 150)));
        // Operations that are all alike.
        assert_eq!(course("handles", 1), (256, 1000));
    }

    #[test]
    fn a_turn_is_the_middle_of_those_where_cores_usually_were() {
        // Near cores share an L3, and far ones do not.
        let turn = |changed: f64| Turn {
            changed,
            look: changed.clamp(40.0, 68.0) / 40.0,
            chances: [changed / 100.0; 2],
        };
        let all = [27.0, 26.0, 28.0, 129.0, 27.5, 131.0, 33.0].map(turn);
        let told = |usual| {
            let turn = settled(usual, &all);
            (turn.changed, turn.migrates())
        };
        assert_eq!(told(33.0), (27.5, true));
        assert_eq!(told(120.0), (131.0, false));
        assert_eq!(told(60.0), (28.0, true));
    }
}
