//! Access to a mount, for each option, mounting user and calling user, before and after the kernel
//! has cached the files. Set-id programs and device nodes have an effect only where root mounts
//! with `suid` and `dev`.

use crate::support::*;
use nextent_testkit::{Skip, e2fs, namespace, need};
use std::process::Command;

/// Runs in its own mount namespace, where users may open `/dev/fuse` and use `allow_other`.
const SCRIPT: &str = r#"
set -u
fail() { echo "$mounter, -o $words: $*"; exit 1; }
as() {
    local uid=$1; shift
    if [ $uid = 0 ]; then "$@"; else setpriv --reuid $uid --regid $uid --clear-groups "$@"; fi
}
try() { as "$@" > /dev/null 2>&1 < /dev/null; }

[ -f /etc/fuse.conf ] && [ -u "$(command -v fusermount3)" ] || exit 77
mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse || exit 77
echo user_allow_other > fuse.conf; mount --bind fuse.conf /etc/fuse.conf || exit 77
# Mounting takes a user with a name.
chmod 755 .; mkdir m; user=65534 other=4243

# may UID YES|NO WHAT COMMAND...
may() {
    local uid=$1 want=$2 what=$3; shift 3
    if try $uid "$@"; then [ $want = yes ] || fail "$when: $uid: $what was not refused"
    else [ $want = no ] || fail "$when: $uid: $what was refused"; fi
}
# The rights of a file of UID's, which it looks at itself.
rights() {
    local uid=$1 want=$2 what=$3 found
    found=$(as $uid stat -c %a $PWD/m/dir/own-$uid) || fail "$when: $uid: stat after $what"
    [ $found = $want ] || fail "$when: $uid: rights after $what: $found, not $want"
}
# Changes of a file's owner and group, by UID that owns it. Each removes set-id bits.
owners() {
    local uid=$1 enters=$2 all=$3 own=$PWD/m/dir/own-$1 row
    may $uid $enters "a file with set-id bits" sh -c "echo text > $own && chmod 6755 $own"
    [ $enters = yes ] || return 0
    rights $uid 6755 "chmod"
    may $uid yes "chgrp to the own group" chgrp $uid $own
    rights $uid 755 "chgrp to the own group"
    for row in "chgrp 77" "chown 78" "chown $uid:79" "chown 0"; do
        # Without the rights of root a user gives a file to itself and to its own groups only.
        may $uid yes "chown to itself" chown $uid:$uid $own
        may $uid yes "chmod" chmod 6755 $own
        may $uid $all "$row" $row $own
        [ $all = yes ] && rights $uid 755 "$row" || rights $uid 6755 "$row"
        [ $all = no ] || may $uid yes "chown back" chown $uid:$uid $own
    done
    may $uid yes "removing an own file" rm $own
}
# A set-user-id program of root's, and a device node, which has no effect on a mount by a user.
powers() {
    local uid=$1 enters=$2 suid=$3 dev=$4 found
    may $uid $dev "opening a device" head -c 1 $PWD/m/dir/zero
    [ $enters = yes ] || return 0
    for program in id gid; do
        found=$(as $uid $PWD/m/dir/$program -u)/$(as $uid $PWD/m/dir/$program -g)
        case $suid$program in
            yesid) want=0/$uid ;;
            yesgid) want=$uid/0 ;;
            *) want=$uid/$uid ;;
        esac
        [ "$found" = $want ] || fail "$when: $uid: $program runs as $found, not $want"
    done
}
# What UID finds if it may enter, or that it finds nothing.
look() {
    local uid=$1 enters=$2 all=$3
    for what in stat 'ls -l' 'ls -d'; do
        may $uid $enters "$what of the root" $what $PWD/m
        may $uid $enters "$what of a directory" $what $PWD/m/dir
    done
    may $uid $enters "stat of a file" stat $PWD/m/dir/open
    may $uid $enters "reading" cat $PWD/m/dir/open
    may $uid $enters "a link's text" readlink $PWD/m/dir/link
    may $uid $enters "through a link" cat $PWD/m/dir/link
    may $uid $enters "entering the root" sh -c "cd $PWD/m"
    may $uid $enters "entering" sh -c "cd $PWD/m/dir"
    may $uid $enters "an attribute" getfattr -n user.a $PWD/m/dir/open
    may $uid $enters "writing" sh -c "echo more >> $PWD/m/dir/open"
    may $uid $enters "a new name" sh -c "echo new > $PWD/m/dir/new-$uid"
    may $uid $enters "removing" rm $PWD/m/dir/new-$uid
    # Only with the rights of root.
    may $uid $all "chown of root's file" chown 0 $PWD/m/dir/closed
    may $uid $all "chgrp of root's file" chgrp 0 $PWD/m/dir/closed
    may $uid $all "reading of root's file" cat $PWD/m/dir/closed
    may $uid $all "chmod of root's file" chmod 600 $PWD/m/dir/closed
}

# Mounts with $words, as $mounter.
mounted() {
    chown $mounter m image
    as $mounter $N mount -f --threads 3 -o $words $PWD/image $PWD/m > log 2>&1 & server=$!
    for i in $(seq 400); do grep -q " $PWD/m fuse" /proc/mounts && break; sleep .02; done
    grep -q " $PWD/m fuse" /proc/mounts || fail "no mount: $(cat log)"
    when="mounted"
    # The mount exists a moment before its server reports.
    for i in $(seq 400); do try $mounter $N status $PWD/m && break; sleep .02; done
}
unmounted() {
    umount m || fail umount
    wait $server || fail "the server: $(cat log)"
}

for mounter in 0 $user; do for entry in none allow_root allow_other; do for rights in none fakeroot
do
    words=$TRANSPORT,$entry,$rights; words=${words//,none/}
    mounted
    may $mounter yes "the status" $N status $PWD/m
    may 0 yes "the status" $N status $PWD/m
    may $other no "the status" $N status $PWD/m
    for round in 1 2 3; do
        # In the second round, and the third, the kernel knows all files.
        when="round $round"
        for uid in $other 0 $user; do
            enters=no
            [ $uid = $mounter ] || [ $entry = allow_other ] && enters=yes
            [ $uid = 0 ] && [ $entry = allow_root ] && enters=yes
            all=no; [ $enters = yes ] && { [ $uid = 0 ] || [ $rights = fakeroot ]; } && all=yes
            look $uid $enters $all
            # What the kernel has cached does not matter to these.
            [ $round != 1 ] || owners $uid $enters $all
            [ $round != 1 ] || powers $uid $enters no no
        done
    done
    unmounted
done; done; done

# The mounting user, an option, and whether set-id programs and device nodes have an effect.
while read mounter option suid dev; do
    words=$TRANSPORT,allow_other,$option
    mounted
    for round in 1 2; do for uid in $other 0 $user; do
        when="round $round"
        powers $uid yes $suid $dev
    done; done
    unmounted
done << end
0 suid yes no
0 dev no yes
0 suid,dev yes yes
0 kernel yes yes
0 suid,nosuid,dev,nodev no no
$user suid no no
$user dev no no
$user kernel no no
end
"#;

#[test]
fn access_by_option_and_user() {
    let _offered = need!(can_mount());
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "32m");
    let tree = dir.path().join("tree");
    let make = "mkdir -p tree/dir; echo text > tree/dir/open; echo text > tree/dir/closed; \
        ln -s open tree/dir/link; chmod 777 tree tree/dir; chmod 666 tree/dir/open; \
        chmod 600 tree/dir/closed; cp -L \"$(command -v id)\" tree/dir/id; \
        cp tree/dir/id tree/dir/gid; chmod 4755 tree/dir/id; chmod 2755 tree/dir/gid; \
        mknod -m 666 tree/dir/zero c 1 5; setfattr -n user.a -v b tree/dir/open; \
        $N cp -aq tree/. image:/; $N chmod 777 image:/";
    let run = |command: &mut Command| {
        let tool = env!("CARGO_BIN_EXE_nextent");
        command.current_dir(dir.path()).env("N", tool).output().unwrap()
    };
    let made = run(Command::new("bash").args(["-e", "-c", make]));
    assert!(made.status.success(), "{} {made:?}", tree.display());
    let transport = if crate::RINGS { "io_uring" } else { "no_io_uring" };
    let mut script = namespace(None);
    script.args(["bash", "-c", SCRIPT]).env("TRANSPORT", transport);
    let done = run(&mut script);
    if done.status.code() == Some(77) {
        return Skip::missing("mounts by users").note();
    }
    let said = String::from_utf8_lossy(&done.stdout);
    let (text, errors) = (said.trim(), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{text}{errors}");
    e2fs::assert_clean(&image);
}
