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
