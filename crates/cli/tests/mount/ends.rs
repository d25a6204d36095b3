//! The end of mounts: umount of mounts that are also attached elsewhere, signals, killed servers.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, namespace, need};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Unmounts by the tool, which must end soon, and returns its output.
#[track_caller]
fn unmount(point: &Path) -> Output {
    let mut command = nextent();
    command.args(["umount", text(point)]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until("umount returns", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn unmounts(point: &Path) {
    wait_until("unmounted", || {
        let done = unmount(point);
        // Other programs look at mounts, too.
        let busy = String::from_utf8_lossy(&done.stderr).contains("busy");
        assert!(busy || done.status.success() && done.stderr.is_empty(), "{done:?}");
        done.status.success()
    });
}

#[track_caller]
fn send(signal: &str, pid: u32) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

#[test]
fn umount_returns_while_the_mount_is_bound_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let bound = dir.path().join("bound");
    std::fs::create_dir(&bound).unwrap();
    let mut mount = need!(Mount::new(&image, ""));
    let sub = mount.join("sub");
    std::fs::create_dir(&sub).unwrap();
    let bind = Command::new("mount").args(["--bind", text(&sub), text(&bound)]).status();
    assert!(bind.unwrap().success());
    unmounts(mount.path());
    assert!(!is_mounted(mount.path()));
    // The server still serves the other mount, whose end it waits for.
    std::fs::write(bound.join("file"), "text").unwrap();
    unmounts(&bound);
    e2fs::assert_clean(&image);
    assert!(mount.wait().success());
    assert_eq!(run(&["cat", &format!("{}:/sub/file", text(&image))]).stdout, b"text");
}

/// The server writes after the end of its mount. `umount` finds it by the mount's device number.
#[test]
fn umount_waits_for_the_server_whatever_its_source_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut mount = need!(Mount::new(&image, "fsname=a name"));
    wait_until("a report", || run(&["status", text(mount.path())]).status.success());
    std::fs::write(mount.join("file"), vec![7; 4 << 20]).unwrap();
    send("-STOP", mount.server());
    let mut umount = nextent().args(["umount", text(mount.path())]).spawn().unwrap();
    let mut early = None;
    wait_until("unmounted", || {
        early = umount.try_wait().unwrap();
        early.is_some() || !is_mounted(mount.path())
    });
    send("-CONT", mount.server());
    assert!(early.is_none_or(|status| !status.success()), "it did not wait");
    if early.is_some() {
        // Another program looked at the mount.
        unmounts(mount.path());
    }
    let ended = umount.wait().unwrap();
    assert!(early.is_some() || ended.success());
    assert!(mount.has_ended(), "umount returned before the server");
    assert!(mount.wait().success());
    e2fs::assert_clean(&image);
    let size = run(&["cat", &format!("{}:/file", text(&image))]).stdout.len();
    assert_eq!(size, 4 << 20);
}

/// A mount namespace that holds a copy of one mount, and of no other mount of the tool.
struct Namespace(Child);

impl Namespace {
    /// Detaches the copies of mounts that other tests want to unmount.
    const HOLD: &'static str = r#"
        while read -r _ _ _ _ point rest; do
            case "$rest" in *nextent*) [ "$point" = "$1" ] || umount -l "$point";; esac
        done < /proc/self/mountinfo
        echo ready; read -r _
        cat "$1/file"; echo more > "$1/other" 2> /dev/null; exit 0"#;

    fn new(point: &Path) -> Result<Self, Skip> {
        let mut command = namespace(Some(point));
        command.args(["bash", "-c", Self::HOLD, "bash"]);
        command.arg(point).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|_| Skip::missing("unshare"))?;
        let mut line = String::new();
        let mut output = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
        output.read_line(&mut line).unwrap();
        match line.as_str() {
            "ready\n" => Ok(Self(child)),
            _ => Err(Skip::missing("mount namespaces")),
        }
    }

    /// What the mount's file holds there. The namespace ends.
    fn contents(mut self) -> String {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut held = String::new();
        self.0.stdout.as_mut().unwrap().read_to_string(&mut held).unwrap();
        self.0.wait().unwrap();
        held
    }
}

#[test]
fn umount_returns_while_another_namespace_holds_the_mount() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut mount = need!(Mount::new(&image, ""));
    std::fs::write(mount.join("file"), "text").unwrap();
    let other = need!(Namespace::new(mount.path()));
    unmounts(mount.path());
    assert_eq!(other.contents(), "text");
    assert!(mount.wait().success());
    e2fs::assert_clean(&image);
    assert_eq!(run(&["cat", &format!("{}:/other", text(&image))]).stdout, b"more\n");
}

#[test]
fn a_signal_ends_the_server_of_an_idle_mount() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "64m");
        let mut mount = need!(Mount::new(&image, ""));
        std::fs::write(mount.join("file"), "text").unwrap();
        send(signal, mount.server());
        assert!(mount.wait().success());
        assert!(!is_mounted(mount.path()));
        e2fs::assert_clean(&image);
        assert_eq!(run(&["cat", &format!("{}:/file", text(&image))]).stdout, b"text");
    }
}

/// Changes the first byte of a file by a shared mapping, which stays.
#[allow(unsafe_code)]
fn change_mapped(file: &File, to: u8) -> *mut c_void {
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses, within the file. It is used only
    // within its length.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), 4096, both, MapFlags::SHARED, file, 0);
        let at = at.unwrap();
        at.cast::<u8>().write_volatile(to);
        at
    }
}

#[allow(unsafe_code)]
fn unmap(at: *mut c_void) {
    // SAFETY: a mapping of `change_mapped`, to which no reference exists.
    unsafe { rustix::mm::munmap(at, 4096).unwrap() }
}

#[test]
fn a_signal_ends_the_server_although_files_are_in_use() {
    for times in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "64m");
        let mut mount = need!(Mount::new(&image, ""));
        let open = |name| {
            let mut how = File::options();
            how.read(true).write(true).create(true).truncate(true).open(mount.join(name)).unwrap()
        };
        let (mapped, unlinked) = (open("mapped"), open("unlinked"));
        std::fs::remove_file(mount.join("unlinked")).unwrap();
        mapped.write_all_at(&[b'a'; 4096], 0).unwrap();
        unlinked.write_all_at(&[b'a'; 100_000], 0).unwrap();
        let at = change_mapped(&mapped, b'b');
        for _ in 0..times {
            send("-TERM", mount.server());
        }
        assert!(mount.wait().success());
        assert!(!is_mounted(mount.path()));
        assert!(unlinked.write_at(b"late", 0).is_err());
        unmap(at);
        drop((mapped, unlinked));
        e2fs::assert_clean(&image);
        let read = run(&["cat", &format!("{}:/mapped", text(&image))]).stdout;
        assert!(read.len() == 4096 && read.starts_with(b"ba"), "{times}: {:?}", read.first());
    }
}

#[test]
fn a_signal_ends_the_server_of_a_mount_that_is_bound_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let bound = dir.path().join("bound");
    std::fs::create_dir(&bound).unwrap();
    let mut mount = need!(Mount::new(&image, ""));
    let bind = Command::new("mount").args(["--bind", text(mount.path()), text(&bound)]).status();
    assert!(bind.unwrap().success());
    std::fs::write(bound.join("file"), "text").unwrap();
    send("-TERM", mount.server());
    let status = mount.wait();
    let left = unmount(&bound);
    assert!(status.success() && left.status.success(), "{status} {left:?}");
    e2fs::assert_clean(&image);
    assert_eq!(run(&["cat", &format!("{}:/file", text(&image))]).stdout, b"text");
}

#[test]
fn a_signal_does_not_unmount_another_mount_at_the_same_point() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut mount = need!(Mount::new(&image, ""));
    let over = ["-t", "tmpfs", "none", text(mount.path())];
    assert!(Command::new("mount").args(over).status().unwrap().success());
    std::fs::write(mount.join("above"), "").unwrap();
    send("-TERM", mount.server());
    assert!(mount.wait().success());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(std::fs::metadata(mount.join("above")).is_ok(), "{}: {mounts}", text(mount.path()));
    for _ in 0..2 {
        assert!(Command::new("umount").arg(mount.path()).status().unwrap().success());
    }
    e2fs::assert_clean(&image);
}

#[test]
fn the_mount_of_a_killed_server_can_be_unmounted() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut mount = need!(Mount::new(&image, ""));
    let file = File::create(mount.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    send("-KILL", mount.server());
    mount.wait();
    assert!(is_mounted(mount.path()));
    unmounts(mount.path());
    assert!(!is_mounted(mount.path()));
    let replayed = run(&["replay", text(&image)]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    e2fs::assert_clean(&image);
}

/// Runs in its own mount namespace, where users may open `/dev/fuse`: mounts as a user, opens a
/// file there and one that it removes, ends the server by a signal. With control files, which are
/// `shown` or `hidden`, the server can abort the connection.
const MOUNTED_BY_A_USER: &str = r#"
set -u
[ -u "$(command -v fusermount3)" ] || exit 77
mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse || exit 77
umount /sys/fs/fuse/connections 2> /dev/null
[ "$2" = hidden ] || mount -t fusectl none /sys/fs/fuse/connections || exit 77
chmod 755 .; mkdir m; chown 65534 m image; mkfifo held end; chmod 666 held end
as() { exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
as "$N" mount -f -o "$1" "$PWD/image" "$PWD/m" & server=$!
for i in $(seq 1000); do grep -q " $PWD/m fuse" /proc/mounts && break; sleep .05; done
as bash -c 'exec 5> m/file; echo text >&5; exec 6> m/removed; head -c 1000000 /dev/zero >&6
    rm m/removed; echo > held; read < end' & holder=$!
read < held
kill -TERM $server; wait $server; code=$?
echo > end; wait $holder
! grep -q " $PWD/m fuse" /proc/mounts && exit $code
"#;

#[test]
fn a_signal_ends_a_users_server_although_files_are_in_use() {
    let _offered = need!(can_mount());
    for control in ["shown", "hidden"] {
        need!(signal_to_a_users_server(control));
    }
}

fn signal_to_a_users_server(control: &str) -> Result<(), Skip> {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    assert!(run(&["chmod", "777", &format!("{}:/", text(&image))]).status.success());
    let transport = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    let mut command = namespace(None);
    command.args(["bash", "-c", MOUNTED_BY_A_USER, "bash", transport, control]);
    command.current_dir(dir.path()).env("N", env!("CARGO_BIN_EXE_nextent"));
    let done = command.output().unwrap();
    if done.status.code() == Some(77) {
        return Err(Skip::missing("mounts by users"));
    }
    assert!(done.status.success(), "{control}: {done:?}");
    e2fs::assert_clean(&image);
    assert_eq!(run(&["cat", &format!("{}:/file", text(&image))]).stdout, b"text\n");
    Ok(())
}

#[test]
fn a_mount_waits_for_the_server_of_the_last_one() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let device = need!(crate::BLOCKS.then(|| LoopDevice::attach(&image)).transpose());
    let source = device.as_ref().map_or(image.as_path(), |device| &device.0);
    let point = dir.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let transport = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    for round in 0..20 {
        let mounted = run(&["mount", "-o", transport, text(source), text(&point)]);
        assert!(mounted.status.success(), "{round}: {mounted:?}");
        std::fs::write(point.join(format!("file{round}")), vec![7; 1 << 20]).unwrap();
        wait_until("unmounted", || {
            Command::new("umount").arg(&point).output().unwrap().status.success()
        });
    }
    // The last server may still write.
    let info = || run(&["replay", text(source)]).status.success();
    wait_until("closed", info);
    e2fs::assert_clean(&image);
}

/// Whether the kernel says which connection a server has open.
fn names_its_connection(server: u32) -> bool {
    let mut entries = std::fs::read_dir(format!("/proc/{server}/fdinfo")).unwrap();
    entries.any(|entry| {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        text.contains("fuse_connection:")
    })
}

/// A server of a loop device has the image locked, under another name.
#[test]
fn a_mount_does_not_wait_for_a_mount_through_a_loop_device_or_under_another_name() {
    for (through_loop, options) in [(true, ""), (false, "fsname=name")] {
        let dir = tempfile::tempdir().unwrap();
        let image = mkfs(dir.path(), "64m");
        let device = need!(through_loop.then(|| LoopDevice::attach(&image)).transpose());
        let source = device.as_ref().map_or(image.as_path(), |device| &device.0);
        let mount = need!(Mount::new(source, options));
        if !through_loop && !names_its_connection(mount.server()) {
            mount.unmount();
            return Skip::missing("the number of a FUSE connection (Linux 6.16)").note();
        }
        let point = dir.path().join("point");
        std::fs::create_dir(&point).unwrap();
        let refused = run(&["mount", text(&image), text(&point)]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        mount.unmount();
        assert!(said.contains("mounted on") && said.lines().count() == 1, "{said}");
        assert_eq!(refused.status.code(), Some(32));
        e2fs::assert_clean(&image);
    }
}

#[test]
fn a_mount_does_not_wait_for_a_mount() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let device = need!(crate::BLOCKS.then(|| LoopDevice::attach(&image)).transpose());
    let source = device.as_ref().map_or(image.as_path(), |device| &device.0);
    let mount = need!(Mount::new(source, ""));
    let point = dir.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let refused = run(&["mount", text(source), text(&point)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("mounted on") && said.lines().count() == 1, "{said}");
    assert_eq!(refused.status.code(), Some(32));
    mount.unmount();
    e2fs::assert_clean(&image);
}
