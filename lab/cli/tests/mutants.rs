//! `nextent-lab mutants`, in builds with the checker and without it.

use std::process::{Command, Output};

fn mutants(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
    command.arg("mutants").args(args).output().expect("it runs")
}

/// The one line about arguments that cannot be used.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = mutants(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    text
}

#[cfg(not(feature = "mutants"))]
#[test]
fn a_build_without_bugs_says_how_to_get_them() {
    assert!(refused(&[]).contains("cargo xtask mutants"));
}

#[cfg(feature = "mutants")]
#[test]
fn bugs_are_listed_and_found() {
    let text = |args: &[&str]| String::from_utf8_lossy(&mutants(args).stdout).into_owned();
    assert!(text(&["--list"]).lines().any(|line| line.starts_with("gate-checked-early ")));
    assert!(text(&["--seed", "13"]).contains("passed\t1\t"));
    assert!(text(&["--seed", "13", "--bug", "gate-checked-early"]).contains("failed\t13\t"));
    assert!(refused(&["--seed", "1", "--bug", "none"]).contains("--list"));
}
