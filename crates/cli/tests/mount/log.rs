//! The messages of a server: on standard error, with levels in the journal, and in the system's
//! log.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

/// The tool with standard error in a file.
fn logging_to(file: &Path) -> Command {
    let mut command = nextent();
    command.stderr(File::create(file).unwrap());
    command
}

/// Makes an image whose directory `d` is damaged.
fn damaged(dir: &Path) -> Result<std::path::PathBuf, Skip> {
    let image = mkfs(dir, "64m");
    let made = run(&["mkdir", &format!("{}:/d", text(&image))]);
    assert!(made.status.success());
    let output = Command::new("debugfs").args(["-R", "blocks /d", text(&image)]).output();
    let output = output.map_err(|_| Skip::missing("debugfs"))?.stdout;
    let block: u64 = String::from_utf8(output).unwrap().trim().parse().unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 8], block * 4096 + 4).unwrap();
    Ok(image)
}

#[test]
fn damage_is_written_with_its_place_and_not_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let image = need!(damaged(dir.path()));
    let log = dir.path().join("log");
    let mount = need!(Mount::by(logging_to(&log), &image, "errors=continue"));
    for n in 0..200 {
        assert!(std::fs::metadata(mount.join(&format!("d/{n}"))).is_err());
    }
    let written = std::fs::read_to_string(&log).unwrap();
    let first = written.lines().next().unwrap();
    assert!(first.starts_with("nextent: ") && first.contains("directory"), "{written}");
    assert!(written.contains("not written for some seconds"), "{written}");
    assert!(written.lines().count() < 100, "{written}");
    assert!(!written.contains("mounted on"), "{written}");
    mount.unmount();
    let status = Command::new("e2fsck").args(["-fy", text(&image)]).output().unwrap().status;
    assert_eq!(status.code().map(|code| code & !3), Some(0), "{status}");
    e2fs::assert_clean(&image);
}

#[test]
fn the_level_decides_and_the_journal_gets_priorities() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let log = dir.path().join("log");
    for (journal, level, shown) in [
        (false, "", ""),
        (false, "log_level=info", "nextent: "),
        (true, "", "<6>"),
        (true, "log_level=warning", ""),
    ] {
        let mut command = logging_to(&log);
        if journal {
            let found = std::fs::metadata(&log).unwrap();
            command.env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino()));
        }
        let mount = need!(Mount::by(command, &image, level));
        let point = text(mount.path()).to_owned();
        std::fs::write(mount.join("file"), "text").unwrap();
        mount.unmount();
        let written = std::fs::read_to_string(&log).unwrap();
        if shown.is_empty() {
            assert_eq!(written, "", "{journal} {level}");
            continue;
        }
        let lines: Vec<_> = written.lines().collect();
        assert_eq!(lines.len(), 2, "{written}");
        assert!(lines.iter().all(|line| line.starts_with(shown)), "{written}");
        assert!(lines[0].contains(&format!("mounted on {point}, read and write, over ")));
        assert!(lines[1].contains("unmounted and closed"), "{written}");
    }
    e2fs::assert_clean(&image);
}

#[test]
fn a_signal_writes_the_status_whatever_the_level() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let log = dir.path().join("log");
    let mount = need!(Mount::by(logging_to(&log), &image, "log_level=error"));
    for n in 0..30 {
        std::fs::write(mount.join(&format!("f{n}")), "text").unwrap();
    }
    // The mount exists a moment before the server handles signals.
    let point = text(mount.path());
    wait_until("status", || run(&["status", point]).status.success());
    let server = mount.server().to_string();
    assert!(Command::new("kill").args(["-USR1", &server]).status().unwrap().success());
    let written = || std::fs::read_to_string(&log).unwrap();
    wait_until("written", || written().lines().any(|line| line.starts_with("nextent: create ")));
    let line =
        written().lines().find(|line| line.starts_with("nextent: create ")).map(str::to_owned);
    assert_eq!(line.unwrap().split_whitespace().nth(2), Some("30"), "{}", written());
    assert!(written().contains(point) && written().contains(text(&image)), "{}", written());
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// The system's log, as long as this exists, on a machine that has none.
struct SystemLog(UnixDatagram);

impl SystemLog {
    fn new() -> Result<Self, Skip> {
        let socket =
            UnixDatagram::bind("/dev/log").map_err(|_| Skip::missing("a free /dev/log"))?;
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(Self(socket))
    }

    /// The next message about `image`: other servers may run.
    fn next(&self, image: &Path) -> String {
        let mut buf = vec![0; 4096];
        loop {
            let len = self.0.recv(&mut buf).expect("a message");
            let message = String::from_utf8(buf[..len].to_vec()).unwrap();
            if message.contains(text(image)) {
                return message;
            }
        }
    }
}

impl Drop for SystemLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_file("/dev/log");
    }
}

#[test]
fn a_server_in_the_background_writes_to_the_systems_log() {
    let _offered = need!(can_mount());
    let log = need!(SystemLog::new());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let mounted = run(&["mount", text(&image), text(&point)]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    // The server answers as soon as `mount` returns.
    let status = run(&["status", text(&point)]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let message = log.next(&image);
    assert!(message.starts_with("<30>nextent[") && message.contains("mounted on"), "{message}");
    wait_until("unmounted", || {
        Command::new("umount").arg(&point).output().unwrap().status.success()
    });
    assert!(log.next(&image).contains("unmounted and closed"));
    e2fs::assert_clean(&image);
}
