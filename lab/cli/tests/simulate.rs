//! `nextent-lab simulate`, as a user calls it.
#![cfg(feature = "measure")]

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
    command.arg("simulate").args(args).output().expect("it runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_same_is_simulated_twice() {
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

#[test]
fn what_is_wrong_is_one_line_and_two() {
    for args in [
        &["fallocate2", "--machine", "abacus"][..],
        &["fallocate2", "--cores", "0"],
        &["fallocate2", "--cores", "1,257"],
        &["fallocate2", "--design", "ext5"],
        &["dbench"],
        &["nothing"],
        &["--measure", "--design", "ext5"],
        &["nothing", "--measure"],
        &["dio-overwrite", "--measure", "--design", "ext3-2002"],
        &["--measure", "--rounds", "/nowhere/rounds.json"],
        &["--measure", "--save-rounds", "/nowhere/rounds.json"],
        &["handles", "--measure", "--cores", "0"],
        &["handles", "--measure", "--cores", "1"],
        &["handles", "--measure", "--cores", "2,257"],
        &["handles", "--measure", "--cores", "2", "--design", "ext5"],
        &["--measure", "--cores", "2", "--rounds", "/nowhere/rounds.json"],
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn what_is_wrong_loses_no_rounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("rounds");
    std::fs::write(&path, "some").expect("it is written");
    let rounds = path.to_str().expect("it is text");
    let other = format!("{}/./rounds", dir.path().display());
    for args in [
        &["--measure", "--rounds", rounds][..],
        &["--measure", "--rounds", rounds, "--json", rounds],
        &["--measure", "--rounds", rounds, "--json", &other],
        &["--measure", "--save-rounds", rounds, "--json", &other],
        &["--measure", "--save-rounds", rounds, "--design", "ext5"],
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"some");
    }
}

/// What two cores and four of some machine did, as a file.
fn some_curves() -> Value {
    let writes = json!({ "first": 700, "more": 200, "again": 90, "late": 150, "near": 120,
        "next": 110 });
    let turn = json!({ "changed": 26, "look": 1, "chances": [0.7, 0.5] });
    let crowd = |together: f64, apart: f64| {
        let part = |rate| json!({ "seconds": 0.003, "rate": rate });
        let reach = json!({ "before": 100, "after": 1100 });
        let bout = json!({ "together": part(together), "apart": part(apart) });
        json!({ "bouts": [bout], "together": reach, "apart": reach })
    };
    let crowds = [crowd(8e7, 8e7), crowd(1.2e8, 1.6e8)];
    let round = json!({ "turn": turn, "pace": 0.5, "crowds": crowds });
    let constants = json!({ "cores": 4, "instruction": 0.1, "rmw": 1, "line": 25,
        "migrates": true, "chances": null, "wake": 2e4, "pause": 25, "offer": 5e2, "pace": 0.5 });
    json!({ "curves": {
        "constants": constants,
        "cores": [2, 4],
        "device": [writes, writes],
        "rows": [{ "workload": "handles", "design": "nextent", "rounds": [round, round, round] }],
    }})
}

/// Those rows of a run's JSON.
fn rows(args: &[&str], path: &Path) -> Vec<Value> {
    let output = simulate(&[args, &["--json", path.to_str().expect("it is text")]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("within 15 %: "), "{output:?}");
    let json: Value =
        serde_json::from_slice(&std::fs::read(path).expect("it is written")).expect("it is JSON");
    json["rows"].as_array().expect("rows").clone()
}

#[test]
fn curves_that_were_kept_are_simulated_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let [kept, figures, other] = ["kept", "figures", "other"].map(|name| dir.path().join(name));
    std::fs::write(&kept, some_curves().to_string()).expect("it is written");
    std::fs::write(&other, r#"{"rows": []}"#).expect("it is written");
    let [kept, other] = [&kept, &other].map(|path| path.to_str().expect("it is text"));
    let all = ["--measure", "--design", "nextent", "--rounds", kept];
    let [found, again] = [(), ()].map(|()| rows(&all, &figures));
    let cores = |rows: &[Value]| rows.iter().map(|row| row["cores"].clone()).collect::<Vec<_>>();
    assert_eq!(cores(&found), [2, 4]);
    let of = |row: &Value, what: &str| row[what].as_f64().expect("a number");
    assert_eq!((of(&found[0], "measured"), of(&found[1], "measured")), (2.0, 3.0));
    for (one, other) in found.iter().zip(&again) {
        // Where memory lies, and so what shares a line, may differ.
        let by = of(one, "simulated") / of(other, "simulated");
        assert!((by - 1.0).abs() < 0.05, "{one}, {other}");
    }
    assert_eq!(cores(&rows(&[&all[..], &["--cores", "1,4"]].concat(), &figures)), [4]);
    // None of these, and not of this kind.
    for (file, cores) in [(kept, "2,8"), (other, "2")] {
        let output = simulate(&["handles", "--measure", "--rounds", file, "--cores", cores]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.lines().count() == 1 && told.contains(file), "{told}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "measuring a machine takes a minute without optimisation")]
fn two_cores_are_measured_and_kept() {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: there is one core");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [kept, figures] = ["kept", "figures"].map(|name| dir.path().join(name));
    let kept = kept.to_str().expect("it is text");
    let handles = ["handles", "--measure", "--design", "nextent"];
    let now = [&handles[..], &["--cores", "1,2", "--save-rounds", kept]].concat();
    let found = rows(&now, &figures);
    assert_eq!((found.len(), &found[0]["cores"]), (1, &json!(2)));
    assert_eq!(found[0]["rounds"].as_array().map(Vec::len), Some(5));
    let again = rows(&[&handles[..], &["--rounds", kept]].concat(), &figures);
    assert_eq!(again[0]["measured"], found[0]["measured"]);
}
