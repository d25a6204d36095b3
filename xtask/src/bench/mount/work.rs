//! The work that is measured on a mount, as a speed: more is better.

use crate::bench::measure::seconds;
use crate::bench::shipped;
use crate::shell::command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of the tree, at most 8 KiB each.
const FILES: usize = 6000;
/// The load file of dbench in Debian.
const LOAD: &str = "/usr/share/dbench/client.txt";

/// Kinds of work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// dbench with so many clients, for two seconds.
    Dbench(usize),
    /// The workload `churn` of the laboratory in so many processes, for half a second.
    Churn(usize),
    Untar,
    Rsync,
    Remove,
    /// A file written by dd with blocks of so many bytes, at most 64 Ki of them.
    Write(usize),
}

impl Work {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Dbench(_) | Self::Write(_) => "MB/s",
            Self::Churn(_) => "op/s",
            Self::Untar | Self::Rsync | Self::Remove => "file/s",
        }
    }
}

/// The files that the work needs.
pub(super) struct Worker {
    tree: PathBuf,
    archive: PathBuf,
    json: PathBuf,
}

impl Worker {
    pub(super) fn new(dir: &Path) -> Result<Self, String> {
        let worker =
            Self { tree: dir.join("tree"), archive: dir.join("tree.tar"), json: dir.join("json") };
        make_tree(&worker.tree).map_err(|error| format!("the tree: {error}"))?;
        seconds(command("tar", ["-C", &text(&worker.tree), "-cf", &text(&worker.archive), "."]))?;
        Ok(worker)
    }

    /// The speed of `work` in the directory `point`, which is empty again afterwards.
    pub(super) fn speed(&self, work: Work, point: PathBuf) -> Result<f64, String> {
        let place = point.join("work");
        fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let speed = self.measure(work, &text(&place))?;
        seconds(remove(&text(&place)))?;
        // The next work should not pay for this one.
        seconds(Command::new("sync"))?;
        Ok(speed)
    }

    fn measure(&self, work: Work, place: &str) -> Result<f64, String> {
        let files = FILES as f64;
        match work {
            Work::Dbench(clients) => dbench(clients, place),
            Work::Churn(processes) => self.churn(processes, place),
            Work::Untar => Ok(files / seconds(self.untar(place))?),
            Work::Rsync => {
                let from = format!("{}/", text(&self.tree));
                Ok(files / seconds(command("rsync", ["-aHAX", &from, place]))?)
            }
            Work::Remove => {
                seconds(self.untar(place))?;
                Ok(files / seconds(remove(place))?)
            }
            Work::Write(block) => {
                let count = if block < 65_536 { 16_384 } else { 256 };
                let mut dd = command("dd", ["if=/dev/zero"]);
                dd.arg(format!("of={place}/file"));
                dd.args([format!("bs={block}"), format!("count={count}")]);
                Ok((block * count) as f64 / 1e6 / seconds(dd)?)
            }
        }
    }

    fn untar(&self, place: &str) -> Command {
        command("tar", ["-C", place, "-xf", &text(&self.archive)])
    }

    fn churn(&self, processes: usize, place: &str) -> Result<f64, String> {
        let lab = text(&shipped().join("nextent-lab"));
        let (target, threads) = (format!("dir:{place}"), processes.to_string());
        let json = text(&self.json);
        let mut bench = command(&lab, ["bench", "churn", "--target", &target]);
        bench.args(["--threads", &threads, "--seconds", "0.5", "--repeat", "1", "--json", &json]);
        seconds(bench)?;
        let figures = fs::read_to_string(&self.json).map_err(|error| error.to_string())?;
        let figures: Value = serde_json::from_str(&figures).map_err(|error| error.to_string())?;
        figures["runs"][0]["ops_per_s"].as_f64().ok_or_else(|| "no figure of churn".into())
    }
}

/// The speed of dbench with so many clients for two seconds, in MB/s.
pub(in crate::bench) fn dbench(clients: usize, place: &str) -> Result<f64, String> {
    let mut dbench = command("dbench", ["-c", LOAD, "-D", place, "-t", "2"]);
    let output = dbench.arg(clients.to_string()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("Throughput "));
    let speed = line.and_then(|line| line.split(' ').next()?.parse().ok());
    speed.ok_or_else(|| format!("dbench: {}", said.lines().last().unwrap_or("no output")))
}

fn remove(place: &str) -> Command {
    command("rm", ["-rf", place])
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// 100 files in each directory.
fn make_tree(root: &Path) -> std::io::Result<()> {
    let bytes = vec![b'x'; 8192];
    for n in 0..FILES {
        let dir = root.join(format!("part{}", n / 100));
        if n % 100 == 0 {
            fs::create_dir_all(&dir)?;
        }
        fs::write(dir.join(format!("file{n}")), &bytes[..n * 2_654_435_761 % 8192])?;
    }
    Ok(())
}
