//! What processes that have cached a file's contents see after another process changes them.

use crate::support::*;
use nextent_testkit::{Skip, need};
use std::process::Command;

/// Runs a Python script with a directory of the mount as its argument.
#[track_caller]
fn passes(script: &str, mount: &Mount, options: &str) {
    let ran = Command::new("python3").args(["-c", script, text(mount.path())]).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(ran.status.success(), "{options}:\n{}", said.concat());
}

fn python() -> Result<(), Skip> {
    let found = Command::new("python3").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if found { Ok(()) } else { Err(Skip::missing("python3")) }
}

/// Asynchronous direct writes, copies, holes, truncations and others.
#[test]
fn readers_see_what_other_processes_change() {
    need!(python());
    need!(with_each(&["", "direct_io"], "64m", |mount, options| {
        passes(include_str!("coherence.py"), mount, options);
    }));
}
