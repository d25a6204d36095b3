//! `sync`: the image equals the tree afterwards, as after rsync; a second run writes nothing.

use super::{Image, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// A directory `s` with files of all kinds that this user can make.
const TREE: &str = "mkdir -p s/d/e s/z; echo text > s/f; ln s/f s/d/g; ln -s f s/l; mkfifo s/p; \
    touch s/empty; seq 90000 > s/long; truncate -s 9M s/sparse; echo x >> s/sparse; \
    setfattr -n user.a -v b s/d; setfacl -m u:5:rw s/f; setfacl -d -m u:6:rx s/d; \
    chmod 2750 s/d/e; mknod s/c c 1 3 2> /dev/null; \
    touch -h -d 2001-02-03T04:05:06.789 s/l s/f s/z; touch -d 1903-01-01 s/empty; ";

impl Image {
    /// An image of 16 MiB.
    fn small() -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        image.ok(&["mkfs", "-q", "IMAGE", "16m"]);
        image
    }

    /// The last line of `sync` with these arguments, which must succeed.
    #[track_caller]
    fn sync(&self, args: &[&str]) -> String {
        let dir = self.dir.path().to_str().unwrap();
        let all: Vec<String> = args.iter().map(|arg| arg.replace("DIR", dir)).collect();
        let mut words = vec!["sync"];
        words.extend(all.iter().map(String::as_str));
        self.ok(&words).lines().last().unwrap_or_default().to_owned()
    }

    /// Runs `sync` again, which must write nothing and say so.
    #[track_caller]
    fn sync_again(&self, args: &[&str]) {
        let state = || (std::fs::read(self.path()).unwrap(), mtime(self));
        let before = state();
        let said = self.sync(args);
        assert_eq!(said, "0 created, 0 updated, 0 removed; 0 blocks written");
        assert!(before == state(), "the image was written");
    }

    /// Whether `diff` finds the trees equal.
    #[track_caller]
    fn assert_equals(&self, tree: &str, inside: &str) {
        let tree = self.dir.path().join(tree);
        let inside = format!("IMAGE:{inside}");
        let output = self.run(&["diff", tree.to_str().unwrap(), &inside]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn mtime(image: &Image) -> (i64, i64) {
    let meta = image.path().metadata().unwrap();
    (meta.mtime(), meta.mtime_nsec())
}

#[test]
fn a_second_run_writes_nothing() {
    let image = Image::small();
    shell(&image, TREE);
    let said = image.sync(&["DIR/s/", "IMAGE:/"]);
    assert!(said.contains(" 0 removed; ") && !said.contains("; 0 blocks"), "{said}");
    image.assert_equals("s", "/");
    image.sync_again(&["DIR/s", "IMAGE"]);
    image.sync_again(&["--checksum", "DIR/s/", "IMAGE:/"]);
    // A directory below; its last name may be missing.
    assert!(image.sync(&["DIR/s/d", "IMAGE:/new/"]).starts_with("3 created"));
    image.sync_again(&["DIR/s/d", "IMAGE:/new"]);
    image.assert_equals("s/d", "/new");
    shell(&image, "$N ln -s new $i:/behind");
    image.sync_again(&["DIR/s/d", "IMAGE:/behind"]);
    // Only what differs is written.
    let said = image.sync(&["DIR/s", "IMAGE"]);
    assert!(said.starts_with("0 created, 1 updated, 4 removed; "), "{said}");
    image.assert_equals("s", "/");
    e2fs::assert_clean(&image.path());
}

/// Inodes of 128 bytes hold seconds up to 2038.
#[test]
fn times_that_an_inode_cannot_hold_are_no_difference() {
    let image = Image::small();
    shell(&image, "mkdir s; touch -d 2001-02-03T04:05:06.789 s/a; touch -d 2999-01-01 s/b");
    for options in ["-I 128", "-I 256"] {
        shell(&image, &format!("$N mkfs -q {options} $i 16m 2> /dev/null"));
        assert!(image.sync(&["DIR/s", "IMAGE"]).starts_with("2 created"));
        image.sync_again(&["DIR/s", "IMAGE"]);
        e2fs::assert_clean(&image.path());
    }
}

#[test]
fn contents_are_compared_only_if_asked() {
    let image = Image::small();
    shell(&image, "mkdir s; seq 9000 > s/f; cp s/f s/g; touch -d @77 s/f s/g");
    image.sync(&["DIR/s", "IMAGE"]);
    shell(&image, "printf X | dd of=s/f bs=1 seek=5 conv=notrunc status=none; touch -d @77 s/f");
    image.sync_again(&["DIR/s", "IMAGE"]);
    assert!(image.sync(&["-c", "DIR/s", "IMAGE"]).starts_with("0 created, 1 updated, 0 removed"));
    image.assert_equals("s", "/");
    // Another time alone: the contents stay where they are.
    let place = |image: &Image| {
        let json = image.ok(&["stat", "--json", "IMAGE:/g"]);
        serde_json::from_str::<serde_json::Value>(&json).unwrap()[0]["inode"].clone()
    };
    let before = place(&image);
    shell(&image, "touch -d @78 s/g");
    assert!(image.sync(&["DIR/s", "IMAGE"]).starts_with("0 created, 1 updated, 0 removed"));
    assert!(before == place(&image) && !before.is_null());
    image.assert_equals("s", "/");
    e2fs::assert_clean(&image.path());
}

#[test]
fn changes_are_itemized_and_a_dry_run_makes_none() {
    let image = Image::small();
    shell(
        &image,
        "mkdir s s/d; echo 1 > s/a; ln s/a s/b; echo 2 > s/c; echo 3 > s/d/x; echo 4 > s/e",
    );
    image.sync(&["DIR/s", "IMAGE"]);
    shell(
        &image,
        "echo 11 > s/c; rm -r s/d; echo d > s/d; rm s/e; mkdir s/e; ln -s a s/l; chmod 600 s/a; \
         ln s/a s/h; rm s/b; touch -d @5 s",
    );
    let lines = ".d..t...... ./\n.f...p..... a\n>fcst...... c\n>f+++++++++ d\n*deleting   d/x\n\
        cd+++++++++ e/\nhf+++++++++ h\ncL+++++++++ l\n*deleting   b\n";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let source = image.dir.path().join("s");
    let before = std::fs::read(image.path()).unwrap();
    let dry = image.ok(&["sync", "-n", "-i", source.to_str().unwrap(), "IMAGE"]);
    assert!(before == std::fs::read(image.path()).unwrap());
    let (said, last) = dry.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(sorted(said), sorted(lines));
    assert!(last.ends_with("2 would be removed; 0 blocks written"), "{last}");
    let json = image.ok(&["sync", "-n", "--json", source.to_str().unwrap(), "IMAGE"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changes"].as_array().unwrap().len(), 9, "{json}");
    let changed = json!({ "path": "c", "type": "regular file", "action": "replace",
        "differs": ["contents", "size", "time"] });
    assert!(json["changes"].as_array().unwrap().contains(&changed), "{json}");
    assert_eq!((&json["removed"], &json["blocks"]), (&2.into(), &0.into()));
    let wet = image.ok(&["sync", "-i", source.to_str().unwrap(), "IMAGE"]);
    let (said, _) = wet.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(sorted(said), sorted(lines));
    image.assert_equals("s", "/");
    e2fs::assert_clean(&image.path());
}

/// Names that are one file become one file, and the reverse.
#[test]
fn hard_links_follow_the_source() {
    let image = Image::small();
    let lines = [
        "mkdir s s/d; echo 1 > s/b; ln s/b s/d/c; echo 2 > s/x; ln s/x s/y; touch -d @1 s/b s/x",
        "ln s/b s/a; rm s/y; cp -p s/x s/y",
        "rm s/b; cp -p s/a s/b; ln s/b s/d/b",
        "echo 9 > s/d/c; ln -f s/x s/b",
        "rm s/a; ln s/d/c s/0; chmod 755 s/0; mkdir s/n; ln s/x s/n/x; mkfifo s/p; ln s/p s/n/p",
        "ln -f s/p s/0; mv s/n s/m",
    ];
    for line in lines {
        shell(&image, line);
        image.sync(&["DIR/s", "IMAGE"]);
        image.assert_equals("s", "/");
        image.sync_again(&["DIR/s", "IMAGE"]);
        e2fs::assert_clean(&image.path());
    }
}

#[test]
fn owners_are_mapped() {
    let image = Image::small();
    shell(&image, "mkdir s; touch s/a; setfacl -m u:5:r s/a; chown 3:4 s/a 2> /dev/null; true");
    image.sync(&["--owner", "7:8", "DIR/s", "IMAGE"]);
    image.sync_again(&["--owner", "7:8", "DIR/s", "IMAGE"]);
    shell(&image, "$N ls -l $i:/a | grep -q '  *7  *8 '");
    let map = ["--map-uid", "0:100000:65536", "--map-gid", "0:100000:65536", "DIR/s", "IMAGE"];
    image.sync(&map);
    image.sync_again(&map);
    shell(&image, "$N getxattr -d $i:/a | grep -q user:100005 || $N getxattr $i:/a | grep -q acl");
    e2fs::assert_clean(&image.path());
}

#[test]
fn what_cannot_be_synced_is_refused() {
    let image = Image::small();
    shell(&image, "mkdir s; touch s/f; $N cp s/f $i:/f; $N ln -s none $i:/dangling");
    let dir = image.dir.path().to_str().unwrap().to_owned();
    let source = format!("{dir}/s");
    assert!(image.fails(&["sync", &dir, "IMAGE"], 1).contains("the image that is written lies"));
    assert!(image.fails(&["sync", &format!("{source}/f"), "IMAGE"], 1).contains("not a directory"));
    assert!(image.fails(&["sync", &format!("{dir}/no"), "IMAGE"], 1).contains("No such file"));
    assert!(image.fails(&["sync", &source, "IMAGE:/a/b"], 1).contains("/a/b: no such file"));
    assert!(image.fails(&["sync", &source, "IMAGE:/f"], 1).contains("/f: is not a directory"));
    assert!(image.fails(&["sync", &source, "IMAGE:/dangling"], 1).contains("dangling link"));
    image.fails(&["sync", &source, "/nonexistent/image"], 1);
    image.fails(&["sync", &source], 2);
    image.fails(&["sync", "--owner", "x", &source, "IMAGE"], 2);
}

/// The rest is done, nothing is removed, and the exit code is 1.
#[test]
fn an_unreadable_file_keeps_what_the_source_lacks() {
    let image = Image::small();
    shell(
        &image,
        "chmod 755 .; chmod 666 $i; mkdir s s/d; echo 1 > s/a; echo 2 > s/secret; echo 3 > s/d/x; \
         $N cp s/a $i:/gone; chmod 000 s/secret s/d; cp $N nextent",
    );
    let path = image.dir.path();
    let mut words = vec!["./nextent", "sync", "s", "image"];
    if std::fs::read(path.join("s/secret")).is_ok() {
        let who = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
        words.splice(0..0, who);
    }
    let output = Command::new(words[0]).args(&words[1..]).current_dir(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].contains("s/d") && lines[1].contains("s/secret"), "{said}");
    assert!(lines[2].contains("was removed (1 name)"), "{said}");
    assert!(image.ok(&["ls", "IMAGE:/"]).contains("gone"));
    assert_eq!(image.ok(&["cat", "IMAGE:/a"]), "1\n");
    e2fs::assert_clean(&image.path());
    shell(&image, "chmod 644 s/secret; chmod 755 s/d");
    assert!(image.sync(&["DIR/s", "IMAGE"]).contains(" 1 removed"));
    image.assert_equals("s", "/");
    e2fs::assert_clean(&image.path());
}

#[test]
fn immutable_entries_are_named() {
    let image = Image::small();
    shell(&image, "mkdir -p s/d; echo 1 > s/a; echo 2 > s/b; $N cp -ra s/. $i:/");
    let immutable = ["sif /a flags 0x80010", "sif /d flags 0x80010"];
    need!(e2fs::debugfs(&image.path(), true, &immutable));
    shell(&image, "echo 33 > s/a; echo 22 > s/b; touch -r s/d m; echo 4 > s/d/x; touch -r m s/d");
    let source = image.dir.path().join("s");
    let output = image.run(&["sync", source.to_str().unwrap(), "IMAGE"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = |name: &str| format!("s/{name}: is immutable or append-only in the image");
    assert!(said.contains(&expected("a")) && said.contains(&expected("d/x")), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(image.ok(&["cat", "IMAGE:/a", "IMAGE:/b"]), "1\n22\n");
    e2fs::assert_clean(&image.path());
}

/// One line names the file, and the image stays consistent. What the source lacks makes room first.
#[test]
fn a_full_volume_is_one_line() {
    let image = Image::small();
    shell(
        &image,
        "$N mkfs -q -m 0 -O ^has_journal $i 8m; mkdir s o; head -c 5000000 /dev/urandom > o/old; \
         head -c 6000000 /dev/urandom > s/new; head -c 3000000 /dev/urandom > s/second",
    );
    image.sync(&["DIR/o", "IMAGE"]);
    let source = image.dir.path().join("s");
    let output = image.run(&["sync", source.to_str().unwrap(), "IMAGE"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("s/second: ") && said.contains("no space left"), "{said}");
    let names = image.ok(&["ls", "-a", "IMAGE:/"]);
    assert!(names.contains("new") && !names.contains("old") && !names.contains("second"));
    e2fs::assert_clean(&image.path());
    shell(&image, "rm s/second");
    image.sync(&["DIR/s", "IMAGE"]);
    image.sync_again(&["DIR/s", "IMAGE"]);
    image.assert_equals("s", "/");
}

/// A journal to be replayed is replayed in memory, and on the device with the first difference.
#[test]
fn a_journal_that_needs_recovery_is_kept_until_a_difference() {
    let image = Image::small();
    shell(&image, "mkdir s; seq 999 > s/a");
    image.sync(&["DIR/s", "IMAGE"]);
    need!(e2fs::debugfs(&image.path(), true, &["feature needs_recovery"]));
    image.sync_again(&["DIR/s", "IMAGE"]);
    shell(&image, "echo b > s/b");
    assert!(image.sync(&["DIR/s", "IMAGE"]).starts_with("1 created"));
    image.assert_equals("s", "/");
    e2fs::assert_clean(&image.path());
}

/// Changes the tree in the directory `s` at random, with the seed `$1`.
const MUTATE: &str = r#"
RANDOM=$1; cd s
pick() {
  local all; mapfile -t all < <(find . -mindepth 1 "$@" | sort)
  p=${all[RANDOM % (${#all[@]} + 1)]}
}
for i in $(seq 30); do
  pick -type d; d=${p:-.}; pick -type f; f=${p:-none}; pick; a=${p:-none}; n=$d/n$RANDOM
  case $((RANDOM % 18)) in
    0 | 1) seq $((RANDOM % 6000)) > $n ;;
    2) echo more >> $f ;;
    3) printf X | dd of=$f bs=1 seek=$((RANDOM % 50)) conv=notrunc status=none ;;
    4) rm -rf $a ;;
    5 | 6) mkdir $n ;;
    7) mv $a $n ;;
    8) ln $f $n ;;
    9) ln -s t$RANDOM $n ;;
    10) chmod $((RANDOM % 8))$((RANDOM % 8))$((RANDOM % 8)) $a ;;
    11) chown -h $RANDOM:$RANDOM $a ;;
    12) touch -h -d @$RANDOM.5 $a ;;
    13) setfattr -n user.x -v $RANDOM $a ;;
    14) setfacl -m u:$((RANDOM % 9)):r $a ;;
    15) mkfifo $n; mknod $n-c b $((RANDOM % 200)) 7; ln $n $n-l ;;
    16) rm -f $f; mkdir $f; touch $f/x ;;
    17) rm -rf $d/n*; truncate -s 300k $d/n; echo end >> $d/n ;;
  esac
done 2> /dev/null
true
"#;

/// What the directory `$1` holds.
const STATE: &str = r#"
cd $1; find . -path ./lost+found -prune -o -type d -printf '%P %y %m %U %G %T@\n' \
  -o -printf '%P %y %m %U %G %T@ %n %s %l\n' | sort
find . -path ./lost+found -prune -o -type f -print0 | sort -z | xargs -0r sha256sum
find . -path ./lost+found -prune -o \( -type b -o -type c \) -printf '%P ' -exec stat -c %t:%T {} \;
getfattr -R -h -d -m- . 2> /dev/null | grep -v '^# file: lost'; true
"#;

#[test]
fn random_changes_end_as_with_rsync() {
    let image = Image::small();
    need!(e2fs::run("rsync", ["--version"]));
    shell(&image, "cp $i theirs; mkdir s m");
    let dir = image.dir.path();
    let theirs = dir.join("theirs");
    let script = |text: &str, arg: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", text, "-", arg]).current_dir(dir);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arg}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for seed in ["11", "12"] {
        script(MUTATE, seed);
        image.sync(&["DIR/s", "IMAGE"]);
        image.assert_equals("s", "/");
        image.sync_again(&["--checksum", "DIR/s", "IMAGE"]);
        e2fs::assert_clean(&image.path());
        let mount = need!(KernelMount::new(&theirs, Access::ReadWrite));
        // Nanoseconds count.
        let line = format!(
            "rsync -aHAX --delete --exclude=/lost+found -@-1 s/ {}",
            mount.path().display()
        );
        script(&line, "");
        let expected = script(STATE, mount.path().to_str().unwrap());
        mount.unmount();
        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        let found = script(STATE, mount.path().to_str().unwrap());
        mount.unmount();
        assert_eq!(found, expected, "seed {seed}");
    }
}
