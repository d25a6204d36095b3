//! Mounts that are refused: one line each, and the exit codes of mount(8).

use crate::support::*;
use nextent_testkit::{e2fs, need};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Checks a refusal in the foreground and in the background.
#[track_caller]
fn refused(args: &[&str], code: i32, named: &str) {
    for more in [&["-f"][..], &[]] {
        let output = nextent().arg("mount").args(args).args(more).output().unwrap();
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?} {more:?}: {line}");
        assert!(line.lines().count() == 1 && line.contains(named), "{args:?}: {line}");
    }
}

#[test]
fn bad_arguments_are_refused() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    let (none, file) = (dir.path().join("none"), dir.path().join("file"));
    std::fs::create_dir(&point).unwrap();
    std::fs::write(&file, [7; 100_000]).unwrap();
    let (image, point, none, file) = (text(&image), text(&point), text(&none), text(&file));
    refused(&[image, none], 32, "No such file");
    refused(&[image, file], 32, "ot a directory");
    refused(&[none, point], 32, "No such file");
    refused(&[file, point], 32, "file");
    refused(&[point, point], 32, "neither a regular file");
    refused(&[image, point, "-o", "ro,blub"], 1, "`blub`");
    refused(&[image, point, "-o", "noload,rw"], 1, "norecovery forbids rw");
    refused(&[image, point, "-o", "offset=1t"], 32, "offset");
    refused(&[image, point, "--threads", "0"], 1, "--threads");
    refused(&[image], 1, "MOUNTPOINT");
    assert!(!is_mounted(Path::new(point)));
    e2fs::assert_clean(Path::new(image));
}

/// Linux does not mount these volumes either.
#[test]
fn volumes_without_a_root_are_refused() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    for damage in ["mode 0", "mode 0100755", "links_count 0", "size 0"] {
        need!(e2fs::mke2fs(&image, 8 << 20, &["-t", "ext4", "-O", "^metadata_csum"]));
        need!(e2fs::debugfs(&image, true, &[&format!("sif <2> {damage}")]));
        let before = std::fs::read(&image).unwrap();
        refused(&[text(&image), text(&point), "-o", "ro"], 32, "root");
        assert!(before == std::fs::read(&image).unwrap(), "{damage}: changed by a refused mount");
        refused(&[text(&image), text(&point)], 32, "root");
        assert!(!is_mounted(&point));
    }
}

#[test]
fn the_option_io_uring_turns_the_offer_on_while_mounting() {
    let _offered = need!(can_mount());
    if offers_rings() {
        // The offer is on already.
        return;
    }
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let images = dirs.each_ref().map(|dir| mkfs(dir.path(), "64m"));
    // At the same time: one must not turn the offer off while the other needs it.
    let mounts = std::thread::scope(|scope| {
        let begin = |image| scope.spawn(move || Mount::new(image, "io_uring"));
        images.each_ref().map(|image| begin(image.as_path())).map(|mount| mount.join().unwrap())
    });
    // The mount is visible before the agreement, after which the offer is turned off.
    wait_until("as before", || !offers_rings());
    for (mount, image) in mounts.into_iter().zip(&images) {
        let mount = mount.unwrap();
        std::fs::write(mount.join("file"), "text").unwrap();
        assert!(has_rings(mount.server()), "requests come over io_uring");
        assert_eq!(std::fs::read_to_string(mount.join("file")).unwrap(), "text");
        mount.unmount();
        e2fs::assert_clean(image);
    }
}

/// Whether a process has io_uring descriptors.
fn has_rings(process: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let target = |fd: std::io::Result<std::fs::DirEntry>| std::fs::read_link(fd.unwrap().path());
    open.map(target).any(|to| to.is_ok_and(|to| to.as_os_str() == "anon_inode:[io_uring]"))
}

#[test]
fn a_second_mount_is_refused_and_readers_share() {
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let mount = need!(Mount::new(&image, ""));
    refused(&[text(&image), text(&point)], 32, "in use");
    refused(&[text(&image), text(&point), "-o", "ro"], 32, "in use");
    mount.unmount();
    let first = Mount::new(&image, "ro").unwrap();
    let second = Mount::new(&image, "ro").unwrap();
    let error = std::fs::write(first.join("file"), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    refused(&[text(&image), text(&point)], 32, "in use");
    first.unmount();
    second.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn mounts_in_the_background_by_its_other_name() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let mut command = nextent();
    command.arg0("/sbin/mount.fuse.nextent").current_dir(dir.path());
    // As mount(8) calls it. Its output must end although the server goes on.
    let output = command.args(["image", "point", "-n", "-o", "rw,noatime"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_mounted(&point) && output.stdout.is_empty() && output.stderr.is_empty());
    std::fs::write(point.join("file"), "text").unwrap();
    wait_until("unmounted", || {
        std::process::Command::new("umount").arg(&point).output().unwrap().status.success()
    });
    // The server releases the image once all data is durable.
    let place = format!("{}:/file", text(&image));
    wait_until("closed", || run(&["cat", &place]).stdout == b"text");
    e2fs::assert_clean(&image);
}

#[test]
fn unsupported_features_are_refused() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    need!(e2fs::mke2fs(&image, 64 << 20, &["-t", "ext4"]));
    need!(e2fs::debugfs(&image, true, &["feature compression"]));
    refused(&[text(&image), text(&point)], 32, "feature compression");
    for feature in ["bigalloc", "casefold"] {
        std::fs::remove_file(&image).unwrap();
        need!(e2fs::mke2fs(&image, 64 << 20, &["-t", "ext4", "-O", feature]));
        let mount = Mount::new(&image, "").unwrap();
        let error = std::fs::write(mount.join("file"), "").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
        assert!(mount.join("lost+found").is_dir());
        mount.unmount();
        e2fs::assert_clean(&image);
    }
}

/// As a user with a name, which fusermount3 needs; skipped where users may not open `/dev/fuse`.
#[test]
fn users_may_mount_without_root() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let user = |args: &[&str]| {
        let who = ["--reuid", "65534", "--regid", "nogroup", "--clear-groups"];
        std::process::Command::new("setpriv").args(who).args(args).output().unwrap()
    };
    if !user(&["test", "-w", "/dev/fuse", "-a", "-u", "/usr/bin/fusermount3"]).status.success() {
        return nextent_testkit::Skip::missing("/dev/fuse and fusermount3 for users").note();
    }
    let made = run(&["mkfs", "-q", "-E", "root_owner=65534:65534", text(&image), "64m"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for path in [dir.path(), &image, &point] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    if !offers_rings() {
        let tool = env!("CARGO_BIN_EXE_nextent");
        let refused = user(&[tool, "mount", "-o", "io_uring", text(&image), text(&point)]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains("enable_uring"), "{stderr}");
    }
    let mounted = user(&[env!("CARGO_BIN_EXE_nextent"), "mount", text(&image), text(&point)]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let file = point.join("file");
    assert!(user(&["touch", text(&file)]).status.success());
    // Without allow_root, root may not enter.
    assert_eq!(std::fs::read(&file).unwrap_err().raw_os_error(), Some(libc::EACCES));
    wait_until("unmounted", || user(&["fusermount3", "-u", text(&point)]).status.success());
    let place = format!("{}:/file", text(&image));
    wait_until("closed", || run(&["ls", &place]).status.success());
    e2fs::assert_clean(&image);
}
