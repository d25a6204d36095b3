//! A short demonstration on a new image, checked by e2fsck and the kernel.
//!
//! It builds the tool, fills an image from a tree, changes it, kills copies, recovers, mounts
//! it, and ends with a look into the laboratory. Each row of the table is the result of a command,
//! with its time.

mod compare;
mod laboratory;
mod sample;
mod serve;
mod table;

use crate::setup;
use crate::shell::{cargo, command, has, target_dir};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use table::{Outcome, Table};

struct Demo {
    tool: PathBuf,
    dir: PathBuf,
    table: Table,
}

/// Runs the demonstration; an error if a part of it failed.
pub(crate) fn run() -> Result<(), String> {
    println!("building the release binary");
    let build = cargo(["build", "--release", "--quiet", "-p", "nextent-cli"]).status();
    if !build.is_ok_and(|status| status.success()) {
        return Err("the tool does not build".into());
    }
    Demo::build_laboratory()?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let demo = Demo::new("release/nextent", dir.path());
    demo.product();
    demo.laboratory();
    demo.table.finish()
}

/// Runs the part without the laboratory, with the binary that the tests have built.
pub(crate) fn test() -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let demo = Demo::new("debug/nextent", dir.path());
    demo.product();
    demo.table.finish()
}

impl Demo {
    fn new(tool: &str, dir: &Path) -> Self {
        Self { tool: target_dir().join(tool), dir: dir.into(), table: Table::default() }
    }

    fn product(&self) {
        self.fill();
        self.look();
        self.change();
        self.pull_the_plug();
        self.judge();
        self.repeat();
        self.serve();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The path in the image as `IMAGE:PATH`.
    fn within(&self, path: &str) -> String {
        format!("{}:{path}", self.path("demo.img").display())
    }

    /// Runs the tool; its output, or its error message.
    fn nextent(&self, args: &[&str]) -> Result<String, String> {
        finish(command(&text(&self.tool), args))
    }

    fn fill(&self) {
        let (tree, image) = (self.path("tree"), self.path("demo.img"));
        self.table.row("a tree on the host", || match sample::make(&tree, 2000) {
            Ok(made) => Outcome::Ok(made.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        });
        self.table.row("mkfs -d fills an image", || {
            let args = ["mkfs", "-q", "-d", &text(&tree), &text(&image), "256m"];
            Outcome::of(self.nextent(&args), |_| "256 MiB".into())
        });
        self.e2fsck("e2fsck -fn");
        self.fsck();
    }

    fn look(&self) {
        self.table.row("ls IMAGE:/dir0", || {
            let listing = self.nextent(&["ls", &self.within("/dir0")]);
            Outcome::of(listing, |text| format!("{} entries", text.lines().count()))
        });
        self.table.row("cp -a all of it back out", || {
            let out = self.path("out");
            match self.nextent(&["cp", "-a", &self.within("/"), &text(&out)]) {
                Ok(_) => same_trees(&self.path("tree"), &out),
                Err(error) => Outcome::Failed(error),
            }
        });
    }

    /// Copies several trees into the image at once and changes names.
    fn change(&self) {
        self.table.row("cp -a four trees in, all cores", || {
            let tree = self.path("tree");
            let dirs: Vec<String> = (0..4).map(|n| text(&tree.join(format!("dir{n}")))).collect();
            let target = self.within("/in");
            let mut args = vec!["cp", "-a"];
            args.extend(dirs.iter().map(String::as_str));
            args.push(&target);
            let made = self.nextent(&["mkdir", &target]);
            Outcome::of(made.and_then(|_| self.nextent(&args)), |_| String::new())
        });
        self.table.row("mv and rm -r", || {
            let moved = self.nextent(&["mv", &self.within("/in/dir0"), &self.within("/moved")]);
            let removed = self.nextent(&["rm", "-r", &self.within("/in/dir1")]);
            Outcome::of(moved.and(removed), |_| "journaled".into())
        });
        self.e2fsck("e2fsck -fn after the changes");
    }

    /// Kills running copies repeatedly, and recovers.
    fn pull_the_plug(&self) {
        const ROUNDS: u32 = 5;
        self.table.row("kill -9 a copy, replay", || {
            let mut killed = 0;
            for n in 0..ROUNDS {
                let target = self.within(&format!("/cut{n}"));
                let args = ["cp", "-r", &text(&self.path("tree")), &target].map(String::from);
                let child = command(&text(&self.tool), &args).stderr(Stdio::null()).spawn();
                let time = Duration::from_millis(15 * u64::from(n + 1));
                match child.map(|child| kill_after(child, time)) {
                    Ok(true) => killed += 1,
                    Ok(false) => {}
                    Err(error) => return Outcome::Failed(error.to_string()),
                }
                if let Err(error) = self.nextent(&["replay", &text(&self.path("demo.img"))]) {
                    return Outcome::Failed(error);
                }
            }
            Outcome::Ok(format!("{killed} of {ROUNDS} were cut short"))
        });
        self.e2fsck("e2fsck -fn after recovery");
    }

    /// Compares with the kernel's mount of the image.
    fn judge(&self) {
        self.fsck();
        self.table.row("the kernel mounts and agrees", || {
            if !setup::is_root() || !Path::new("/dev/loop-control").exists() {
                return Outcome::Skipped("no root or loop devices".into());
            }
            let (image, point) = (self.path("demo.img"), self.path("mnt"));
            if let Err(error) = std::fs::create_dir(&point) {
                return Outcome::Failed(error.to_string());
            }
            let args = ["-o", "loop,ro", &text(&image), &text(&point)].map(String::from);
            match command("mount", &args).output() {
                Ok(output) if output.status.success() => {}
                Ok(output) if setup_refused(&output.stderr) => {
                    return Outcome::Skipped("no loop mount here".into());
                }
                Ok(output) => return Outcome::Failed(first_line(&output.stderr)),
                Err(error) => return Outcome::Skipped(format!("no mount: {error}")),
            }
            let outcome = same_trees(&self.path("tree").join("dir0"), &point.join("moved"));
            let _ = command("umount", [&point]).status();
            outcome
        });
    }

    /// Makes two images of the same inputs and compares their bytes.
    fn repeat(&self) {
        let images = [self.path("a.img"), self.path("b.img")];
        self.table.row("the same inputs, twice", || {
            const UUID: &str = "0e8e6f0c-7a55-4f0e-9d2c-5a1b6c3d4e5f";
            for image in &images {
                let seed = format!("hash_seed={UUID}");
                let paths = [text(&self.path("tree")), text(image)];
                let args = ["mkfs", "-q", "-U", UUID, "-E", &seed, "-d", &paths[0], &paths[1]];
                let mut run = command(&text(&self.tool), args.iter().chain(&["256m"]));
                run.env("SOURCE_DATE_EPOCH", "1");
                if let Err(error) = finish(run) {
                    return Outcome::Failed(error);
                }
            }
            match compare::same_bytes(&images[0], &images[1]) {
                Ok(true) => Outcome::Ok("the same bytes".into()),
                Ok(false) => Outcome::Failed("the images differ".into()),
                Err(error) => Outcome::Failed(error.to_string()),
            }
        });
    }

    fn e2fsck(&self, name: &str) {
        self.table.row(name, || {
            if !has("e2fsck") {
                return Outcome::Skipped("no e2fsck; it is in e2fsprogs".into());
            }
            let args = ["-f", "-n", &text(&self.path("demo.img"))].map(String::from);
            Outcome::of(finish(command("e2fsck", &args)), |_| "clean".into())
        });
    }

    fn fsck(&self) {
        self.table.row("nextent fsck -n -f", || {
            let result = self.nextent(&["fsck", "-n", "-f", &text(&self.path("demo.img"))]);
            Outcome::of(result, |_| "clean".into())
        });
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn finish(mut command: std::process::Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    Err(format!("{}: {}", output.status, first_line(said)))
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}

fn setup_refused(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    ["setup loop", "permission denied", "superuser", "not permitted", "unknown filesystem"]
        .iter()
        .any(|word| text.contains(word))
}

/// Kills the child after `time`; whether it was still running.
fn kill_after(mut child: Child, time: Duration) -> bool {
    std::thread::sleep(time);
    let working = child.try_wait().is_ok_and(|status| status.is_none());
    let _ = child.kill();
    let _ = child.wait();
    working
}

fn same_trees(left: &Path, right: &Path) -> Outcome {
    match compare::trees(left, right) {
        Ok(found) if found.differences.is_empty() => {
            Outcome::Ok(format!("{} files, nothing differs", found.files))
        }
        Ok(found) => Outcome::Failed(format!(
            "{} differences, first {}",
            found.differences.len(),
            found.differences[0]
        )),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
