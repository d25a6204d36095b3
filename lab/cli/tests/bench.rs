//! `nextent-lab bench` and `nextent-lab designs`, on small images for short times.
#![cfg(feature = "measure")]

use nextent_testkit::e2fs;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
    command.arg("bench").args(args).output().unwrap()
}

#[track_caller]
fn ok(args: &[&str]) -> String {
    let output = bench(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What is said of a request that cannot be: one line, exit code 2, nothing measured.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = bench(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty());
    text
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

const SHORT: [&str; 6] = ["--seconds", "0.1", "--repeat", "1", "--image-size", "64m"];

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    assert!(refused(&["fly"]).contains("fallocate2, fallocate1, churn"));
    assert!(refused(&["churn", "--design", "ext9"]).contains("nextent"));
    assert!(refused(&["churn", "--target", "moon"]).contains("engine and dir:PATH"));
    assert!(refused(&["churn", "--target", "dir:/nowhere"]).contains("may be written"));
    assert!(refused(&["churn", "--target", "dir:/proc"]).contains("may be written"));
    assert!(refused(&["dbench"]).contains("--loadfile"));
    assert!(refused(&["dbench", "--loadfile", "/nowhere"]).contains("/nowhere"));
    assert!(refused(&["churn", "--loadfile", "/nowhere"]).contains("dbench only"));
    assert!(refused(&["read", "--shared"]).contains("churn, fallocate2, fallocate1 only"));
    assert!(refused(&["churn", "--threads", "0"]).contains("from 1"));
    assert!(refused(&["churn", "--seconds", "0"]).contains("from 0.01"));
    assert!(refused(&["churn", "--image-size", "32k"]).contains("cannot be made"));
    assert!(refused(&["fallocate1", "--image-size", "64m"]).contains("a larger --image-size"));
    assert!(refused(&["churn", "--json", "/nowhere/f.json"]).contains("/nowhere/f.json"));
    let tmp = std::env::temp_dir().display().to_string();
    let target = format!("dir:{tmp}");
    let args = ["churn", "--target", &target, "--design", "nextent"];
    assert!(refused(&args).contains("engine only"));
}

#[test]
fn a_load_file_that_is_none_is_refused_by_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let load = dir.path().join("load");
    std::fs::write(&load, "Close 1 NT_STATUS_OK\nFly 1 NT_STATUS_OK\n").unwrap();
    let load = load.display().to_string();
    assert!(refused(&["dbench", "--loadfile", &load]).contains("line 2"));
}

#[test]
fn figures_for_people_programs_and_eyes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (json, plot) = (path("f.json"), path("f.svg"));
    let target = format!("dir:{}", dir.path().display());
    let mut args = vec!["churn", "--target", "engine", "--target", &target, "--threads", "1,2"];
    args.extend(["--design", "ext3-2003,nextent", "--lockstat", "--json", &json]);
    args.extend(["--plot", &plot]);
    args.extend(SHORT);
    let text = ok(&args);
    assert!(
        text.contains("engine nextent") && text.contains("fsck: 4 of 4 images clean"),
        "{text}"
    );
    assert!(text.contains("locks of engine nextent, 2 threads"), "{text}");
    let figures = read_json(Path::new(&json));
    assert_eq!(figures["workload"], "churn");
    assert!(figures["machine"]["cores"].as_u64().unwrap() > 0);
    let runs = figures["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        check_run(run);
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "only the figures are left: {left:?}");
    check_svg(&std::fs::read_to_string(&plot).unwrap());
}

fn check_run(run: &Value) {
    let keys = ["bs", "extents_per_file"];
    assert!(keys.iter().all(|key| run.get(key).is_some_and(Value::is_null)), "{run}");
    let each = run["per_thread"].as_array().unwrap();
    assert_eq!(each.len() as u64, run["threads"].as_u64().unwrap());
    let ops = run["ops"].as_u64().unwrap();
    assert!(ops > 0 && each.iter().map(|n| n.as_u64().unwrap()).sum::<u64>() == ops);
    let rate = ops as f64 / run["seconds"].as_f64().unwrap();
    assert!((run["ops_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 0.001);
    assert!(run["p50_ns"].as_u64().unwrap() <= run["p99_ns"].as_u64().unwrap());
    assert_eq!(run["round"], 0);
    if run["target"] == "engine" {
        assert!(run["design"].is_string());
        assert!(run["shared_stores_per_op"].as_f64().is_some());
        let locks = run["locks"].as_array().unwrap();
        let rw = locks.iter().find(|class| class["class"] == "inode.rw").unwrap();
        assert!(rw["acquired"].as_u64().unwrap() > 0 && rw["top_holders"].is_array());
        let numbers = ["contended", "wait_ns", "hold_ns"];
        assert!(numbers.iter().all(|key| rw[key].is_u64()), "{rw}");
    } else {
        assert!(run["design"].is_null() && run["locks"].is_null());
        assert!(run["shared_stores_per_op"].is_null());
    }
}

/// Every tag that is opened is closed.
fn check_svg(svg: &str) {
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_owned()));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap().to_owned());
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(svg.contains("engine nextent") && svg.contains("<polyline"));
}

#[test]
fn every_workload_runs_on_both_targets() {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("dir:{}", dir.path().display());
    for workload in ["fallocate2", "create", "unlink", "append", "read", "stat", "frag"] {
        let mut args = vec![workload, "--target", "engine", "--target", &target];
        args.extend(SHORT);
        if matches!(workload, "append" | "frag") {
            args.extend(["--file-size", "4m"]);
        }
        let text = ok(&args);
        assert!(text.contains("fsck: 1 of 1 images clean"), "{text}");
        assert_eq!(text.contains("extents a file"), workload == "frag", "{text}");
    }
    let mut args = vec!["churn", "--shared", "--pin", "--threads", "2"];
    args.extend(SHORT);
    assert!(ok(&args).contains("all in one directory"));
}

const LOAD: &str = "Deltree \"\\clients\\client1\" NT_STATUS_OK\n\
    Mkdir \"\\clients\" NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\" 0x1 0x2 1 NT_STATUS_OK\n\
    Close 1 NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\\A.TXT\" 0x40 0x1 2 NT_STATUS_OBJECT_NAME_NOT_FOUND\n\
    NTCreateX \"\\clients\\client1\\A.TXT\" 0x40 0x2 2 NT_STATUS_OK\n\
    WriteX 2 0 65536 65536 NT_STATUS_OK\n\
    LockX 2 0 1 NT_STATUS_OK\n\
    ReadX 2 0 4096 4096 NT_STATUS_OK\n\
    UnlockX 2 0 1 NT_STATUS_OK\n\
    Flush 2 NT_STATUS_OK\n\
    QUERY_FILE_INFORMATION 2 258 NT_STATUS_OK\n\
    SET_FILE_INFORMATION 2 1004 NT_STATUS_OK\n\
    QUERY_FS_INFORMATION 1 NT_STATUS_OK\n\
    Close 2 NT_STATUS_OK\n\
    QUERY_PATH_INFORMATION \"\\clients\\client1\\A.TXT\" 1004 NT_STATUS_OK\n\
    FIND_FIRST \"\\clients\\client1\\*.TXT\" 260 1366 1 NT_STATUS_OK\n\
    FIND_FIRST \"\\clients\\client1\\*.DOC\" 260 1366 0 NT_STATUS_NO_SUCH_FILE\n\
    Rename \"\\clients\\client1\\A.TXT\" \"\\clients\\client1\\B.TXT\" NT_STATUS_OK\n\
    Unlink \"\\clients\\client1\\B.TXT\" 0x6 NT_STATUS_OK\n\
    Deltree \"\\clients\\client1\" NT_STATUS_OK\n";

#[test]
fn a_load_is_replayed_as_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let load = dir.path().join("load");
    std::fs::write(&load, LOAD).unwrap();
    let (load, json) = (load.display().to_string(), dir.path().join("f.json"));
    let (target, out) = (format!("dir:{}", dir.path().display()), json.display().to_string());
    let mut args = vec!["dbench", "--loadfile", &load, "--target", "engine", "--target", &target];
    args.extend(["--threads", "2", "--json", &out]);
    args.extend(&SHORT[..4]);
    args.extend(["--image-size", "256m"]);
    let text = ok(&args);
    assert!(!text.contains("another result") && text.contains("MB/s"), "{text}");
    for run in read_json(&json)["runs"].as_array().unwrap() {
        assert!(run["mb_per_s"].as_f64().unwrap() > 0.0, "{run}");
    }
}

#[test]
fn a_full_disk_is_told_with_the_figures_so_far() {
    let dir = tempfile::tempdir().unwrap();
    let load = dir.path().join("load");
    let mut text = String::from("NTCreateX \"\\big\" 0x40 0x3 1 NT_STATUS_OK\n");
    for n in 0..100u64 {
        text += &format!("WriteX 1 {} 1048576 1048576 NT_STATUS_OK\n", n << 20);
    }
    std::fs::write(&load, text).unwrap();
    let load = load.display().to_string();
    // It ends long before that.
    let args = ["--seconds", "20", "--repeat", "1", "--image-size", "64m"];
    let output = bench(&[&["dbench", "--loadfile", &load], &args[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("full; figures so far"), "{said}");
    let figures = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(figures.contains("fsck: 1 of 1 images clean"), "{figures}");
}

#[test]
fn an_image_is_made_kept_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("bench.img");
    let path = image.display().to_string();
    let mut args = vec!["churn", "--image", &path];
    args.extend(SHORT);
    ok(&args);
    e2fs::assert_clean(&image);
    assert!(refused(&args).contains("--image-size"), "it exists now");
    ok(&args[..7]);
    e2fs::assert_clean(&image);
}

#[test]
fn a_stop_by_the_user_leaves_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("f.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
    command.args(["bench", "stat", "--seconds", "60", "--image-size", "64m", "--json"]).arg(&json);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("interrupted by the user"), "{text}");
    let figures = read_json(&json);
    assert_eq!(figures["runs"].as_array().unwrap().len(), 1);
    check_run_was_cut(&figures["runs"][0]);
}

fn check_run_was_cut(run: &Value) {
    let seconds = run["seconds"].as_f64().unwrap();
    assert!(seconds > 0.1 && seconds < 30.0 && run["ops"].as_u64().unwrap() > 0, "{run}");
}

#[test]
fn designs_are_listed() {
    let list = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nextent-lab"));
        let output = command.arg("designs").args(args).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(list(&[]).lines().any(|line| line.starts_with("nextent") && line.contains("default")));
    let all: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let defaults = all.as_array().unwrap().iter().filter(|one| one["default"] == true);
    assert_eq!(defaults.map(|one| one["name"].clone()).collect::<Vec<_>>(), ["nextent"]);
}

#[test]
fn handles_and_kinds_of_locks_are_refused_where_they_mean_nothing() {
    let here = format!("dir:{}", std::env::temp_dir().display());
    assert!(refused(&["handles", "--target", &here]).contains("--target engine only"));
    assert!(refused(&["handles", "--lock-kind", "doze"]).contains("sleep or spin"));
    assert!(refused(&["handles", "--lock-kind", "spin"]).contains("ext4-2.6.33"));
    assert!(refused(&["fsync", "--target", &here, "--lock-kind", "spin"]).contains("engine only"));
    let hack = ["handles", "--design", "ext4-2.6.33-hack", "--image", "/nowhere/image"];
    assert!(refused(&hack).contains("for measuring only"));
}

const GATES: &str = "ext4-2.6.33,ext4-2.6.33-hack,ext4-2.6.36,nextent";

#[test]
fn handles_of_every_gate_with_locks_of_either_kind() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("f.json").display().to_string();
    for kind in ["sleep", "spin"] {
        let mut args = vec!["handles", "--design", GATES, "--threads", "1,3", "--lockstat"];
        args.extend(["--lock-kind", kind, "--json", &json]);
        args.extend(SHORT);
        let text = ok(&args);
        assert!(text.contains("fsck: 8 of 8 images clean"), "{text}");
        let figures = read_json(Path::new(&json));
        for run in figures["runs"].as_array().unwrap() {
            let locks: Vec<_> = run["locks"].as_array().unwrap().iter().collect();
            let taken = |class| locks.iter().any(|one| one["class"] == class);
            let design = run["design"].as_str().unwrap();
            assert!(run["ops"].as_u64().unwrap() > 0);
            let own = design == "nextent";
            assert_eq!(run["lock_kind"].as_str(), Some(kind).filter(|_| !own));
            assert_eq!(taken("historical.j-state-rw"), design == "ext4-2.6.36", "{design}");
            assert_eq!(taken("historical.t-handle"), design.starts_with("ext4-2.6.33"), "{design}");
            if own {
                // A commit or the start of a run may meet a thread, an operation may not.
                assert!(run["shared_stores_per_op"].as_f64().unwrap() < 0.01);
            }
        }
    }
}

#[test]
fn files_through_every_gate() {
    let mut args = vec!["churn", "--design", GATES, "--threads", "3"];
    args.extend(SHORT);
    assert!(ok(&args).contains("fsck: 4 of 4 images clean"));
    let dir = tempfile::tempdir().unwrap();
    let load = dir.path().join("load");
    std::fs::write(&load, LOAD).unwrap();
    let load = load.display().to_string();
    let mut args = vec!["dbench", "--loadfile", &load, "--design", GATES, "--threads", "3"];
    args.extend(["--seconds", "0.1", "--repeat", "1", "--image-size", "256m"]);
    let text = ok(&args);
    assert!(text.contains("fsck: 4 of 4 images clean"), "{text}");
    assert!(
        text.contains("published of ext4-2.6.33") && !text.contains("another result"),
        "{text}"
    );
}

#[test]
fn fsync_on_both_targets() {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("dir:{}", dir.path().display());
    let mut args = vec!["fsync", "--target", "engine", "--target", &target, "--threads", "1,3"];
    args.extend(["--file-size", "1m"]);
    args.extend(SHORT);
    assert!(ok(&args).contains("fsck: 2 of 2 images clean"));
    let image = dir.path().join("image").display().to_string();
    let mut args = vec!["fsync", "--image", &image, "--file-size", "16k"];
    args.extend(SHORT);
    assert!(ok(&args).contains("fsck: 1 of 1 images clean"));
    e2fs::assert_clean(Path::new(&image));
}
