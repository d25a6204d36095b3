//! The pairs: the work, the peer, and the goal.

use super::measure::{peak_mebibytes, seconds};
use super::{Row, Verdict, in_turns, shipped};
use crate::setup::is_root;
use crate::shell::{command, has};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files in the tree that fills an image.
const FILES: usize = 50_000;
const IMAGE: &str = "1g";
/// 16 TiB less a block, the largest file of a host's ext4.
const VAST: &str = "17179869180k";

/// The directory and the number of rounds.
pub(super) struct Bench {
    dir: PathBuf,
    rounds: usize,
}

impl Bench {
    pub(super) fn new(dir: &Path, rounds: usize) -> Result<Self, String> {
        make_tree(&dir.join("tree")).map_err(|error| format!("the tree: {error}"))?;
        Ok(Self { dir: dir.into(), rounds })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn nextent(&self, args: &[&str]) -> Command {
        nextent(args)
    }

    fn lab(&self, args: &[&str]) -> Command {
        command(&shipped().join("nextent-lab").display().to_string(), args)
    }

    /// Fills a new image, by `nextent mkfs -d` and `mke2fs -d`.
    pub(super) fn fill(&self) -> Result<Row, String> {
        need("mke2fs")?;
        let (tree, ours, peer) = (self.path("tree"), self.path("ours.img"), self.path("peer.img"));
        let fresh = |path: &Path| drop(fs::remove_file(path));
        let medians = in_turns(
            self.rounds,
            || {
                fresh(&ours);
                seconds(self.nextent(&["mkfs", "-q", "-d", &text(&tree), &text(&ours), IMAGE]))
            },
            || {
                fresh(&peer);
                let args = ["-q", "-F", "-t", "ext4", "-d", &text(&tree), &text(&peer), IMAGE];
                seconds(command("mke2fs", args))
            },
        )?;
        Ok(faster("fill with 50,000 files | mke2fs -d", medians, "s", 5.0))
    }

    /// Copies everything out, by `nextent cp -r` and by `cp -r` from a kernel mount, with the image
    /// in the host's page cache.
    pub(super) fn read_out(&self) -> Result<Row, String> {
        let medians = self.read_outs("warm", &|| Ok(()))?;
        Ok(faster("read it all out | kernel, cp -r", medians, "s", 1.0))
    }

    /// The same after emptying the host's caches.
    pub(super) fn read_out_cold(&self) -> Result<Row, String> {
        let medians = self.read_outs("cold", &|| {
            seconds(Command::new("sync"))?;
            let dropped = fs::write("/proc/sys/vm/drop_caches", "3");
            dropped.map_err(|error| format!("skipped: caches cannot be dropped: {error}"))
        })?;
        Ok(faster("the same, caches dropped before", medians, "s", 1.0))
    }

    /// Every copy goes to a new directory, and none is removed before the end: after ext4 has
    /// removed many files, making new ones takes it many times as long.
    fn read_outs(
        &self,
        name: &str,
        before: &dyn Fn() -> Result<(), String>,
    ) -> Result<(f64, f64), String> {
        let image = self.path("ours.img");
        let mount = Mount::new(&image, &self.path("mnt"), "ro")?;
        let target = |side: &str, round: &mut usize| {
            *round += 1;
            text(&self.path(&format!("{name}-{side}-{round}")))
        };
        let (mut first, mut second) = (0, 0);
        in_turns(
            self.rounds,
            || {
                before()?;
                let (from, to) = (format!("{}:/", image.display()), target("ours", &mut first));
                seconds(self.nextent(&["cp", "-r", &from, &to]))
            },
            || {
                before()?;
                let to = target("peer", &mut second);
                seconds(command("cp", ["-r", &text(&mount.point), &to]))
            },
        )
    }

    fn vast(&self) -> Result<PathBuf, String> {
        let image = self.path("vast.img");
        if !image.exists() {
            need("mke2fs")?;
            seconds(command("mke2fs", ["-q", "-F", "-t", "ext4", &text(&image), VAST]))?;
        }
        Ok(image)
    }

    /// The time to open a volume of 16 TiB and list its root.
    pub(super) fn open_time(&self) -> Result<Row, String> {
        let root = format!("{}:/", self.vast()?.display());
        let times: Result<Vec<f64>, String> =
            (0..self.rounds).map(|_| seconds(self.nextent(&["ls", &root]))).collect();
        let ours = super::median(times?) * 1000.0;
        let verdict = Verdict::Limit(100.0);
        Ok(Row { name: "open 16 TiB, time", ours, peer: None, unit: "ms", verdict })
    }

    /// The memory for the same.
    pub(super) fn open_memory(&self) -> Result<Row, String> {
        let root = format!("{}:/", self.vast()?.display());
        let peaks: Result<Vec<f64>, String> =
            (0..self.rounds).map(|_| peak_mebibytes(self.nextent(&["ls", &root]))).collect();
        let ours = super::median(peaks?);
        let verdict = Verdict::Limit(64.0);
        Ok(Row { name: "open 16 TiB, memory", ours, peer: None, unit: "MiB", verdict })
    }

    /// Operations per second of `nextent-lab bench fallocate2`: the medians by target and threads.
    fn fallocates(&self, targets: &[&str], threads: &str) -> Result<Vec<f64>, String> {
        let (json, rounds) = (self.path("f.json"), self.rounds.to_string());
        let file = text(&json);
        let mut args = vec!["bench", "fallocate2", "--threads", threads, "--repeat", &rounds];
        args.extend(["--json", &file]);
        targets.iter().for_each(|target| args.extend(["--target", target]));
        seconds(self.lab(&args))?;
        let figures = fs::read_to_string(&json).map_err(|error| error.to_string())?;
        let figures: Value = serde_json::from_str(&figures).map_err(|error| error.to_string())?;
        let runs = figures["runs"].as_array().ok_or("no runs")?;
        let cells = targets.iter().flat_map(|target| threads.split(',').map(move |n| (target, n)));
        let median = |(target, threads): (&&str, &str)| {
            let here =
                |run: &&Value| run["target"] == **target && run["threads"] == number(threads);
            let rates = runs.iter().filter(here).filter_map(|run| run["ops_per_s"].as_f64());
            super::median(rates.collect())
        };
        Ok(cells.map(median).collect())
    }

    fn fresh_image(&self, name: &str) -> Result<PathBuf, String> {
        let image = self.path(name);
        let _ = fs::remove_file(&image);
        seconds(self.nextent(&["mkfs", "-q", &text(&image), "4g"]))?;
        Ok(image)
    }

    /// Extends a file per thread by 8 KiB, by the library and by a kernel mount.
    pub(super) fn fallocate(&self) -> Result<Row, String> {
        let mount = Mount::new(&self.fresh_image("kernel.img")?, &self.path("mnt"), "rw")?;
        let kernel = format!("dir:{}", mount.point.display());
        let [a, b] = self.fallocates(&["engine", &kernel], "1")?[..] else {
            return Err("two figures expected".into());
        };
        let (name, verdict) = ("fallocate 8 KiB, 1 thread | kernel", Verdict::Ratio(a / b, 25.0));
        Ok(Row { name, ours: a, peer: Some(b), unit: "op/s", verdict })
    }

    /// Two threads against one.
    pub(super) fn two_threads(&self) -> Result<Row, String> {
        let [one, two] = self.fallocates(&["engine"], "1,2")?[..] else {
            return Err("two figures expected".into());
        };
        let (name, verdict) = ("fallocate 8 KiB, 2 threads | 1", Verdict::Ratio(two / one, 1.9));
        Ok(Row { name, ours: two, peer: Some(one), unit: "op/s", verdict })
    }
}

/// The release build of the command.
pub(super) fn nextent(args: &[&str]) -> Command {
    command(&shipped().join("nextent").display().to_string(), args)
}

fn number(text: &str) -> Value {
    text.parse::<u64>().map_or(Value::Null, Value::from)
}

/// A row of two times, of which the shorter is better.
pub(super) fn faster(
    name: &'static str,
    (ours, peer): (f64, f64),
    unit: &'static str,
    goal: f64,
) -> Row {
    Row { name, ours, peer: Some(peer), unit, verdict: Verdict::Ratio(peer / ours, goal) }
}

pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn need(tool: &str) -> Result<(), String> {
    if has(tool) { Ok(()) } else { Err(format!("skipped: no {tool}")) }
}

/// A loop mount, until dropped.
pub(super) struct Mount {
    pub(super) point: PathBuf,
}

impl Mount {
    pub(super) fn new(image: &Path, point: &Path, access: &str) -> Result<Self, String> {
        if !is_root() || !Path::new("/dev/loop-control").exists() {
            return Err("skipped: no root or loop devices for the kernel's mount".into());
        }
        fs::create_dir_all(point).map_err(|error| error.to_string())?;
        let options = format!("loop,{access}");
        seconds(command("mount", ["-o", &options, &text(image), &text(point)]))?;
        Ok(Self { point: point.into() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = command("umount", [&self.point]).status();
    }
}

/// 50,000 files of 0 to 8 KiB in 500 directories.
pub(super) fn make_tree(root: &Path) -> std::io::Result<()> {
    let bytes: Vec<u8> =
        (0..16_384u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for dir in 0..FILES / 100 {
        let dir_path = root.join(format!("section{}", dir / 25)).join(format!("part{dir}"));
        fs::create_dir_all(&dir_path)?;
        for file in 0..100 {
            let n = dir * 100 + file;
            let len = n * 2_654_435_761 % 8192;
            fs::write(dir_path.join(format!("file{file}.txt")), &bytes[n % 8192..][..len])?;
        }
    }
    Ok(())
}
