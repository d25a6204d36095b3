//! Machines: their shape and constants, each with its source.

use nextent_bench::Failure;
use nextent_bench::simulated::{Device, Length, Simulated};
use serde::Deserialize;

/// Machines that are built in.
const KNOWN: [(&str, &str); 6] = [
    ("kunpeng920", include_str!("../../machines/kunpeng920.toml")),
    ("epyc9654x2", include_str!("../../machines/epyc9654x2.toml")),
    ("numaq16", include_str!("../../machines/numaq16.toml")),
    ("x440", include_str!("../../machines/x440.toml")),
    ("xeon6140", include_str!("../../machines/xeon6140.toml")),
    ("host", include_str!("../../machines/host.toml")),
];

/// Larger constants are mistakes: a millisecond.
const MOST_NS: f64 = 1e6;
/// Instructions that a core begins while it waits for a line. Reorder buffers of such machines hold
/// 128 to 448.
const WINDOW: u64 = 256;
/// A loop over a few words, whose instructions code declares, retires so many at a time as other
/// code retires one.
const LOOP_PARALLELISM: u64 = 2;

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name, or the path of its file.
    pub name: String,
    /// A description.
    pub about: String,
    /// Whether threads are spread over sockets and clusters.
    spread: bool,
    /// Picoseconds of an instruction.
    pub(crate) instruction: u64,
    /// Picoseconds from the call of an operation to the file system.
    entry: u64,
    device: Device,
    model: nextent_sim::Machine,
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
    /// Whether threads are spread over sockets and clusters, as a scheduler does.
    #[serde(default)]
    spread: bool,
    /// Whether spin locks are unfair, as before there were ticket locks.
    #[serde(default)]
    unfair: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Constants {
    instruction_ps: Constant,
    entry_ns: Option<Constant>,
    rmw_ns: Constant,
    near_ns: Constant,
    /// As near, if missing.
    socket_ns: Option<Constant>,
    across_ns: Option<Constant>,
    wake_ns: Constant,
    /// Latency of the device; none, if missing.
    device_ns: Option<Constant>,
    /// Time of the device's bus for 1 KiB; none, if missing.
    device_kib_ns: Option<Constant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Constant {
    value: f64,
    source: String,
}

impl Constant {
    /// The value in picoseconds.
    fn picoseconds(&self, name: &str, unit: f64) -> Result<u64, String> {
        let most = MOST_NS * 1000.0 / unit;
        if !(0.0..=most).contains(&self.value) {
            return Err(format!("{name}: a number from 0 to {most}"));
        }
        if self.source.trim().is_empty() {
            return Err(format!("{name}: its source is missing"));
        }
        Ok((self.value * unit).round() as u64)
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
            let known = KNOWN.map(|(known, _)| known).join(", ");
            let text = format!("{name}: no such machine; there are {known}, and files *.toml");
            return Err(Failure::usage(text));
        }
        let text = std::fs::read_to_string(name);
        Self::parse(name, &text.map_err(|error| Failure::usage(format!("{name}: {error}")))?)
    }

    /// Parses a machine file.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let parsed = toml::from_str::<File>(text).map_err(|error| error.message().to_owned());
        let machine = parsed.and_then(|file| Self::checked(name, &file));
        machine.map_err(|why| Failure::usage(format!("machine {name}: {why}")))
    }

    fn checked(name: &str, file: &File) -> Result<Self, String> {
        let Shape { cores, cluster, socket, line, spread, unfair } = file.shape;
        if cores == 0 || cores > 4096 || cluster == 0 || socket < cluster || socket > 4096 {
            return Err("shape: 1 <= cluster <= socket, and 1 to 4096 cores".into());
        }
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return Err("shape: line: a power of two from 16 to 4096".into());
        }
        let all = &file.constants;
        let ns = |name, constant: &Constant| constant.picoseconds(name, 1000.0);
        let ns_or = |usual, name, constant: &Option<Constant>| {
            constant.as_ref().map_or(Ok(usual), |constant| ns(name, constant))
        };
        let instruction = all.instruction_ps.picoseconds("instruction_ps", 1.0)?;
        if instruction < LOOP_PARALLELISM {
            return Err("instruction_ps: too small".into());
        }
        let near = ns("near_ns", &all.near_ns)?;
        Ok(Self {
            name: name.to_owned(),
            about: file.about.clone(),
            spread,
            instruction,
            entry: ns_or(0, "entry_ns", &all.entry_ns)?,
            device: Device {
                latency: ns_or(0, "device_ns", &all.device_ns)?,
                kib: ns_or(0, "device_kib_ns", &all.device_kib_ns)?,
            },
            model: nextent_sim::Machine {
                cores,
                cluster,
                socket,
                line_shift: line.trailing_zeros(),
                unfair,
                rmw: ns("rmw_ns", &all.rmw_ns)?,
                near,
                socket_far: ns_or(near, "socket_ns", &all.socket_ns)?,
                across: ns_or(near, "across_ns", &all.across_ns)?,
                wake: ns("wake_ns", &all.wake_ns)?,
                window: WINDOW * instruction,
            },
        })
    }

    /// Picoseconds of a read-modify-write of a line that a core has.
    pub(crate) fn rmw(&self) -> u64 {
        self.model.rmw
    }

    pub(crate) fn cores(&self) -> usize {
        self.model.cores
    }

    /// A run on this machine.
    pub(crate) fn cell(
        &self,
        workload: &str,
        design: &str,
        cores: usize,
        length: Length,
        step: u64,
    ) -> Simulated {
        Simulated {
            workload: workload.to_owned(),
            design: design.to_owned(),
            cores,
            length,
            machine: self.model,
            spread: self.spread,
            instruction: self.instruction / LOOP_PARALLELISM,
            step,
            // Handles are started inside of the file system, by no system call.
            entry: if workload == "handles" { 0 } else { self.entry },
            device: self.device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_machines_parse() {
        for (name, _) in KNOWN {
            let machine = Machine::get(name).expect("it is good");
            assert!(machine.cores() > 0 && machine.instruction > 0, "{name}");
        }
    }

    #[test]
    fn a_wrong_file_is_an_error_of_one_line() {
        let good = KNOWN[0].1;
        let error = |text: &str| Machine::parse("x", text).expect_err("it is wrong").to_string();
        for (from, to, word) in [
            ("wake_ns = {", "# {", "wake_ns"),
            ("value = 8,", "value = -8,", "rmw_ns"),
            ("value = 8,", "value = 1e12,", "rmw_ns"),
            ("cores = 80", "cores = 0", "cores"),
            ("line = 128", "line = 100", "line"),
            ("value = 385,", "value = 1,", "instruction_ps"),
            ("value = 385,", "value = 0,", "instruction_ps"),
            ("about =", "abaut =", "abaut"),
        ] {
            let text = error(&good.replacen(from, to, 1));
            assert!(text.contains(word) && text.lines().count() == 1, "{text}");
        }
        assert!(Machine::get("nowhere").expect_err("unknown").to_string().contains("numaq16"));
        assert!(Machine::get("nowhere.toml").is_err());
    }

    #[test]
    fn each_thread_has_its_own_core() {
        let cores = |machine: &str, cores| {
            let machine = Machine::get(machine).expect("it is there");
            let cell = machine.cell("handles", "nextent", cores, Length::of(1), 0);
            (0..cores).map(|thread| cell.core(thread)).collect::<Vec<_>>()
        };
        assert_eq!(cores("epyc9654x2", 5), [0, 1, 2, 3, 4]);
        assert_eq!(cores("kunpeng920", 5), [0, 40, 4, 44, 8]);
        for n in [80, 128, 256] {
            let mut all = cores("kunpeng920", n);
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), n);
        }
    }
}
