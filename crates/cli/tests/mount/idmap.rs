//! Idmapped bind mounts of a mount (`-o idmap`): users of files are mapped, both ways.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Whether the kernel maps users of FUSE mounts.
fn has_idmap() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(a)), Some(Ok(b))) if (a, b) >= (6, 12))
}

/// A process in a user namespace of its own.
struct Namespace(Child);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Namespace {
    /// Users and groups 0 to 4999 of the volume are 10000 to 14999 for callers.
    fn new() -> Self {
        let mut command = Command::new("unshare");
        let child = command.args(["-U", "sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
        let made = Self(child);
        let user = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user"));
        let own = user("self").unwrap();
        let process = made.0.id().to_string();
        wait_until("in a user namespace", || user(&process).is_ok_and(|found| found != own));
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{process}/{map}"), "0 10000 5000").unwrap();
        }
        made
    }

    /// A clone of the mount `at`, with this namespace's map.
    fn mapped(&self, at: &Path) -> io::Result<OwnedFd> {
        const IDMAP: u64 = 0x10_0000;
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        // The kernel answers when it has agreed with the server on the option.
        rustix::fs::statfs(at)?;
        let tree = open_tree(rustix::fs::CWD, at, clone)?;
        let namespace = File::open(format!("/proc/{}/ns/user", self.0.id()))?;
        // struct mount_attr: bits to set, bits to clear, propagation, namespace.
        let attributes = [IDMAP, 0, 0, namespace.as_raw_fd() as u64];
        // SAFETY: both descriptors are open, the path is a C string, and the kernel reads the 32
        // bytes of the structure.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                attributes.as_ptr(),
                size_of_val(&attributes),
            )
        };
        if done == 0 { Ok(tree) } else { Err(io::Error::last_os_error()) }
    }
}

/// A mounted clone, until this is dropped.
struct Bound(tempfile::TempDir);

impl Bound {
    fn new(tree: &OwnedFd) -> Self {
        let point = tempfile::tempdir().unwrap();
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(tree, "", rustix::fs::CWD, point.path(), flags).unwrap();
        Self(point)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

/// The caller, a command with the mount `$M` and its mapped clone `$B`, and whether it succeeds.
const ROWS: [(u32, &str, bool); 34] = [
    (14_242, "echo text > $B/file && mkdir $B/dir && ln -s file $B/link && mkfifo $B/fifo", true),
    (14_242, "ln $B/file $B/second && mv $B/second $B/dir/moved", true),
    (0, "[ $(stat -c %u:%g $M/file $M/dir $M/link $M/fifo | sort -u) = 4242:4242 ]", true),
    (0, "[ $(stat -c %u:%g $B/file $B/dir $B/link $B/fifo | sort -u) = 14242:14242 ]", true),
    (4242, "echo text > $M/own", true),
    (14_242, "[ $(stat -c %u:%g $B/own) = 14242:14242 ]", true),
    // Callers without a number on the volume.
    (0, "touch $B/unmapped", false),
    (4242, "touch $B/unmapped", false),
    // Root's files, made by a user without any rights elsewhere.
    (10_000, "echo text > $B/of-root && chmod 600 $B/of-root && echo more >> $B/of-root", true),
    (0, "[ $(stat -c %u:%g $M/of-root) = 0:0 ] && cat $M/of-root", true),
    (14_242, "cat $B/of-root", false),
    (14_242, "umask 077; echo text > $B/private; cat $B/private", true),
    (14_999, "cat $B/private", false),
    (14_999, "chmod 666 $B/private", false),
    (14_242, "cat $M/private", false),
    (4242, "cat $M/private", true),
    (14_242, "chown 14999 $B/dir", false),
    (14_242, "chgrp 14242 $B/dir", true),
    (0, "chown 5:5 $B/file", false),
    (0, "chmod 6755 $M/file && chown 14300:14301 $B/file", true),
    (0, "[ $(stat -c %u:%g:%a $M/file) = 4300:4301:755 ]", true),
    (0, "[ $(stat -c %u:%g:%a $B/file) = 14300:14301:755 ]", true),
    (14_242, "[ ! -e /usr/bin/setfacl ] || setfacl -m u:14500:r $B/private", true),
    (0, "[ ! -e /usr/bin/getfacl ] || getfacl -nc $M/private | grep -q user:4500:r--", true),
    // Inode flags: the kernel checks the owner and capabilities.
    (14_242, "chattr +A $B/private", true),
    (14_999, "chattr -A $B/private", false),
    (14_242, "chattr +i $B/private", false),
    (0, "chattr +i $M/private", true),
    (14_242, "rm -f $B/private", false),
    (0, "chattr -i $M/private && lsattr $M/private | grep -q -- A", true),
    // Calls of root that the kernel does not check.
    (0, "fstrim $M", false),
    (10_000, "fstrim $B", false),
    (0, "dd if=/dev/zero of=$M/big bs=64k count=9 conv=fsync 2>&1", true),
    (14_242, "rm $B/private $B/dir/moved", true),
];

fn check_rows(mount: &Path, bound: &Path) {
    for (number, (uid, script, succeeds)) in ROWS.iter().enumerate() {
        let uid = uid.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "sh", "-c", script]);
        let done = command.env("M", mount).env("B", bound).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.success(), *succeeds, "{number}: {uid}: {script}: {said}");
    }
}

fn image(dir: &Path) -> PathBuf {
    let image = mkfs(dir, "32m");
    let opened = run(&["chmod", "777", &format!("{}:/", text(&image))]);
    assert!(opened.status.success(), "{opened:?}");
    image
}

#[test]
fn users_are_mapped() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    if !has_idmap() {
        let point = tempfile::tempdir().unwrap();
        let mut command = nextent();
        command.args(["mount", "-f", "-o", "idmap", text(&image), text(point.path())]);
        let refused = command.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("Linux 6.12"), "{said}");
        e2fs::assert_clean(&image);
        return Skip::missing("idmapped mounts of FUSE (Linux 6.12)").note();
    }
    let namespace = Namespace::new();
    let mount = need!(Mount::new(&image, "idmap,allow_other"));
    let bound = Bound::new(&namespace.mapped(mount.path()).unwrap());
    check_rows(mount.path(), bound.0.path());
    drop(bound);
    mount.unmount();
    e2fs::assert_clean(&image);
    for (file, owner) in [("/dir", "4242"), ("/file", "4300"), ("/of-root", "0")] {
        let said = need!(e2fs::debugfs(&image, false, &[&format!("stat {file}")]));
        let fields: Vec<&str> = said.split_whitespace().collect();
        let user = fields.iter().position(|field| *field == "User:").unwrap();
        assert_eq!(fields[user + 1], owner, "{file}: {said}");
    }
}

/// The server of a mount without the option relies on the callers' own numbers.
#[test]
fn a_mount_without_the_option_is_not_idmapped() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let mount = need!(Mount::new(&image, "allow_other"));
    let refused = Namespace::new().mapped(mount.path()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    mount.unmount();
    e2fs::assert_clean(&image);
}
