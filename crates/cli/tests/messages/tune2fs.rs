//! The program as tune2fs, and `nextent tune`: after each call the superblock, its backup, the
//! output and the exit code are those of tune2fs with the same arguments.

use crate::called::{Said, called};
use crate::{run, works};
use nextent_testkit::{Access, KernelMount, Skip, e2fs, need};
use std::path::Path;

const UUID: &str = "0c4f7f22-7a5c-4b3e-9d38-5b0e36f9a1d7";

/// Arguments that both accept.
const CHANGES: &[&str] = &[
    "-L root",
    "-m 10",
    "-m 2.5 -u root -g 1",
    "-r 100 -u 70000",
    "-c 10 -C 5 -i 3w",
    "-c 0 -i 2m",
    "-T 202601011230 -e panic",
    "-T 20260101 -e remount-ro -i 5",
    "-M /mnt -o journal_data,^acl,discard",
    "-o ^journal_data,nodelalloc",
    "-E stride=3,stripe_width=6,hash_alg=tea,mount_opts=commit=9",
    "-E force_fsck,test_fs,stripe-width=4",
    "-E mmp_update_interval=7",
    "-O verity",
    "-O dir_index,stable_inodes,dir_nlink",
    "-O ^dir_index,^dir_nlink,large_dir",
    "-O ^huge_file,extra_isize",
    "-O ^filetype",
    "-O +extent,flex_bg -L 0123456789abcdef",
    "-l -m 1 -O encrypt",
];

/// Arguments that both refuse, and the start of the message without the name of the program.
const REFUSED: &[(&str, &str)] = &[
    ("-m 51", "bad reserved block ratio - 51"),
    ("-m x", "bad reserved block ratio - x"),
    ("-r 99999999", "reserved blocks count is too big (99999999)"),
    ("-r x", "bad reserved blocks count - x"),
    ("-c 16001", "bad mounts count - 16001"),
    ("-C x", "bad mounts count - x"),
    ("-i 10x", "bad interval - 10x"),
    ("-T today", "Couldn't parse date/time specifier: today"),
    ("-e retry", "bad error behavior - retry"),
    ("-u nouser", "bad uid/user name - nouser"),
    ("-g nogroup9", "bad gid/group name - nogroup9"),
    ("-U nonsense", "Invalid UUID format"),
    ("-o nonsense", "Invalid mount option set: nonsense"),
    ("-O nonsense", "Invalid filesystem option set: nonsense"),
    ("-O ^verity", "Clearing filesystem feature 'verity' not supported."),
    ("-O bigalloc", "Setting filesystem feature 'bigalloc' not supported."),
    ("-E nonsense", ""),
    ("-E stride=x", "Invalid RAID stride: x"),
    ("-E hash_alg=md5", "Invalid hash algorithm: md5"),
    ("-E mmp_update_interval=301", "mmp_update_interval too big: 301"),
    ("-E clear_mmp", "Error in using clear_mmp. It must be used with -f"),
    ("-I 256", "The inode size is already 256"),
    ("-I 512", "Changing the inode size not supported for filesystems with the flex_bg\nfeature"),
    ("-I 128", "Shrinking inode size is not supported"),
    ("-I 2048", "Invalid inode size 2048 (max 1024)"),
    ("-I 300", "Inode size must be a power of two- 300"),
    ("-I x", "bad inode size - x"),
    ("-Z", "invalid option -- 'Z'"),
    ("-f", "Usage: tune2fs"),
    ("-L", "option requires an argument -- 'L'"),
];

fn real(args: &[&str]) -> Result<Said, Skip> {
    Ok(Said::of(&e2fs::run("tune2fs", args)?))
}

/// Lines without the version, and without times and what the journal and checksums make of them.
fn kept(text: &str) -> Vec<String> {
    let other = [" 1.47.0 (", "Last write", "Checksum:", "Lifetime", "Journal ", "ournal blocks"];
    let lines = text.lines().filter(|line| !other.iter().any(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}

/// The superblock at the start, or its backup.
fn dump(image: &str, backup: bool) -> Vec<String> {
    let at: &[&str] = if backup { &["-o", "superblock=8193", "-o", "blocksize=1024"] } else { &[] };
    let output = e2fs::run("dumpe2fs", [&["-h"], at, &[image]].concat()).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // With errors, a volume without a journal stays unclean. Either asks for a check.
    let text = text.replace("not clean with errors", "clean with errors");
    kept(text.split("Journal features").next().unwrap_or(&text))
}

#[test]
fn changes_are_those_of_tune2fs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (made, ours, theirs) = (path("made"), path("ours"), path("theirs"));
    for kind in ["-t ext4", "-t ext4 -O ^has_journal,^metadata_csum,^extent,^64bit", "-t ext2"] {
        let words: Vec<&str> = kind.split(' ').chain(["-b", "1024"]).collect();
        need!(e2fs::mke2fs(Path::new(&made), 10 << 20, &words));
        // The kinds differ in how the superblock is written, not in what is written.
        let step = if kind == "-t ext4" { 1 } else { 4 };
        for line in CHANGES.iter().skip(step - 1).step_by(step) {
            std::fs::copy(&made, &ours).unwrap();
            std::fs::copy(&made, &theirs).unwrap();
            let call = |image: &'_ str| -> Vec<String> {
                line.split(' ').chain([image]).map(str::to_owned).collect()
            };
            let expected = call(&theirs);
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            let expected = need!(real(&expected));
            let said = called("tune2fs", &call(&ours));
            let what = format!("{kind}: {line}");
            assert_eq!((said.code, &said.err), (0, &expected.err), "{what}");
            let lines = |said: &Said| {
                let mut lines = kept(&said.out);
                lines.sort();
                lines
            };
            assert_eq!(lines(&said), lines(&expected), "{what}");
            for backup in [false, true] {
                assert_eq!(dump(&ours, backup), dump(&theirs, backup), "{what}, {backup}");
            }
            let checked = need!(e2fs::e2fsck(Path::new(&ours)));
            let code = need!(e2fs::e2fsck(Path::new(&theirs))).code;
            assert!(checked.code == code, "{what}: {checked:?}, not {code}");
            // e2fsck completes what it was asked to complete.
            if expected.out.contains("run e2fsck") {
                need!(e2fs::run("e2fsck", ["-fy", &ours]));
            }
            e2fs::assert_clean(Path::new(&ours));
        }
    }
}

#[test]
fn what_tune2fs_refuses_is_refused_alike() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    need!(e2fs::mke2fs(&path, 10 << 20, &["-t", "ext4", "-b", "1024"]));
    let before = std::fs::read(&path).unwrap();
    for (line, text) in REFUSED {
        let mut args: Vec<&str> = line.split(' ').collect();
        if *line != "-L" {
            args.push(image);
        }
        let (said, expected) = (called("tune2fs", &args), need!(real(&args)));
        assert_eq!((said.code, expected.code), (1, 1), "{line}: {said:?}");
        let first = said.err.trim_start().trim_start_matches("tune2fs: ");
        assert!(first.starts_with(text), "{line}: {said:?}");
        let their = expected.err.trim_start().trim_start_matches("tune2fs: ");
        assert!(their.starts_with(text), "{line}: {expected:?}");
        assert_eq!(said.err.contains("Usage:"), expected.err.contains("Usage:"), "{line}");
    }
    for (line, text) in [
        ("-j", "The filesystem already has a journal."),
        ("-J device=/dev/x", "The filesystem already has a journal."),
        ("-Q usrquota", "-Q is not supported"),
        ("-z undo -L x", "-z is not supported"),
        ("-O ^metadata_csum", "-O ^metadata_csum is not supported: make"),
        ("-O quota", "-O quota is not supported: make"),
    ] {
        let words: Vec<&str> = line.split(' ').chain([image]).collect();
        let said = called("tune2fs", &words);
        assert!((said.code, said.err.lines().count()) == (1, 1), "{line}: {said:?}");
        assert!(said.err.contains(text), "{line}: {said:?}");
    }
    assert!(before == std::fs::read(&path).unwrap(), "a refused change wrote something");
}

#[test]
fn a_uuid_changes_with_all_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    for (kind, first) in [
        ("-t ext4", "-U random"),
        ("-t ext4 -O orphan_file", "-U random -L old"),
        ("-t ext4", "-O metadata_csum_seed -U random"),
        ("-t ext4 -O ^metadata_csum,uninit_bg", "-U random"),
        ("-t ext4 -O ^metadata_csum", "-U random"),
        ("-t ext2", "-U time"),
    ] {
        let words: Vec<&str> = kind.split(' ').chain(["-b", "1024"]).collect();
        need!(e2fs::mke2fs(&path, 10 << 20, &words));
        for line in [first, "-U clear", &format!("-U {UUID} -L named")] {
            let words: Vec<&str> = line.split(' ').chain([image]).collect();
            let said = called("tune2fs", &words);
            assert_eq!((said.code, said.err.as_str()), (0, ""), "{kind}: {line}: {said:?}");
            e2fs::assert_clean(&path);
        }
        for backup in [false, true] {
            let lines = dump(image, backup);
            assert!(lines.iter().any(|line| line.ends_with(UUID)), "{kind}: {lines:?}");
        }
        if let Ok(mount) = KernelMount::new(&path, Access::ReadWrite) {
            std::fs::write(mount.path().join("file"), "text").unwrap();
            mount.unmount();
        }
        e2fs::assert_clean(&path);
    }
    // The seed is that of another UUID by now.
    need!(e2fs::mke2fs(&path, 10 << 20, &["-t", "ext4", "-O", "metadata_csum_seed"]));
    assert_eq!(called("tune2fs", &["-U", "random", image]).code, 0);
    let said = called("tune2fs", &["-O", "^metadata_csum_seed", image]);
    assert!(said.code == 1 && said.err.contains("after the UUID has changed"), "{said:?}");
    e2fs::assert_clean(&path);
}

#[test]
fn inodes_become_larger_as_with_tune2fs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ours, theirs, tree) = (path("ours"), path("theirs"), path("tree"));
    for at in 0..40 {
        let sub = format!("{tree}/sub{at}");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(format!("{sub}/file"), vec![at; 1000 * usize::from(at)]).unwrap();
    }
    for kind in ["-t ext2", "-t ext3", "-t ext4 -O ^flex_bg"] {
        let words = ["-b", "1024", "-g", "2048", "-I", "128", "-d", &tree];
        let words: Vec<&str> = kind.split(' ').chain(words).collect();
        need!(e2fs::mke2fs(Path::new(&ours), 10 << 20, &words));
        std::fs::copy(&ours, &theirs).unwrap();
        let (before, size) = (need!(e2fs::debugfs(Path::new(&ours), false, &["ls -lR /"])), "-I");
        let expected = need!(real(&[size, "256", &theirs]));
        let said = called("tune2fs", &[size, "256", &ours]);
        assert_eq!((said.code, &said.err), (expected.code, &expected.err), "{kind}");
        assert_eq!(kept(&said.out), kept(&expected.out), "{kind}");
        // tune2fs keeps the old count of blocks that files cannot have, and leaves out fields that
        // mke2fs sets for inodes of this size.
        let known = |line: &String| !line.starts_with("Overhead") && !line.contains("extra isize:");
        let lines = |image| dump(image, false).into_iter().filter(known).collect::<Vec<_>>();
        assert_eq!(lines(&ours), lines(&theirs), "{kind}");
        e2fs::assert_clean(Path::new(&ours));
        let after = need!(e2fs::debugfs(Path::new(&ours), false, &["ls -lR /"]));
        assert_eq!(before, after, "{kind}");
        if let Ok(mount) = KernelMount::new(Path::new(&ours), Access::ReadWrite) {
            for at in 0..40 {
                let file = mount.path().join(format!("sub{at}/file"));
                assert_eq!(std::fs::read(&file).unwrap(), vec![at; 1000 * usize::from(at)]);
                std::fs::write(file, "new").unwrap();
            }
            mount.unmount();
        }
        e2fs::assert_clean(Path::new(&ours));
    }
    // tune2fs refuses flexible groups, `nextent tune` does not.
    need!(e2fs::mke2fs(Path::new(&ours), 10 << 20, &["-t", "ext4", "-I", "128"]));
    let said = called("nextent", &["tune", "-I", "512", &ours]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    e2fs::assert_clean(Path::new(&ours));
}

/// Kata's calls, on a volume whose journal waits for replay.
#[test]
fn a_journal_is_replayed_before_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let (path, waits) = (dir.path().join("image"), dir.path().join("waits"));
    let image = path.to_str().unwrap();
    let args = ["-q", "-F", "-b", "4096", image, "32m"];
    assert_eq!(called("mkfs.ext4", &args).code, 0);
    let said = called("tune2fs", &["-m", "0", image]);
    let text = "Setting reserved blocks percentage to 0% (0 blocks)\n";
    assert!(said.code == 0 && said.out.ends_with(text), "{said:?}");
    e2fs::assert_clean(&path);
    let mount = need!(KernelMount::new(&path, Access::ReadWrite));
    std::fs::write(mount.path().join("file"), "text").unwrap();
    std::fs::File::open(mount.path().join("file")).unwrap().sync_all().unwrap();
    std::fs::copy(&path, &waits).unwrap();
    // The kernel has the image now.
    let said = called("tune2fs", &["-m", "5", image]);
    assert!(said.code == 1 && said.err.lines().count() == 1, "{said:?}");
    mount.unmount();
    let said = called("tune2fs", &["-O", "verity", waits.to_str().unwrap()]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    e2fs::assert_clean(&waits);
    let without = dir.path().join("without");
    std::fs::copy(&waits, &without).unwrap();
    let text = need!(e2fs::debugfs(&waits, false, &["features", "cat /file"]));
    assert!(text.contains("verity") && text.contains("text"), "{text}");
    let mount = need!(KernelMount::new(&waits, Access::ReadWrite));
    assert_eq!(std::fs::read(mount.path().join("file")).unwrap(), b"text");
    mount.unmount();
    e2fs::assert_clean(&waits);
}

/// A node that has crashed leaves its number in the block of multiple mount protection.
#[test]
fn a_claim_of_a_crashed_node_is_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    let features = ["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"];
    need!(e2fs::mke2fs(&path, 10 << 20, &features));
    let mut bytes = std::fs::read(&path).unwrap();
    let block = u64::from_le_bytes(bytes[1024 + 0x168..][..8].try_into().unwrap());
    // The number of a check that was interrupted.
    let at = usize::try_from(block).unwrap() * 1024 + 4;
    bytes[at..at + 4].copy_from_slice(&0xe24d_4d50_u32.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(called("tune2fs", &["-L", "x", image]).code, 1);
    let said = called("tune2fs", &["-f", "-E", "clear_mmp", image]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert_eq!(called("tune2fs", &["-L", "x", image]).code, 0);
    e2fs::assert_clean(&path);
    need!(e2fs::mke2fs(&path, 10 << 20, &["-t", "ext4"]));
    assert_eq!(called("tune2fs", &["-f", "-E", "clear_mmp", image]).code, 1);
}

#[test]
fn our_command_has_the_same_options() {
    let dir = tempfile::tempdir().unwrap();
    works(dir.path(), &["mkfs", "-q", "image", "16m"]);
    works(dir.path(), &["mkfs", "-q", "-O", "^has_journal", "bare", "16m"]);
    let text = works(dir.path(), &["tune", "-L", "root", "-c", "-1", "-m", "1", "-l", "image"]);
    for line in ["Setting maximal mount count to -1\n", "volume name:   root\n"] {
        assert!(text.contains(line), "{text}");
    }
    for (args, code, text) in [
        (&["tune", "-m", "x", "image"][..], 2, "tune image: bad reserved block ratio - x"),
        (&["tune", "image"], 2, "tune image: nothing to change"),
        (&["tune", "-E", "x=1", "image"], 2, "tune image: -E x=1: unknown"),
        (&["tune", "-U", "random", "bare"], 1, "-U is not supported without a journal: all"),
        (&["tune", "-L", "x", "none"], 1, "none: "),
    ] {
        let said = run(dir.path(), args);
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!((said.status.code(), err.lines().count()), (Some(code), 1), "{err}");
        assert!(err.contains(text), "{args:?}: {err}");
    }
    e2fs::assert_clean(&dir.path().join("image"));
}

/// Calls tune2fs, and checks the volume with e2fsck and with a mount of the kernel.
#[track_caller]
fn tuned(path: &Path, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').chain([path.to_str().unwrap()]).collect();
    let said = called("tune2fs", &words);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{line}: {said:?}");
    e2fs::assert_clean(path);
    if let Ok(mount) = KernelMount::new(path, Access::ReadWrite) {
        assert_eq!(std::fs::read(mount.path().join("kept")).unwrap(), b"text", "{line}");
        std::fs::write(mount.path().join(format!("after {line}")), vec![1; 100_000]).unwrap();
        mount.unmount();
        e2fs::assert_clean(path);
    }
    said.out
}

#[test]
fn journals_are_removed_and_added() {
    let dir = tempfile::tempdir().unwrap();
    let (path, theirs) = (dir.path().join("image"), dir.path().join("theirs"));
    let (image, their) = (path.to_str().unwrap(), theirs.to_str().unwrap());
    let kept = dir.path().join("text");
    std::fs::write(&kept, "text").unwrap();
    for kind in
        ["-t ext4 -b 1024", "-t ext3 -b 1024", "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg"]
    {
        let words: Vec<&str> = kind.split(' ').collect();
        need!(e2fs::mke2fs(&path, 40 << 20, &words));
        let write = format!("write {} kept", kept.display());
        need!(e2fs::debugfs(&path, true, &[&write]));
        std::fs::copy(&path, &theirs).unwrap();
        let expected = need!(real(&["-O", "^has_journal", their]));
        assert_eq!(expected.code, 0, "{expected:?}");
        let said = called("tune2fs", &["-O", "^has_journal", image]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{kind}: {said:?}");
        // Backups have the counts of their last write.
        let counts = |line: &String| !line.contains("Overhead") && !line.starts_with("Free ");
        for backup in [false, true].into_iter().filter(|backup| !backup || kind.contains("1024")) {
            let [ours, theirs] = [image, their].map(|image| dump(image, backup));
            let kept = |lines: Vec<String>| lines.into_iter().filter(counts).collect::<Vec<_>>();
            assert_eq!(kept(ours), kept(theirs), "{kind}, {backup}");
        }
        tuned(&path, "-L none");
        let out = tuned(&path, "-j -m 1");
        assert!(out.contains("Creating journal inode: done\n"), "{out}");
        assert!(dump(image, false).iter().any(|line| line.contains(" has_journal ")), "{kind}");
        tuned(&path, "-O ^has_journal");
        let out = tuned(&path, "-J size=4");
        assert!(out.contains("Creating journal inode: done\n"), "{out}");
        let size = need!(e2fs::debugfs(&path, false, &["stat <8>"]));
        assert!(size.contains("Size: 4194304"), "{size}");
        tuned(&path, "-O ^has_journal");
        tuned(&path, "-O has_journal");
    }
    tuned(&path, "-O ^has_journal");
    let before = std::fs::read(&path).unwrap();
    for (option, text) in [
        ("size=100", "too large for the volume"),
        ("size=1", "it must have from 1024"),
        ("size=4,location=9", "location are not supported"),
        ("device=/dev/x", "another device"),
    ] {
        let said = called("tune2fs", &["-J", option, image]);
        assert!(said.code == 1 && said.err.contains(text), "{option}: {said:?}");
    }
    assert!(before == std::fs::read(&path).unwrap(), "a refused change wrote something");
    need!(e2fs::mke2fs(&path, 16 << 20, &["-t", "ext4", "-O", "orphan_file"]));
    let said = called("tune2fs", &["-O", "^has_journal", image]);
    assert!(said.code == 1 && said.err.contains("orphan_file, which needs"), "{said:?}");
}
