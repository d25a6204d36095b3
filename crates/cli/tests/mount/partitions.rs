//! Partitions of one disk image, mounted at the same time.

use crate::support::*;
use nextent_testkit::{Access, DiskImage, KernelMount, e2fs, need};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A partition as an argument.
fn part(disk: &DiskImage, which: &str) -> PathBuf {
    let mut name = disk.path().as_os_str().to_owned();
    name.push(format!("@{which}"));
    name.into()
}

fn make(dir: &Path) -> DiskImage {
    let parts = [("one", 1, 24), ("two", 25, 24)];
    let disk = DiskImage::gpt(&dir.join("disk"), 50, 512, &parts);
    for number in ["1", "2"] {
        let made = run(&["mkfs", "-q", "-b", "4096", text(&part(&disk, number))]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    disk
}

/// The source of a mount in the table of mounts.
fn source(point: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(text(point)));
    let fields = line.unwrap().split(" - ").nth(1).unwrap();
    fields.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn partitions_of_a_disk_are_mounted_at_once() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let disk = make(dir.path());
    let outside = disk.outside(&(1 << 20..49 << 20));
    let first = need!(Mount::new(&part(&disk, "1"), ""));
    let untouched = disk.outside(&disk.parts[0].1);
    let second = need!(Mount::new(&part(&disk, "label=two"), "discard"));
    assert_eq!(source(first.path()), text(&part(&disk, "1")));
    assert_eq!(source(second.path()), text(&part(&disk, "label=two")));
    // The first one is filled to its last block, which changes no byte of the second.
    std::fs::write(second.join("held"), vec![5; 1 << 20]).unwrap();
    rustix::fs::fsync(File::open(second.path()).unwrap()).unwrap();
    let held = disk.outside(&disk.parts[0].1);
    assert!(held != untouched);
    let file = File::create(first.join("all")).unwrap();
    let len = take_all(&file);
    assert!(len > 10 << 20);
    std::fs::write(first.join("all"), vec![9; usize::try_from(len / 2).unwrap()]).unwrap();
    drop(file);
    rustix::fs::fsync(File::open(first.path()).unwrap()).unwrap();
    assert!(held == disk.outside(&disk.parts[0].1));
    // A second mount of either one is refused at once, by any name.
    let point = tempfile::tempdir().unwrap();
    for (which, options) in [("1", "ro"), ("2", "rw"), ("offset=1m,size=24m", "rw")] {
        let again =
            run(&["mount", "-f", "-o", options, text(&part(&disk, which)), text(point.path())]);
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert_eq!(again.status.code(), Some(32), "{said}");
        assert!(said.contains("in use"), "{said}");
    }
    let both =
        run(&["mount", "-f", "-o", "offset=1m", text(&part(&disk, "1")), text(point.path())]);
    assert_eq!(both.status.code(), Some(1));
    std::fs::remove_file(second.join("held")).unwrap();
    first.unmount();
    // The helper of umount(8) waits for the server of this partition only.
    let done = run(&["umount", text(second.path())]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut second = second;
    assert!(second.wait().success());
    assert!(outside == disk.outside(&(1 << 20..49 << 20)));
    for (_, bytes) in &disk.parts {
        disk.extract(bytes, &dir.path().join("part"));
        e2fs::assert_clean(&dir.path().join("part"));
        let how = format!("offset={},sizelimit={}", bytes.start, bytes.end - bytes.start);
        need!(KernelMount::with_options(disk.path(), Access::ReadWrite, &how).map(drop));
    }
}

/// After a server was killed, the next mount of its partition recovers, beside another mount.
#[test]
fn a_killed_server_of_a_partition_is_recovered() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let disk = make(dir.path());
    let other = need!(Mount::new(&part(&disk, "2"), ""));
    let killed = need!(Mount::new(&part(&disk, "1"), ""));
    std::fs::write(killed.join("file"), "text").unwrap();
    File::open(killed.join("file")).unwrap().sync_all().unwrap();
    killed.kill();
    let again = need!(Mount::new(&part(&disk, "1"), ""));
    assert_eq!(std::fs::read(again.join("file")).unwrap(), b"text");
    std::fs::write(other.join("file"), "other").unwrap();
    again.unmount();
    other.unmount();
    for (_, bytes) in &disk.parts {
        disk.extract(bytes, &dir.path().join("part"));
        e2fs::assert_clean(&dir.path().join("part"));
    }
}

/// `mount` in the background, by a relative name, and `status`.
#[test]
fn a_partition_is_served_in_the_background() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let disk = make(dir.path());
    let point = dir.path().join("m");
    std::fs::create_dir(&point).unwrap();
    let transport = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    let mut command = nextent();
    command.current_dir(dir.path()).args(["mount", "-o", transport, "disk@2", "m"]);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let status = run(&["status", "--json", text(&point)]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["image"], text(&part(&disk, "2")));
    std::fs::write(point.join("file"), "text").unwrap();
    let done = run(&["mount", "-o", "remount,ro", text(&point)]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(run(&["umount", text(&point)]).status.success());
    // The server has closed the image.
    let read = run(&["cat", &format!("{}:/file", text(&part(&disk, "2")))]);
    assert_eq!(read.stdout, b"text", "{}", String::from_utf8_lossy(&read.stderr));
    disk.extract(&disk.parts[1].1, &dir.path().join("part"));
    e2fs::assert_clean(&dir.path().join("part"));
}
