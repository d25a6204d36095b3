//! The program as e2mmpstatus, and `-m` of dumpe2fs: output and exit codes of the real programs. A
//! block with a usual number is not among the cases, since both wait eleven seconds then.

use crate::called::{Said, called};
use nextent_testkit::{e2fs, need};
use std::fs;

/// Names of the two programs, and their options.
const CALLS: &[(&str, &[&str])] = &[
    ("e2mmpstatus", &[]),
    ("e2mmpstatus", &["-i"]),
    ("e2mmpstatus", &["-o", "superblock=8193", "-o", "blocksize=1024"]),
    ("dumpe2fs", &["-m"]),
    ("dumpe2fs", &["-m", "-i"]),
];

const CHECK: u32 = 0xe24d_4d50;

/// Compares the streams, but for the version, and the exit codes.
#[track_caller]
fn assert_same(image: &str, what: &str) {
    for (tool, options) in CALLS {
        let args = [options, &[image][..]].concat();
        let command = e2fs::run(tool, &args).map(|output| Said::of(&output));
        let (ours, theirs) = (called(tool, &args), command.expect("e2fsprogs made the image"));
        let lines = |text: &str| {
            let lines = text.lines().filter(|line| !line.contains(" 1.47.0 ("));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let times = |lines: Vec<String>| {
            // Both print the local time; this program's is UTC.
            let kept = lines.into_iter().map(|line| match line.split_once(" at ") {
                Some((before, _)) => before.to_owned(),
                None => line,
            });
            kept.filter(|line| !line.contains("mmp_update_date")).collect::<Vec<_>>()
        };
        assert_eq!(ours.code, theirs.code, "{what}: {tool} {options:?}: {ours:?} {theirs:?}");
        assert_eq!(times(lines(&ours.out)), times(lines(&theirs.out)), "{what}: {tool}");
        let reads_damage = options.contains(&"-i") && !theirs.err.trim().is_empty();
        if !reads_damage || !what.starts_with("damaged") {
            assert_eq!(times(lines(&ours.err)), times(lines(&theirs.err)), "{what}: {tool}");
        }
    }
}

#[test]
fn the_state_of_a_volume_for_many_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    let without = called("e2mmpstatus", &["-V"]);
    assert!(without.code == 0 && without.err.starts_with("e2mmpstatus 1.47.0 ("), "{without:?}");
    assert_eq!(called::<&str>("e2mmpstatus", &[]).code, 1);
    for features in ["mmp", "mmp,^metadata_csum"] {
        need!(e2fs::mke2fs(&path, 10 << 20, &["-t", "ext4", "-b", "1024", "-O", features]));
        assert_same(image, features);
        let text = need!(e2fs::dumpe2fs(&path, true));
        let block = text.lines().find_map(|line| line.strip_prefix("MMP block number:"));
        let at = block.unwrap().trim().parse::<usize>().unwrap() << 10;
        let bytes = fs::read(&path).unwrap();
        let patched = |offset: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at + offset..][..new.len()].copy_from_slice(new);
            fs::write(&path, bytes).unwrap();
        };
        if features == "mmp" {
            patched(16, b"other node");
            assert_same(image, "damaged: checksum");
            patched(0, &[0; 4]);
            assert_same(image, "damaged: magic number");
        } else {
            patched(4, &CHECK.to_le_bytes());
            assert_same(image, "check");
            patched(4, &(CHECK + 1).to_le_bytes());
            assert_same(image, "unknown");
            patched(0, &[0; 4]);
            assert_same(image, "damaged: magic number");
        }
        assert!(called("dumpe2fs", &["-i", image]).err.contains("-i is not supported"));
    }
    need!(e2fs::mke2fs(&path, 10 << 20, &["-t", "ext4", "-b", "1024"]));
    assert_same(image, "no feature");
}
