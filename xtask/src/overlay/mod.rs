//! overlayfs with its upper layer on a mount, beside one with its upper layer on Linux's ext4.
//!
//! `cargo xtask overlay [--minutes N] [--lower DIR]`. The lower layer is a Debian system, made by
//! debootstrap from the mirror in this machine's own sources of apt. In each overlay the same
//! script installs, reinstalls and removes packages. The two upper layers must be equal
//! ([`mod@compare`]), first seen through the mount, then through the kernel; `e2fsck -fn` must find
//! nothing in any image. Both transports take their turn.
//!
//! `--lower DIR` keeps the lower layer for later runs. Without root, loop devices, overlayfs,
//! `/dev/fuse`, debootstrap or a mirror it says in one line that it skips.

mod compare;
mod lower;
mod mounts;
mod steps;

use crate::setup::is_root;
use crate::shell::{cargo, command, has, root, shown};
use compare::compare;
use mounts::{Scratch, Served, is_below};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use steps::Steps;

const USAGE: &str = "usage: cargo xtask overlay [--minutes N] [--lower DIR]";
/// The default bound on time.
const MINUTES: u64 = 30;
/// The size of an image; it is sparse.
const SIZE: &str = "2g";
/// The longest list of differences that is printed.
const SHOWN: usize = 20;

/// The transports, by their mount option.
const TRANSPORTS: [&str; 2] = ["no_io_uring", "io_uring"];

/// Runs in the merged tree. The packages come from the cache of the lower layer, so that both
/// overlays install the same files.
const INSTALL: &str = r#"
set -eu
apt-get install -y --no-install-recommends $PACKAGES
apt-get install -y --reinstall $REINSTALLED
apt-get purge -y $REINSTALLED
apt-get clean
git init -q /srv/repository
cp -r /usr/share/python3 /etc/apt /srv/repository
cd /srv/repository
git add .
git -c user.name=a -c user.email=a@example.org commit -q -m first
git mv apt moved
ln moved/sources.list hard-link
echo changed >> moved/sources.list
git -c user.name=a -c user.email=a@example.org commit -q -a -m second
git fsck --strict
rm -r /usr/share/doc /usr/share/man
mkdir /usr/share/doc
mv /usr/share/common-licenses /usr/share/doc/licenses
"#;

struct Asked {
    minutes: u64,
    lower: Option<PathBuf>,
}

fn asked(args: &[String]) -> Option<Asked> {
    let mut asked = Asked { minutes: MINUTES, lower: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => asked.minutes = args.next()?.parse().ok()?,
            "--lower" => asked.lower = Some(args.next()?.into()),
            _ => return None,
        }
    }
    Some(asked)
}

/// Why this machine cannot run the comparison, or the suite and its mirror.
fn source() -> Result<lower::Source, String> {
    if !is_root() {
        return Err("no root".into());
    }
    if !Path::new("/dev/fuse").exists() {
        return Err("no /dev/fuse".into());
    }
    let tools = ["debootstrap", "mke2fs", "e2fsck", "losetup", "chroot"];
    if let Some(tool) = tools.into_iter().find(|tool| !has(tool)) {
        return Err(format!("no {tool}"));
    }
    let succeeds = |tool, args: &[&str]| {
        command(tool, args).output().is_ok_and(|output| output.status.success())
    };
    if !succeeds("losetup", &["-f"]) {
        return Err("no loop devices".into());
    }
    // Built in, or not a module of this kernel, is no error yet.
    let _ = command("modprobe", ["overlay"]).output();
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.ends_with("\toverlay")) {
        return Err("no overlayfs".into());
    }
    lower::Source::of_this_machine().ok_or_else(|| "no Debian mirror in apt's sources".into())
}

/// Builds the tool, runs the script in all overlays, compares, and prints a report.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let Asked { minutes, lower } = asked(args).ok_or(USAGE)?;
    let source = match source() {
        Ok(source) => source,
        Err(missing) => {
            println!("skipped: {missing}");
            return Ok(());
        }
    };
    if !shown(cargo(["build", "--quiet", "-p", "nextent-cli"])).success {
        return Err("the tool does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), PathBuf::from);
    let scratch = Scratch::new()?;
    let steps = Steps::new(Duration::from_secs(minutes * 60), &scratch.path("log"))?;
    let lower = lower.unwrap_or_else(|| scratch.path("lower"));
    let lower = std::path::absolute(lower).map_err(|error| error.to_string())?;
    source.make(&lower, &steps)?;
    let overlays = Overlays { tool: target.join("debug/nextent"), scratch, steps, lower };
    overlays.run()
}

struct Overlays {
    tool: PathBuf,
    scratch: Scratch,
    steps: Steps,
    lower: PathBuf,
}

/// A file system with an upper layer, and its mount point.
struct Upper {
    image: PathBuf,
    point: PathBuf,
}

impl Overlays {
    fn run(&self) -> Result<(), String> {
        let begun = SystemTime::now();
        let linux = self.upper("linux")?;
        let make = command("mke2fs", ["-q", "-t", "ext4", &text(&linux.image), SIZE]);
        self.steps.run("mke2fs", make)?;
        self.loop_mount(&linux, "rw")?;
        println!("{:<14} {:>5.0} s", "Linux's ext4", self.install(&linux.point)?);
        let mut differing = 0;
        for transport in TRANSPORTS {
            differing += self.compared(transport, &linux, begun)?;
        }
        self.unmount(&linux.point)?;
        self.e2fsck(&linux.image)?;
        println!("e2fsck -fn finds nothing in any image");
        if differing == 0 { Ok(()) } else { Err(format!("{differing} differences")) }
    }

    /// Runs the script with the upper layer on a mount over `transport`, and compares it with that
    /// on `linux`. The number of differences.
    fn compared(&self, transport: &str, linux: &Upper, begun: SystemTime) -> Result<usize, String> {
        let ours = self.upper(transport)?;
        self.steps.run("mkfs", self.nextent(&["mkfs", "-q", &text(&ours.image), SIZE]))?;
        let (image, point) = (text(&ours.image), text(&ours.point));
        let mount = self.nextent(&["mount", "-f", &image, &point, "-o", transport]);
        let served = Served::start(mount, &ours.point, &self.steps)?;
        let seconds = self.install(&ours.point)?;
        let mut differing = self.report("the mount", linux, &ours, begun)?;
        served.unmount(&self.steps)?;
        self.e2fsck(&ours.image)?;
        self.loop_mount(&ours, "ro")?;
        differing += self.report("the kernel", linux, &ours, begun)?;
        self.unmount(&ours.point)?;
        println!("{transport:<14} {seconds:>5.0} s");
        Ok(differing)
    }

    /// Compares the upper layers and prints the result.
    fn report(
        &self,
        seen: &str,
        linux: &Upper,
        ours: &Upper,
        begun: SystemTime,
    ) -> Result<usize, String> {
        let (left, right) = (linux.point.join("upper"), ours.point.join("upper"));
        let found = compare(&left, &right, begun).map_err(|error| error.to_string())?;
        println!(
            "{} entries, {} whiteouts, {} opaque directories; seen through {seen}: {} differences, \
             excepted: {}",
            found.entries,
            found.whiteouts,
            found.opaque,
            found.differences.len(),
            found.excepted.join(" ")
        );
        if found.whiteouts == 0 || found.opaque == 0 {
            return Err("the script leaves no whiteout or no opaque directory".into());
        }
        found.differences.iter().take(SHOWN).for_each(|line| println!("  {line}"));
        Ok(found.differences.len())
    }

    fn upper(&self, name: &str) -> Result<Upper, String> {
        let point = self.scratch.path(name);
        std::fs::create_dir(&point).map_err(|error| error.to_string())?;
        Ok(Upper { image: self.scratch.path(&format!("{name}.img")), point })
    }

    fn nextent(&self, args: &[&str]) -> Command {
        command(&text(&self.tool), args)
    }

    /// Mounts an overlay with its upper layer below `top`, runs the script in it and unmounts it.
    /// The script's seconds.
    fn install(&self, top: &Path) -> Result<f64, String> {
        let merged = self.scratch.path("merged");
        for dir in [&merged, &top.join("upper"), &top.join("work")] {
            std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        }
        // With each feature that leaves attributes in the upper layer.
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=on",
            self.lower.display(),
            top.join("upper").display(),
            top.join("work").display()
        );
        let mount = ["-t", "overlay", "overlay", "-o", &options, &text(&merged)].map(String::from);
        self.steps.run("mount an overlay", command("mount", mount))?;
        let started = Instant::now();
        self.steps
            .run(&format!("install on {}", top.display()), lower::chroot(&merged, INSTALL))?;
        let seconds = started.elapsed().as_secs_f64();
        self.unmount(&merged)?;
        Ok(seconds)
    }

    fn loop_mount(&self, upper: &Upper, how: &str) -> Result<(), String> {
        let args = ["-o", &format!("loop,{how}"), &text(&upper.image), &text(&upper.point)];
        self.steps.run("a loop mount", command("mount", args)).map(drop)
    }

    fn unmount(&self, point: &Path) -> Result<(), String> {
        self.steps.run("umount", command("umount", [point]))?;
        if is_below(point) { Err(format!("{} is still mounted", point.display())) } else { Ok(()) }
    }

    fn e2fsck(&self, image: &Path) -> Result<(), String> {
        self.steps.run("e2fsck -fn", command("e2fsck", ["-f", "-n", &text(image)])).map(drop)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
