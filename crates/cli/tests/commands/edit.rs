//! `edit`: scripts of many changes.

use super::{Image, shell};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

/// Runs `edit` with a script on standard input.
fn edit(image: &Image, options: &[&str], script: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nextent"));
    command.arg("edit").args(options).arg(image.path()).current_dir(image.dir.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A script that fails is not read to its end.
    let _ = child.stdin.take().unwrap().write_all(script);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn works(image: &Image, options: &[&str], script: &str) -> String {
    let output = edit(image, options, script.as_bytes());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The messages of a script that fails.
#[track_caller]
fn fails(image: &Image, options: &[&str], script: &str) -> String {
    let output = edit(image, options, script.as_bytes());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

const ALL_VERBS: &str = "
# A comment, and an empty line before it.
mkdir -p /a/b '/with space'
mkdir -m 700 /private
write /a/hello $'hello\\n'
write -a /a/hello 'again'
cp host /a/host
cp -r -p tree /a
chmod u=rw,go= /a/hello
chown 7:8 /a/hello
ln -s hello /a/link
ln /a/hello /a/b/twin
mv /a/b \"/with space/c\"
truncate 10k /a/sparse
truncate -c +1 /none
fallocate -l 8k /a/full
touch -d @5 /a/dated
mknod /null c 1 3
mknod -m 600 /pipe p
setxattr /a/hello user.name 0x6162
write /gone x
rm /gone
rm -f /never
rm -r /private
getxattr /a/hello user.name
getxattr -d /a/hello
ls -a /a
stat /null
cat /a/hello
";

fn run_every_verb(options: &[&str]) {
    let image = Image::new();
    shell(&image, "echo of the host > host; mkdir -p tree/d; echo f > tree/d/f");
    let said = works(&image, options, ALL_VERBS);
    let path = image.path().display().to_string();
    assert!(said.contains(&format!("# file: {path}:/a/hello\nuser.name=\"ab\"\n")), "{said}");
    assert!(said.contains("\nlink\nsparse\ntree\n"), "{said}");
    assert!(said.contains("Device: 1, 3") && said.ends_with("hello\nagain"), "{said}");
    e2fs::assert_clean(&image.path());
    assert_eq!(image.ok(&["cat", "IMAGE:/a/host"]), "of the host\n");
    assert_eq!(image.ok(&["cat", "IMAGE:/a/tree/d/f"]), "f\n");
    assert_eq!(image.ok(&["cat", "IMAGE:/with space/c/twin"]), "hello\nagain");
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "a\nlost+found\nnull\npipe\nwith space\n");
    let text = image.ok(&["stat", "--json", "IMAGE:/a/hello", "IMAGE:/a/sparse"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let (hello, sparse) = (&json[0], &json[1]);
    assert_eq!((&hello["uid"], &hello["gid"], &hello["links"]), (&7.into(), &8.into(), &2.into()));
    assert_eq!((&hello["mode"], &sparse["size"]), (&"0600".into(), &10240.into()));
    let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
    assert_eq!(std::fs::read(mount.join("a/link")).unwrap(), b"hello\nagain");
    let meta = std::fs::metadata(mount.join("a/dated")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&meta), 5);
    mount.unmount();
}

#[test]
fn every_verb_works() {
    run_every_verb(&[]);
}

#[test]
fn every_verb_works_atomically() {
    run_every_verb(&["--atomic"]);
}

/// Names of every byte but the slash and zero.
#[test]
fn names_have_any_bytes() {
    let image = Image::new();
    let mut script = Vec::new();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        script.extend_from_slice(format!("write $'/n\\x{byte:02x}' {byte}\n").as_bytes());
    }
    // Bytes stand for themselves in the other quotes.
    script.extend_from_slice(b"write '/raw\xff\x01' \"\xfe\"\nmkdir /d\xe9\n");
    let output = edit(&image, &[], &script);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    e2fs::assert_clean(&image.path());
    let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
    let names: Vec<Vec<u8>> = std::fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
        .collect();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        assert!(names.contains(&vec![b'n', byte]), "{byte:#x}");
    }
    assert!(names.contains(&b"raw\xff\x01".to_vec()) && names.contains(&b"d\xe9".to_vec()));
    mount.unmount();
}

#[test]
fn the_first_error_ends_a_script() {
    let image = Image::new();
    std::fs::write(
        image.dir.path().join("script"),
        "mkdir /a\n\nmkdir '/b\n'\nrm /none\nmkdir /c\n",
    )
    .unwrap();
    let said = fails(&image, &["-f", "script"], "");
    assert!(said.starts_with("nextent: script:5: rm "), "{said}");
    assert!(said.lines().count() == 1 && said.contains("/none: no such file"), "{said}");
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "a\nb\\n\nlost+found\n");
    e2fs::assert_clean(&image.path());
    for (script, line, what) in [
        ("mkdir /d\nfrob /x\n", 2, "frob"),
        ("mkdir\n", 1, "PATH"),
        ("ls relative\n", 1, "begin with a slash"),
        ("chmod 9 /a\n", 1, "mode"),
        ("write /x 'open\n\n", 1, "quote"),
        ("write /x $'\\q'\n", 1, "escape"),
        ("rm /\n", 1, "root directory"),
        ("cp none-such /a\n", 1, "none-such"),
        ("rm /a /none /never\nmkdir /e", 1, "/none"),
        ("mkdir --help\n", 1, "--help"),
        ("write /lost+found x\n", 1, "not a regular file"),
    ] {
        let said = fails(&image, &["--file=-"], script);
        let begins = format!("nextent: -:{line}: ");
        assert!(said.starts_with(&begins) && said.contains(what), "{script}: {said}");
    }
    assert_eq!(image.run(&["edit", "-f", "/none", "IMAGE"]).status.code(), Some(1));
    e2fs::assert_clean(&image.path());
}

#[test]
fn errors_are_counted_with_keep_going() {
    let image = Image::new();
    let said = fails(&image, &["-k"], "mkdir /a\nrm /x\nmkdir /b\nrm '/y\nmkdir /c\n");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("nextent: -:2: rm "), "{said}");
    assert!(lines[1].starts_with("nextent: -:4: "), "{said}");
    assert_eq!(lines[2..], ["nextent: -: 2 of 4 commands failed"], "{said}");
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "a\nb\nlost+found\n");
    e2fs::assert_clean(&image.path());
    assert_eq!(image.run(&["edit", "-k", "--atomic", "IMAGE"]).status.code(), Some(2));
}

#[test]
fn scripts_may_have_many_lines() {
    let image = Image::new();
    let mut script = String::new();
    for n in 0..100 {
        script += &format!("mkdir /d{n}\n");
        for k in 0..33 {
            script += &format!("write /d{n}/f{k} 'text {k}'\nchmod 640 /d{n}/f{k}\n");
            script += &format!("setxattr /d{n}/f{k} user.k {k}\n");
        }
    }
    assert_eq!(script.lines().count(), 10_000);
    works(&image, &[], &script);
    e2fs::assert_clean(&image.path());
    assert_eq!(image.ok(&["cat", "IMAGE:/d99/f32"]), "text 32");
    assert_eq!(image.ok(&["ls", "IMAGE:/d50"]).lines().count(), 33);
}

/// An atomic script that fails changes no byte of the image.
#[test]
fn atomic_scripts_change_all_or_nothing() {
    let image = Image::new();
    works(&image, &[], "write /old 1\nmkdir /dir");
    let before = std::fs::read(image.path()).unwrap();
    for script in ["write /old 2\nwrite /new 3\nrm -r /dir\nrm /none\n", "write /new 'x"] {
        let said = fails(&image, &["--atomic"], script);
        assert!(said.lines().last().unwrap().contains("nothing was changed"), "{said}");
        assert!(before == std::fs::read(image.path()).unwrap(), "{script}");
    }
    works(&image, &["--atomic"], "write /old 2\nwrite /new 3\nrm -r /dir\n");
    e2fs::assert_clean(&image.path());
    assert_eq!(image.ok(&["cat", "IMAGE:/old", "IMAGE:/new"]), "23");
    assert_eq!(image.ok(&["ls", "IMAGE:/"]), "lost+found\nnew\nold\n");
    // A volume that was not closed is recovered before.
    let Ok(_) = e2fs::debugfs(&image.path(), true, &["feature needs_recovery"]) else { return };
    works(&image, &["--atomic"], "write /old 4");
    assert_eq!(image.ok(&["cat", "IMAGE:/old"]), "4");
    e2fs::assert_clean(&image.path());
}

/// New data is not bounded by the journal, changes of blocks in use are.
#[test]
fn atomic_scripts_are_bounded_by_the_journal() {
    let image = Image::new();
    shell(
        &image,
        "$N mkfs -q -b 1024 -I 1024 -N 4096 -J size=1 $i 64m; head -c 12000000 /dev/urandom > big",
    );
    works(&image, &["--atomic"], "cp big /big\nwrite /small x");
    e2fs::assert_clean(&image.path());
    shell(&image, "$N cp -q $i:/big out; cmp out big");
    // Each inode is a block that is in use.
    let before = std::fs::read(image.path()).unwrap();
    let script: String = (0..1500).map(|n| format!("write /f{n} x\n")).collect();
    let said = fails(&image, &["--atomic"], &script);
    let mut same = before == std::fs::read(image.path()).unwrap();
    assert!(same && said.contains("nothing was changed"), "{said}");
    works(&image, &[], &script);
    shell(&image, "$N mkfs -q -t ext2 $i 64m");
    let before = std::fs::read(image.path()).unwrap();
    let said = fails(&image, &["--atomic"], "mkdir /a\n");
    same = before == std::fs::read(image.path()).unwrap();
    assert!(same && said.contains("journal"), "{said}");
}
