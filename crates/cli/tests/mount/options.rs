//! The effects of `-o`, and notifications of systemd and mount(8).

use crate::support::*;
use nextent_testkit::{Skip, e2fs, namespace, need};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Runs a command as an unprivileged user.
fn as_user(args: &[&str]) -> bool {
    let who = ["--reuid", "4242", "--regid", "4242", "--clear-groups"];
    Command::new("setpriv").args(who).args(args).output().unwrap().status.success()
}

#[test]
fn only_fakeroot_gives_every_user_all_rights() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    for (options, may) in [("allow_other", false), ("allow_other,fakeroot", true)] {
        let mount = need!(Mount::new(&image, options));
        std::fs::set_permissions(mount.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let file = mount.join("theirs");
        std::fs::write(&file, "text").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(as_user(&["cat", text(&file)]), may);
        assert_eq!(as_user(&["chown", "4242", text(&file)]), may);
        assert_eq!(as_user(&["mkdir", text(&mount.join("d"))]), may);
        mount.unmount();
    }
    e2fs::assert_clean(&image);
}

/// Bytes of a file in the kernel's cache.
fn cached(file: &Path) -> u64 {
    let args = ["--bytes", "--noheadings", "--output", "RES", text(file)];
    let output = Command::new("fincore").args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Maps a file of 8 KiB shared, and changes its first byte.
#[allow(unsafe_code)]
fn change_mapped(file: &Path, to: u8) {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses, within the file. It is used only
    // within its length and before it is unmapped.
    unsafe {
        let at = mmap(std::ptr::null_mut(), 8192, both, MapFlags::SHARED, &file, 0).unwrap();
        at.cast::<u8>().write_volatile(to);
        msync(at, 8192, MsyncFlags::SYNC).unwrap();
        munmap(at, 8192).unwrap();
    }
}

#[test]
fn the_kernel_caches_contents_except_with_direct_io() {
    let found = Command::new("fincore").arg("--version").output();
    need!(found.map_err(|_| Skip::missing("fincore")));
    need!(with_each(&["", "direct_io"], "64m", |mount, options| {
        let file = mount.join("file");
        std::fs::write(&file, vec![3; 1 << 20]).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), vec![3; 1 << 20]);
        assert_eq!(cached(&file) > 0, options.is_empty(), "{options}");
        // Mapped pages and reads and writes see the same contents.
        change_mapped(&file, 4);
        assert_eq!(std::fs::read(&file).unwrap()[..2], [4, 3]);
        let other = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        other.write_all_at(&[5; 3], 1).unwrap();
        drop(other);
        change_mapped(&file, 6);
        assert_eq!(std::fs::read(&file).unwrap()[..5], [6, 5, 5, 5, 3]);
    }));
}

#[test]
fn df_counts_by_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mut blocks = Vec::new();
    for options in ["ro,minixdf", "ro", "ro,minixdf,bsddf"] {
        let mount = need!(Mount::new(&image, options));
        blocks.push(rustix::fs::statvfs(mount.path()).unwrap().f_blocks);
        mount.unmount();
    }
    assert_eq!(blocks[0], 64 << 8);
    assert!(blocks[1] < blocks[0] && blocks[1] == blocks[2], "{blocks:?}");
}

#[test]
fn a_file_system_at_an_offset_is_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let disk = dir.path().join("disk");
    let mut whole = vec![7; 1 << 20];
    whole.extend(std::fs::read(&image).unwrap());
    std::fs::write(&disk, &whole).unwrap();
    let mount = need!(Mount::new(&disk, "offset=1m"));
    std::fs::write(mount.join("file"), "text").unwrap();
    mount.unmount();
    let again = Mount::new(&disk, "ro,offset=1048576").unwrap();
    assert_eq!(std::fs::read(again.join("file")).unwrap(), b"text");
    again.unmount();
    let whole = std::fs::read(&disk).unwrap();
    assert!(whole[..1 << 20].iter().all(|byte| *byte == 7));
    std::fs::write(&image, &whole[1 << 20..]).unwrap();
    e2fs::assert_clean(&image);
}

#[test]
fn the_journal_is_ignored_or_replayed_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let file = std::fs::File::create(mount.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mount.kill();
    let before = std::fs::read(&image).unwrap();
    for (options, seen) in [("norecovery", false), ("ro", true)] {
        let mount = Mount::new(&image, options).unwrap();
        assert_eq!(mount.join("file").exists(), seen, "{options}");
        let error = std::fs::write(mount.join("other"), "").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
        mount.unmount();
        assert!(std::fs::read(&image).unwrap() == before, "{options} has changed the image");
    }
    Mount::new(&image, "").unwrap().unmount();
    e2fs::assert_clean(&image);
}

#[test]
fn systemd_is_notified() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let socket = dir.path().join("notify");
    let notified = UnixDatagram::bind(&socket).unwrap();
    notified.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut buf = [0; 100];
        let n = notified.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };
    let mut command = nextent();
    command.args(["mount", "-f", text(&image), text(&point)]).env("NOTIFY_SOCKET", &socket);
    let mut server = command.spawn().unwrap();
    assert_eq!(next(), "READY=1\n");
    assert!(is_mounted(&point));
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    assert_eq!(next(), "STOPPING=1\n");
    assert!(server.wait().unwrap().success());
    e2fs::assert_clean(&image);
}

/// Runs the program by a helper's name; the exit code and the number of error lines.
fn helper(name: &str, args: &[&str]) -> (Option<i32>, usize) {
    let output = nextent().arg0(name).args(args).output().unwrap();
    let lines = String::from_utf8_lossy(&output.stderr).lines().count();
    (output.status.code(), lines)
}

#[test]
fn mount_and_umount_can_call_the_helpers() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let mount = |more: &[&str]| {
        let args = [&[text(&image), text(&point)], more].concat();
        helper("/sbin/mount.fuse.nextent", &args)
    };
    let unmount = |args: &[&str]| helper("/sbin/umount.fuse.nextent", args);
    // `mount -f` mounts nothing; `mount -s` ignores unknown options.
    assert_eq!(mount(&["-fv", "-o", "rw"]), (Some(0), 0));
    assert!(!is_mounted(&point));
    assert_eq!(mount(&["-o", "blub"]), (Some(1), 1));
    assert_eq!(mount(&["-s", "-o", "blub"]), (Some(0), 0));
    assert!(is_mounted(&point));
    let busy = std::fs::File::create(point.join("file")).unwrap();
    assert_eq!(unmount(&[text(&point)]), (Some(32), 1));
    drop(busy);
    wait_until("unmounted", || unmount(&[text(&point)]) == (Some(0), 0));
    // All data is durable when it returns.
    e2fs::assert_clean(&image);
    assert_eq!(unmount(&[]), (Some(1), 1));
    assert_eq!(unmount(&[text(Path::new("/nowhere"))]), (Some(32), 1));
}

#[test]
fn the_kernel_reads_a_whole_request_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let device = std::fs::metadata(mount.path()).unwrap().dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    assert_eq!(std::fs::read_to_string(place).unwrap().trim(), "1024");
    mount.unmount();
    e2fs::assert_clean(&image);
}

/// Runs in its own namespace with only the helper in /sbin: mounts, makes files, unmounts, and
/// copies the image at once.
const MOUNT_AND_UNMOUNT: &str = r#"
set -e
PATH=/usr/bin:/bin
mount -t tmpfs none /usr/sbin
ln -s "$1" /usr/sbin/umount.fuse.nextent
mkdir -p /run/mount
mount -t tmpfs none /run/mount
"$1" mount "$2" "$3" -o "$4"
for i in $(seq 300); do echo "$i" > "$3/$i"; done
grep -q " TARGET=$3 .*uhelper=fuse.nextent" /run/mount/utab
umount "$3"
cp "$2" "$2.copy"
! grep -q "TARGET=$3 " /run/mount/utab
"$1" mount "$2" "$3" -o "$4"
umount -i "$3"
until "$1" info "$2" > /dev/null 2>&1; do sleep 0.05; done
! grep -q "TARGET=$3 " /run/mount/utab
"#;

#[test]
fn umount_returns_when_the_image_is_closed() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (mkfs(dir.path(), "64m"), dir.path().join("point"));
    std::fs::create_dir(&point).unwrap();
    let how = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    let tool = env!("CARGO_BIN_EXE_nextent");
    let mut command = namespace(None);
    command.args(["sh", "-c", MOUNT_AND_UNMOUNT, "sh", tool]);
    let status = command.args([text(&image), text(&point), how]).status().unwrap();
    assert!(status.success(), "{status}");
    e2fs::assert_clean(&dir.path().join("image.copy"));
    e2fs::assert_clean(&image);
}
