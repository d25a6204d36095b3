//! The small commands; e2fsck checks the image after each.

mod diff;
mod edit;
mod nbd;
mod nbd_faults;
mod nodes;
mod overlay;
mod plot;
mod resize;
mod sync;
mod trim;

use nextent_testkit::e2fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    fn new() -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        image.ok(&["mkfs", "-q", "IMAGE", "64m"]);
        image
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Runs a command; `IMAGE` in `args` is replaced by the image's path.
    fn run(&self, args: &[&str]) -> Output {
        let path = self.path().display().to_string();
        let args = args.iter().map(|arg| arg.replace("IMAGE", &path));
        Command::new(env!("CARGO_BIN_EXE_nextent")).args(args).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Runs a command that must fail with `code` and one line, and leave the image unchanged.
    #[track_caller]
    fn fails(&self, args: &[&str], code: i32) -> String {
        let before = std::fs::read(self.path()).unwrap();
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(before == std::fs::read(self.path()).unwrap(), "{args:?} changed the image");
        text
    }
}

fn fsck_code(image: &Image, path: &Path) -> Option<i32> {
    let args = ["fsck".into(), "-n".into(), "-f".into(), path.display().to_string()];
    image.run(&args.each_ref().map(String::as_str)).status.code()
}

#[test]
fn changes_are_made_and_clean() {
    let image = Image::new();
    image.ok(&["mkdir", "-p", "IMAGE:/a/b/c"]);
    image.ok(&["truncate", "-s", "5m", "IMAGE:/a/hole"]);
    image.ok(&["fallocate", "-l", "3m", "IMAGE:/a/full"]);
    image.ok(&["fallocate", "-p", "-o", "1m", "-l", "1m", "IMAGE:/a/full"]);
    image.ok(&["ln", "-s", "../hole", "IMAGE:/a/b/link"]);
    image.ok(&["ln", "IMAGE:/a/full", "IMAGE:/a/b/twin"]);
    image.ok(&["chmod", "-R", "g+w,o-r", "IMAGE:/a"]);
    image.ok(&["chown", "-R", "7:8", "IMAGE:/a"]);
    image.ok(&["mv", "IMAGE:/a/b", "IMAGE:/moved"]);
    let stat: serde_json::Value =
        serde_json::from_str(&image.ok(&["stat", "--json", "IMAGE:/moved/twin"])).unwrap();
    let stat = &stat[0];
    assert_eq!((&stat["size"], &stat["links"]), (&(3 << 20).into(), &2.into()));
    assert_eq!((&stat["uid"], &stat["gid"]), (&7.into(), &8.into()));
    assert_eq!(image.ok(&["ls", "IMAGE:/moved"]), "c\nlink\ntwin\n");
    assert_eq!(image.ok(&["cat", "IMAGE:/moved/twin"]).len(), 3 << 20);
    assert!(image.ok(&["tree", "IMAGE:/"]).contains("link -> ../hole"));
    e2fs::assert_clean(&image.path());
    image.ok(&["rm", "-r", "IMAGE:/a", "IMAGE:/moved"]);
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "lost+found\n");
    e2fs::assert_clean(&image.path());
    assert!(image.ok(&["replay", "IMAGE"]).contains("nothing to recover"));
}

#[test]
fn refusals_are_one_line_and_change_nothing() {
    let image = Image::new();
    assert!(image.fails(&["cat", "IMAGE:/none"], 1).contains("/none"));
    image.fails(&["cat", "IMAGE:/lost+found"], 1);
    image.fails(&["ls", "IMAGE"], 2);
    image.fails(&["frob"], 2);
    image.fails(&["fsck"], 16);
    image.fails(&["fsck", "-n", "/dev/null"], 8);
    image.fails(&["ls", "nbd://host:0/export"], 2);
}

#[test]
fn fsck_and_info_see_what_e2fsck_sees() {
    let image = Image::new();
    image.ok(&["mkdir", "IMAGE:/d"]);
    image.ok(&["truncate", "-s", "1m", "IMAGE:/d/f"]);
    assert_eq!(fsck_code(&image, &image.path()), Some(0));
    let info: serde_json::Value =
        serde_json::from_str(&image.ok(&["info", "--json", "IMAGE"])).unwrap();
    assert!(info.is_object());
    let text = image.ok(&["info", "IMAGE"]);
    assert!(text.contains("Inode count:") && text.contains("has_journal"), "{text}");
    let Ok(_) = e2fs::debugfs(&image.path(), true, &["clri /d/f", "setb 30000"]) else { return };
    let theirs = e2fs::e2fsck(&image.path()).unwrap();
    assert!(!theirs.is_clean());
    assert_eq!(fsck_code(&image, &image.path()), Some(4));
}

/// Has `grep -q` read all of its input: a program that still writes to it would be killed by the
/// closed pipe, and the line fail.
const READ_ALL: &str = "grep() { if [ \"$1\" = -q ]; then shift; command grep \"$@\" > /dev/null; \
    else command grep \"$@\"; fi; }; ";

/// Runs a line of shell in the image's directory; `$N` is the command, `i` the image. It must
/// succeed and print nothing.
#[track_caller]
fn shell(image: &Image, line: &str) {
    let mut command = Command::new("bash");
    command.env("N", env!("CARGO_BIN_EXE_nextent")).env("i", "image");
    command.current_dir(image.dir.path()).args(["-o", "pipefail", "-c"]);
    command.arg(format!("{READ_ALL}{line}"));
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.is_empty() && err.is_empty(), "{line}: {out}{err}");
}

/// After a failed argument the command handles the others, prints one line, and exits with 1.
#[test]
fn a_failed_argument_does_not_stop_others() {
    let image = Image::new();
    for (command, check) in [
        ("rm $i:/a $i:/none $i:/b", "! $N ls $i:/b > /dev/null 2>&1"),
        ("mkdir $i:/a/x $i:/d1 $i:/none/x $i:/d2", "$N ls $i:/d2"),
        ("chmod 600 $i:/a $i:/none $i:/b", "$N ls -l $i:/b | grep -q ^-rw-------"),
        ("chown 7:8 $i:/a $i:/none $i:/b", "[ \"$($N ls -l $i:/b | awk '{print $3 $4}')\" = 78 ]"),
        ("truncate -s 5 $i:/a $i:/none/x $i:/b", "[ $($N ls -l $i:/b | awk '{print $5}') = 5 ]"),
        ("mv $i:/a $i:/none $i:/b $i:/dir", "$N ls $i:/dir/b > /dev/null"),
        ("cp -q $i:/a $i:/none $i:/b out", "[ -f out/b ]"),
    ] {
        shell(
            &image,
            "$N mkfs -q $i 64m; $N mkdir $i:/dir; mkdir -p out; rm -f out/*; \
            echo x > f; $N cp -q f $i:/a; $N cp -q f $i:/b",
        );
        let extra = if command.starts_with("mkdir") { 2 } else { 1 };
        let line = format!(
            "$N {command} 2> messages; [ $? = 1 ] || echo code; \
                [ $(wc -l < messages) = {extra} ] || cat messages; \
            {check} || echo not done"
        );
        shell(&image, &line);
        e2fs::assert_clean(&image.path());
    }
    shell(
        &image,
        "$N cat $i:/none $i:/b > out/cat 2> messages; [ $? = 1 ] && [ $(cat out/cat) = x ]",
    );
    shell(
        &image,
        "$N stat $i:/none $i:/b > out/stat 2> messages; \
        [ $? = 1 ] && grep -q File: out/stat",
    );
    shell(&image, "$N ls $i:/none $i:/b > out/ls 2> messages; [ $? = 1 ] && grep -q /b out/ls");
}

#[test]
fn lengths_and_modes_are_those_of_coreutils() {
    let image = Image::new();
    shell(&image, "head -c 100000 /dev/zero > f; cp f g; $N cp -q f $i:/f");
    for size in ["+4k", "-4k", "-1m", "'<50'", "'>5000'", "/4k", "+100", "%4k", "1m"] {
        shell(
            &image,
            &format!(
                "truncate -s {} g; $N truncate -s {size} $i:/f; \
                [ $(stat -c %s g) = $($N ls -l $i:/f | awk '{{print $5}}') ] || echo {size}",
                size.replace('k', "K").replace('m', "M")
            ),
        );
    }
    for bad in ["/0", "++1", "x", "+"] {
        image.fails(&["truncate", "-s", bad, "IMAGE:/f"], 2);
    }
    for (umask, mode) in [("022", "+w"), ("077", "=rwx"), ("0", "u=g"), ("022", "a-x+w")] {
        shell(
            &image,
            &format!(
                "chmod 754 g; $N chmod 754 $i:/f; umask {umask}; chmod -- {mode} g 2> /dev/null; \
                $N chmod {mode} $i:/f; [ $(stat -c %A g) = $($N ls -l $i:/f | cut -c1-10) ]"
            ),
        );
    }
    // A directory keeps its set-group-id bit.
    shell(
        &image,
        "$N mkdir $i:/d; $N chmod 2755 $i:/d; $N chmod 700 $i:/d; \
        [ $($N ls -ld $i:/d | cut -c1-10) = drwx--S--- ]",
    );
    e2fs::assert_clean(&image.path());
}

#[test]
fn directories_are_made_behind_links() {
    let image = Image::new();
    shell(
        &image,
        "mkdir -p s/usr/lib; ln -s usr/lib s/lib; ln -s /usr s/abs; \
        ln -s ../usr s/usr/up; \
        $N mkfs -q -d s $i 64m; \
        for p in lib/modules lib/a/b/c abs/share/x usr/up/local; do $N mkdir -p $i:/$p || exit; \
            done; \
        $N ls $i:/usr/lib/a/b/c; $N ls $i:/usr/share/x; $N ls $i:/usr/local; \
            $N ls $i:/usr/lib/modules",
    );
    e2fs::assert_clean(&image.path());
}

/// A command ends without a message when the reader of its output has closed it.
#[test]
fn a_closed_pipe_is_no_panic() {
    let image = Image::new();
    shell(
        &image,
        "mkdir s; for k in $(seq 3000); do : > s/file$k; done; \
        head -c 3000000 /dev/zero > s/zero; $N mkfs -q -d s $i 64m",
    );
    for command in [
        "ls -l $i:/",
        "tree $i:/",
        "cat $i:/zero",
        "stat $i:/zero $i:/file1",
        "info $i",
        "tar \
            -q -c $i:/",
    ] {
        shell(&image, &format!("$N {command} 2> messages | head -c 1 > /dev/null; cat messages"));
        shell(
            &image,
            &format!(
                "$N {command} 2> messages > /dev/full; [ $? = 1 ] || echo {command}; \
            [ $(wc -l < messages) = 1 ] || cat messages"
            ),
        );
    }
}

/// An unfinished image is not left as a file system.
#[test]
fn a_fill_that_fails_leaves_no_image() {
    let image = Image::new();
    shell(
        &image,
        "mkdir s; head -c 20000000 /dev/zero | tr '\\0' x > s/big; tar -c -f s.tar s; \
        head -c 5000000 s.tar > cut.tar",
    );
    for source in ["s", "s.tar", "cut.tar"] {
        shell(
            &image,
            &format!(
                "rm -f new; $N mkfs -q -d {source} new 8m > messages 2>&1; \
            [ $? = 1 ] || echo code; [ ! -e new ] || echo {source}: it is there"
            ),
        );
        // An existing file is not removed, but marked so that a check finds it.
        shell(
            &image,
            &format!(
                "truncate -s 8m old; $N mkfs -q -d {source} old > messages 2>&1; \
            [ $? = 1 ] || echo code; [ -e old ] || echo gone; \
            dumpe2fs -h old 2> /dev/null | grep -q 'state:.*clean$' && echo {source}: clean; \
                true"
            ),
        );
    }
}

#[test]
fn an_explicit_owner_that_equals_the_default_counts() {
    let image = Image::new();
    shell(
        &image,
        "mkdir d; chown 1234:1234 d 2> /dev/null || true; tar -c -f d.tar d; \
        tar -C d --owner 77:77 -c -f t.tar .; for from in d t.tar; do \
        $N mkfs -q -E root_owner=0:0 -d $from $i 16m; \
        [ $($N ls -ld $i:/ | awk '{print $3 \":\" $4}') = 0:0 ] || echo $from; done",
    );
}

/// No command writes to an image that the kernel has mounted through a loop device, by either name.
#[test]
fn an_image_that_the_kernel_uses_is_not_written() {
    use nextent_testkit::{Access, KernelMount, need};
    let image = Image::new();
    let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
    std::fs::write(mount.join("kernel"), b"here").unwrap();
    shell(
        &image,
        "echo u > u; for c in 'cp -q u image:/u' 'mkfs -q image' 'replay image' \
        'rm image:/kernel' 'mount image mnt'; do mkdir -p mnt; \
            $N $c < /dev/null > messages 2>&1 && echo $c; \
        grep -q /dev/loop messages || { echo $c; cat messages; }; done; true",
    );
    assert_eq!(std::fs::read(mount.join("kernel")).unwrap(), b"here");
    mount.unmount();
    image.ok(&["rm", "IMAGE:/kernel"]);
    e2fs::assert_clean(&image.path());
}

/// A tree deeper than a stack, and a directory below itself.
#[test]
fn deep_and_circular_trees_end() {
    let image = Image::new();
    let path = "/d".repeat(1500);
    image.ok(&["mkdir", "-p", &format!("IMAGE:{path}")]);
    let drawn = image.ok(&["tree", "IMAGE:/"]);
    assert!(drawn.ends_with("1501 directories, 0 files\n"), "{}", drawn.len());
    shell(
        &image,
        "$N tree --json $i:/ 2> messages > /dev/null; [ $? = 1 ] && grep -q -- -L messages",
    );
    shell(
        &image,
        "$N mkfs -q $i 64m; $N mkdir -p $i:/a/b/c; \
        debugfs -w -R 'link /a /a/b/c/again' $i 2> /dev/null; \
        $N tree $i:/ > drawn 2> messages; \
            [ $? = 1 ] && grep -q 'contains itself' messages && grep -q again drawn",
    );
}
