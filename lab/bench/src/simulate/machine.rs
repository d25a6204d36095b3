//! Machines: their shape and at most eight constants, each with where it is from.

use crate::failure::Failure;
use nextent_bench_simulated::{Course, Orders, WriteCosts};
use serde::Deserialize;

/// Machines that are built in.
const KNOWN: [(&str, &str); 5] = [
    ("kunpeng920", include_str!("../../machines/kunpeng920.toml")),
    ("epyc9654x2", include_str!("../../machines/epyc9654x2.toml")),
    ("numaq16", include_str!("../../machines/numaq16.toml")),
    ("x440", include_str!("../../machines/x440.toml")),
    ("host", include_str!("../../machines/host.toml")),
];

/// Beyond this a constant is a slip of the hand: a millisecond, or a thousand lines.
const MOST_NS: f64 = 1e6;

/// Instructions that a core begins while it waits for a line: reorder buffers of such machines hold
/// 128 to 320, the newest 448. For all machines.
const WINDOW: u64 = 256;

/// Where lines migrate, by how many hundredths of its way one is there sooner or later, by chance:
/// each has its place in the L3, and what else is on the way differs. On an Intel Xeon one and the
/// same line takes less than 0.87 to 0.93 of the middle in a tenth of all cases and more than 1.13
/// to 1.27 in a tenth, and lines differ from each other. For all machines: cores that always took
/// the same steps would find a lock held each time, or never.
const UNEVEN: u64 = 20;

/// Times its way that a line may take which rests: more was never seen, nor half of that.
pub(super) const MOST_RESTED: f64 = 4.0;

/// The part of a wake-up that whoever lets a lock go is busy with it, where that is not told.
pub(super) const USUAL_WAKER: f64 = 0.5;

/// No processor begins more instructions in a cycle.
const MOST_LOOPS: u64 = 16;

/// Simulated turns of each of two cores.
const TURNS: u64 = 2_000;

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What it was asked for as.
    pub name: String,
    /// What it is.
    pub about: String,
    shape: [usize; 4],
    spread: bool,
    unfair: bool,
    migrates: bool,
    /// Hundredths of its way that a line takes which rests, where lines migrate.
    rested: u64,
    /// Hundredths of a wake-up that whoever lets a lock go is busy with it.
    waker: u64,
    /// The chances of a second change in a window, in thousandths.
    windows: Option<[u64; 2]>,
    pub(super) instruction_ps: u64,
    loops: u64,
    /// Picoseconds of the sum of 64 bytes.
    sum: u64,
    entry: u64,
    costs: [u64; 7],
    handoff: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    shape: Shape,
    constants: Constants,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    cores: usize,
    cluster: usize,
    socket: usize,
    line: usize,
    /// Whether workers are spread over sockets and clusters, as a system does that nobody tells.
    #[serde(default)]
    spread: bool,
    /// Whether who waits for a spin lock looks at it until it is free and is there first, as
    /// before there were tickets.
    #[serde(default)]
    unfair: bool,
    /// Whether a line that was changed goes whole to who loads it, and at once to who has asked,
    /// as between cores that share an L3.
    #[serde(default)]
    migrates: bool,
    /// Times its way that a line takes which nobody has used for a while, where lines migrate.
    #[serde(default = "once")]
    rested: f64,
    /// The part of a wake-up that whoever lets a lock go is busy with it.
    #[serde(default = "usual_waker")]
    waker: f64,
    /// How many instructions of a loop over a few words, which code tells of, take as long as one
    /// of other code.
    #[serde(default = "one")]
    loops: u64,
    /// Nanoseconds of the checksum of 4 KiB; where it is not told, a load and a step of the sum for
    /// each 8 bytes, as any loop for it has.
    sum_ns: Option<f64>,
}

fn one() -> u64 {
    1
}

fn once() -> f64 {
    1.0
}

fn usual_waker() -> f64 {
    USUAL_WAKER
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Constants {
    instruction_ps: Constant,
    /// None where no system call is made.
    entry_ns: Option<Constant>,
    rmw_ns: Constant,
    near_ns: Constant,
    /// As near, where they are not told.
    socket_ns: Option<Constant>,
    across_ns: Option<Constant>,
    /// Where spin locks are handed over.
    handoff: Option<Constant>,
    wake_ns: Constant,
    /// In programs, where who waits for a sleeping lock does not know whether the holder runs and
    /// looks now and then before it sleeps: an instruction that says so, and offering the core.
    pause_ns: Option<Constant>,
    offer_ns: Option<Constant>,
    /// Where lines migrate: that a core that has changed a line that another wants, too, changes it
    /// again before it loses it, and that it changes another such line.
    again: Option<Constant>,
    other: Option<Constant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Constant {
    value: f64,
    source: String,
}

/// The constants of a machine, to be taken one by one.
struct Told<'a> {
    machine: &'a str,
    constants: &'a Constants,
}

impl Told<'_> {
    fn wrong(&self, why: &str) -> Failure {
        Failure::usage(format!("machine {}: {why}", self.machine))
    }

    /// A constant in so many parts of its unit, `most` at most.
    fn part(&self, name: &str, constant: &Constant, parts: f64, most: f64) -> Result<u64, Failure> {
        if !(constant.value >= 0.0 && constant.value <= most) {
            return Err(self.wrong(&format!("{name}: a number from 0 to {most}")));
        }
        if constant.source.trim().is_empty() {
            return Err(self.wrong(&format!("{name}: says no source")));
        }
        Ok((constant.value * parts).round() as u64)
    }

    fn take(
        &self,
        name: &str,
        which: fn(&Constants) -> &Constant,
        parts: f64,
        most: f64,
    ) -> Result<u64, Failure> {
        self.part(name, which(self.constants), parts, most)
    }

    /// Picoseconds.
    fn ns(&self, name: &str, which: fn(&Constants) -> &Constant) -> Result<u64, Failure> {
        self.take(name, which, 1000.0, MOST_NS)
    }

    /// As many as are told, else `usual`.
    fn ns_or(&self, usual: u64, name: &str, told: Option<&Constant>) -> Result<u64, Failure> {
        told.map_or(Ok(usual), |constant| self.part(name, constant, 1000.0, MOST_NS))
    }

    fn costs(&self) -> Result<[u64; 7], Failure> {
        let near = self.ns("near_ns", |all| &all.near_ns)?;
        let Constants { socket_ns, across_ns, pause_ns, offer_ns, .. } = self.constants;
        Ok([
            self.ns("rmw_ns", |all| &all.rmw_ns)?,
            near,
            self.ns_or(near, "socket_ns", socket_ns.as_ref())?,
            self.ns_or(near, "across_ns", across_ns.as_ref())?,
            self.ns("wake_ns", |all| &all.wake_ns)?,
            self.ns_or(0, "pause_ns", pause_ns.as_ref())?,
            self.ns_or(0, "offer_ns", offer_ns.as_ref())?,
        ])
    }

    fn handoff(&self, unfair: bool) -> Result<u64, Failure> {
        match &self.constants.handoff {
            Some(_) if unfair => {
                Err(self.wrong("handoff: where spin locks are unfair they are not handed over"))
            }
            Some(constant) => self.part("handoff", constant, 100.0, 1000.0),
            None if unfair => Ok(0),
            None => Err(self.wrong("missing field `handoff`")),
        }
    }

    /// The chances of changes in a window, in thousandths.
    fn windows(&self, migrates: bool) -> Result<Option<[u64; 2]>, Failure> {
        match (&self.constants.again, &self.constants.other) {
            (None, None) => Ok(None),
            (Some(again), Some(other)) if migrates => Ok(Some([
                self.part("again", again, 1000.0, 1.0)?,
                self.part("other", other, 1000.0, 1.0)?,
            ])),
            _ => Err(self.wrong("again and other: both, and only where lines migrate")),
        }
    }
}

impl Machine {
    /// The machine of that name, or of that TOML file.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there is none, or a constant is missing or absurd.
    pub fn get(name: &str) -> Result<Self, Failure> {
        if let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        if !name.ends_with(".toml") {
            let known: Vec<&str> = KNOWN.iter().map(|(known, _)| *known).collect();
            let known = known.join(", ");
            let text = format!("{name}: no such machine; there are {known}, and files *.toml");
            return Err(Failure::usage(text));
        }
        let text = std::fs::read_to_string(name);
        Self::parse(name, &text.map_err(|error| Failure::usage(format!("{name}: {error}")))?)
    }

    /// A machine as its file has it.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::usage(format!("machine {name}: {why}"));
        let file: File = toml::from_str(text).map_err(|error| wrong(error.message()))?;
        let Shape { cores, cluster, socket, line, spread, unfair, migrates, .. } = file.shape;
        let Shape { rested, waker, loops, sum_ns, .. } = file.shape;
        if cores == 0 || cores > 4096 || cluster == 0 || socket < cluster || socket > 4096 {
            return Err(wrong("shape: 1 <= cluster <= socket, and 1 to 4096 cores"));
        }
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return Err(wrong("shape: line: a power of two from 16 to 4096"));
        }
        if !(1..=MOST_LOOPS).contains(&loops) {
            return Err(wrong(&format!("shape: loops: from 1 to {MOST_LOOPS}")));
        }
        if !(1.0..=MOST_RESTED).contains(&rested) || rested > 1.0 && !migrates {
            let text =
                format!("shape: rested: from 1 to {MOST_RESTED}, and only where lines migrate");
            return Err(wrong(&text));
        }
        if !(0.0..=1.0).contains(&waker) {
            return Err(wrong("shape: waker: from 0 to 1"));
        }
        let Constants { pause_ns, offer_ns, .. } = &file.constants;
        if pause_ns.is_some() != offer_ns.is_some() {
            return Err(wrong("pause_ns and offer_ns: both or none"));
        }
        if pause_ns.is_some() && !unfair {
            return Err(wrong(
                "pause_ns: in kernels who waits looks for as long as the holder runs",
            ));
        }
        let told = Told { machine: name, constants: &file.constants };
        let instruction_ps =
            told.take("instruction_ps", |all| &all.instruction_ps, 1.0, 100_000.0)?;
        if instruction_ps < loops {
            return Err(wrong("instruction_ps: more than 0, and no less than loops"));
        }
        if sum_ns.is_some_and(|ns| !(0.0..=MOST_NS).contains(&ns)) {
            return Err(wrong(&format!("shape: sum_ns: a number from 0 to {MOST_NS}")));
        }
        Ok(Self {
            name: name.to_owned(),
            about: file.about.clone(),
            shape: [cores, cluster, socket, line.trailing_zeros() as usize],
            spread,
            unfair,
            migrates,
            rested: (100.0 * rested).round() as u64,
            waker: (100.0 * waker).round() as u64,
            windows: told.windows(migrates)?,
            instruction_ps,
            loops,
            sum: match sum_ns {
                Some(ns) => (ns * 1000.0 / 64.0).round() as u64,
                None => 16 * instruction_ps / loops,
            },
            entry: told.ns_or(0, "entry_ns", file.constants.entry_ns.as_ref())?,
            costs: told.costs()?,
            handoff: told.handoff(unfair)?,
        })
    }

    /// Nanoseconds of a line's way between near cores.
    pub(super) fn line(&self) -> f64 {
        self.costs[1] as f64 / 1000.0
    }

    /// Picoseconds of a read-modify-write of a line that a core has.
    pub(super) fn rmw(&self) -> u64 {
        self.costs[0]
    }

    /// Its constants in a line of text: nanoseconds.
    pub(super) fn constants(&self) -> String {
        let ns = |ps: u64| ps as f64 / 1000.0;
        let [rmw, near, .., wake, pause, offer] = self.costs.map(ns);
        let instruction = ns(self.instruction_ps);
        let migrates = match self.windows {
            Some([again, other]) => format!(" that migrates, {again} and {other} of 1000"),
            None if self.migrates => " that migrates".to_owned(),
            None => String::new(),
        };
        let rested = match self.rested {
            ..=100 => String::new(),
            rested => format!(", {} times if it rests", rested as f64 / 100.0),
        };
        let line = format!("line {near:.0} ns{migrates}{rested}");
        let busy = wake * self.waker as f64 / 100.0;
        let waits = format!("wake {wake:.0} ns ({busy:.0} of the waker)");
        let waits = format!("{waits}, pause {pause:.0} ns, offer {offer:.0} ns");
        let sum = 64.0 * ns(self.sum);
        format!(
            "instruction {instruction:.2} ns, rmw {rmw:.1} ns, sum {sum:.0} ns, {line}, {waits}"
        )
    }

    /// Picoseconds of a turn where its first two cores change a word in turns.
    pub(super) fn turn(&self) -> Result<f64, Failure> {
        Ok(super::ask_turn(&self.orders("", "", 2, Course::usual(TURNS), 0))? as f64)
    }

    /// Its cores.
    pub(super) fn cores(&self) -> usize {
        self.shape[0]
    }

    /// The orders for a cell on this machine.
    pub(super) fn orders(
        &self,
        workload: &str,
        design: &str,
        cores: usize,
        course: Course,
        step: u64,
    ) -> Orders {
        Orders {
            workload: workload.to_owned(),
            design: design.to_owned(),
            cores,
            course,
            shape: self.shape,
            spread: self.spread,
            unfair: self.unfair,
            migrates: self.migrates,
            rested: self.rested,
            uneven: UNEVEN,
            waker: self.waker,
            windows: self.windows,
            costs: self.costs,
            handoff: self.handoff,
            window: WINDOW * self.instruction_ps,
            instruction: self.instruction_ps / self.loops,
            sum: self.sum,
            step,
            code: Vec::new(),
            stepped: [0; 2],
            // A handle alone is started by no system call.
            entry: if workload == "handles" { 0 } else { self.entry },
            rest: 0,
            writes: [WriteCosts::default(); 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_can_be_used() {
        for (name, _) in KNOWN {
            let machine = Machine::get(name).expect("it is good");
            assert!(machine.shape[0] > 0 && machine.instruction_ps > 0, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_a_line() {
        let good = KNOWN[0].1;
        let told = |text: &str| Machine::parse("x", text).expect_err("it is wrong").to_string();
        for (from, to, word) in [
            ("wake_ns = {", "# {", "wake_ns"),
            ("value = 8,", "value = -8,", "rmw_ns"),
            ("value = 8,", "value = 1e12,", "rmw_ns"),
            ("cores = 80", "cores = 0", "cores"),
            ("line = 128", "line = 100", "line"),
            ("loops = 2", "loops = 0", "loops"),
            ("loops = 2", "loops = 17", "loops"),
            ("loops = 2", "rested = 1.2", "rested"),
            ("loops = 2", "migrates = true\nrested = 0.9", "rested"),
            ("loops = 2", "migrates = true\nrested = 4.1", "rested"),
            ("loops = 2", "waker = -0.1", "waker"),
            ("loops = 2", "waker = 1.1", "waker"),
            ("loops = 2", "sum_ns = -1.0", "sum_ns"),
            ("loops = 2", "sum_ns = 1e99", "sum_ns"),
            ("value = 385,", "value = 1,", "instruction_ps"),
            ("value = 385,", "value = 0,", "instruction_ps"),
            ("about =", "abaut =", "abaut"),
            ("across_ns =", "again = { value = 0.5, source = \"x\" }\nacross_ns =", "again"),
            ("handoff = {", "# {", "handoff"),
            ("[constants]", "unfair = true\n[constants]", "handoff"),
            (
                "handoff = {",
                "pause_ns = { value = 1, source = \"x\" }\nhandoff = {",
                "both or none",
            ),
            (
                "handoff = {",
                "pause_ns = { value = 1, source = \"x\" }\n\
                 offer_ns = { value = 1, source = \"x\" }\nhandoff = {",
                "in kernels",
            ),
        ] {
            let text = told(&good.replacen(from, to, 1));
            assert!(text.contains(word) && text.lines().count() == 1, "{text}");
        }
        assert!(Machine::get("nowhere").expect_err("unknown").to_string().contains("numaq16"));
        assert!(Machine::get("nowhere.toml").is_err());
    }
}
