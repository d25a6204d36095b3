//! `nextent status`: counts of a mount, its socket, and the users that it answers.

use crate::support::{Mount, mkfs, remount, run, take_all, text, wait_until};
use nextent_testkit::{Skip, e2fs, need};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A mount whose server reports: the mount exists a moment before that.
fn reporting(image: &Path, options: &str) -> Result<Mount, Skip> {
    let mount = Mount::new(image, options)?;
    wait_until("a report", || run(&["status", text(mount.path())]).status.success());
    Ok(mount)
}

fn status(point: &Path) -> Value {
    let output = run(&["status", "--json", text(point)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A field of an operation.
fn of(status: &Value, operation: &str, field: &str) -> u64 {
    let all = status["operations"].as_array().unwrap();
    let found = all.iter().find(|found| found["operation"] == operation);
    found.map_or(0, |found| found[field].as_u64().unwrap())
}

/// The socket of root's mount.
fn socket(point: &Path) -> PathBuf {
    let device = std::fs::metadata(point).unwrap().dev();
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    Path::new("/run/nextent").join(format!("{numbers}.status"))
}

#[test]
fn status_counts_what_the_mount_does() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(reporting(&image, ""));
    let before = status(mount.path());
    assert_eq!(before["mountpoint"], text(mount.path()));
    assert_eq!(before["transport"], if crate::RINGS { "io_uring" } else { "/dev/fuse" });
    assert_eq!(before["pid"], mount.server());
    assert_eq!(before["space"]["blocks"], 16_384);
    assert_eq!((&before["read_only"], &before["errors"]["recorded"]), (&false.into(), &0.into()));

    let file = mount.join("file");
    std::fs::write(&file, vec![7; 300_000]).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    assert!(std::fs::read(mount.join("missing")).is_err());
    let after = status(mount.path());
    let more = |operation, field| of(&after, operation, field) - of(&before, operation, field);
    assert_eq!((more("create", "count"), more("write", "bytes")), (1, 300_000));
    assert!(more("fsync", "count") >= 1 && more("getxattr", "errors") <= more("getxattr", "count"));
    let write = after["operations"].as_array().unwrap().iter();
    let write = write.clone().find(|found| found["operation"] == "write").unwrap();
    let buckets: u64 =
        write["buckets"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(buckets, of(&after, "write", "count"));
    let number = |status: &Value, part: &str, field: &str| status[part][field].as_u64().unwrap();
    assert!(number(&after, "journal", "commits") > number(&before, "journal", "commits"));
    assert!(number(&after, "journal", "blocks") > 0 && number(&after, "journal", "log_blocks") > 0);
    let free = |status: &Value| number(status, "space", "free_blocks");
    assert_eq!(free(&before) - free(&after), 74, "300,000 bytes are 74 blocks");
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// A write that waits for the blocks of a removed file runs several times. It counts once, by its
/// final answer.
#[test]
fn a_write_that_waited_for_space_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    let mount = need!(reporting(&image, "direct_io"));
    let waited = (0..20).any(|_| {
        let big = File::create(mount.join("big")).unwrap();
        let taken = take_all(&big);
        assert!(taken > 16 << 20, "{taken}");
        std::fs::remove_file(mount.join("big")).unwrap();
        let next = File::create(mount.join("next")).unwrap();
        let before = status(mount.path());
        let closed = AtomicBool::new(false);
        let (early, written) = std::thread::scope(|scope| {
            let closed = &closed;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                closed.store(true, Ordering::SeqCst);
                drop(big);
            });
            let early = !closed.load(Ordering::SeqCst);
            (early, next.write_all_at(&[1; 4096], 0))
        });
        let after = status(mount.path());
        std::fs::remove_file(mount.join("next")).unwrap();
        let more = |field| of(&after, "write", field) - of(&before, "write", field);
        assert_eq!((more("count"), more("errors")), (1, u64::from(written.is_err())));
        early && written.is_ok()
    });
    assert!(waited, "no write waited");
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn a_mount_for_reading_only_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(reporting(&image, "ro"));
    assert_eq!(status(mount.path())["read_only"], true);
    assert_eq!(status(mount.path())["errors"]["journal"], Value::Null);
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn text_and_metrics_have_the_same_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(reporting(&image, ""));
    for n in 0..50 {
        std::fs::write(mount.join(&format!("f{n}")), "x").unwrap();
    }
    let shown = |args: &[&str]| {
        let output = run(&[&["status", text(mount.path())], args].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = shown(&[]);
    let row = plain.lines().find(|line| line.starts_with("create ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("50"), "{plain}");
    assert!(plain.contains(text(mount.path())) && plain.contains("errors    none"), "{plain}");
    let metrics = shown(&["--prometheus"]);
    let label = format!("{{mountpoint=\"{}\",operation=\"create\"}}", text(mount.path()));
    assert!(metrics.contains(&format!("nextent_request_seconds_count{label} 50\n")), "{metrics}");
    let both = run(&["status", "--json", "--prometheus", text(mount.path())]);
    assert_eq!(both.status.code(), Some(2));
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn only_the_owner_may_ask() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(reporting(&image, "allow_other"));
    std::fs::set_permissions(mount.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let place = socket(mount.path());
    let parent = std::fs::metadata(place.parent().unwrap()).unwrap();
    assert_eq!((parent.uid(), parent.mode() & 0o777), (0, 0o700));
    let program = dir.path().join("nextent");
    std::fs::copy(env!("CARGO_BIN_EXE_nextent"), &program).unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let who = ["--reuid", "4242", "--regid", "4242", "--clear-groups"];
    let output =
        Command::new("setpriv").args(who).arg(&program).arg("status").arg(mount.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("does not report") && said.lines().count() == 1, "{said}");
    mount.unmount();
    assert!(!place.exists(), "the socket is removed");
    e2fs::assert_clean(&image);
}

#[test]
fn a_socket_of_a_killed_server_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(reporting(&image, ""));
    let place = socket(mount.path());
    assert!(place.exists());
    mount.kill();
    // Other mounts may get the same number, so nothing is said about the socket here.
    let mount = need!(reporting(&image, ""));
    assert_eq!(status(mount.path())["pid"], mount.server());
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn a_directory_that_is_no_mount_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for point in [dir.path(), Path::new("/proc"), &dir.path().join("missing")] {
        let output = run(&["status", text(point)]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(text(point)) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn status_shows_the_claim_of_multiple_mount_protection() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = run(&["mkfs", "-q", "-O", "mmp", text(&image), "16m"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mount = need!(reporting(&image, ""));
    let claim = &status(mount.path())["multi_mount"];
    assert!(claim["device"].as_str().unwrap().starts_with("nextent-"), "{claim}");
    assert!(claim["sequence"].as_u64().unwrap() > 0 && claim["interval_seconds"] == 5, "{claim}");
    assert!(claim["updated"].as_u64().unwrap() > 0 && claim["node"].is_string(), "{claim}");
    let of = |arguments: &[&str]| {
        let output = run(&[&["status"], arguments, &[text(mount.path())]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = of(&[]);
    assert!(shown.contains("mmp       node ") && shown.contains(", every 5 s"), "{shown}");
    let metrics = of(&["--prometheus"]);
    assert!(metrics.contains("nextent_mmp_sequence{mountpoint="), "{metrics}");
    remount(&mount, "ro").unwrap();
    assert!(status(mount.path())["multi_mount"].is_null());
    mount.unmount();
    e2fs::assert_clean(&image);
}
