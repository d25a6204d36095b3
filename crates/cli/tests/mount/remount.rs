//! `mount -o remount` of a served mount: by the command, and by mount(8) with its helper.

use crate::support::*;
use nextent_device::{FileDevice, FileOptions};
use nextent_testkit::{Skip, e2fs, namespace, need};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// The flags that the kernel shows for a mount.
fn shown(mount: &Mount) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(text(mount.path())));
    line.unwrap().split(' ').nth(5).unwrap().to_owned()
}

/// Checks that the image is clean as it is now. Another process may write a mounted one.
#[track_caller]
fn assert_clean_now(image: &Path, dir: &Path) {
    let copy = dir.join("copy");
    fs::copy(image, &copy).unwrap();
    e2fs::assert_clean(&copy);
    let superblock = need!(e2fs::dumpe2fs(&copy, true));
    assert!(!superblock.contains("needs_recovery"), "{superblock}");
    assert!(superblock.contains("Filesystem state:         clean\n"), "{superblock}");
}

fn error_of<T: std::fmt::Debug>(done: std::io::Result<T>) -> i32 {
    done.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "nodev,commit=9"));
    let file = mount.join("file");
    for round in 0..3 {
        fs::write(&file, format!("round {round}")).unwrap();
        remount(&mount, "ro").unwrap();
        assert!(shown(&mount).starts_with("ro,"), "{}", shown(&mount));
        assert!(shown(&mount).contains("nodev"), "{}", shown(&mount));
        assert_clean_now(&image, dir.path());
        assert_eq!(error_of(fs::write(&file, "refused")), libc::EROFS);
        assert_eq!(error_of(fs::create_dir(mount.join("dir"))), libc::EROFS);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("round {round}"));
        File::open(&file).unwrap().sync_all().unwrap();
        // A second time, and with words that are in effect.
        remount(&mount, "ro,commit=9").unwrap();
        remount(&mount, "rw").unwrap();
        assert!(shown(&mount).starts_with("rw,"), "{}", shown(&mount));
    }
    fs::write(mount.join("last"), "text").unwrap();
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// The kernel refuses while a file is open for writing, or is open and has no name. The mount then
/// stays writable.
#[test]
fn files_in_use_keep_a_mount_writable() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let name = mount.join("file");
    let open = File::create(&name).unwrap();
    let why = try_remount(&mount, "ro").unwrap_err();
    assert!(why.contains("open for writing"), "{why}");
    drop(open);
    let open = File::open(&name).unwrap();
    fs::remove_file(&name).unwrap();
    let why = try_remount(&mount, "ro").unwrap_err();
    assert!(why.contains("deleted"), "{why}");
    fs::write(&name, "text").unwrap();
    drop(open);
    remount(&mount, "ro").unwrap();
    assert_clean_now(&image, dir.path());
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// A killed server leaves a clean image if its mount is read-only, and else one that e2fsck
/// recovers.
#[test]
fn a_killed_server_leaves_what_the_remount_promised() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    for writable in [false, true] {
        let mount = need!(Mount::new(&image, ""));
        let name = format!("file-{writable}");
        fs::write(mount.join(&name), "text").unwrap();
        remount(&mount, "ro").unwrap();
        if writable {
            remount(&mount, "rw").unwrap();
            fs::write(mount.join("more"), "text").unwrap();
            File::open(mount.join("more")).unwrap().sync_all().unwrap();
        }
        mount.kill();
        if writable {
            let report = need!(e2fs::e2fsck_recover(&image));
            assert!(report.code < 4, "{}", report.text);
        }
        assert_clean_now(&image, dir.path());
    }
    for name in ["file-false", "file-true", "more"] {
        let read = run(&["cat", &format!("{}:/{name}", text(&image))]);
        assert_eq!(read.stdout, b"text", "{name}");
    }
}

#[test]
fn options_change_or_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "relatime"));
    let file = mount.join("file");
    fs::write(&file, "text").unwrap();
    remount(&mount, "noatime,noexec,errors=remount-ro,discard,log_level=error").unwrap();
    for word in ["noatime", "noexec"] {
        assert!(shown(&mount).split(',').any(|shown| shown == word), "{}", shown(&mount));
    }
    remount(&mount, "relatime,exec,nodiscard").unwrap();
    assert!(!shown(&mount).contains("noexec"), "{}", shown(&mount));
    for (words, named) in [
        ("ro,commit=7", "`commit`"),
        ("cache_size=9m", "`cache_size`"),
        ("strictatime", "`strictatime`"),
        ("blub", "`blub`"),
        ("errors=never", "`errors=never`"),
    ] {
        let why = remount(&mount, words).unwrap_err();
        assert!(why.contains(named) && why.lines().count() == 1, "{words}: {why}");
        assert!(shown(&mount).starts_with("rw,"), "{words} changed the mount");
    }
    fs::write(&file, "still writable").unwrap();
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// By `noatime`, reads do not change access times; by `relatime`, the first one does.
#[test]
fn access_times_follow_a_remount() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "noatime"));
    let file = mount.join("file");
    fs::write(&file, "text").unwrap();
    let old = File::options().write(true).open(&file).unwrap();
    let times = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
    old.set_times(times).unwrap();
    drop(old);
    fs::read(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().atime(), 0);
    remount(&mount, "relatime").unwrap();
    fs::read(&file).unwrap();
    wait_until("the access time changes", || fs::metadata(&file).unwrap().atime() != 0);
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn other_directories_and_other_users_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["mount", "-o", "remount,ro", text(dir.path())]);
    assert_eq!(output.status.code(), Some(32));
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("not a mount point of nextent"), "{why}");

    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "allow_other"));
    let tool = dir.path().join("nextent");
    fs::copy(env!("CARGO_BIN_EXE_nextent"), &tool).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(4242), Some(4242)).unwrap();
    let who = ["--reuid", "4242", "--regid", "4242", "--clear-groups"];
    let args = [text(&tool), "mount", "-o", "remount,ro", text(mount.path())];
    let output = Command::new("setpriv").args(who).args(args).output().unwrap();
    assert!(!output.status.success(), "a user has remounted root's mount");
    fs::write(mount.join("file"), "text").unwrap();
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn a_mount_of_an_image_opened_read_only_becomes_writable() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "ro"));
    // A server that answers requests has its socket.
    assert!(fs::read_dir(mount.path()).unwrap().next().is_some());
    remount(&mount, "ro").unwrap();
    assert_eq!(error_of(fs::write(mount.path().join("file"), "text")), libc::EROFS);
    // Another reader keeps the mount read-only.
    let reader = FileDevice::open(&image, &FileOptions::new().read_only(true)).unwrap();
    let why = remount(&mount, "rw").unwrap_err();
    assert!(why.contains("in use"), "{why}");
    assert!(shown(&mount).starts_with("ro,"), "{}", shown(&mount));
    drop(reader);
    remount(&mount, "rw").unwrap();
    assert!(shown(&mount).starts_with("rw,"), "{}", shown(&mount));
    fs::write(mount.path().join("file"), "text").unwrap();
    assert!(FileDevice::open(&image, &FileOptions::new().read_only(true)).is_err(), "not locked");
    remount(&mount, "ro").unwrap();
    assert_clean_now(&image, dir.path());
    remount(&mount, "rw").unwrap();
    mount.unmount();
    e2fs::assert_clean(&image);
    let kept = run(&["cat", &format!("{}:/file", text(&image))]);
    assert_eq!(kept.stdout, b"text");
}

/// Runs in its own namespace with only the helpers in /sbin.
const SCRIPT: &str = r#"
PATH=/usr/bin:/bin
fail() { echo "$*"; cat messages; exit 1; }
mount -t tmpfs none /usr/sbin || exit 77
[ /sbin -ef /usr/sbin ] || exit 77
for name in mount.fuse mount.fuseblk umount.fuse; do ln -s "$N" /usr/sbin/$name.nextent; done
mkdir -p m /run/mount; mount -t tmpfs none /run/mount || exit 77
shown() { grep " $PWD/m " /proc/self/mountinfo | cut -d ' ' -f 6; }
"$N" mount -o $TRANSPORT,nosuid "$IMAGE" m || exit 77
echo text > m/file
mount -o remount,ro "$PWD/m" > messages 2>&1 || fail "remount,ro"
[[ ",$(shown)," = *,ro,* ]] || fail "not read-only: $(shown)"
[[ ",$(shown)," = *,nosuid,* ]] || fail "not nosuid: $(shown)"
"$N" status --json m | grep -q '"read_only": true' || fail "the volume is not read-only"
touch m/file 2> /dev/null && fail "a file was changed"
cp "$IMAGE" copy
mount -o remount,rw "$PWD/m" > messages 2>&1 || fail "remount,rw"
echo more > m/file || fail "not writable"
exec 3>> m/file
mount -o remount,ro "$PWD/m" > messages 2>&1 && fail "read-only with a file open for writing"
exec 3>&-
mount -o remount,commit=7 "$PWD/m" > messages 2>&1 && fail "commit was changed"
grep -q '`commit`' messages || fail "commit is not named"
umount m || fail umount
until "$N" replay "$IMAGE" > /dev/null 2>&1; do sleep .05; done
"#;

#[test]
fn mount_8_remounts_by_the_helper() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let device = match crate::BLOCKS {
        true => Some(need!(LoopDevice::attach(&image))),
        false => None,
    };
    let source = device.as_ref().map_or(&image, |device| &device.0);
    let transport = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    let mut command = namespace(None);
    command.args(["bash", "-c", SCRIPT]).current_dir(dir.path());
    command.env("N", env!("CARGO_BIN_EXE_nextent")).env("TRANSPORT", transport);
    let done = command.env("IMAGE", source).output().unwrap();
    if done.status.code() == Some(77) {
        return Skip::missing("mount(8) with helpers in /sbin").note();
    }
    let said = [&done.stdout[..], &done.stderr[..]].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    drop(device);
    e2fs::assert_clean(&image);
    e2fs::assert_clean(&dir.path().join("copy"));
}
