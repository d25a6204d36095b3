//! fakeroot: images get the attributes that it fakes, as with mke2fs, and files that are copied out
//! of an image have the image's owners under it. Without its library in the process, commands that
//! would use the real owners are refused.

use crate::support::{nextent, shell};
use nextent_testkit::e2fs;
use std::path::Path;
use std::process::Command;

fn there() -> bool {
    let there = Command::new("fakeroot").arg("true").status().is_ok_and(|status| status.success());
    if !there {
        println!("skipped: no fakeroot");
    }
    there
}

/// Makes a tree under fakeroot.
const TREE: &str = "mkdir -p tree/dev tree/d; echo x > tree/su; echo y > tree/plain; \
    ln tree/su tree/second; ln -s su tree/link; mkfifo tree/fifo; \
    chown -R 0:0 tree; chown 0:42 tree/su; chmod 4755 tree/su; chown -h 7:8 tree/link; \
    chown 5:6 tree/d tree/fifo; chmod 0 tree/plain; chmod 2711 tree/d; \
    mknod tree/dev/null c 1 3; mknod tree/dev/sda b 8 0; chown 0:6 tree/dev/sda; \
    chmod 660 tree/dev/sda; touch -h -d 2001-02-03 tree/* tree/dev/* tree/dev tree";

/// Runs `line` under fakeroot, as a user other than root where possible.
#[track_caller]
fn under_fakeroot(dir: &Path, line: &str) {
    let run = format!("fakeroot -- bash -e -c '{line}'");
    let own = "chmod 755 . && chown -R 65534 .";
    let user = "[ $(id -u) = 0 ] && setpriv --reuid 65534 --clear-groups true 2> /dev/null";
    shell(
        dir,
        &format!(
            "if {user}; then {own}; \
             HOME=. setpriv --reuid 65534 --regid 65534 --clear-groups {run}; else {run}; fi"
        ),
    );
}

/// Lists kind, mode, owner, group and device of each name in a directory, sorted.
const LIST: &str = "list() { (cd $1 && find . -mindepth 1 -not -name lost+found \
    -printf \"%P %y %m %U %G %l\\n\" | sort; stat -c \"%n %t:%T\" dev/*); }";

#[test]
fn owners_and_devices_are_those_of_fakeroot() {
    if !there() {
        return;
    }
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    under_fakeroot(
        top,
        &format!(
            "{LIST}; {TREE}; list tree > want; $N mkfs -q -d tree i.img 16m; \
             $N mkfs -q a.img 16m; \
             $N cp -q -a tree/. a.img:/; tar -C tree -c . | $N mkfs -q -d - t.img 16m; \
             mke2fs -q -t ext4 -d tree m.img 16m > mke2fs.out; mkdir out; \
             $N cp -q -a m.img:/. out; list out > got; cmp want got"
        ),
    );
    for name in ["i.img", "a.img", "t.img"] {
        e2fs::assert_clean(&top.join(name));
        // Compare with mke2fs.
        let compare = format!(
            "for f in su second link fifo plain d dev dev/null dev/sda; do \
             for i in m.img {name}; do debugfs -R \"stat /$f\" $i 2> /dev/null | \
             grep -E 'Type:|User:|Device|Fast link' | sed -E 's/Inode: [0-9]*//; \
             s/(Generation|Size|Project|Flags|Version).*//' > $i.$$; done; \
             cmp m.img.$$ {name}.$$ || diff m.img.$$ {name}.$$; done"
        );
        shell(top, &compare);
    }
}

/// As buildroot, genimage and yocto call it.
#[test]
fn the_names_of_mke2fs_see_what_fakeroot_shows() {
    if !there() {
        return;
    }
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(top, "ln -s $N mkfs.ext4; mkdir t; echo x > t/f");
    under_fakeroot(top, "chown -R 7:8 t; ./mkfs.ext4 -q -d t a.img 64m > /dev/null");
    for path in ["/", "/f"] {
        let stat = format!("debugfs -R \"stat {path}\" a.img 2> /dev/null");
        shell(top, &format!("{stat} | grep -qE 'User: +7 +Group: +8'"));
    }
    e2fs::assert_clean(&top.join("a.img"));
}

/// A static program does not load the library, nor does one that is started without it.
#[test]
fn commands_are_refused_without_the_library() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(top, "mkdir tree; echo x > tree/f; $N mkfs -q i.img 16m; $N cp -q tree/f i.img:/f");
    for (variable, value, refused) in [
        ("FAKEROOTKEY", "1234", Some("fakeroot tar -c")),
        ("PSEUDO_PREFIX", "/usr", Some("pseudo tar -c")),
        ("FAKECHROOT_BASE", "/x", Some("fakechroot tar -c")),
        ("FAKEROOTKEY", "", None),
    ] {
        for (args, reads_owners) in [
            (&["mkfs", "-q", "-d", "tree", "new.img", "16m"][..], true),
            (&["cp", "-q", "-a", "tree", "i.img:/"], true),
            (&["cp", "-q", "-r", "tree", "i.img:/"], true),
            (&["cp", "-q", "tree/f", "i.img:/g"], true),
            (&["cp", "-q", "-p", "i.img:/f", "out"], true),
            (&["cp", "-q", "i.img:/f", "out"], false),
            (&["cp", "-q", "/dev/null", "i.img:/null"], false),
            (&["mkfs", "-q", "-d", "t.tar", "t.img", "16m"], false),
            (&["ls", "-l", "i.img:/"], false),
        ] {
            shell(top, "rm -f new.img out t.img; tar -c -f t.tar tree");
            let mut command = nextent();
            let output = command.args(args).current_dir(top).env(variable, value).output();
            let output = output.expect("the command was built");
            let said = String::from_utf8_lossy(&output.stderr);
            match refused.filter(|_| reads_owners) {
                Some(words) => {
                    assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
                    assert!(said.contains(words) && said.contains("--map-auto"), "{said}");
                    assert_eq!(said.lines().count(), 1, "{said}");
                    assert!(!top.join("new.img").exists());
                }
                None => assert!(output.status.success(), "{variable} {args:?}: {said}"),
            }
        }
    }
    // pseudo may be switched off.
    let mut command = nextent();
    command.args(["mkfs", "-q", "-d", "tree", "new.img", "16m"]).current_dir(top);
    let output = command.env("PSEUDO_PREFIX", "/usr").env("PSEUDO_DISABLED", "1").output();
    assert!(output.expect("the command was built").status.success());
    e2fs::assert_clean(&top.join("i.img"));
}

/// The static program of the packages runs the dynamically linked one, which is beside it.
#[test]
fn the_dynamic_program_of_a_package_takes_over() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(
        top,
        "mkdir -p usr/bin usr/lib/nextent; cp $N usr/bin/nextent; \
         ln -s nextent usr/bin/mkfs.nextent; printf '%s\\n' '#!/bin/sh' 'echo took over: \"$@\"' \
         > usr/lib/nextent/nextent; chmod +x usr/lib/nextent/nextent; \
         for name in nextent mkfs.nextent; do FAKEROOTKEY=1 usr/bin/$name -q 'a b' > out; \
         grep -qx 'took over: -q a b' out || cat out; usr/bin/$name --help > out; \
         ! grep -q 'took over' out || cat out; done; \
         rm usr/lib/nextent/nextent; FAKEROOTKEY=1 usr/bin/nextent --help > out",
    );
}
