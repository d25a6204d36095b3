//! fakeroot: what it shows of the host's files is what goes into an image, as with mke2fs, and what
//! comes out of one it shows. Where its library is not in the process, commands that would take the
//! real owners are refused.

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

/// Makes a tree under fakeroot, and does `line` there.
const TREE: &str = "mkdir -p tree/dev tree/d; echo x > tree/su; echo y > tree/plain; \
    ln tree/su tree/second; ln -s su tree/link; mkfifo tree/fifo; \
    chown -R 0:0 tree; chown 0:42 tree/su; chmod 4755 tree/su; chown -h 7:8 tree/link; \
    chown 5:6 tree/d tree/fifo; chmod 0 tree/plain; chmod 2711 tree/d; \
    mknod tree/dev/null c 1 3; mknod tree/dev/sda b 8 0; chown 0:6 tree/dev/sda; \
    chmod 660 tree/dev/sda; touch -h -d 2001-02-03 tree/* tree/dev/* tree/dev tree";

/// Does `line` under fakeroot, as another user where that is possible.
#[track_caller]
fn under_fakeroot(dir: &Path, line: &str) {
    let run = format!("fakeroot -- bash -e -c '{line}'");
    let own = "chmod 755 . && chown -R nobody .";
    let user = "[ $(id -u) = 0 ] && setpriv --reuid 65534 --clear-groups true 2> /dev/null";
    shell(
        dir,
        &format!(
            "if {user}; then {own}; \
             HOME=. setpriv --reuid 65534 --regid 65534 --clear-groups {run}; else {run}; fi"
        ),
    );
}

/// Kind, mode, owner, group, device of each name, sorted; of a directory.
const LIST: &str = "list() { (cd $1 && find . -mindepth 1 -not -name lost+found \
    -printf \"%P %y %m %U %G %l\\n\" | sort; stat -c \"%n %t:%T\" dev/*); }";

#[test]
fn owners_and_devices_as_fakeroot_shows_them() {
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
        // What mke2fs makes of it.
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

/// Without its library: a static program, or one that was started without it.
#[test]
fn refused_where_it_cannot_be_seen() {
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
    // pseudo that is switched off changes nothing.
    let mut command = nextent();
    command.args(["mkfs", "-q", "-d", "tree", "new.img", "16m"]).current_dir(top);
    let output = command.env("PSEUDO_PREFIX", "/usr").env("PSEUDO_DISABLED", "1").output();
    assert!(output.expect("the command was built").status.success());
    e2fs::assert_clean(&top.join("i.img"));
}
