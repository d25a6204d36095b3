//! Compares the mount, over both transports, with fuse2fs and Linux's ext4, on an idle machine and
//! beside two busy processes.
//!
//! `cargo xtask bench mount [ROUNDS]`. All mounts exist at once and take turns within each round. A
//! figure is the median of the rounds' ratios. Needs root, `/dev/fuse` and loop devices.

mod mounts;
mod work;

pub(super) use work::dbench;

use super::measure::median;
use crate::setup::is_root;
use crate::shell::has;
use mounts::{Kind, Mounts};
use std::process::{Child, Command, Stdio};
use work::{Work, Worker};

/// The default number of rounds.
const ROUNDS: usize = 5;
/// The busy processes of the second table.
const BUSY: usize = 2;

/// Work, the peer of the goal, and the goal: our speed in terms of the peer's.
struct Row {
    name: &'static str,
    work: Work,
    peer: Kind,
    goal: Option<f64>,
}

const ROWS: [Row; 9] = [
    row("dbench, 1 client", Work::Dbench(1), Kind::Fuse2fs, Some(3.0)),
    row("dbench, 8 clients", Work::Dbench(8), Kind::Fuse2fs, Some(4.0)),
    row("churn, 1 process", Work::Churn(1), Kind::Fuse2fs, Some(2.0)),
    row("churn, 8 processes", Work::Churn(8), Kind::Fuse2fs, Some(4.0)),
    row("untar of 6,000 files", Work::Untar, Kind::Linux, Some(0.4)),
    row("rsync -aHAX of 6,000 files", Work::Rsync, Kind::Linux, Some(1.0 / 3.0)),
    row("rm -rf of 6,000 files", Work::Remove, Kind::Linux, Some(0.4)),
    row("dd bs=4k, 64 MiB", Work::Write(4096), Kind::Linux, None),
    row("dd bs=1M, 256 MiB", Work::Write(1 << 20), Kind::Linux, None),
];

const fn row(name: &'static str, work: Work, peer: Kind, goal: Option<f64>) -> Row {
    Row { name, work, peer, goal }
}

/// Measures and prints both tables.
pub(super) fn run(args: &[String]) -> Result<(), String> {
    let usage = "usage: cargo xtask bench mount [ROUNDS]";
    let rounds = match args {
        [] => ROUNDS,
        [rounds] => rounds.parse().ok().filter(|rounds| *rounds > 0).ok_or(usage)?,
        _ => return Err(usage.into()),
    };
    if !is_root() {
        return Err("mounts need root".into());
    }
    if let Some(missing) = ["dbench", "fuse2fs", "rsync", "tar"].iter().find(|tool| !has(tool)) {
        return Err(format!("no {missing}: install dbench, fuse2fs, rsync and tar"));
    }
    super::build(&["nextent-cli", "nextent-lab"])?;
    let dir = tempfile::Builder::new().prefix("nextent-bench-").tempdir();
    let dir = dir.map_err(|error| error.to_string())?;
    let worker = Worker::new(dir.path())?;
    let mounts = Mounts::new(dir.path())?;
    for busy in [0, BUSY] {
        println!("\n{busy} busy processes, {rounds} rounds");
        println!(
            "{:<28} {:>10} {:>10} {:>10} {:>6}  {:<8} {:>9} {:>9}  goal",
            "work", "/dev/fuse", "io_uring", "peer", "unit", "peer", "/dev/fuse", "io_uring"
        );
        let load = Load::start(busy)?;
        for row in &ROWS {
            measure(row, rounds, &worker, &mounts)?;
        }
        drop(load);
    }
    mounts.unmount()
}

/// Measures one row and prints it.
fn measure(row: &Row, rounds: usize, worker: &Worker, mounts: &Mounts) -> Result<(), String> {
    let kinds = [Kind::Device, Kind::Rings, row.peer];
    let mut speeds = [const { Vec::new() }; 3];
    for round in 0..rounds {
        // Each round begins with another mount, so that none always has the warmer cache.
        for n in 0..kinds.len() {
            let at = (round + n) % kinds.len();
            speeds[at].push(worker.speed(row.work, mounts.point(kinds[at]))?);
        }
    }
    let ratio = |ours: &[f64]| median(ours.iter().zip(&speeds[2]).map(|(a, b)| a / b).collect());
    let ratios = [ratio(&speeds[0]), ratio(&speeds[1])];
    let goal = row.goal.map_or_else(String::new, |goal| {
        let met = ratios.iter().all(|ratio| *ratio >= goal);
        format!("{goal:.2} {}", if met { "met" } else { "MISSED" })
    });
    let [device, rings, peer] = speeds.map(median);
    println!(
        "{:<28} {device:>10.1} {rings:>10.1} {peer:>10.1} {:>6}  {:<8} {:>9.2} {:>9.2}  {goal}",
        row.name,
        row.work.unit(),
        row.peer.name(),
        ratios[0],
        ratios[1]
    );
    Ok(())
}

/// Busy processes, until dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(count: usize) -> Result<Self, String> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            load.0.push(command.spawn().map_err(|error| error.to_string())?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
