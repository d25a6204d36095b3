//! Failures print one line, have an exit code, and leave the image consistent.

use crate::support::*;
use nextent_testkit::{e2fs, need};

#[test]
fn failures_print_one_line() {
    let (dir, top) = with_tree(9);
    let image = need!(mke2fs(dir.path(), "a.img", &["-t", "ext4"]));
    let (a, b, c) = (inside(&image, "/"), inside(&image, "/none"), inside(&image, "/d"));
    let host = top.to_str().expect("plain");
    works(&["mkdir", &c]);
    fails(&["cp", host, "elsewhere"], 2, "no path is inside an image");
    fails(&["cp", host, &a], 1, "is a directory");
    fails(&["cp", &b, host], 1, "no such file");
    fails(&["cp", "-r", host, &b, &inside(&image, "/none/x")], 1, "is not a directory");
    fails(&["cp", "-r", &a, &inside(&image, "/d/e")], 1, "into itself");
    fails(&["cp", "-r", &c, &inside(&image, "/d/e")], 1, "into itself");
    fails(&["cp", "/etc/passwd", &inside(&image, "/new/")], 1, "not a directory");
    fails(&["cp", "/etc/passwd", "/nowhere/at/all", &a], 1, "No such file");
    fails(&["cp", "/etc/passwd", &inside(&image, "/no/such/dir")], 1, "no such file");
    fails(&["cp", image.to_str().expect("plain"), &a], 1, "is the image");
    works(&["cp", "/etc/passwd", &a]);
    fails(&["cp", &inside(&image, "/passwd"), &a], 1, "same file");
    fails(&["cp", "-r", host, &inside(&image, "/passwd")], 1, "overwrite a file");
    fails(&["tar", "-c", &inside(&image, "/passwd")], 1, "is not a directory");
    fails(&["mkfs", "-q", "-d", "/nowhere", "new.img", "8m"], 1, "No such file");
    fails(&["mkfs", "-q", "-d", host, "/nowhere/new.img"], 1, "No such file");
    e2fs::assert_clean(&image);
}

#[test]
fn a_full_image_ends_a_copy() {
    let (dir, top) = with_tree(10);
    shell(dir.path(), "head -c 30M /dev/urandom > tree/large");
    let host = top.to_str().expect("plain");
    let image = dir.path().join("a.img");
    need!(e2fs::mke2fs(&image, 20 << 20, &["-t", "ext4"]));
    fails(&["cp", "-r", host, &inside(&image, "/")], 1, "no space left");
    e2fs::assert_clean(&image);
    let small = dir.path().join("b.img");
    let shown = small.to_str().expect("plain");
    fails(&["mkfs", "-q", "-d", host, shown, "20m"], 1, "no space left");
    assert!(!small.exists(), "an unfinished image was left");
    shell(dir.path(), "tar -C tree -cf t.tar . 2>err");
    fails(&["mkfs", "-q", "-d", &format!("{host}/../t.tar"), shown, "20m"], 1, "no space left");
    assert!(!small.exists());
}

#[test]
fn hostile_streams_are_refused() {
    let dir = tempfile::tempdir().expect("writable");
    need!(mke2fs(dir.path(), "a.img", &["-t", "ext4"]));
    let one_line = |feed: &str, words: &str| {
        let line = format!(
            "{feed} | $N tar -x a.img:/ 2>err; [ ${{PIPESTATUS[-1]}} = 1 ] && \
             [ $(wc -l <err) = 1 ] && grep -q '{words}' err || cat err"
        );
        shell(dir.path(), &line);
    };
    shell(dir.path(), "mkdir -p t/u && echo up > t/f");
    one_line("(cd t/u; tar -P -c ../f)", "leads out");
    one_line("tar -c t | bzip2", "bzip2 -dc");
    one_line("tar -c t | xz", "compressed");
    one_line("tar -c t | gzip | head -c 100", "unpacking gzip");
    one_line("tar -c t | zstd -q | head -c 60", "unpacking zstd");
    one_line("tar -c t | head -c 1800", "ends in the middle");
    one_line("head -c 2000 /dev/urandom", "not a tar stream");
    one_line("head -c 100 /etc/passwd", "ends in the middle");
    // A file that replaces another of the same stream, and a link to it.
    shell(dir.path(), "echo one > f; tar -cf t.tar f; echo two! > f; ln f g; tar -rf t.tar f g");
    shell(dir.path(), "$N tar -x a.img:/ < t.tar; $N cat a.img:/g | cmp - f");
    e2fs::assert_clean(&dir.path().join("a.img"));
}

/// A full directory fails its entries and does not end the copy.
#[test]
fn a_full_directory_does_not_end_a_copy() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let (full, after) = (dir.path().join("src/d"), dir.path().join("src/z/a/b"));
    std::fs::create_dir_all(&full).expect("as above");
    std::fs::create_dir_all(&after).expect("as above");
    std::fs::write(after.join("after"), "contents").expect("as above");
    for n in 0..24_000 {
        let name = full.join(format!("{}{n:07}", "x".repeat(248)));
        std::fs::File::create(name).expect("as above");
    }
    let image = dir.path().join("a.img");
    let args = ["-t", "ext4", "-b", "1024", "-N", "26000", "-O", "^large_dir"];
    need!(e2fs::mke2fs(&image, 100 << 20, &args));
    let source = dir.path().join("src/.").display().to_string();
    let output = run(&["cp", "-q", "-r", &source, &inside(&image, "/")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().all(|line| line.contains("the directory is full")), "{said}");
    assert!((1..12_000).contains(&said.lines().count()), "{} lines", said.lines().count());
    assert_eq!(run(&["cat", &inside(&image, "/z/a/b/after")]).stdout, b"contents");
    e2fs::assert_clean(&image);
}

#[test]
fn an_attribute_that_does_not_fit_fails_only_its_file() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let source = dir.path().join("src");
    std::fs::create_dir(&source).expect("as above");
    for name in ["a", "m", "z"] {
        std::fs::write(source.join(name), name).expect("as above");
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(source.join("m"), "user.large", &[7; 3000], flags).is_err() {
        return println!("skipped: attributes of the temporary directory");
    }
    let image = dir.path().join("a.img");
    need!(e2fs::mke2fs(&image, 8 << 20, &["-t", "ext4", "-b", "1024"]));
    let host = source.display().to_string();
    fails(&["cp", "-a", &host, &inside(&image, "/")], 1, "no room for the attribute");
    for name in ["a", "m", "z"] {
        let path = inside(&image, &format!("/src/{name}"));
        assert_eq!(run(&["cat", &path]).stdout, name.as_bytes());
    }
    e2fs::assert_clean(&image);
}

#[test]
fn a_lack_of_inodes_is_named() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let source = dir.path().join("src");
    std::fs::create_dir(&source).expect("as above");
    for n in 0..60 {
        std::fs::write(source.join(n.to_string()), "x").expect("as above");
    }
    let image = dir.path().join("a.img");
    need!(e2fs::mke2fs(&image, 8 << 20, &["-t", "ext4", "-N", "32"]));
    let host = source.display().to_string();
    fails(&["cp", "-r", &host, &inside(&image, "/")], 1, "no inodes left on the volume");
    e2fs::assert_clean(&image);
}
