//! The program as fuse2fs: command lines of apptainer and of users.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use rustix::io::FdFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A link to the program with the name of fuse2fs.
fn link(dir: &Path) -> PathBuf {
    let link = dir.join("fuse2fs");
    let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nextent"), &link);
    link
}

fn fuse2fs(dir: &Path) -> Command {
    let mut command = Command::new(link(dir));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the mount at `point`; returns the server's output if it has ended instead.
fn mounted(mut server: Child, point: &Path) -> Result<Child, Output> {
    let mut ended = false;
    wait_until("mounted", || {
        ended = server.try_wait().unwrap().is_some();
        ended || is_mounted(point)
    });
    if ended { Err(server.wait_with_output().unwrap()) } else { Ok(server) }
}

/// Ends a server as apptainer does; it must have been quiet.
#[track_caller]
fn terminated(server: Child) {
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = server.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    assert!(output.stdout.is_empty());
}

/// A directory with an image that has a file, and a mount point.
fn world() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    let file = format!("{}:/file", text(&image));
    assert!(run(&["cp", "/etc/passwd", &file]).status.success());
    let point = dir.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let point = point.canonicalize().unwrap();
    (dir, image, point)
}

fn has_file(point: &Path) -> bool {
    let expected = std::fs::read("/etc/passwd").unwrap();
    std::fs::read(point.join("file")).is_ok_and(|found| found == expected)
}

#[test]
fn command_lines_of_apptainer() {
    let _offered = need!(can_mount());
    for options in ["allow_other", "allow_other,ro", "allow_other,fakeroot"] {
        let (dir, image, point) = world();
        let mut command = fuse2fs(dir.path());
        command.args(["-f", "-o", options, text(&image), text(&point)]);
        let server = mounted(command.spawn().unwrap(), &point).expect("it mounts");
        assert!(has_file(&point), "{options}");
        let written = std::fs::write(point.join("new"), "text");
        assert_eq!(written.is_ok(), !options.contains("ro") || options.contains("root"));
        terminated(server);
        assert!(!is_mounted(&point));
        e2fs::assert_clean(&image);
        let new = run(&["cat", &format!("{}:/new", text(&image))]);
        assert_eq!(new.status.success(), written.is_ok(), "{options}");
    }
}

/// Also if the path behind the descriptor leads nowhere.
#[test]
fn the_image_is_an_open_descriptor() {
    let _offered = need!(can_mount());
    for remove in ["true", "mv image other"] {
        let (dir, _, point) = world();
        let line = format!(
            "exec 3<>image; {remove}; exec {} -f -o ro /proc/self/fd/3 point",
            text(&link(dir.path()))
        );
        let mut command = Command::new("bash");
        command.args(["-c", &line]).current_dir(dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = mounted(command.spawn().unwrap(), &point).expect("it mounts");
        assert!(has_file(&point), "{remove}");
        terminated(server);
    }
}

#[test]
fn a_removed_image_is_an_open_descriptor() {
    let _offered = need!(can_mount());
    let (dir, _, point) = world();
    let line = format!(
        "exec 3<>image; rm image; exec {} -f /proc/self/fd/3 point",
        text(&link(dir.path()))
    );
    let mut command = Command::new("bash");
    command.args(["-c", &line]).current_dir(dir.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = mounted(command.spawn().unwrap(), &point).expect("it mounts");
    assert!(has_file(&point));
    terminated(server);
}

#[test]
fn the_environment_gives_the_start_of_a_partition() {
    let _offered = need!(can_mount());
    let (dir, image, point) = world();
    let whole = dir.path().join("whole");
    let mut bytes = vec![b'x'; 5 << 20];
    bytes.extend(std::fs::read(&image).unwrap());
    std::fs::write(&whole, bytes).unwrap();
    let mut command = fuse2fs(dir.path());
    command.env("OFFSETPRELOAD_FILE", &whole).env("OFFSETPRELOAD_OFFSET", "5242880");
    command.args(["-f", "-o", "ro", text(&whole), text(&point)]);
    let server = mounted(command.spawn().unwrap(), &point).expect("it mounts");
    assert!(has_file(&point));
    terminated(server);
    // The offset is that of another file.
    let mut command = fuse2fs(dir.path());
    command.env("OFFSETPRELOAD_FILE", &image).env("OFFSETPRELOAD_OFFSET", "5242880");
    command.args(["-f", "-o", "ro", text(&whole), text(&point)]);
    assert!(mounted(command.spawn().unwrap(), &point).is_err());
}

/// apptainer's setuid mode mounts first, and passes the open `/dev/fuse`.
#[test]
fn the_mount_point_is_an_open_device() {
    let _offered = need!(can_mount());
    let (dir, image, point) = world();
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let number = device.as_raw_fd();
    let data = format!("fd={number},rootmode=40755,user_id=0,group_id=0,allow_other");
    let data = std::ffi::CString::new(data).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("fuse2fs", &point, "fuse", flags, Some(data.as_c_str())).unwrap();
    rustix::io::fcntl_setfd(&device, FdFlags::empty()).unwrap();
    let mut command = fuse2fs(dir.path());
    command.args(["-f", "-o", "allow_other", text(&image), &format!("/dev/fd/{number}")]);
    let server = command.spawn().unwrap();
    // From here on the server has the only descriptor.
    drop(device);
    assert!(has_file(&point));
    std::fs::write(point.join("new"), "text").unwrap();
    let synced = File::open(point.join("new")).unwrap();
    synced.sync_all().unwrap();
    drop(synced);
    terminated(server);
    rustix::mount::unmount(&point, UnmountFlags::DETACH).unwrap();
    e2fs::assert_clean(&image);
    assert_eq!(run(&["cat", &format!("{}:/new", text(&image))]).stdout, b"text");
}

/// apptainer holds such locks on the image while the server runs.
#[test]
fn a_caller_may_hold_a_lock_of_its_open_file() {
    let _offered = need!(can_mount());
    for (kind, options) in [("F_RDLCK", "ro"), ("F_WRLCK", "rw")] {
        let (dir, image, point) = world();
        let script = format!(
            "import fcntl, os, struct, sys\n\
             fd = os.open({image:?}, os.O_RDWR)\n\
             fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.{kind}, 0, 0, 0, 0))\n\
             if os.fork() == 0:\n    \
                 os.execv({link:?}, ['fuse2fs', '-f', '-o', '{options}', {image:?}, {point:?}])\n\
             os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n",
            image = text(&image),
            link = text(&link(dir.path())),
            point = text(&point),
        );
        let mut command = Command::new("python3");
        command.args(["-c", &script]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = need!(command.spawn().map_err(|_| Skip::missing("python3")));
        let server = match mounted(server, &point) {
            Ok(server) => server,
            Err(output) => panic!("{kind}: {}", String::from_utf8_lossy(&output.stderr)),
        };
        assert!(has_file(&point), "{kind}");
        let umount = Command::new("umount").arg(&point).output().unwrap();
        assert!(umount.status.success(), "{umount:?}");
        let output = server.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        e2fs::assert_clean(&image);
    }
}

#[test]
fn usage_version_background_and_refusals() {
    let (dir, image, point) = world();
    let said = |args: &[&str]| {
        let output = fuse2fs(dir.path()).args(args).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let version = said(&["-V"]);
    assert!(version.0 == 0 && version.1.starts_with("fuse2fs 1.47.0 (nextent "), "{version:?}");
    assert_eq!(said(&["--version"]), version);
    for help in ["-h", "--help", "--helpfull"] {
        let help = said(&[help]);
        assert!(help.0 == 1 && help.1.starts_with("usage: fuse2fs "), "{help:?}");
    }
    assert!(said(&[]).1.starts_with("Missing ext4 device/image\n"));
    assert!(said(&["a"]).1.starts_with("Missing mountpoint\n"));
    assert!(said(&["-x", "a", "b"]).1.contains("invalid option -- 'x'"));
    for word in ["lockfile=/x", "no_default_opts", "auto_unmount", "nouser_xattr", "subtype=x"] {
        let said = said(&["-o", word, text(&image), text(&point)]);
        let name = word.split('=').next().unwrap();
        assert!(said.0 == 1 && said.1.contains(&format!("`{name}` is not supported")), "{said:?}");
        assert!(said.1.starts_with("fuse2fs: "), "{said:?}");
    }
    let _offered = need!(can_mount());
    let tuning = "kernel,max_read=65536,oom_score_adj=-5,timing,noblock_validity,nodelalloc,\
        bsddf,acl,user_xattr,errors=continue,cache_size=16m,fuse2fs_debug";
    assert_eq!(said(&["-o", tuning, text(&image), text(&point)]), (0, String::new()));
    assert!(is_mounted(&point) && has_file(&point));
    let done = run(&["umount", text(&point)]);
    assert!(done.status.success(), "{done:?}");
    e2fs::assert_clean(&image);
}
