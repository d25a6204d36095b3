//! Names, labels and targets with control characters: all messages escape them.

use crate::{nextent, shell, works};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Output;

/// Moves the cursor, changes the title, deletes, has a C1 control character, changes the direction
/// of text, is not UTF-8, and adds a line.
const HOSTILE: &[u8] = b"\x1b[2J\x1b]0;x\x07\x7f\xc2\x9b31m\xe2\x80\xae\xff\r\nnextent: y\t\\";

fn hostile() -> OsString {
    OsString::from_vec(HOSTILE.to_vec())
}

/// Whether a terminal would act on any of `bytes`, except line ends.
#[track_caller]
fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = String::from_utf8(bytes.to_vec())
        .unwrap_or_else(|_| panic!("{what}: {}", bytes.escape_ascii()));
    let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(obeyed), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("nextent: y")), "{what}: {text}");
}

#[track_caller]
fn judged(dir: &Path, args: &[OsString]) -> Output {
    let output = nextent().current_dir(dir).args(args).output().expect("it was built");
    assert_harmless(&format!("{args:?}"), &output.stderr);
    output
}

/// Makes an image with a hostile label and hostile names of every kind of file.
fn image(dir: &Path) -> OsString {
    let tree = dir.join("tree");
    let bad = tree.join(hostile());
    std::fs::create_dir_all(bad.join("in")).expect("a name of Linux");
    std::fs::write(bad.join(hostile()), "x").expect("as above");
    std::fs::write(tree.join("plain"), "x").expect("as above");
    std::os::unix::fs::symlink(hostile(), tree.join("link")).expect("as above");
    works(dir, &["mkfs", "-q", "-d", "tree", "image", "16m"]);
    // Labels are fixed fields of the superblock, at 0x78 and 0x88.
    let put = |at: usize, text: &[u8]| {
        let mut bytes = std::fs::read(dir.join("image")).expect("it was made");
        bytes[1024 + at..1024 + at + text.len()].copy_from_slice(text);
        std::fs::write(dir.join("image"), bytes).expect("it is ours");
    };
    put(0x78, &HOSTILE[..16]);
    put(0x88, HOSTILE);
    shell(dir, "e2fsck -fy image > /dev/null 2>&1; [ $? -le 1 ]");
    // The image's own name is hostile too.
    let name = [b"i".as_slice(), HOSTILE].concat();
    let name = OsString::from_vec(name);
    std::fs::rename(dir.join("image"), dir.join(&name)).expect("as above");
    name
}

fn word(word: &str) -> OsString {
    OsString::from(word)
}

#[test]
fn commands_escape_control_characters() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    let image = image(dir);
    let inside = |path: &[u8]| OsString::from_vec([image.as_bytes(), b":/", path].concat());
    let bad = inside(HOSTILE);
    let missing = inside(&[b"missing", HOSTILE].concat());
    let below = inside(&[b"plain/", HOSTILE].concat());
    let host = OsString::from_vec([b"none/".as_slice(), HOSTILE].concat());
    let root = inside(b"");
    let reading: Vec<Vec<OsString>> = vec![
        vec![word("ls"), word("-l"), root.clone(), missing.clone(), below.clone()],
        vec![word("tree"), root.clone(), missing.clone()],
        vec![word("stat"), bad.clone(), inside(b"link"), missing.clone()],
        vec![word("cat"), bad.clone(), missing.clone(), below.clone()],
        vec![word("info"), image.clone()],
        vec![word("fsck"), word("-n"), word("-f"), image.clone()],
        vec![word("replay"), image.clone()],
    ];
    for args in &reading {
        let output = judged(dir, args);
        // Standard output must be harmless, too, except contents of files.
        if args[0] != "cat" {
            assert_harmless(&format!("{args:?}"), &output.stdout);
        }
    }
    let words: Vec<Vec<OsString>> = vec![
        vec![word("mkdir"), bad.clone(), below.clone()],
        vec![word("mkdir"), word("-p"), below.clone()],
        vec![word("rm"), bad.clone(), missing.clone(), below.clone()],
        vec![word("mv"), missing.clone(), bad.clone()],
        vec![word("mv"), bad.clone(), below.clone()],
        vec![word("ln"), missing.clone(), bad.clone()],
        vec![word("ln"), bad.clone(), bad.clone()],
        vec![word("chmod"), word("700"), missing.clone()],
        vec![word("chmod"), hostile(), bad.clone()],
        vec![word("chown"), hostile(), bad.clone()],
        vec![word("truncate"), word("-s"), word("1"), bad.clone()],
        vec![word("truncate"), word("-s"), hostile(), bad.clone()],
        vec![word("fallocate"), word("-l"), word("1"), bad.clone()],
        vec![word("cp"), bad.clone(), host.clone()],
        vec![word("cp"), word("-r"), bad.clone(), host.clone()],
        vec![word("cp"), word("-r"), missing.clone(), word(".")],
        vec![word("cp"), host.clone(), root.clone()],
        vec![word("cp"), word("-r"), word("tree"), below.clone()],
        vec![word("cp"), word("-r"), bad.clone(), bad.clone()],
        vec![word("tar"), word("-c"), missing.clone()],
        vec![word("tar"), word("-x"), missing.clone()],
        vec![word("mkfs"), word("-q"), word("-d"), host.clone(), word("new"), word("1m")],
        vec![word("mkfs"), word("-q"), host.clone(), word("1m")],
        vec![word("mkfs"), word("-q"), word("-E"), hostile(), word("new"), word("1m")],
        vec![word("mkfs"), word("-q"), word("-O"), hostile(), word("new"), word("1m")],
        vec![word("mkfs"), word("-q"), word("new"), hostile()],
        vec![word("mount"), word("-f"), image.clone(), host.clone()],
        vec![word("mount"), word("-f"), host.clone(), word(".")],
        vec![word("mount"), word("-o"), hostile(), image.clone(), word(".")],
        vec![word("bench"), word("create"), word("--json"), host.clone()],
        vec![word("simulate"), word("handles"), word("--machine"), hostile()],
        vec![word("ls"), hostile()],
        vec![OsString::from_vec([b"--".as_slice(), HOSTILE].concat())],
    ];
    for args in &words {
        let output = judged(dir, args);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{args:?} fails");
        assert_harmless(&format!("{args:?}"), &output.stdout);
    }
    std::fs::rename(dir.join(&image), dir.join("image")).expect("it is ours");
    nextent_testkit::e2fs::assert_clean(&dir.join("image"));
}

/// The same for names from streams.
#[test]
fn names_of_streams_are_escaped() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    works(dir, &["mkfs", "-q", "image", "16m"]);
    let name = OsStr::from_bytes(&HOSTILE[..HOSTILE.len() - 1]);
    std::fs::create_dir(dir.join("s")).expect("a name of Linux");
    std::fs::write(dir.join("s").join(name), "x").expect("as above");
    // A name that leads out of the target, and one below a file.
    shell(
        dir,
        "tar -C s -c -f ok.tar .; tar -C s --transform='s,^\\./,../,' -P -c -f up.tar .; \
         tar -C s --transform='s,^\\./,file/,' -c -f below.tar .; \
         echo x > f; $N cp -q f image:/file",
    );
    for stream in ["ok.tar", "up.tar", "below.tar"] {
        let input = std::fs::File::open(dir.join(stream)).expect("it was made");
        let mut command = nextent();
        command.current_dir(dir).args(["tar", "-x", "image:/"]).stdin(input);
        let output = command.output().expect("it was built");
        assert_harmless(stream, &output.stderr);
        assert_harmless(stream, &output.stdout);
    }
    nextent_testkit::e2fs::assert_clean(&dir.join("image"));
}
