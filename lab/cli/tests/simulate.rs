//! `nextent-lab simulate`, as a user calls it.
#![cfg(feature = "measure")]

use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
    command.arg("simulate").args(args).output().expect("it runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_simulation_is_repeatable() {
    let args = ["fallocate2", "--machine", "kunpeng920", "--cores", "1,3", "--operations", "64"];
    let args = [&args[..], &["--design", "ext4-6.17/s0,nextent", "--why"]].concat();
    let [a, b] = [(), ()].map(|()| simulate(&args));
    assert!(a.status.success(), "{a:?}");
    assert!(text(&a).contains("code and lines of its own"), "{a:?}");
    assert_eq!(text(&a), text(&b));
}

#[test]
fn direct_writers_of_one_file_are_simulated() {
    let args = ["dio-overwrite", "--machine", "kunpeng920", "--cores", "1,2", "--operations", "64"];
    let output = simulate(&args);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("dio-overwrite on kunpeng920"), "{output:?}");
}

/// A write waits for the device's latency and bus: 24.6 us for 4 KiB.
#[test]
fn direct_writers_wait_for_the_device() {
    let args = ["dio-overwrite", "--machine", "xeon6140", "--cores", "1", "--operations", "64"];
    let output = simulate(&[&args[..], &["--design", "ext4-6.3"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = text(&output);
    let row = text.lines().find(|line| line.starts_with("ext4-6.3")).expect("a row of the design");
    let rate = row.split_whitespace().nth(2).expect("a rate");
    let rate: u64 = rate.parse().expect("a number");
    assert!((20_000..40_600).contains(&rate), "{text}");
}

#[test]
fn wrong_arguments_give_one_line_and_exit_code_2() {
    for args in [
        &["fallocate2", "--machine", "abacus"][..],
        &["fallocate2", "--cores", "0"],
        &["fallocate2", "--cores", "1,257"],
        &["fallocate2", "--design", "ext5"],
        &["dbench"],
        &["nothing"],
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
