//! Failing devices, read-only devices, and killed clients.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, namespace, need};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn works(tool: &str, args: &[&str]) -> bool {
    Command::new(tool).args(args).output().is_ok_and(|output| output.status.success())
}

/// A file system of the host that is full before the image on it is.
struct SmallHost(tempfile::TempDir);

impl SmallHost {
    fn new() -> Result<Self, Skip> {
        can_mount()?;
        let dir = tempfile::tempdir().unwrap();
        let args = ["-t", "tmpfs", "-o", "size=24m", "tmpfs", text(dir.path())];
        if works("mount", &args) { Ok(Self(dir)) } else { Err(Skip::missing("tmpfs")) }
    }

    /// Adds space.
    fn grow(&self) {
        assert!(works("mount", &["-o", "remount,size=400m", text(self.0.path())]));
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        works("umount", &["-l", text(self.0.path())]);
    }
}

/// Writes files until that fails; the error number.
fn fill(top: &Path, worker: usize) -> Option<i32> {
    for n in 0..400 {
        let written = File::create(top.join(format!("w{worker}-{n}"))).and_then(|mut file| {
            file.write_all(&vec![n as u8; 300_000])?;
            file.sync_all()
        });
        if let Err(error) = written {
            return error.raw_os_error();
        }
    }
    panic!("the device does not fail");
}

#[test]
fn a_device_may_fail_under_load() {
    for errors in ["continue", "remount-ro", "panic"] {
        let host = need!(SmallHost::new());
        let image = mkfs(host.0.path(), "200m");
        let mut mount = need!(Mount::new(&image, &format!("errors={errors}")));
        std::fs::write(mount.join("before"), "text").unwrap();
        let first: Vec<_> = std::thread::scope(|scope| {
            let top = mount.path();
            let started: Vec<_> = (0..3).map(|n| scope.spawn(move || fill(top, n))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // A client that syncs while the journal stops gets EIO. Later clients, and later writes by
        // the host's kernel, get EROFS.
        let known = [Some(libc::EIO), Some(libc::EROFS)];
        assert!(first.iter().all(|error| known.contains(error)), "{errors}: {first:?}");
        // Reads still work, and so does unmounting.
        assert_eq!(std::fs::read(mount.join("before")).unwrap(), b"text");
        let point = mount.path().to_owned();
        wait_until("unmounted", || works("umount", &[text(&point)]));
        mount.wait();
        drop(mount);
        host.grow();
        let replayed = run(&["replay", text(&image)]);
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
        let after = Mount::new(&image, "ro").unwrap();
        assert!(std::fs::read_dir(after.path()).unwrap().count() > 2);
        after.unmount();
        e2fs::assert_clean(&image);
    }
}

/// A read-only loop device.
struct ReadOnlyLoop(PathBuf);

impl ReadOnlyLoop {
    fn new(image: &Path) -> Result<Self, Skip> {
        let made = Command::new("losetup").args(["-r", "-f", "--show", text(image)]).output();
        let made = made.ok().filter(|made| made.status.success());
        let made = made.ok_or(Skip::missing("loop devices"))?;
        Ok(Self(String::from_utf8_lossy(&made.stdout).trim().into()))
    }
}

impl Drop for ReadOnlyLoop {
    fn drop(&mut self) {
        works("losetup", &["-d", text(&self.0)]);
    }
}

#[test]
fn a_read_only_device_is_mounted_read_only() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let full = Mount::new(&image, "").unwrap();
    std::fs::write(full.join("file"), "text").unwrap();
    full.unmount();
    let device = need!(ReadOnlyLoop::new(&image));
    let mount = Mount::new(&device.0, "").unwrap();
    assert_eq!(std::fs::read(mount.join("file")).unwrap(), b"text");
    let error = std::fs::write(mount.join("other"), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    mount.unmount();
    drop(device);
    e2fs::assert_clean(&image);
}

#[test]
fn without_fuse_the_message_names_the_module() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    // An empty /dev for this command only.
    let script = "mount -t tmpfs tmpfs /dev && exec \"$@\"";
    let mut command = namespace(None);
    command.args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_nextent"), "mount", "-f"]);
    let output = command.args([&image, &point]).stdin(Stdio::null()).output().unwrap();
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.lines().count() == 1 && line.contains("modprobe fuse"), "{line}");
    e2fs::assert_clean(&image);
}

#[test]
fn clients_that_are_killed_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "200m");
    let mount = need!(Mount::new(&image, ""));
    let free = || {
        rustix::fs::sync();
        let stat = rustix::fs::statvfs(mount.path()).unwrap();
        (stat.f_bfree, stat.f_ffree)
    };
    std::fs::create_dir(mount.join("work")).unwrap();
    let before = free();
    // Growing files without names, files that are made and removed, and a lock.
    let script = "cd \"$0\"; exec 9>gone$$; rm gone$$; while :; do \
        head -c 700000 /dev/zero >&9; head -c 9999 /dev/zero >a$$; mv a$$ b$$; rm b$$; done";
    for round in 0..8 {
        let mut clients: Vec<_> = (0..4)
            .map(|_| {
                let work = mount.join("work");
                Command::new("sh").args(["-c", script]).arg(work).spawn().unwrap()
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(40 + 23 * round));
        for client in &mut clients {
            client.kill().unwrap();
            client.wait().unwrap();
        }
    }
    // Files that had a name when their client was killed keep it.
    wait_until("the clients' children have ended", || {
        // The children may still make files there.
        if std::fs::remove_dir_all(mount.join("work")).is_err() {
            return false;
        }
        std::fs::create_dir(mount.join("work")).unwrap();
        free() == before
    });
    // Later clients are served.
    let file = File::create(mount.join("after")).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn a_mount_may_be_unmounted_by_force() {
    taken_away("umount");
    // The helper of umount(8).
    let dir = tempfile::tempdir().unwrap();
    let helper = dir.path().join("umount.fuse.nextent");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nextent"), &helper).unwrap();
    taken_away(text(&helper));
}

fn taken_away(unmount: &str) {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut mount = need!(Mount::new(&image, ""));
    let mut file = File::create(mount.join("file")).unwrap();
    file.write_all(b"text").unwrap();
    file.sync_all().unwrap();
    assert!(works(unmount, &[text(mount.path()), "-f", "-l"]));
    // The file is still open, and no server answers.
    let status = mount.wait();
    assert!(status.success(), "{status}");
    assert!(file.write_all(b"more").and_then(|()| file.sync_all()).is_err());
    drop(file);
    e2fs::assert_clean(&image);
    assert_eq!(run(&["cat", &format!("{}:/file", text(&image))]).stdout, b"text");
}

/// Clients on cores that the server may not use are served, too.
#[test]
fn a_server_may_be_kept_on_one_core() {
    let _offered = need!(can_mount());
    if !works("taskset", &["-c", "1", "true"]) {
        return Skip::missing("a second core").note();
    }
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_nextent")]);
    let mount = need!(Mount::by(command, &image, ""));
    for core in ["0", "1", "0", "1"] {
        let file = mount.join(core);
        assert!(works("taskset", &["-c", core, "sh", "-c", "echo x >> \"$0\"", text(&file)]));
    }
    assert_eq!(std::fs::read(mount.join("1")).unwrap(), b"x\nx\n");
    mount.unmount();
    e2fs::assert_clean(&image);
}
