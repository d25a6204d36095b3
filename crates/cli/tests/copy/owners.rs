//! Owners, modes, times and labels that options of `mkfs` give to what `-d` copies.

use crate::support::*;
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Makes a tree with each kind of entry that any user can make.
const TREE: &str = "mkdir -p tree/d; echo x > tree/d/f; ln tree/d/f tree/d/g; ln -s f tree/d/l; \
    mkfifo tree/p; chmod 4755 tree/d/f;";

fn root() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !root {
        println!("skipped: only root sets owners");
    }
    root
}

/// Asserts that debugfs reads these modes, owners and groups, and that e2fsck accepts the image.
#[track_caller]
fn owners(image: &Path, want: &[(&str, &str, u32, u32)]) {
    for (path, mode, uid, gid) in want {
        let Ok(text) = e2fs::debugfs(image, false, &[&format!("stat \"{path}\"")]) else { return };
        let field = |name: &str| {
            let rest = text.split(name).nth(1).unwrap_or_else(|| panic!("{path}: {text}"));
            rest.split_whitespace().next().unwrap_or_default().to_owned()
        };
        let found = (field("Mode:"), field("User:"), field("Group:"));
        assert_eq!(found, ((*mode).into(), uid.to_string(), gid.to_string()), "{path}");
    }
    e2fs::assert_clean(image);
}

/// Makes images of the directory `tree` and of a tar stream with the same entries.
#[track_caller]
fn images(dir: &Path, options: &str, check: impl Fn(&Path)) {
    shell(dir, "tar -C tree -cf t.tar . && rm -f *.img");
    for (name, source) in [("d.img", "tree"), ("t.img", "t.tar")] {
        shell(dir, &format!("$N mkfs -q -d {source} {options} {name} 16m"));
        check(&dir.join(name));
    }
}

#[test]
fn one_owner_for_all() {
    let dir = tempfile::tempdir().expect("writable");
    let chown = "[ $(id -u) != 0 ] || chown -R 3:4 tree; chmod 4755 tree/d/f; chmod 751 tree";
    shell(dir.path(), &format!("{TREE} {chown}"));
    let want = [
        ("/", "0751", 7, 8),
        ("/d", "0755", 7, 8),
        ("/d/f", "04755", 7, 8),
        ("/d/g", "04755", 7, 8),
        ("/d/l", "0777", 7, 8),
        ("/p", "0644", 7, 8),
        ("/lost+found", "0700", 0, 0),
    ];
    images(dir.path(), "--owner 7:8", |image| owners(image, &want));
    // `-E root_owner` is about the root alone.
    let mut other = want;
    other[0] = ("/", "0751", 1, 2);
    images(dir.path(), "--owner 7:8 -E root_owner=1:2", |image| owners(image, &other));
    shell(dir.path(), "$N mkfs -q -d tree --owner root:root n.img 16m");
    owners(&dir.path().join("n.img"), &[("/", "0751", 0, 0), ("/d/g", "04755", 0, 0)]);
}

/// A stream need not have entries for the root and for other directories.
#[test]
fn directories_without_an_entry_get_the_owner() {
    let dir = tempfile::tempdir().expect("writable");
    shell(
        dir.path(),
        &format!(
            "{TREE} tar -C tree --owner=3 --group=4 -cf t.tar d/f && \
             $N mkfs -q -d t.tar --owner 7:8 a.img 16m; \
             $N mkfs -q -d t.tar --map-uid 0:100:4 --map-gid 0:200:5 b.img 16m"
        ),
    );
    let modes = [("/", "0755"), ("/d", "0755"), ("/d/f", "04755")];
    let all = |of: [(u32, u32); 3]| {
        let each = modes.iter().zip(of).map(|((path, mode), (uid, gid))| (*path, *mode, uid, gid));
        each.collect::<Vec<_>>()
    };
    owners(&dir.path().join("a.img"), &all([(7, 8); 3]));
    owners(&dir.path().join("b.img"), &all([(100, 200), (100, 200), (103, 204)]));
}

#[test]
fn numbers_are_mapped() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().expect("writable");
    let chown = "chown 1000:100 tree/d/f; chown -h 1001:101 tree/d/l; chown 0:0 tree tree/d; \
        chown 165535:7 tree/p; ! command -v setfacl > /dev/null || setfacl -m u:1001:r tree/d/f";
    shell(dir.path(), &format!("{TREE} {chown}; chmod 4755 tree/d/f; chmod 755 tree"));
    // One user more than the map has.
    for source in ["tree", "t.tar"] {
        shell(dir.path(), "tar -C tree -cf t.tar .");
        shell(
            dir.path(),
            &format!(
                "! $N mkfs -q -d {source} --map-uid 0:90:1 --map-uid 1000:5:9 a.img 16m 2> err && \
                 [ ! -e a.img ] && [ $(wc -l < err) = 1 ] && \
                 grep -q 'p: its owner 165535 is in no range' err || cat err"
            ),
        );
    }
    let all = [
        ("/", "0755", 100_000, 0),
        ("/d", "0755", 100_000, 0),
        ("/d/f", "04755", 5, 100),
        ("/d/l", "0777", 6, 101),
        ("/p", "0644", 164_540, 7),
    ];
    let map = "--map-uid 0:100000:1 --map-uid 1000:5:20 --map-uid 165535:164540:1";
    images(dir.path(), map, |image| owners(image, &all));
    let more = "--map-gid 0:1:1 --map-gid 7:7:1 --map-gid 100:2:2";
    images(dir.path(), &format!("{map} {more}"), |image| {
        owners(
            image,
            &[("/", "0755", 100_000, 1), ("/d/f", "04755", 5, 2), ("/d/l", "0777", 6, 3)],
        );
    });
    // Access lists name users, too.
    let mounted = need!(KernelMount::new(&dir.path().join("d.img"), Access::ReadOnly));
    let file = mounted.join("d/f").display().to_string();
    let there = "[ -z \"$(command -v getfacl)\" ] || getfacl -np FILE | grep -q '^user:6:r'";
    shell(dir.path(), &there.replace("FILE", &file));
}

#[test]
fn bad_owners_are_refused() {
    let dir = tempfile::tempdir().expect("writable");
    shell(dir.path(), TREE);
    let tree = dir.path().join("tree");
    let image = dir.path().join("a.img");
    let (tree, shown) = (tree.to_str().expect("plain"), image.to_str().expect("plain"));
    let check = |options: &[&str], code: i32, words: &str| {
        let mut args = vec!["mkfs", "-q", "-d", tree];
        args.extend(options);
        args.extend([shown, "16m"]);
        fails(&args, code, words);
        assert!(!image.exists(), "{options:?}");
    };
    check(&["--owner", "7"], 1, "'7' is not UID:GID");
    check(&["--owner", "no such name:0"], 1, "'no such name' is not in /etc/passwd");
    check(&["--map-uid", "0:5:10", "--map-uid", "3:50:1"], 1, "overlap");
    check(&["--map-gid", "0:5:0"], 1, "is empty");
    check(&["--map-uid", "0:5"], 2, "FROM:TO:COUNT");
    check(&["--owner", "0:0", "--map-gid", "0:5:1"], 2, "cannot be used with");
    fails(&["mkfs", "-q", "--owner", "0:0", shown, "16m"], 2, "-d");
}

/// A device table as genext2fs reads it, about this tree.
const TABLE: &str = "\
# name type mode uid gid major minor start inc count
/\td 711 1 2 - - - - -
/d  d 750 3 4 - - - - -
/d/f f 640 5 6
/dev d 755 0 0 - - - - -
dev/null c 666 0 0 1 3 0 0 - # a comment
/dev/tty c 620 0 5 4 0 0 1 3
/dev/hda b 660 0 6 3 0 0 0 -
/dev/hda b 660 0 6 3 1 1 1 3
/dev/odd b 600 0 0 5 6 1 2 4
/dev/log s 666 7 7 - - - - -
/pipe p 600 8 9 - - - - -
";

/// What debugfs lists of an image made with it, without inode numbers and times.
const LISTED: &str = "{ for d in / /d /dev; do debugfs -R \"ls -l $d\" IMAGE 2> /dev/null | \
    awk '$NF != \"..\" && $NF != \"lost+found\" && NF > 5 {print $2, $4, $5, $NF}'; done; \
    for f in null tty0 tty2 hda hda2 odd1 odd3; do debugfs -R \"stat /dev/$f\" IMAGE \
    2> /dev/null | grep -o 'Device major/minor number: [0-9:]*'; done; }";

#[test]
fn a_device_table_changes_and_makes_entries() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(
        top,
        "mkdir -p tree/d; echo x > tree/d/f; chmod 755 tree tree/d; touch -d 2001-02-03 tree/d",
    );
    std::fs::write(top.join("table"), TABLE).expect("writable");
    images(top, "--owner 0:0 --owners table", |image| {
        owners(
            image,
            &[
                ("/", "0711", 1, 2),
                ("/d", "0750", 3, 4),
                ("/d/f", "0640", 5, 6),
                ("/dev/log", "0666", 7, 7),
                ("/pipe", "0600", 8, 9),
            ],
        );
        let name = image.file_name().expect("a file").to_str().expect("plain");
        let want = "Device major/minor number: 01:03\nDevice major/minor number: 04:00\n\
            Device major/minor number: 04:02\nDevice major/minor number: 03:00\n\
            Device major/minor number: 03:02\nDevice major/minor number: 05:07\n\
            Device major/minor number: 05:11";
        let listed = LISTED.replace("IMAGE", name);
        shell(
            top,
            &format!("{listed} > got; tail -n 7 got > numbers; echo '{want}' | cmp - numbers"),
        );
        // Made in it, but a directory keeps its time.
        shell(top, &format!("debugfs -R 'stat /d' {name} 2> /dev/null | grep -q 'mtime:.*2001'"));
        let genext2fs = format!(
            "genext2fs -q -b 4000 -N 200 -d tree -D table g.img 2> /dev/null; {}",
            listed.replace(name, "g.img")
        );
        if std::process::Command::new("genext2fs").arg("-V").output().is_err() {
            println!("skipped: no genext2fs");
            return;
        }
        shell(top, &format!("({genext2fs}) > want; sort got > a; sort want > b; diff a b"));
    });
}

#[test]
fn bad_device_tables_are_refused() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(top, "mkdir -p tree/d; echo x > tree/f; ln -s d tree/l; mkfifo tree/p");
    for (table, words) in [
        ("", "table: the file is empty"),
        ("# nothing\n\n", "table: the device table has no lines"),
        ("/f f 644 0 0\n\n/none f 644 0 0", "table:3: /none: does not exist"),
        ("/none l 777 0 0", "table:1: /none: does not exist"),
        ("/x/y c 644 0 0 1 2", "table:1: /x/y: there is no directory 'x'"),
        ("/f/y c 644 0 0 1 2", "table:1: /f/y: 'f' in its path is a regular file"),
        ("/l/y c 644 0 0 1 2", "table:1: /l/y: 'l' in its path is a symbolic link"),
        ("/f c 644 0 0 1 2", "table:1: /f: exists as a regular file"),
        ("/d f 644 0 0", "table:1: /d: exists as a directory"),
        ("/l d 755 0 0", "table:1: /l: exists as a symbolic link"),
        ("/n c 644 0 0 1 2\n/n c 600 0 0 1 3", "table:2: /n: exists as the device 1:2"),
        ("/../n c 644 0 0 1 2", "table:1: the path"),
        ("/n c 644 0 0 1 0 0 1 9999999", "table:1: more than 1048576 devices"),
        ("/n c 644 0 0 1 0 0 1 1000000", "table:1: /n"),
        ("\0", "table:1: a zero byte"),
    ] {
        std::fs::write(top.join("table"), table).expect("writable");
        for source in ["tree", "t.tar"] {
            shell(top, "tar -C tree -cf t.tar .");
            std::fs::write(top.join("words"), words).expect("writable");
            let line = format!(
                "! $N mkfs -q -d {source} --owners table a.img 8m 2> err && [ ! -e a.img ] && \
                 [ $(wc -l < err) = 1 ] && grep -qF -f words err || cat err"
            );
            shell(top, &line);
        }
    }
    // An image that was there is marked as one with errors, as after other failures.
    std::fs::write(top.join("table"), "/none f 644 0 0").expect("writable");
    fails(&["mkfs", "-q", "-d", "/none", "--owners", "/none/table", "/none/a", "8m"], 1, "No such");
}

/// fakeroot shows files that it does not know as root's.
#[test]
fn a_state_of_fakeroot_is_read() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    let there = std::process::Command::new("fakeroot").arg("true").status();
    if !there.is_ok_and(|status| status.success()) {
        println!("skipped: no fakeroot");
        return;
    }
    shell(
        top,
        "mkdir -p tree/d; echo u > tree/unknown; chmod 640 tree/unknown; chmod 755 tree/d; \
         fakeroot -s state -- bash -ec 'mknod tree/null c 1 3; mknod tree/sda b 8 300; \
         echo x > tree/f; ln tree/f tree/g; ln -s f tree/l; mkfifo tree/p; \
         chown 7:8 tree/f; chmod 4711 tree/f; chown -h 5:6 tree/l; chown 3:4 tree; \
         chmod 710 tree; chown 0:9 tree/p; chmod 600 tree/p'; \
         $N mkfs -q -d tree --owners state a.img 16m; tar -C tree -cf t.tar .",
    );
    let want = [
        ("/", "0710", 3, 4),
        ("/d", "0755", 0, 0),
        ("/unknown", "0640", 0, 0),
        ("/f", "04711", 7, 8),
        ("/g", "04711", 7, 8),
        ("/l", "0777", 5, 6),
        ("/p", "0600", 0, 9),
        ("/null", "0644", 0, 0),
    ];
    owners(&top.join("a.img"), &want);
    shell(
        top,
        "debugfs -R 'stat /null' a.img 2> /dev/null | grep -q 'character special'; \
         debugfs -R 'stat /sda' a.img 2> /dev/null | grep -q 'number: 08:300'",
    );
    // Maps and a table apply after it.
    shell(
        top,
        "echo '/unknown f 444 1 1' > table; $N mkfs -q -d tree --owners state --owners table \
         --map-uid 0:10:10 b.img 16m",
    );
    owners(&top.join("b.img"), &[("/f", "04711", 17, 8), ("/unknown", "0444", 1, 1)]);
    for (line, words) in [
        ("-d t.tar --owners state", "is about files of a directory"),
        ("-d tree --owners state --owners state", "a second state file"),
        ("-d tree --owners table --owners table", "a second device table"),
    ] {
        std::fs::write(top.join("words"), words).expect("writable");
        shell(
            top,
            &format!(
                "! $N mkfs -q {line} c.img 16m 2> err && [ ! -e c.img ] && \
                 [ $(wc -l < err) = 1 ] && grep -qF -f words err || cat err"
            ),
        );
    }
    // The state is of another tree if the types differ; its lines are checked.
    shell(
        top,
        "cp state bad; sed -i s/mode=4[0-7]*/mode=100644/ bad; \
         ! $N mkfs -q -d tree --owners bad c.img 16m 2> err && [ ! -e c.img ] && \
         grep -q \"has another type in fakeroot's state\" err || cat err; \
         echo dev=1,ino=x >> state; \
         ! $N mkfs -q -d tree --owners state c.img 16m 2> err && [ ! -e c.img ] && \
         grep -q 'state:[0-9]*: ' err || cat err",
    );
}

/// Root may read all files, so another user makes the image.
#[test]
fn unreadable_files_fail_or_are_skipped() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(
        top,
        "mkdir -p tree/open tree/closed tree/listed; echo a > tree/open/a; echo b > tree/open/b; \
         echo c > tree/closed/c; echo d > tree/listed/d; echo e > tree/e; ln tree/e tree/open/e; \
         truncate -s 1m tree/holes; : > tree/empty; \
         chmod 0 tree/open/b tree/e tree/holes tree/empty; chmod 300 tree/closed; \
         chmod 644 tree/listed; chmod -R a+rX . 2> /dev/null; \
         chmod 0 tree/open/b tree/e tree/holes tree/empty; chmod 311 tree/closed; \
         chmod 644 tree/listed; cp $N nextent 2> /dev/null || cp $N .",
    );
    let user = "if [ $(id -u) = 0 ]; then \
        setpriv --reuid 65534 --regid 65534 --clear-groups true 2> /dev/null || exit 0; \
        chmod 755 .; chown -R 65534:65534 .; \
        AS='setpriv --reuid 65534 --regid 65534 --clear-groups'; fi; ";
    shell(
        top,
        &format!(
            "{user} ! $AS ./nextent mkfs -q -d tree a.img 16m 2> err && [ ! -e a.img ] && \
             for f in tree/open/b tree/closed tree/e tree/open/e tree/holes tree/empty \
             tree/listed/d; do grep -q \"$f: Permission denied$\" err || echo $f; done; \
             [ $(wc -l < err) = 7 ] || cat err"
        ),
    );
    shell(
        top,
        &format!(
            "{user} $AS ./nextent mkfs -q -d tree --skip-unreadable a.img 16m 2> err; \
             echo $? > rc; \
             grep -q '^0$' rc || cat err; \
             [ $(grep -c 'Permission denied; skipped$' err) = 7 ] || cat err; \
             grep -q 'mkfs a.img: 7 entries skipped' err || cat err; \
             [ $(wc -l < err) = 8 ] || cat err; \
             for d in / /open; do debugfs -R \"ls -p $d\" a.img 2> /dev/null | cut -d/ -f6 | \
             sort | tr '\\n' ' '; done > names; \
             [ \"$(tr -s ' .' ' ' < names)\" = ' closed listed lost+found open a ' ] || cat names; \
             e2fsck -fn a.img > check 2>&1 || cat check; [ -e a.img ]"
        ),
    );
    // A directory as a layer, in a volume of a given size and in one that fits.
    for size in ["16m", ""] {
        shell(
            top,
            &format!(
                "mkdir -p more; echo m > more/m; {user} \
                 ! $AS ./nextent mkfs -q -d tree -d more l.img {size} 2> err && [ ! -e l.img ] && \
                 [ $(grep -c 'Permission denied$' err) = 7 ] || cat err; \
                 $AS ./nextent mkfs -q -d tree -d more --skip-unreadable l.img {size} 2> err || \
                 cat err; [ $(grep -c 'Permission denied; skipped$' err) = 7 ] || cat err; \
                 grep -q 'mkfs l.img: 7 entries skipped' err || cat err; \
                 for d in / /open; do debugfs -R \"ls -p $d\" l.img 2> /dev/null | cut -d/ -f6 | \
                 sort | tr '\\n' ' '; done > names; \
                 [ \"$(tr -s ' .' ' ' < names)\" = ' closed listed lost+found m open a ' ] || \
                 cat names; e2fsck -fn l.img > check 2>&1 || cat check; rm l.img"
            ),
        );
    }
    // Nothing of the source could be read.
    shell(
        top,
        &format!(
            "{user} ! $AS ./nextent mkfs -q -d tree/closed --skip-unreadable b.img 16m 2> err && \
             [ ! -e b.img ] && [ $(wc -l < err) = 1 ] && \
             grep -q 'tree/closed: Permission denied$' err || cat err"
        ),
    );
}

#[test]
fn clamp_mtime_needs_a_time() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(
        top,
        "mkdir tree; touch -d @2000000000 tree/new; touch -d @900000000 tree/old; \
         unset SOURCE_DATE_EPOCH; \
         ! $N mkfs -q -d tree --clamp-mtime a.img 16m 2> err && [ ! -e a.img ] && \
         [ $(wc -l < err) = 1 ] && grep -q 'SOURCE_DATE_EPOCH' err || cat err; \
         SOURCE_DATE_EPOCH=1000000000 $N mkfs -q -d tree --clamp-mtime a.img 16m; \
         debugfs -R 'stat /new' a.img 2> /dev/null | grep -q 'mtime: 0x3b9aca00'; \
         debugfs -R 'stat /old' a.img 2> /dev/null | grep -q 'mtime: 0x35a4e900'; \
         e2fsck -fn a.img > check 2>&1 || cat check",
    );
}

const CONTEXTS: &str = "\
/.*                 u:r:default:s0
/           -d      u:r:root:s0
/d(/.*)?            u:r:d:s0
/d/f        --      u:r:f:s0
/d/l        -l      u:r:l:s0
/lost\\+found(/.*)?  -d  u:r:lost:s0
/none(/.*)?         <<none>>
/dev/.*     -c      u:r:device:s0
";

/// The label that the kernel's ext4 has for a path, or nothing.
fn label(mounted: &KernelMount, path: &str) -> String {
    let path = mounted.join(path);
    let args = ["-h", "--only-values", "-n", "security.selinux"];
    let output = std::process::Command::new("getfattr").args(args).arg(&path).output();
    String::from_utf8(output.expect("the tests need getfattr").stdout).expect("labels are ASCII")
}

#[test]
fn labels_are_those_of_file_contexts() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(top, &format!("{TREE} mkdir tree/none; echo x > tree/none/x; chmod 755 tree"));
    // Labels of the source are of another policy.
    shell(top, "setfattr -n security.selinux -v old tree/d/f tree/none/x 2> /dev/null || true");
    std::fs::write(top.join("contexts"), CONTEXTS).expect("writable");
    std::fs::write(top.join("table"), "/dev d 755 0 0\n/dev/null c 666 0 0 1 3\n")
        .expect("writable");
    for (more, source) in
        [("", "tree"), ("", "t.tar"), ("", "part.tar"), ("-I 128 2> warning", "tree")]
    {
        shell(
            top,
            &format!(
                "tar -C tree --xattrs --xattrs-include='*' -cf t.tar . && \
                 tar -C tree -cf part.tar d/f d/g d/l p none/x && rm -f a.img && \
                 $N mkfs -q -d {source} --file-contexts contexts --owners table a.img 16m {more}"
            ),
        );
        let image = top.join("a.img");
        e2fs::assert_clean(&image);
        let mounted = need!(KernelMount::new(&image, Access::ReadOnly));
        for (path, want) in [
            ("", "u:r:root:s0"),
            ("d", "u:r:d:s0"),
            ("d/f", "u:r:f:s0"),
            ("d/g", "u:r:f:s0"),
            ("d/l", "u:r:l:s0"),
            ("p", "u:r:default:s0"),
            ("lost+found", "u:r:lost:s0"),
            ("none", ""),
            ("none/x", ""),
            ("dev", "u:r:default:s0"),
            ("dev/null", "u:r:device:s0"),
        ] {
            // The terminating zero is stored.
            let want = if want.is_empty() { String::new() } else { format!("{want}\0") };
            assert_eq!(label(&mounted, path), want, "{source} {more}: {path}");
        }
    }
    for (text, words) in [
        ("", "contexts: the file is empty"),
        ("# nothing\n", "contexts: the file has no contexts"),
        ("/a u:r:t\n/b(?=c) u:r:t\n", "contexts:2: the expression"),
        ("/a -q u:r:t\n", "contexts:1: the type"),
    ] {
        std::fs::write(top.join("contexts"), text).expect("writable");
        std::fs::write(top.join("words"), words).expect("writable");
        shell(
            top,
            "! $N mkfs -q -d tree --file-contexts contexts b.img 16m 2> err && \
                 [ ! -e b.img ] && [ $(wc -l < err) = 1 ] && grep -qF -f words err || cat err",
        );
    }
}

#[test]
fn an_fs_config_sets_what_it_names() {
    let dir = tempfile::tempdir().expect("writable");
    let top = dir.path();
    shell(top, &format!("{TREE} echo y > tree/plain; chmod 751 tree; chmod 604 tree/plain"));
    let config = "/ 0 2000 0711 selabel=u:r:root:s0\nd 1 2 0750\n\
        d/f 3 4 0555 capabilities=0x4000000c0 selabel=u:r:f:s0\nd/l 5 6 0777\n\
        lost+found 0 9 0710\n";
    std::fs::write(top.join("config"), config).expect("writable");
    let want = [
        ("/", "0711", 0, 2000),
        ("/d", "0750", 1, 2),
        ("/d/f", "0555", 3, 4),
        ("/d/g", "0555", 3, 4),
        ("/d/l", "0777", 5, 6),
        ("/plain", "0604", 7, 8),
        ("/lost+found", "0710", 0, 9),
    ];
    images(top, "--owner 7:8 --fs-config config", |image| owners(image, &want));
    // A change of the owner by a table keeps capabilities.
    shell(top, "echo '/d/f f 500 9 9' > table");
    images(top, "--owner 7:8 --fs-config config --owners table", |image| {
        owners(image, &[("/d/f", "0500", 9, 9), ("/d", "0750", 1, 2)]);
        let mounted = match KernelMount::new(image, Access::ReadOnly) {
            Ok(mounted) => mounted,
            Err(skip) => return println!("{skip}"),
        };
        assert_eq!(label(&mounted, ""), "u:r:root:s0\0");
        assert_eq!(label(&mounted, "d/f"), "u:r:f:s0\0");
        assert_eq!(label(&mounted, "plain"), "");
        let file = mounted.join("d/f").display().to_string();
        // cap_setgid, cap_setuid and cap_syslog, effective.
        let want = "0x01000002c0000000000000000400000000000000";
        shell(
            top,
            &format!(
                "getfattr --absolute-names -e hex -n security.capability {file} | grep -q {want}"
            ),
        );
    });
    for (text, words) in [
        ("", "config: the file is empty"),
        ("\n\n", "config: the fs_config file has no lines"),
        ("d 0 0\n", "config:1: fewer than the fields"),
        ("d 0 0 755\n../d 0 0 755\n", "config:2: the path"),
    ] {
        std::fs::write(top.join("config"), text).expect("writable");
        std::fs::write(top.join("words"), words).expect("writable");
        shell(
            top,
            "! $N mkfs -q -d tree --fs-config config b.img 16m 2> err && \
                 [ ! -e b.img ] && [ $(wc -l < err) = 1 ] && grep -qF -f words err || cat err",
        );
    }
}
