//! Runs both programs on one case and compares the results by oracles.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::cases::Case;
use super::exceptions;
use crate::shell::command;

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const CLOCK: &str = "1700000000";
/// Larger volumes are not mounted.
const MOUNTED_BYTES: u64 = 300 << 20;
/// Debian's defaults, in place of this machine's.
const CONFIG: &str = include_str!("mke2fs.conf");

/// The result of one case.
pub(crate) enum Verdict {
    Alike(&'static str),
    /// They differ by an exception of the table.
    Excepted(&'static str),
    Wrong(String),
}

/// Each program's reason to refuse the case, if it does.
pub(crate) struct Answers {
    pub(crate) ours: Option<String>,
    pub(crate) theirs: Option<String>,
}

pub(crate) struct Judge {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Judge {
    pub(crate) fn new(program: &Path) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        fs::write(dir.path().join("mke2fs.conf"), CONFIG).map_err(|error| error.to_string())?;
        Ok(Self { program: program.to_owned(), dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the volume by both programs and compares.
    pub(crate) fn judge(&self, case: &Case, mount: bool) -> Result<Verdict, String> {
        let answers = Answers { ours: self.ours(case)?, theirs: self.theirs(case)? };
        if answers.ours.is_some() && answers.theirs.is_some() {
            return Ok(Verdict::Alike("refused by both"));
        }
        if let Some(name) = exceptions::of_answers(case, &answers) {
            return Ok(Verdict::Excepted(name));
        }
        match (&answers.ours, &answers.theirs) {
            (Some(text), _) => return Ok(Verdict::Wrong(format!("only ours refuses: {text}"))),
            (_, Some(text)) => return Ok(Verdict::Wrong(format!("only mke2fs refuses: {text}"))),
            _ => {}
        }
        if let Some(text) = self.e2fsck("ours") {
            return Ok(Verdict::Wrong(text));
        }
        let (ours, theirs) = (self.described("ours"), self.described("theirs"));
        if ours != theirs {
            let pairs = ours.iter().zip(&theirs).filter(|(a, b)| a != b).take(6);
            let lines = pairs.map(|(a, b)| format!("  ours:   {a}\n  theirs: {b}\n"));
            let text = lines.collect::<String>();
            if self.e2fsck("theirs").is_some() {
                return Ok(Verdict::Excepted("made by mke2fs so that e2fsck rejects it"));
            }
            return Ok(Verdict::Wrong(text));
        }
        if mount && case.bytes <= MOUNTED_BYTES {
            return Ok(self.mounted());
        }
        Ok(Verdict::Alike("made alike"))
    }

    /// A sparse file of the case's size.
    fn image(&self, name: &str, case: &Case) -> Result<PathBuf, String> {
        let path = self.path(name);
        let made = File::create(&path).and_then(|file| file.set_len(case.bytes));
        made.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Runs `program` with the options of the case; why it refused.
    fn make(&self, program: &str, name: &str, case: &Case) -> Result<Option<String>, String> {
        let path = self.image(name, case)?;
        let mut extended = case.extended.clone();
        extended.push(format!("hash_seed={UUID}"));
        let mut command = command(program, Vec::<String>::new());
        if program != "mke2fs" {
            command.arg("mkfs");
        }
        command.args(["-q", "-F", "-U", UUID, "-E", &extended.join(",")]).args(&case.words);
        command.arg(&path).args(case.kib.map(|kib| format!("{kib}k")));
        command.env("MKE2FS_CONFIG", self.path("mke2fs.conf"));
        command.env("E2FSPROGS_FAKE_TIME", CLOCK).env("SOURCE_DATE_EPOCH", CLOCK);
        let output = command.output().map_err(|error| format!("{program}: {error}"))?;
        Ok((!output.status.success()).then(|| said(&output)))
    }

    fn ours(&self, case: &Case) -> Result<Option<String>, String> {
        self.make(&self.program.to_string_lossy(), "ours", case)
    }

    fn theirs(&self, case: &Case) -> Result<Option<String>, String> {
        self.make("mke2fs", "theirs", case)
    }

    /// The errors that e2fsck finds in one of the images.
    fn e2fsck(&self, name: &str) -> Option<String> {
        let path = self.path(name);
        let output = run(command("e2fsck", ["-fn".as_ref(), path.as_os_str()]));
        (!output.0).then(|| format!("e2fsck: {}", output.1))
    }

    /// The output of dumpe2fs without checksums and counters that each program keeps differently.
    fn described(&self, name: &str) -> Vec<String> {
        let (_, text) = run(command("dumpe2fs", [self.path(name)]));
        let cut = |line: &str| match line.find(" csum 0x") {
            Some(at) => format!("{}{}", &line[..at], &line[(at + 18).min(line.len())..]),
            None => line.to_owned(),
        };
        let counted = ["Lifetime", "Checksum:", "Journal checksum:"];
        text.lines()
            .filter(|line| !counted.iter().any(|word| line.starts_with(word)))
            .map(cut)
            .collect()
    }

    /// If the kernel mounts the peer's image, it must mount this program's, and write to it.
    fn mounted(&self) -> Verdict {
        let place = self.path("mount");
        if fs::create_dir_all(&place).is_err() {
            return Verdict::Alike("made alike");
        }
        let mount = |name: &str| {
            let (image, place) = (self.path(name), place.clone());
            run(command(
                "mount",
                ["-o".as_ref(), "loop".as_ref(), image.as_os_str(), place.as_ref()],
            ))
        };
        let unmount = || run(command("umount", [&place]));
        if !mount("theirs").0 {
            // Not root, no loop devices, or a block size that this kernel does not support.
            return Verdict::Alike("made alike");
        }
        unmount();
        let (good, text) = mount("ours");
        if !good {
            return Verdict::Wrong(format!("the kernel does not mount ours: {text}"));
        }
        for at in 0..12 {
            let sub = place.join(format!("d{at}"));
            let made = fs::create_dir(&sub);
            // The volume may be full.
            let _ = made.and_then(|()| fs::write(sub.join("file"), vec![at; 20_000]));
        }
        for at in 0..6 {
            let _ = fs::remove_dir_all(place.join(format!("d{at}")));
        }
        let (good, text) = unmount();
        if !good {
            return Verdict::Wrong(format!("unmounting: {text}"));
        }
        match self.e2fsck("ours") {
            Some(text) => Verdict::Wrong(format!("after the kernel wrote to it, {text}")),
            None => Verdict::Alike("made alike, mounted and written to"),
        }
    }
}

/// Whether a command succeeded, and its message.
fn run(mut command: Command) -> (bool, String) {
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
            (output.status.success(), text)
        }
        Err(error) => (false, error.to_string()),
    }
}

/// The lines of an error, without the program's version.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines =
        text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("mke2fs 1."));
    lines.collect::<Vec<_>>().join("; ")
}
