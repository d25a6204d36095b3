//! `fsck` as boot scripts, fsck(8) and users call it, compared with e2fsck.

use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NEXTENT: &str = env!("CARGO_BIN_EXE_nextent");

struct Image(tempfile::TempDir);

impl Image {
    fn new(args: &[&str]) -> Result<Self, nextent_testkit::Skip> {
        let image = Self(tempfile::tempdir().unwrap());
        e2fs::mke2fs(&image.path(), 64 << 20, args)?;
        Ok(image)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    fn fsck(&self, options: &[&str]) -> (Option<i32>, String, String) {
        fsck(&self.path(), options)
    }
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn fsck(path: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    texts(&Command::new(NEXTENT).arg("fsck").args(options).arg(path).output().unwrap())
}

const REPAIRS: [&str; 3] = ["-p", "-a", "-y"];

#[test]
fn a_clean_image_is_one_line() {
    let image = need!(Image::new(&["-t", "ext4"]));
    let before = image.bytes();
    for option in REPAIRS {
        let (code, out, err) = image.fsck(&[option]);
        assert!(code == Some(0) && out.lines().count() == 1 && err.is_empty(), "{out}{err}");
        assert!(out.contains("clean, 11/"), "{out}");
        assert!(before == image.bytes(), "a clean image was changed");
    }
    for option in REPAIRS {
        let (code, out, err) = image.fsck(&[option, "-f", "-v", "-C", "0", "-E", "nodiscard"]);
        assert!(code == Some(0) && out.lines().count() == 1 && err.is_empty(), "{out}{err}");
    }
    e2fs::assert_clean(&image.path());
}

/// The fields that a check sets, without the time.
fn checked(path: &Path) -> Result<Vec<String>, nextent_testkit::Skip> {
    let text = e2fs::dumpe2fs(path, true)?;
    let names = ["Filesystem state", "Mount count", "FS Error", "First error", "Last error"];
    let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    Ok(lines.map(str::to_owned).collect())
}

#[test]
fn a_sound_volume_is_marked_as_by_e2fsck() {
    for kind in ["-t ext2", "-t ext4 -O ^has_journal", "-t ext4", "-t ext4 -b 1024"] {
        let image = need!(Image::new(&kind.split(' ').collect::<Vec<_>>()));
        let theirs = image.0.path().join("theirs");
        for state in ["0", "3", "1"] {
            let state = format!("ssv state {state}");
            let changes = [
                &state[..],
                "ssv mnt_count 7",
                "ssv lastcheck 20200101",
                "ssv error_count 3",
                "ssv first_error_time 20200101000000",
                "ssv first_error_func some",
                "ssv last_error_time 20200101000000",
                "ssv last_error_line 5",
            ];
            need!(e2fs::debugfs(&image.path(), true, &changes));
            let before = image.bytes();
            for options in [&["-n"][..], &[]] {
                assert_eq!(image.fsck(&[options, &["-f"]].concat()).0, Some(0));
                assert!(before == image.bytes(), "a check without repair wrote something");
            }
            std::fs::copy(image.path(), &theirs).unwrap();
            let path = theirs.to_str().unwrap();
            let expected = need!(e2fs::run("e2fsck", ["-p", "-f", path])).status.code();
            let (code, out, err) = image.fsck(&["-p", "-f"]);
            assert_eq!((code, err.as_str()), (expected, ""), "{kind}: {state}: {out}");
            assert_eq!(need!(checked(&image.path())), need!(checked(&theirs)), "{kind}: {state}");
            let text = need!(e2fs::dumpe2fs(&image.path(), true));
            let line = text.lines().find(|line| line.starts_with("Last checked"));
            assert!(!line.unwrap().contains("2020"), "{line:?}");
            let (code, out, _) = image.fsck(&["-p"]);
            assert!(code == Some(0) && out.contains(" clean, "), "{kind}: {out}");
            e2fs::assert_clean(&image.path());
        }
    }
}

#[test]
fn damage_is_left_and_reported_on_one_line() {
    let image = need!(Image::new(&["-t", "ext4"]));
    need!(e2fs::debugfs(&image.path(), true, &["sif <11> links_count 9"]));
    let before = image.bytes();
    for option in REPAIRS {
        let (code, out, err) = image.fsck(&[option, "-f"]);
        assert!(code == Some(4) && out.lines().count() == 1 && err.is_empty(), "{out}{err}");
        assert!(out.contains("1 errors remain"), "{out}");
    }
    let (code, out, _) = image.fsck(&["-n", "-f"]);
    assert!(code == Some(4) && out.contains("the link count is 9"), "{out}");
    assert!(before == image.bytes(), "what cannot be repaired was changed");
}

#[test]
fn the_journal_is_replayed_except_with_n() {
    let image = need!(Image::new(&["-t", "ext4", "-b", "4096"]));
    let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
    std::fs::write(mount.path().join("file"), "text").unwrap();
    let synced = std::fs::File::open(mount.path().join("file")).unwrap();
    synced.sync_all().unwrap();
    drop(synced);
    let waits = image.0.path().join("waits");
    std::fs::copy(image.path(), &waits).unwrap();
    mount.unmount();
    let bytes = std::fs::read(&waits).unwrap();
    let (code, out, _) = fsck(&waits, &["-n", "-f"]);
    assert!(code == Some(0) && out.contains("recovery is pending"), "{code:?} {out}");
    assert!(bytes == std::fs::read(&waits).unwrap(), "-n changed the image");
    for option in REPAIRS {
        // e2fsck's exit code is 1 after a replay and a check, and 0 after a replay only.
        for (more, expected) in [(&["-f"][..], 1), (&[][..], 0)] {
            std::fs::write(&waits, &bytes).unwrap();
            let args: Vec<&str> = [option].into_iter().chain(more.iter().copied()).collect();
            let (code, out, err) = fsck(&waits, &args);
            assert_eq!(code, Some(expected), "{args:?}: {out}{err}");
            assert!(out.contains("recovered") && out.lines().count() == 1, "{out}");
            e2fs::assert_clean(&waits);
            let (code, ..) = fsck(&waits, &[option, "-f"]);
            assert_eq!(code, Some(0));
        }
    }
    let text = need!(e2fs::debugfs(&waits, false, &["cat /file"]));
    assert!(text.contains("text"), "{text}");
}

/// On a volume that this program cannot write, the journal is left to the mount, and the volume is
/// checked as after the replay.
#[test]
fn a_journal_that_cannot_be_replayed_is_left() {
    let image = need!(Image::new(&["-t", "ext4", "-O", "inline_data"]));
    let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
    std::fs::write(mount.path().join("file"), "text").unwrap();
    std::fs::File::open(mount.path().join("file")).unwrap().sync_all().unwrap();
    let waits = image.0.path().join("waits");
    std::fs::copy(image.path(), &waits).unwrap();
    mount.unmount();
    let bytes = std::fs::read(&waits).unwrap();
    let (code, out, err) = fsck(&waits, &["-p"]);
    assert!(code == Some(0) && out.lines().count() == 1, "{out}{err}");
    assert!(bytes == std::fs::read(&waits).unwrap(), "it was changed");
}

/// An image file on a loop device, until dropped.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
        let (code, out, _) = texts(&output);
        (code == Some(0)).then(|| Self(out.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn an_external_journal_is_found_by_its_uuid() {
    for size in ["1024", "4096"] {
        let journal = need!(Image::new(&["-O", "journal_dev", "-b", size]));
        let Some(disk) = Loop::new(&journal.path()) else { return };
        let at = format!("device={}", disk.0);
        let image = need!(Image::new(&["-t", "ext4", "-b", size, "-J", &at]));
        e2fs::assert_clean(&image.path());
        let (code, out, err) = image.fsck(&["-n", "-f"]);
        assert_eq!(code, Some(0), "{out}{err}");
        drop(disk);
        let (code, out, _) = image.fsck(&["-n", "-f"]);
        assert!(code == Some(8) && out.contains("not checked: the external journal"), "{out}");
        assert!(!need!(e2fs::e2fsck(&image.path())).is_clean());
        let path = journal.path().display().to_string();
        let (code, out, err) = image.fsck(&["-n", "-f", "-j", &path]);
        assert_eq!(code, Some(0), "{out}{err}");
        // The journal of another volume, and one that does not list this volume.
        let mut bytes = journal.bytes();
        let first = if size == "1024" { 2048 } else { 4096 };
        bytes[first + 0x100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let (code, out, _) = image.fsck(&["-n", "-f", "-j", &path]);
        assert!(code == Some(4) && out.contains("among its users"), "{out}");
        let other = need!(Image::new(&["-O", "journal_dev", "-b", size])).bytes();
        std::fs::write(&path, other).unwrap();
        let (code, out, _) = image.fsck(&["-n", "-f", "-j", &path]);
        assert!(code == Some(4) && out.contains("another than the superblock names"), "{out}");
    }
}

#[test]
fn usage_errors_are_16() {
    let image = need!(Image::new(&["-t", "ext4"]));
    for options in [&["-n", "-p"][..], &["-a", "-y"], &["-Z"], &["-E", "frob"], &["-C"]] {
        let (code, out, err) = image.fsck(options);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(16), "", 1), "{err}");
    }
    let (code, out, _) = texts(&Command::new(NEXTENT).args(["fsck", "-V"]).output().unwrap());
    assert!(code == Some(0) && out.starts_with("nextent "), "{out}");
}

#[test]
fn progress_goes_to_the_descriptor_of_fsck_8() {
    let image = need!(Image::new(&["-t", "ext4", "-b", "1024"]));
    let line = "\"$N\" fsck -n -f -C 9 \"$i\" 9> progress";
    let mut shell = Command::new("bash");
    shell.env("N", NEXTENT).env("i", image.path()).current_dir(image.0.path());
    let (code, ..) = texts(&shell.args(["-c", line]).output().unwrap());
    assert_eq!(code, Some(0));
    let text = std::fs::read_to_string(image.0.path().join("progress")).unwrap();
    for pass in 1..=5 {
        assert!(text.lines().any(|line| line.starts_with(&format!("{pass} "))), "{text}");
    }
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    for words in words {
        let [done, steps] = [words[1], words[2]].map(|word| word.parse::<u64>().unwrap());
        assert!(done <= steps && words[3] == image.path().display().to_string(), "{words:?}");
    }
    let (code, _, err) = image.fsck(&["-n", "-C", "77"]);
    assert!(code == Some(8) && err.contains("77"), "{err}");
}

#[test]
fn a_backup_superblock_can_be_used() {
    // With 4 KiB blocks the first backup is beyond the first groups of 1 KiB blocks.
    for (args, block, size) in [
        (&["-t", "ext4", "-b", "1024"][..], 8193, 1024),
        (&["-t", "ext4", "-b", "2048"], 16_384, 2048),
        (&["-t", "ext2", "-b", "1024", "-g", "4096"], 4097, 1024),
        (&["-t", "ext4", "-b", "4096", "-g", "2048"], 2048, 4096),
        (&["-t", "ext4", "-b", "1024", "-O", "sparse_super2"], 8193, 1024),
    ] {
        let image = need!(Image::new(args));
        let number = block.to_string();
        let (code, out, err) = image.fsck(&["-n", "-b", &number]);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        let (code, out, err) = image.fsck(&["-n", "-b", &number, "-B", &size.to_string()]);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        let (code, _, err) = image.fsck(&["-n", "-b", "777"]);
        assert!(code == Some(8) && err.lines().count() == 1, "{err}");
        let mut bytes = image.bytes();
        bytes[1024..2048].fill(0);
        std::fs::write(image.path(), bytes).unwrap();
        let (code, out, err) = image.fsck(&["-n"]);
        assert_eq!(code, Some(4), "{args:?}: {out}{err}");
        let said = format!("block {block}: the superblock is damaged");
        assert!(out.contains(&said) && out.contains("1 errors"), "{args:?}: {out}");
        let (code, out, _) = image.fsck(&["-p"]);
        assert!(code == Some(4) && out.lines().count() == 1, "{out}");
        if args.contains(&"-g") {
            continue;
        }
        let inside = format!("{}:/", image.path().display());
        let listed = Command::new(NEXTENT).args(["ls", &inside]).output().unwrap();
        let (code, _, err) = texts(&listed);
        let said =
            format!("block {block} holds a backup: `nextent fsck -b {block} -B {size}` checks");
        assert!(code == Some(1) && err.contains(&said) && err.lines().count() == 1, "{err}");
    }
}

/// The superblock has its magic number and an invalid field.
#[test]
fn the_error_of_a_damaged_superblock_names_a_backup() {
    let image = need!(Image::new(&["-t", "ext4", "-b", "1024"]));
    let mut bytes = image.bytes();
    bytes[1024..1028].fill(0);
    std::fs::write(image.path(), bytes).unwrap();
    let inside = format!("{}:/", image.path().display());
    let listed = Command::new(NEXTENT).args(["ls", &inside]).output().unwrap();
    let (code, _, err) = texts(&listed);
    assert!(code == Some(1) && err.contains("block 8193 holds a backup"), "{err}");
    let (code, out, _) = image.fsck(&["-n"]);
    assert!(code == Some(4) && out.contains("block 8193: the superblock is damaged"), "{out}");
}

/// Files in pieces, files with blocks of pointers among their data, and files that are larger than
/// a group count as e2fsck counts them.
#[test]
fn the_last_line_is_that_of_e2fsck() {
    for family in ["ext2", "ext3", "ext4"] {
        let image = need!(Image::new(&["-t", family, "-b", "1024"]));
        let (path, dir) = (image.path(), tempfile::tempdir().unwrap());
        let run = |args: &[&str]| {
            let done = Command::new(env!("CARGO_BIN_EXE_nextent")).args(args).output().unwrap();
            assert!(done.status.success(), "{args:?}: {}", texts(&done).2);
        };
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        for n in 0..40 {
            std::fs::write(source.join(format!("small{n}")), vec![n; 7 << 10]).unwrap();
        }
        let target = format!("{}:/", path.display());
        run(&["cp", "-r", source.to_str().unwrap(), &target]);
        let removed = |n| format!("{target}source/small{n}");
        let removed: Vec<_> = (0..40).step_by(2).map(removed).collect();
        let removed: Vec<_> = removed.iter().map(String::as_str).collect();
        run(&[&["rm"], &removed[..]].concat());
        for (name, size) in [("pieces", 600 << 10), ("large", 20 << 20)] {
            let file = dir.path().join(name);
            std::fs::write(&file, vec![7; size]).unwrap();
            run(&["cp", file.to_str().unwrap(), &target]);
        }
        run(&["fallocate", "-p", "-o", "100k", "-l", "50k", &format!("{target}pieces")]);
        let last = |text: &str| text.trim().lines().last().unwrap().to_owned();
        let report = need!(e2fs::e2fsck(&path));
        assert!(report.is_clean() && !report.text.contains("(0.0%"), "{}", report.text);
        let theirs =
            report.text.lines().find(|line| line.contains("contiguous")).unwrap().to_owned();
        assert_eq!(last(&image.fsck(&["-f", "-n"]).1), theirs, "{family}");
    }
}

/// Where the sequence number of multiple mount protection is, in an image without checksums.
fn sequence_at(path: &Path) -> Result<u64, nextent_testkit::Skip> {
    let text = e2fs::dumpe2fs(path, true)?;
    let block = text.lines().find_map(|line| line.strip_prefix("MMP block number:")).unwrap();
    Ok(block.trim().parse::<u64>().unwrap() * 1024 + 4)
}

#[test]
fn a_volume_that_a_check_has_is_refused() {
    let options = ["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"];
    let image = need!(Image::new(&options));
    let at = need!(sequence_at(&image.path()));
    for options in [&["-p"][..], &["-f", "-y"]] {
        let (code, out, err) = image.fsck(options);
        assert!(code == Some(0) && err.is_empty(), "{out}{err}");
        e2fs::assert_clean(&image.path());
    }
    let clean = image.bytes();
    // What a check leaves that was killed.
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(&0xE24D_4D50u32.to_le_bytes(), at).unwrap();
    drop(file);
    let before = image.bytes();
    for options in [&["-p"][..], &["-a"], &["-f", "-y"]] {
        let (code, out, err) = image.fsck(options);
        assert!(code == Some(8) && out.is_empty() && err.lines().count() == 1, "{out}{err}");
        assert!(err.contains("clear_mmp") && err.contains("another node"), "{err}");
    }
    let (code, out, _) = image.fsck(&["-f", "-n"]);
    assert!(code == Some(4) && out.contains("multi-mount protection"), "{out}");
    assert!(before == image.bytes(), "a refused image was changed");
    let info = Command::new(NEXTENT).arg("info").arg(image.path()).output().unwrap();
    let (_, info, _) = texts(&info);
    assert!(info.contains("a check has the volume") && info.contains("MMP node name:"), "{info}");
    let path = image.path();
    let clear = Command::new(NEXTENT).args(["tune", "-f", "-E", "clear_mmp"]).arg(path).output();
    assert!(clear.unwrap().status.success());
    assert_eq!(image.bytes()[at as usize..][..4], clean[at as usize..][..4]);
    assert_eq!(image.fsck(&["-f", "-p"]).0, Some(0));
    e2fs::assert_clean(&image.path());
}
