//! `mke2fs -O journal_dev`: external journals are those of e2fsprogs, byte for byte, and volumes
//! that e2fsprogs makes use them.

use crate::called::called;
use crate::{run, works};
use nextent_testkit::{Access, KernelMount, e2fs, need};
use std::path::Path;
use std::process::Command;

const UUID: &str = "0c4f7f22-7a5c-4b3e-9d38-5b0e36f9a1d7";
const SEED: &str = "hash_seed=6f0d8c11-2f4a-4e57-8b7e-64c7a1f0c001";

/// Fields that are not determined: times, KiB written, the checksum of these.
const UNDETERMINED: [(usize, usize); 5] =
    [(0x30, 4), (0x40, 4), (0x108, 4), (0x178, 8), (0x3fc, 4)];

fn masked(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    for (at, len) in UNDETERMINED {
        bytes[1024 + at..1024 + at + len].fill(0);
    }
    bytes
}

#[test]
fn journals_are_those_of_mke2fs() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let (our, their) = (ours.to_str().unwrap(), theirs.to_str().unwrap());
    for line in [
        "-O journal_dev -b 1024 -L logs",
        "-O journal_dev -b 2048",
        "-O journal_dev -b 4096 -M /mnt -e panic",
        "-O journal_dev",
        "-t ext4 -O journal_dev -b 4096",
        "-t ext4 -O journal_dev,^metadata_csum -b 4096",
        "-j -O journal_dev -b 4096 -N 40 -m 3 -I 128",
    ] {
        for size in ["8m", ""] {
            let mut words: Vec<&str> = line.split(' ').collect();
            let extended = format!("{SEED},stride=2,stripe_width=4");
            words.extend(["-F", "-U", UUID, "-E", &extended]);
            // The second time on a file that has other contents.
            let call = |image, size: &'static str| -> Vec<&str> {
                words.iter().copied().chain([image, size]).filter(|word| !word.is_empty()).collect()
            };
            if size.is_empty() {
                std::fs::write(&ours, vec![7; 8 << 20]).unwrap();
                std::fs::write(&theirs, vec![7; 8 << 20]).unwrap();
            }
            let output = need!(e2fs::run("mke2fs", call(their, size)));
            assert!(output.status.success(), "{line}: {output:?}");
            let said = called("mke2fs", &call(our, size));
            assert_eq!(said.code, 0, "{line}: {said:?}");
            for text in ["Creating filesystem with ", UUID, "Zeroing journal device: "] {
                assert!(said.out.contains(text), "{line}: {said:?}");
            }
            assert!(masked(&ours) == masked(&theirs), "{line} {size}: bytes differ");
            let dumps = [our, their].map(|image| e2fs::run("dumpe2fs", ["-h", image]).unwrap());
            let dumps = dumps.map(|dump| String::from_utf8(dump.stdout).unwrap());
            let lines = |text: &str| -> Vec<String> {
                let timed = ["created", "write", "Last checked", "Checksum:"];
                let kept = text.lines().filter(|l| !timed.iter().any(|word| l.contains(word)));
                kept.map(str::to_owned).collect()
            };
            assert_eq!(lines(&dumps[0]), lines(&dumps[1]), "{line}");
            let shown = called("dumpe2fs", &["-h", our]);
            assert_eq!((shown.code, shown.out.as_str()), (0, dumps[0].as_str()), "{line}");
        }
        std::fs::remove_file(&ours).unwrap();
        std::fs::remove_file(&theirs).unwrap();
    }
}

/// An image file on a loop device, until dropped.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then(|| Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_volume_of_mke2fs_uses_the_journal() {
    for size in ["1024", "4096"] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, image) = (dir.path().join("journal"), dir.path().join("image"));
        let path = journal.to_str().unwrap();
        let args = ["-q", "-O", "journal_dev", "-b", size, "-L", "log", "-U", UUID, path, "8m"];
        assert_eq!(called("mke2fs", &args).code, 0);
        let Some(disk) = Loop::new(&journal) else { return };
        let at = format!("device={}", disk.0);
        let args = ["-q", "-t", "ext4", "-b", size, "-J", &at, image.to_str().unwrap(), "32m"];
        let made = need!(e2fs::run("mke2fs", args));
        assert!(made.status.success(), "{made:?}");
        e2fs::assert_clean(&image);
        if let Ok(mount) = KernelMount::new(&image, Access::ReadWrite) {
            std::fs::write(mount.path().join("file"), "text").unwrap();
            std::fs::File::open(mount.path().join("file")).unwrap().sync_all().unwrap();
            mount.unmount();
        }
        e2fs::assert_clean(&image);
        let theirs = e2fs::run("dumpe2fs", [path]).unwrap();
        assert_eq!(called("dumpe2fs", &[path]).out.as_bytes(), theirs.stdout);
        let names = dir.path();
        let said = run(names, &["fsck", "-n", "-f", "-j", "journal", "image"]);
        assert_eq!(said.status.code(), Some(0), "{said:?}");
    }
}

#[test]
fn what_a_journal_cannot_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for (args, text) in [
        ("-b 4096 IMG 1000", "it must have from 1024 to"),
        ("-J size=4 IMG 16m", "leave out -J"),
        ("-d / IMG 16m", "has no contents"),
        ("-L x IMG@offset=1m,size=1m 2m", "the part has 1048576"),
    ] {
        let args = args.replace("IMG", image.to_str().unwrap());
        let words: Vec<&str> = "-q -O journal_dev".split(' ').chain(args.split(' ')).collect();
        let said = called("mke2fs", &words);
        assert_eq!((said.code, said.err.lines().count()), (1, 1), "{args}: {said:?}");
        assert!(said.err.contains(text), "{said:?}");
        assert!(!image.exists(), "{args}: it was left");
    }
}

#[test]
fn our_command_makes_one_too() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["mkfs", "-n", "-O", "journal_dev", "-b", "1024", "image", "2m"];
    assert!(works(dir.path(), &line).starts_with("Would make an external journal of 2048 1k"));
    assert!(!dir.path().join("image").exists());
    let line = ["mkfs", "--json", "-O", "journal_dev", "-U", UUID, "-b", "4096", "image", "8m"];
    let text = works(dir.path(), &line);
    assert!(text.contains(UUID) && text.contains("\"blocks\": 2048"), "{text}");
    let said = run(dir.path(), &["ls", "image:/"]);
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("image: not supported: this is an external journal"), "{text}");
    std::fs::write(dir.path().join("disk"), vec![1; 12 << 20]).unwrap();
    let part = ["mkfs", "-q", "-O", "journal_dev", "-b", "1024", "disk@offset=1m,size=8m"];
    works(dir.path(), &part);
    let bytes = std::fs::read(dir.path().join("disk")).unwrap();
    let outside = bytes[..1 << 20].iter().chain(&bytes[9 << 20..]);
    assert!(outside.copied().all(|byte| byte == 1), "bytes outside the part were changed");
    let log = &bytes[(1 << 20) + 4096..9 << 20];
    assert!(log.iter().all(|byte| *byte == 0), "the log is not zeroed");
}
