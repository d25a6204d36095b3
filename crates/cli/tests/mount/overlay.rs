//! overlayfs with its upper layer on a mount, beside one with its upper layer on Linux's ext4.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, need};
use std::path::Path;
use std::process::Command;

/// Arguments: a directory for the lower layer, and one for the upper layer. Prints the merged tree
/// and the upper one.
const SCRIPT: &str = r#"
set -eu
lower=$1 top=$2
mkdir -p $top/upper $top/work $top/merged
mount -t overlay overlay -o lowerdir=$lower,upperdir=$top/upper,workdir=$top/work,redirect_dir=on \
    $top/merged || exit 77
cd $top/merged
rm removed                           # a whiteout
mv file moved                        # copy-up, whiteout
mv dir dir-moved                     # redirect
rm -r tree; mkdir tree; echo new > tree/new    # opaque
echo more >> big                     # copy-up with attributes
setfattr -n user.added -v 1 big
chown 1000:1000 owned; chmod 4755 owned
ln big link; ln -s target symbolic; mkfifo pipe
mv exchanged-a t; mv exchanged-b exchanged-a; mv t exchanged-b
cd /
sync -f $top/merged
list() {
    cd $1; find . -mindepth 1 -printf '%p %y %m %U:%G %n %l\n' | sort
    find . -type f -exec sh -c 'for f; do echo "$f $(md5sum < "$f")"; done' sh {} + | sort
    pattern='^(user|trusted)[.](overlay[.](opaque|redirect)|[^o])'
    find . -mindepth 1 -not -type l -print0 | sort -z \
        | xargs -0 getfattr -h -d -m "$pattern" 2>/dev/null
    cd /
}
echo merged; list $top/merged
umount $top/merged
echo upper; list $top/upper
"#;

fn make_lower(lower: &Path) {
    let script = r#"
        set -eu; mkdir -p $1; cd $1
        echo text > removed; echo text > file; head -c 100000 /dev/zero > big; echo o > owned
        mkdir -p dir/sub tree/old; echo x > dir/sub/x; echo y > tree/old/y
        echo a > exchanged-a; echo b > exchanged-b; setfattr -n user.lower -v 2 big"#;
    let made = Command::new("sh").args(["-c", script, "sh", text(lower)]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// What the script prints for an upper layer below `top`.
fn overlaid(lower: &Path, top: &Path) -> Result<String, Skip> {
    let args = ["-c", SCRIPT, "sh", text(lower), text(top)];
    let ran = Command::new("sh").args(args).output().unwrap();
    if ran.status.code() == Some(77) {
        let _ = Command::new("umount").arg(top.join("merged")).output();
        return Err(Skip::missing("overlayfs"));
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let _ = Command::new("umount").arg("-l").arg(top.join("merged")).output();
    assert!(ran.status.success(), "{}: {said}", top.display());
    Ok(String::from_utf8(ran.stdout).unwrap())
}

#[test]
fn overlayfs_takes_the_mount_as_its_upper_layer() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, ""));
    let peer = dir.path().join("peer.img");
    need!(e2fs::mke2fs(&peer, 64 << 20, &["-t", "ext4"]));
    let linux = dir.path().join("linux");
    std::fs::create_dir(&linux).unwrap();
    let mounted = Command::new("mount").args(["-o", "loop", text(&peer), text(&linux)]).output();
    if !mounted.unwrap().status.success() {
        mount.unmount();
        return Skip::missing("loop devices").note();
    }
    // On the peer's file system, since that of the test may lack attributes.
    let lower = linux.join("lower");
    make_lower(&lower);
    let theirs = overlaid(&lower, &linux.join("top"));
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(skip) => {
            let _ = Command::new("umount").arg(&linux).output();
            mount.unmount();
            return skip.note();
        }
    };
    let ours = overlaid(&lower, &mount.join("top"));
    mount.unmount();
    assert!(Command::new("umount").arg(&linux).output().unwrap().status.success());
    let ours = ours.expect("overlayfs refuses the mount");
    assert!(theirs.contains("./removed c 0 0:0") && theirs.contains("moved"), "{theirs}");
    assert_eq!(ours, theirs);
    e2fs::assert_clean(&image);
}
