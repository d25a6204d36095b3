//! The file systems of a case: one of the host with the sources and a directory for each side, and
//! two images for each side. The kernel mounts the peer's images while commands run, and this
//! program's images afterwards, to read them.

use super::entry::{self, Spec};
use super::listing::{self, Look};
use super::step::{Line, TreePath, Word};
use super::{Case, exceptions};
use crate::shell::command;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// The size of an image in bytes; it is sparse.
const BYTES: u64 = 192 << 20;
const HOST_BYTES: u64 = 1 << 30;
/// Seconds after which a peer's command is killed, since it waits at a pipe.
const THEIR_PATIENCE: &str = "2";
const OUR_PATIENCE: &str = "30";
/// The exit code of `timeout` then.
const GIVEN_UP: i32 = 124;

/// The programs that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Theirs,
    Ours,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) code: i32,
    pub(super) text: String,
}

impl Outcome {
    pub(super) fn gave_up(&self) -> bool {
        self.code == GIVEN_UP
    }
}

/// The result of a case.
pub(super) enum Verdict {
    Alike,
    Excepted(&'static str),
    Differs(String),
}

/// Scratch space, unmounted and removed when dropped.
pub(super) struct World {
    dir: tempfile::TempDir,
    program: PathBuf,
    mounted: Vec<PathBuf>,
    /// When the first image was made.
    began: i64,
    /// Empty images by the options that made them.
    templates: BTreeMap<&'static str, PathBuf>,
}

type Result<T> = std::result::Result<T, String>;
type Tree = BTreeMap<String, String>;

fn at<T, E: std::fmt::Display>(path: &Path, done: std::result::Result<T, E>) -> Result<T> {
    done.map_err(|error| format!("{}: {error}", path.display()))
}

impl World {
    /// Scratch space with the host's file system mounted.
    pub(super) fn new(program: &Path) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("nextent-differential-");
        // In memory a flush does not wait for a disk.
        let dir = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
        let dir = dir.map_err(|error| error.to_string())?;
        let (mounted, templates) = (Vec::new(), BTreeMap::new());
        let began = now() - 2;
        let mut world = Self { dir, program: program.to_owned(), mounted, began, templates };
        let image = world.path("host.img");
        make_image(&image, HOST_BYTES, "-I 256 -O ea_inode -b 4096")?;
        world.mount("host.img", "h", "rw")?;
        Ok(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mount(&mut self, image: &str, place: &str, access: &str) -> Result<PathBuf> {
        let (image, place) = (self.path(image), self.path(place));
        at(&place, fs::create_dir_all(&place))?;
        let options = format!("loop,noatime,nodev,{access}");
        let mut mount = command("mount", ["-t", "ext4", "-o", &options]);
        said(mount.arg(&image).arg(&place))?;
        self.mounted.push(place.clone());
        Ok(place)
    }

    fn unmount(&mut self, place: &str) -> Result<()> {
        let place = self.path(place);
        if self.mounted.contains(&place) {
            said(command("umount", [&place]).stdout(Stdio::null()))?;
            self.mounted.retain(|other| *other != place);
        }
        Ok(())
    }

    /// Runs a case on fresh trees.
    pub(super) fn judge(&mut self, case: &Case) -> Result<Verdict> {
        let done = self.run(case);
        for place in ["m0", "m1", "o0", "o1"] {
            self.unmount(place)?;
        }
        done
    }

    fn run(&mut self, case: &Case) -> Result<Verdict> {
        self.prepare(case)?;
        let mut theirs = Vec::new();
        for step in &case.steps {
            for line in &step.prepare {
                self.line(line, Side::Theirs, case, "src")?;
            }
            let outcome = self.lines(&step.theirs, Side::Theirs, case)?;
            let ours = self.lines(&step.ours, Side::Ours, case)?;
            if let Some(name) = exceptions::of(step, &outcome, &ours) {
                return Ok(Verdict::Excepted(name));
            }
            if ours.code == GIVEN_UP || ours.code > 100 {
                return Ok(Verdict::Differs(format!("ours: exit {}: {}", ours.code, ours.text)));
            }
            theirs.push((outcome, ours));
        }
        let mut text = String::new();
        for (n, (theirs, ours)) in theirs.iter().enumerate() {
            if (theirs.code == 0) != (ours.code == 0) {
                let said = |outcome: &Outcome| match outcome.text.is_empty() {
                    true => format!("exit {}", outcome.code),
                    false => format!("exit {}: {}", outcome.code, outcome.text),
                };
                text += &format!(
                    "  step {n}:\n    theirs: {}\n    ours:   {}\n",
                    said(theirs),
                    said(ours)
                );
            }
        }
        let access = case.steps.iter().all(|step| step.keeps_access);
        text += &self.compare(case, &(self.began..=now() + 2), access)?;
        Ok(match exceptions::of_case(case) {
            _ if text.is_empty() => Verdict::Alike,
            Some(name) => Verdict::Excepted(name),
            None => Verdict::Differs(text),
        })
    }

    /// Makes the trees, and mounts the peer's images.
    fn prepare(&mut self, case: &Case) -> Result<()> {
        for name in ["src", "theirs", "ours"] {
            let place = self.path("h").join(name);
            if place.exists() {
                at(&place, fs::remove_dir_all(&place))?;
            }
            at(&place, fs::create_dir(&place))?;
            let spec = if name == "src" { &case.source } else { &case.host };
            at(&place, entry::make(&place, spec))?;
        }
        for (n, spec) in case.images.iter().enumerate() {
            if case.uses(n) {
                self.image(n, spec, case.format)?;
            }
        }
        Ok(())
    }

    fn image(&mut self, n: usize, spec: &Spec, format: &'static str) -> Result<()> {
        let (theirs, ours) = (format!("t{n}.img"), format!("o{n}.img"));
        if !self.templates.contains_key(format) {
            let path = self.path(&format!("template{}.img", self.templates.len()));
            make_image(&path, BYTES, format)?;
            self.templates.insert(format, path);
        }
        // A new file each time: a loop device of the old file exists as long as any process has it
        // open, and mount(8) would reuse it with its cached data.
        let copy = |from: &Path, to: &Path| {
            let _ = fs::remove_file(to);
            said(command("cp", ["--sparse=always"]).arg(from).arg(to)).map(drop)
        };
        copy(&self.templates[format], &self.path(&theirs))?;
        let place = self.mount(&theirs, &format!("m{n}"), "rw")?;
        at(&place, entry::make(&place, spec))?;
        self.unmount(&format!("m{n}"))?;
        copy(&self.path(&theirs), &self.path(&ours))?;
        self.mount(&theirs, &format!("m{n}"), "rw").map(drop)
    }

    /// Runs lines one after the other; the first exit code other than 0 counts.
    fn lines(&self, lines: &[Line], side: Side, case: &Case) -> Result<Outcome> {
        let mut all = Outcome { code: 0, text: String::new() };
        let dir = if side == Side::Ours { "ours" } else { "theirs" };
        for line in lines {
            let one = self.line(line, side, case, dir)?;
            all.text += &one.text;
            all.code = if all.code == 0 { one.code } else { all.code };
        }
        Ok(all)
    }

    fn line(&self, line: &Line, side: Side, case: &Case, dir: &str) -> Result<Outcome> {
        let dir = self.path("h").join(dir);
        let ours = matches!(line.words.first(), Some(Word::Text(word)) if word == b"nextent");
        let patience = if ours { OUR_PATIENCE } else { THEIR_PATIENCE };
        let umask = format!("umask {:o}; exec timeout {patience} \"$@\"", case.umask);
        let mut shell = command("sh", ["-c", &umask, "sh"]);
        shell.args(line.words.iter().map(|word| self.word(word, side)));
        shell.current_dir(&dir);
        if let Some(input) = line.input {
            shell.stdin(at(Path::new(input), File::open(dir.join(input)))?);
        }
        if let Some(output) = line.output {
            shell.stdout(at(Path::new(output), File::create(dir.join(output)))?);
        }
        let output = shell.output().map_err(|error| format!("sh: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr).trim_end().replace('\n', "; ");
        // 128 plus a number: killed by that signal.
        Ok(Outcome { code: output.status.code().unwrap_or(128), text })
    }

    fn word(&self, word: &Word, side: Side) -> OsString {
        let joined =
            |start: &str, path: &[u8]| OsString::from_vec([start.as_bytes(), path].concat());
        let image = |n: &usize| match side {
            Side::Theirs => format!("../../m{n}"),
            Side::Ours => format!("../../o{n}.img"),
        };
        match word {
            Word::Text(text) if text == b"nextent" => self.program.clone().into(),
            Word::Text(text) => OsStr::from_bytes(text).to_owned(),
            Word::At(TreePath::Source(path)) => joined("../src/", path),
            Word::At(TreePath::Host(path)) => joined("", path),
            Word::At(TreePath::Image(n, path)) if side == Side::Ours => {
                joined(&(image(n) + ":/"), path)
            }
            Word::At(TreePath::Image(n, path)) => joined(&(image(n) + "/"), path),
            Word::File(n) => image(n).into(),
        }
    }

    /// The differences of the trees, and errors that e2fsck finds in this program's images.
    fn compare(
        &mut self,
        case: &Case,
        now: &std::ops::RangeInclusive<i64>,
        access_times: bool,
    ) -> Result<String> {
        let look = Look { now, access_times };
        let list = |place: &Path| -> Result<Tree> { at(place, listing::list(place, look)) };
        let host = self.path("h");
        let preserves = case.steps.iter().any(|step| step.keeps);
        let mut text = String::new();
        let mut differ = |name: &str, theirs: &Tree, ours: &Tree| {
            let lines = listing::differences(theirs, ours, preserves);
            if !lines.is_empty() {
                text += &format!(" in {name}:\n{}\n", lines.join("\n"));
            }
        };
        differ("the host", &list(&host.join("theirs"))?, &list(&host.join("ours"))?);
        for n in (0..case.images.len()).filter(|n| case.uses(*n)) {
            let place = self.path(&format!("m{n}"));
            let theirs = list(&place)?;
            self.unmount(&format!("m{n}"))?;
            let image = self.path(&format!("o{n}.img"));
            let mut check = command("e2fsck", ["-fn".as_ref(), image.as_os_str()]);
            let checked = check.output().map_err(|error| format!("e2fsck: {error}"))?;
            if !checked.status.success() {
                let said = String::from_utf8_lossy(&checked.stdout).into_owned();
                return Ok(format!("e2fsck of image {n}: {said}"));
            }
            let place = self.mount(&format!("o{n}.img"), &format!("o{n}"), "ro")?;
            let ours = list(&place)?;
            differ(&format!("image {n}"), &theirs, &ours);
        }
        Ok(text)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while let Some(place) = self.mounted.pop() {
            let _ = command("umount", [&place]).status();
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn make_image(path: &Path, bytes: u64, format: &str) -> Result<()> {
    at(path, File::create(path).and_then(|file| file.set_len(bytes)))?;
    let mut make = command("mke2fs", ["-q", "-F", "-t", "ext4"]);
    said(make.args(format.split_whitespace()).arg(path)).map(drop)
}

/// Runs a command that must succeed.
fn said(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The missing requirement, if cases cannot run on this machine.
pub(super) fn missing() -> Option<&'static str> {
    let tools = ["mke2fs", "e2fsck", "mount", "umount", "cp", "tar", "timeout"];
    if let Some(tool) = tools.into_iter().find(|tool| !crate::shell::has(tool)) {
        return Some(tool);
    }
    if !crate::setup::is_root() {
        return Some("root");
    }
    (!Path::new("/dev/loop-control").exists()).then_some("loop devices")
}
