//! Conventions of coreutils that commands on images share: units, modes, targets, image names.

use crate::support::{fails, inside, run, shell};
use std::path::Path;
use std::process::{Command, Stdio};

fn setup() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    shell(dir.path(), "$N mkfs -q i.img 16m; echo data > f; $N cp -q f i.img:/f");
    dir
}

/// A target that ends in `.` must be an existing directory.
#[test]
fn a_target_that_ends_in_a_dot_is_a_directory() {
    let dir = setup();
    let top = dir.path();
    shell(top, "$N mkdir i.img:/d");
    for (options, source) in [("-q", "/f"), ("-r", "/d"), ("-a", "/f")] {
        for end in ["new/.", "new/./", "new/.."] {
            let target = format!("{}/{end}", top.display());
            let source = inside(&top.join("i.img"), source);
            let output = run(&["cp", options, &source, &target]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{options} {end}: {said}");
            assert!(!top.join("new").exists(), "{options} {end}");
        }
    }
    shell(top, "mkdir new; $N cp -q i.img:/f new/.; $N cp -q i.img:/f new/..; [ -e new/f ]");
}

/// Several paths may lead to one image.
#[test]
fn one_image_has_several_paths() {
    let dir = setup();
    shell(
        dir.path(),
        "ln -s i.img s.img; ln i.img h.img; $N mv i.img:/f ./i.img:/g; $N mv s.img:/g h.img:/h; \
        $N ln ./i.img:/h s.img:/l; $N rm i.img:/h ./i.img:/l; e2fsck -fn i.img > /dev/null 2>&1",
    );
    shell(dir.path(), "cp i.img other.img; $N cp -q f i.img:/f");
    let at = |image: &str| inside(&dir.path().join(image), "/f");
    fails(&["mv", &at("i.img"), &at("other.img")], 2, "another image");
}

/// `mkdir -m` accepts the modes of chmod(1).
#[test]
fn modes_of_new_directories_are_those_of_chmod() {
    let dir = setup();
    let top = dir.path();
    let modes = [
        "u=rwx,go=",
        "+w",
        "a=rx",
        "-w",
        "g-w,o=",
        "u=rwx,go=rX",
        "1777",
        "700",
        "=",
        "-x",
        "00755",
    ];
    for (n, mode) in modes.iter().enumerate() {
        shell(
            top,
            &format!(
                "umask 027; mkdir -m {mode} t{n}; $N mkdir -m {mode} i.img:/t{n}; \
                $N mkdir -p -m {mode} i.img:/p{n}/t; mkdir -p -m {mode} p{n}/t; \
                for d in t{n} p{n} p{n}/t; do \
                $N stat i.img:/$d | grep -q \"(0*$(stat -c %a $d)/\" || echo {mode} $d; done"
            ),
        );
    }
    for bad in ["99", "u", "77777", "", "z=r"] {
        fails(&["mkdir", "-m", bad, &inside(&top.join("i.img"), "/bad")], 2, "is not a mode");
    }
    shell(top, "e2fsck -fn i.img > /dev/null 2>&1");
}

/// Lengths are accepted and refused as by truncate(1).
#[test]
fn units_of_lengths_are_those_of_truncate() {
    let dir = setup();
    let top = dir.path();
    let sizes = [
        "10K", "10KB", "10kB", "10kD", "1KiB", "1MB", "+1KB", "-1k", "<2KB", "< 50", ">3k", "%512",
        "/1KB", "1b", "1s", "0x10", "010", " +5", "+ 5", "--5", "<+5", "1kb", "1kib", "1KIB",
        "1Kb", "", "+0", "-0", "1 k", "5 ", "16E",
    ];
    shell(top, "cp f t; $N cp -q f i.img:/t");
    for size in sizes {
        let theirs =
            Command::new("truncate").args(["-s", size, "t"]).current_dir(top).output().expect("it");
        let ours = run(&["truncate", "-s", size, &inside(&top.join("i.img"), "/t")]);
        assert_eq!(ours.status.success(), theirs.status.success(), "{size:?}");
        let length = std::fs::metadata(top.join("t")).expect("it is there").len();
        let output = run(&["stat", &inside(&top.join("i.img"), "/t")]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("Size: {length} ")), "{size:?}: {length}: {said}");
    }
}

/// A failure to write the output has an exit code that fsck(8) does not take for a repair.
#[test]
fn output_to_a_full_disk_fails() {
    if !Path::new("/dev/full").exists() {
        return println!("skipped: no /dev/full");
    }
    let dir = setup();
    let image = dir.path().join("i.img").display().to_string();
    let cases: [(&[&str], i32); 6] = [
        (&["--help"], 1),
        (&["help", "cp"], 1),
        (&["--version"], 1),
        (&["fsck", "-n", &image], 8),
        (&["fsck", "-n", "-f", &image], 8),
        (&["info", &image], 1),
    ];
    for (args, code) in cases {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        let output =
            crate::support::nextent().args(args).stdout(Stdio::from(full)).output().expect("built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
}

/// Options of chown(1) and rm(1) that mean something else in other commands, and invalid owners.
#[test]
fn options_of_chown_and_rm_are_those_of_coreutils() {
    let dir = setup();
    shell(
        dir.path(),
        "$N ln -s f i.img:/l; $N ln -s none i.img:/dangling; $N chown -h 5:6 i.img:/l; \
        $N chown -h 7 i.img:/dangling; $N chown 8 i.img:/l; $N chown --help | grep -q Usage; \
        $N stat i.img:/l | grep -q 'Uid: 5 *Gid: 6'; $N stat i.img:/f | grep -q 'Uid: 8 *Gid: 0'; \
        $N stat i.img:/dangling | grep -q 'Uid: 7'; \
        $N mkdir -p i.img:/d i.img:/e/f; $N rm -d i.img:/d i.img:/dangling; \
        $N rm -d i.img:/e 2> /dev/null && echo removed; $N rm -r -d i.img:/e; \
        e2fsck -fn i.img > /dev/null 2>&1",
    );
    let file = inside(&dir.path().join("i.img"), "/f");
    for owner in ["4294967295", ":4294967295", "4294967296", "-1", "5:"] {
        let output = run(&["chown", "--", owner, &file]);
        assert_eq!(output.status.code(), Some(2), "{owner}");
    }
}

/// As with getopt(3), the last value of a repeated option counts.
#[test]
fn options_may_be_repeated() {
    let dir = setup();
    shell(
        dir.path(),
        "$N cp -q -q -r -R f i.img:/a; $N chmod -R -R 700 i.img:/a; $N rm -rf -r -f i.img:/a; \
        $N mkdir -p -p -m 700 -m 711 i.img:/d; $N truncate -c -s 1 -c -s 5 i.img:/f; \
        $N stat i.img:/d | grep -q '(0711/'; $N stat i.img:/f | grep -q 'Size: 5 '; \
        $N mkfs -q -q -L one -L two -b 1024 -b 4096 j.img 16m; \
        dumpe2fs -h j.img 2> /dev/null | grep -q 'name: *two'; \
        dumpe2fs -h j.img 2> /dev/null | grep -q 'Block size: *4096'",
    );
}
