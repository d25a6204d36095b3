//! `mount -o remount`: changes options of a mount while it is served.
//!
//! remount of mount(2) changes only flags of the kernel; the kernel does not tell a FUSE server. So
//! this command asks the server over its control socket ([`control`]), and changes the kernel's
//! flags itself, for which it must be root. mount(8) calls this command for `-o remount` where the
//! helper `mount.fuse.nextent` (`mount.fuseblk.nextent` for block devices) is installed.
//!
//! Invariant: the kernel accepts no change that the volume refuses, and the image is clean once a
//! remount to read-only has succeeded.
//!
//! | step | to read-only | to read-write | other options |
//! |---|---|---|---|
//! | 1 | the server checks the options | same | same |
//! | 2 | mount(2); `EBUSY` while files are open for writing | the server makes the volume writable | the server changes them |
//! | 3 | the server makes the volume read-only | mount(2) | mount(2), if flags differ |
//! | if 3 fails | mount(2) back, if the volume is writable | the server makes it read-only again | - |

pub(super) mod control;
mod flags;
mod plan;

use super::options::Options;
use super::{FAILED, usage};
use crate::failure::{Context, Failure, Result};
use crate::show;
use control::{Answer, Request, Step};
use flags::KernelFlags;
use nextent_fuse::Mounted;
use rustix::io::Errno;
use std::io::Error;
use std::path::Path;

/// Changes the mount at `point` by the option lists `lists`; ignores unknown options if `sloppy`.
pub(super) fn run(point: &Path, lists: &[String], sloppy: bool) -> Result<()> {
    let name = show::path(point);
    let mounted = super::super::status::find(point).context(|| name.clone())?;
    let Some(mounted) = mounted.filter(Mounted::is_nextent) else {
        let text = format!("{name}: not a mount point of nextent");
        return Err(Failure::new(text).with_code(FAILED));
    };
    let mut words = changing_words(lists, &mounted);
    words.retain(|word| !sloppy || Options::knows(word));
    let now = KernelFlags::shown(&mounted);
    let wanted = now.with(&words);
    let remount = Remount { point, name, mounted, now, wanted };
    remount.run(words).map_err(|failure| failure.with_code(FAILED))
}

/// The words of `lists` that do not only repeat what the kernel shows: mount(8) passes all of that.
fn changing_words(lists: &[String], mounted: &Mounted) -> Vec<String> {
    let words = lists.iter().flat_map(|list| list.split(','));
    let shown: Vec<_> = mounted.options.split(',').filter(|word| !is_state(word)).collect();
    let is_new = |word: &&str| !word.is_empty() && *word != "remount" && !shown.contains(word);
    words.filter(is_new).map(str::to_owned).collect()
}

/// Whether the table shows a state with this word that a later word may have changed.
fn is_state(word: &str) -> bool {
    matches!(word, "ro" | "rw" | "sync" | "dirsync" | "lazytime")
}

/// A change of a mount.
struct Remount<'p> {
    point: &'p Path,
    name: String,
    mounted: Mounted,
    now: KernelFlags,
    wanted: KernelFlags,
}

impl Remount<'_> {
    fn run(&self, words: Vec<String>) -> Result<()> {
        let ask = |step| {
            let request = Request { step, words: words.clone() };
            control::ask(&self.mounted, &request).context(|| self.name.clone())
        };
        let checked = self.accepted(ask(Step::Check)?)?;
        let kernel_changes = self.wanted != self.now;
        if kernel_changes && !rustix::process::geteuid().is_root() {
            let text =
                format!("{}: only root can change ro, rw and flags of the kernel", self.name);
            return Err(usage(text));
        }
        if self.wanted.is_read_only() {
            if kernel_changes {
                self.set_kernel(self.wanted)?;
            }
            let answer = ask(Step::Apply)?;
            if answer.error.is_some() && !answer.read_only && kernel_changes {
                // The server's error is the one to report.
                let _ = self.set_kernel(self.now);
            }
            return self.accepted(answer).map(drop);
        }
        self.accepted(ask(Step::Apply)?)?;
        if !kernel_changes {
            return Ok(());
        }
        self.set_kernel(self.wanted).inspect_err(|_| {
            if checked.read_only {
                let request = Request { step: Step::Apply, words: vec!["ro".to_owned()] };
                // The kernel's error is the one to report.
                let _ = control::ask(&self.mounted, &request);
            }
        })
    }

    /// The answer, unless it is an error.
    fn accepted(&self, answer: Answer) -> Result<Answer> {
        match &answer.error {
            Some(error) => Err(Failure::new(format!("{}: {error}", self.name))),
            None => Ok(answer),
        }
    }

    fn set_kernel(&self, flags: KernelFlags) -> Result<()> {
        match rustix::mount::mount_remount(self.point, flags.bits(), "") {
            Err(Errno::BUSY) => {
                let text = "files are open for writing, or open and deleted";
                Err(Failure::new(format!("{}: remount: {text}", self.name)))
            }
            done => done.map_err(Error::from).context(|| format!("{}: remount", self.name)),
        }
    }
}
