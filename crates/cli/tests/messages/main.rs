//! Messages, escaping, slashes at the end of paths, parts of disk images, pages of the manual, and
//! tools of e2fsprogs that the program stands for.

mod called;
mod dumpe2fs;
mod e2fsck;
mod e2mmpstatus;
mod escapes;
mod foreign;
mod journal_device;
mod mke2fs;
#[cfg(feature = "generate")]
mod pages;
mod partitions;
mod refused;
mod resize2fs;
mod sizes;
mod slashes;
mod truncated;
mod tune2fs;

use std::path::Path;
use std::process::{Command, Output};

/// The program.
fn nextent() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nextent"))
}

/// Runs it in `dir`.
fn run(dir: &Path, args: &[&str]) -> Output {
    nextent().current_dir(dir).args(args).output().expect("it was built")
}

/// Runs it in `dir`; it must succeed.
#[track_caller]
fn works(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a line of shell in `dir`, where `$N` is the program; it must succeed.
#[track_caller]
fn shell(dir: &Path, line: &str) -> String {
    let mut command = Command::new("bash");
    command.env("N", env!("CARGO_BIN_EXE_nextent")).current_dir(dir);
    let output = command.args(["-o", "pipefail", "-c", line]).output().expect("there is a bash");
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {out}{said}");
    out.into_owned()
}
