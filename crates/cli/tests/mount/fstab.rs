//! Lines of fstab(5), by mount(8) and its helpers.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, namespace, need};

/// Runs in its own namespace with only the helpers in /sbin.
const SCRIPT: &str = r#"
PATH=/usr/bin:/bin
fail() { echo "$*"; cat messages; exit 1; }
mount -t tmpfs none /usr/sbin || exit 77
[ /sbin -ef /usr/sbin ] || exit 77
for name in mount umount; do ln -s "$N" /usr/sbin/$name.fuse.nextent; done
mkdir -p m /run/mount; mount -t tmpfs none /run/mount || exit 77
# line WORDS: mounts by a line of fstab.
line() {
    echo "$PWD/image $PWD/m fuse.nextent $1,$TRANSPORT 0 0" > fstab
    mount -T fstab "$PWD/m" > messages 2>&1
}
# with WORDS WANTED UNWANTED: the options that the kernel shows for the mount.
with() {
    line "$1" || fail "$1: refused"
    shown=$(grep " $PWD/m " /proc/self/mountinfo | cut -d ' ' -f 6)
    for word in $2; do [[ ",$shown," = *,$word,* ]] || fail "$1: $shown lacks $word"; done
    for word in $3; do [[ ",$shown," = *,$word,* ]] && fail "$1: $shown has $word"; done
    umount m || fail umount
}
with defaults rw "nosuid nodev noexec"
with defaults,nosuid nosuid "nodev noexec"
with nodev,ro "nodev ro" "nosuid noexec"
with noauto,user,nofail "nosuid nodev noexec" ""
with users,exec,suid "nodev" "noexec nosuid"
with sync,dirsync,noatime,_netdev,x-systemd.automount,comment=text,nofail "rw" "nosuid"
with barrier=1,nodelalloc,user_xattr,acl,errors=remount-ro,data=ordered,commit=9,noquota "rw" ""
with stripe=16,init_itable=0,max_batch_time=9,block_validity,dioread_nolock,discard "rw" ""
for words in usrquota data=journal blub nouser_xattr jqfmt=vfsv0; do
    line $words && fail "$words was accepted"
    grep -q "\`${words%=vfsv0}\`" messages || fail "$words is not named"
done
# A partition of a disk image, also by `mount -a`.
echo "$PWD/disk@offset=1m,size=16m $PWD/m fuse.nextent $TRANSPORT 0 0" > fstab
mount -a -T fstab > messages 2>&1 && mount -a -T fstab >> messages 2>&1 || fail "mount -a"
[ $(grep -c " $PWD/m .*disk@offset=1m,size=16m " /proc/self/mountinfo) = 1 ] || fail "a part"
umount m || fail umount
# Without mount(8) the defaults are fusermount3's.
"$N" mount -o $TRANSPORT image m || fail "the tool"
grep " $PWD/m " /proc/self/mountinfo | grep -q nosuid,nodev || fail "the tool: suid or dev"
umount m
until "$N" replay image > /dev/null 2>&1; do sleep .05; done
"#;

#[test]
fn lines_of_fstab_are_mounted_by_mount() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let disk = dir.path().join("disk");
    std::fs::write(&disk, vec![7; 18 << 20]).unwrap();
    let part = format!("{}@offset=1m,size=16m", text(&disk));
    assert!(run(&["mkfs", "-q", &part]).status.success());
    let transport = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    let mut command = namespace(None);
    command.args(["bash", "-c", SCRIPT]).current_dir(dir.path());
    command.env("N", env!("CARGO_BIN_EXE_nextent")).env("TRANSPORT", transport);
    let done = command.output().unwrap();
    if done.status.code() == Some(77) {
        return Skip::missing("mount(8) with helpers in /sbin").note();
    }
    let said = [&done.stdout[..], &done.stderr[..]].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    e2fs::assert_clean(&image);
}
