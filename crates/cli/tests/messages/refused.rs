//! Each reason why mounting is refused has its own message, which says what to do.

use crate::{shell, works};
use nextent_testkit::DETACH;
use std::path::Path;

/// Runs a line of shell as root in its own mount namespace; its output. None where that is
/// impossible.
fn apart(dir: &Path, line: &str) -> Option<String> {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: no root or no FUSE");
        return None;
    }
    // If it mounts against expectation, the test does not wait for its end.
    let line = format!("timeout -s KILL 60 unshare -m bash -c '{DETACH}{line}' 2>&1; true");
    Some(shell(dir, &line))
}

fn setup() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    works(dir.path(), &["mkfs", "-q", "image", "16m"]);
    // A user without root may not reach the directory of the build.
    shell(
        dir.path(),
        "chmod 755 .; cp $N n; chmod 755 n; chmod 666 image; mkdir -m 777 point; mkdir his",
    );
    dir
}

const USER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[track_caller]
fn says(dir: &Path, line: &str, words: &[&str]) {
    let Some(said) = apart(dir, line) else { return };
    assert_eq!(said.lines().count(), 1, "{line}: {said}");
    for word in words {
        assert!(said.contains(word), "{line}: {said}");
    }
}

#[test]
fn refusals_of_the_device_are_explained() {
    let dir = setup();
    let dir = dir.path();
    // A plain file in place of the device: only its mode matters.
    let shut = "touch node; chmod 640 node; chgrp 6 node; mount --bind node /dev/fuse;";
    let mount = "./n mount -f image point";
    says(
        dir,
        &format!("{shut} {USER} {mount}"),
        &["mode is 0640", "owner root", "group disk", "user 65534", "chmod 666 /dev/fuse"],
    );
    let group = "touch two; chmod 660 two; chgrp 6 two; mount --bind two /dev/fuse;";
    says(dir, &format!("{group} {USER} {mount}"), &["mode is 0660", "be in its group disk"]);
    let none = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3;";
    says(dir, &format!("{none} {mount}"), &["/dev/fuse is not there", "modprobe fuse"]);
    let dead = "mount -t tmpfs -o dev none /dev; mknod -m 666 /dev/null c 1 3; \
                mknod -m 666 /dev/fuse c 241 200;";
    says(dir, &format!("{dead} {mount}"), &["belongs to no driver", "modprobe fuse"]);
    for code in [format!("{none} {mount}; echo $?"), format!("{shut} {USER} {mount}; echo $?")] {
        if let Some(said) = apart(dir, &code) {
            assert!(said.ends_with("\n2\n"), "{said}");
        }
    }
}

/// An empty directory over `/usr/bin` hides the helper.
#[test]
fn refusals_of_the_helper_are_explained() {
    let dir = setup();
    let dir = dir.path();
    shell(dir, "cp $(command -v setpriv) $(command -v fusermount3) .; chmod 755 fusermount3");
    let open = "mount -t tmpfs -o dev none his; mknod -m 666 his/fuse c 10 229; \
                mount --bind his/fuse /dev/fuse;";
    let mount = |more: &str| format!("./n mount -f -o no_io_uring{more} image point");
    let user = |before: &str, more: &str| format!("{open} {before} ./{USER} {}", mount(more));
    let hidden = "mount -t tmpfs none /usr/bin;";
    says(dir, &user(hidden, ""), &["fusermount3 is not there or may not be run", "fuse3"]);
    says(dir, &user("", ",allow_other"), &["user_allow_other", "/etc/fuse.conf"]);
    says(dir, &user("chmod 755 point; chown 0 point;", ""), &["mount point", "is not yours"]);
    shell(dir, "chmod 777 point");
    says(dir, &user("PATH=$PWD:$PATH", ""), &["set-user-ID", "chmod u+s"]);
    let bare = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin";
    says(dir, &format!("{open} {bare} {}", mount("")), &["CAP_SYS_ADMIN", "--cap-add"]);
    nextent_testkit::e2fs::assert_clean(&dir.join("image"));
}
