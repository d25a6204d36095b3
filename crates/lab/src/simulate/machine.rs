//! Machines: their shape and at most eight constants, each with where it is from.

use crate::failure::Failure;
use nextent_lab_simulated::{Course, Orders};
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
    pub(super) instruction_ps: u64,
    entry: u64,
    costs: [u64; 6],
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Constants {
    instruction_ps: Constant,
    entry_ns: Constant,
    rmw_ns: Constant,
    near_ns: Constant,
    socket_ns: Constant,
    across_ns: Constant,
    /// Where spin locks are handed over.
    handoff: Option<Constant>,
    wake_ns: Constant,
    /// How long who waits for a sleeping lock looks at it before it sleeps, in programs that do not
    /// know whether the holder runs.
    looking_ns: Option<Constant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Constant {
    value: f64,
    source: String,
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
        let Shape { cores, cluster, socket, line, spread, unfair, migrates } = file.shape;
        if cores == 0 || cores > 4096 || cluster == 0 || socket < cluster || socket > 4096 {
            return Err(wrong("shape: 1 <= cluster <= socket, and 1 to 4096 cores"));
        }
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return Err(wrong("shape: line: a power of two from 16 to 4096"));
        }
        let Constants { instruction_ps, entry_ns, rmw_ns, near_ns, .. } = &file.constants;
        let Constants { socket_ns, across_ns, handoff, wake_ns, looking_ns, .. } = &file.constants;
        let take = |name: &str, constant: &Constant, unit: f64, most: f64| {
            if !(constant.value >= 0.0 && constant.value <= most) {
                return Err(wrong(&format!("{name}: a number from 0 to {most}")));
            }
            if constant.source.trim().is_empty() {
                return Err(wrong(&format!("{name}: says no source")));
            }
            Ok((constant.value * unit).round() as u64)
        };
        let ns = |name: &str, constant| take(name, constant, 1000.0, MOST_NS);
        let handoff = match handoff {
            Some(_) if unfair => {
                return Err(wrong("handoff: where spin locks are unfair they are not handed over"));
            }
            Some(constant) => take("handoff", constant, 100.0, 1000.0)?,
            None if unfair => 0,
            None => return Err(wrong("missing field `handoff`")),
        };
        if looking_ns.is_some() && !unfair {
            return Err(wrong(
                "looking_ns: in kernels who waits looks for as long as the holder runs",
            ));
        }
        let instruction_ps = take("instruction_ps", instruction_ps, 1.0, 100_000.0)?;
        if instruction_ps == 0 {
            return Err(wrong("instruction_ps: more than 0"));
        }
        let costs = [
            ns("rmw_ns", rmw_ns)?,
            ns("near_ns", near_ns)?,
            ns("socket_ns", socket_ns)?,
            ns("across_ns", across_ns)?,
            ns("wake_ns", wake_ns)?,
            looking_ns.as_ref().map_or(Ok(0), |looking| ns("looking_ns", looking))?,
        ];
        Ok(Self {
            name: name.to_owned(),
            about: file.about.clone(),
            shape: [cores, cluster, socket, line.trailing_zeros() as usize],
            spread,
            unfair,
            migrates,
            instruction_ps,
            entry: ns("entry_ns", entry_ns)?,
            costs,
            handoff,
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
        let [rmw, near, .., wake, looking] = self.costs.map(ns);
        let instruction = ns(self.instruction_ps);
        let migrates = if self.migrates { " that migrates" } else { "" };
        let line = format!("line {near:.0} ns{migrates}");
        let waits = format!("wake {wake:.0} ns, looking {looking:.0} ns");
        format!("instruction {instruction:.2} ns, rmw {rmw:.1} ns, {line}, {waits}")
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
            costs: self.costs,
            handoff: self.handoff,
            window: WINDOW * self.instruction_ps,
            instruction: self.instruction_ps,
            step,
            code: Vec::new(),
            stepped: [0; 2],
            // A handle alone is started by no system call.
            entry: if workload == "handles" { 0 } else { self.entry },
            writes: [[0; 4]; 2],
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
            ("about =", "abaut =", "abaut"),
            ("handoff = {", "# {", "handoff"),
            ("[constants]", "unfair = true\n[constants]", "handoff"),
            (
                "handoff = {",
                "looking_ns = { value = 1, source = \"x\" }\nhandoff = {",
                "looking_ns",
            ),
        ] {
            let text = told(&good.replacen(from, to, 1));
            assert!(text.contains(word) && text.lines().count() == 1, "{text}");
        }
        assert!(Machine::get("nowhere").expect_err("unknown").to_string().contains("numaq16"));
        assert!(Machine::get("nowhere.toml").is_err());
    }
}
