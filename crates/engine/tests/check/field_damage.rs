//! Wrong values of fields in the superblock, in the journal's superblock and in the inodes that
//! they name. The check must report each that e2fsck reports.

use std::os::unix::fs::FileExt;

use nextent_testkit::{e2fs, need};

use super::debugfs_damage::{base, filled};
use super::support::{lines, ours};

/// The arguments of mke2fs, and the changes: a name, and debugfs commands separated by `;`.
const CHANGES: &[(&str, &[(&str, &str)])] = &[
    (
        "-t ext4 -b 1024",
        &[
            ("reserved blocks", "ssv r_blocks_count 9000"),
            ("flex groups", "ssv log_groups_per_flex 32"),
            ("flex groups again", "ssv log_groups_per_flex 255"),
            ("least extra size", "ssv min_extra_isize 3"),
            ("wanted extra size", "ssv want_extra_isize 5000"),
            ("quota of users, the root", "ssv usr_quota_inum 2"),
            ("quota of users, reserved", "ssv usr_quota_inum 6"),
            ("quota of groups, in use", "ssv grp_quota_inum 11"),
            ("quota of projects, the growth inode", "ssv prj_quota_inum 7"),
            ("quota of projects, in use", "ssv prj_quota_inum I(/file)"),
            ("orphan file, the root", "ssv orphan_file_inum 2"),
            ("orphan file, in use", "ssv orphan_file_inum I(/file)"),
            ("users of the journal", "zap_block -f <8> -o 67 -l 1 -p 2 0"),
            ("more users of the journal", "zap_block -f <8> -o 65 -l 1 -p 1 0"),
            ("features of the journal", "zap_block -f <8> -o 43 -l 1 -p 64 0"),
            ("read-only features of the journal", "zap_block -f <8> -o 47 -l 1 -p 1 0"),
            ("journal without links", "sif <8> links_count 0"),
            ("journal's mode", "sif <8> mode 040700"),
            ("no mode of the journal", "sif <8> mode 0"),
            ("journal's odd size", "sif <8> size 1048577"),
            ("encrypted journal", "sif <8> flags 0x80800"),
            ("journal with inline data", "sif <8> flags 0x10080000"),
            ("folding journal", "sif <8> flags 0x40080000"),
            ("no size of the growth inode", "sif <7> size 0"),
            ("size of the growth inode", "sif <7> size 100000"),
            ("blocks of the growth inode", "sif <7> blocks 2"),
            ("attributes of the growth inode", "sif <7> file_acl 3"),
            ("folding growth inode", "sif <7> flags 0x40000000"),
            ("attributes of a reserved inode", "sif <5> file_acl 1"),
            ("folding reserved inode", "sif <9> flags 0x40000000"),
            ("bad descriptors", "sif <1> block[0] 2"),
            ("folding list of bad blocks", "sif <1> flags 0x40000000"),
            ("folding file", "sif /file flags 0x40080000"),
            ("encrypted file", "sif /file flags 0x80800"),
        ],
    ),
    (
        "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg,^64bit,^resize_inode,^flex_bg",
        &[
            ("bytes of a descriptor", "ssv desc_size 5"),
            ("reserved blocks", "ssv r_blocks_count 4000"),
            ("journal without links", "sif <8> links_count 0"),
        ],
    ),
    (
        "-t ext3 -b 1024",
        &[
            ("reserved blocks", "ssv r_blocks_count 9000"),
            ("no size of the growth inode", "sif <7> size 0"),
            ("users of the journal", "zap_block -f <8> -o 67 -l 1 -p 3 0"),
        ],
    ),
    ("-t ext2 -b 1024", &[("extents of an unused journal", "sif <8> flags 0x80000")]),
    (
        "-t ext4 -b 1024 -O quota,project,orphan_file",
        &[
            ("quota of users, another's", "ssv usr_quota_inum 4"),
            ("quota of groups, another's", "ssv grp_quota_inum 3"),
            ("quota of users, past the end", "ssv usr_quota_inum 4000000"),
            ("quota of users, a file", "ssv usr_quota_inum I(/file)"),
            ("quota of projects, the same", "ssv prj_quota_inum 3"),
            ("quota of projects, the root", "ssv prj_quota_inum 2"),
            ("quota's mode", "sif <4> mode 040600"),
            ("quota's size", "sif <3> size 5120"),
            ("quota with inline data", "sif <3> flags 0x10080010"),
            ("folding quota", "sif <4> flags 0x40080010"),
            ("version of a quota", "zap_block -f <4> -o 4 -l 1 -p 7 0"),
            ("a user's usage", "sif /file uid 7"),
            ("a group's usage", "sif /dir gid 70000"),
            ("a project's usage", "sif /other projid 9"),
            ("orphan file's size", "sif <13> size 31744"),
            ("orphan file's odd size", "sif <13> size 32758"),
            ("orphan file without links", "sif <13> links_count 0"),
        ],
    ),
    ("-t ext4 -b 4096 -O casefold", &[("character set", "ssv encoding 0")]),
    (
        "-t ext4 -b 1024 -O casefold,^metadata_csum -E encoding=utf8-12.1,encoding_flags=strict",
        &[
            (
                "a name that is no text",
                "mkdir /ci;sif /ci flags 0x40080000;symlink /ci/Ab to;\
                 zap_block -f /ci -o 33 -l 1 -p 255 0",
            ),
            (
                "names that differ in case",
                "mkdir /ci;sif /ci flags 0x40080000;symlink /ci/Foo to;symlink /ci/foo to",
            ),
        ],
    ),
    (
        "-t ext4 -b 1024 -O inline_data",
        &[
            ("inline data without an attribute", "sif /short flags 0x10000000"),
            ("inline data in a directory without one", "ea_rm /dir system.data"),
        ],
    ),
    (
        "-t ext4 -b 1024 -O encrypt",
        &[("encrypted without an attribute", "sif /file flags 0x80800")],
    ),
];

#[test]
fn wrong_fields_are_errors() {
    let mut wrong = Vec::new();
    for (args, changes) in CHANGES {
        let made = need!(base(args));
        need!(e2fs::e2fsck(&made.path())).assert_clean();
        let sound = ours(&made.path());
        assert!(sound.as_ref().is_ok_and(|r| r.is_clean()), "{args}:\n{}", lines(&sound));
        let bytes = std::fs::read(made.path()).unwrap();
        for (what, commands) in *changes {
            std::fs::write(made.path(), &bytes).unwrap();
            let commands = filled(&made.path(), commands);
            let list: Vec<&str> = commands.split(';').collect();
            let said = e2fs::debugfs(&made.path(), true, &list).unwrap();
            let theirs = e2fs::e2fsck(&made.path()).unwrap();
            // Errors only in the superblock do not change e2fsck's exit code.
            let reported = !theirs.is_clean() || theirs.text.contains("? no");
            let report = ours(&made.path());
            let clean = report.as_ref().is_ok_and(|report| report.is_clean());
            if !reported || clean {
                let (text, theirs) = (lines(&report), theirs.text);
                wrong.push(format!("{args}: {what}: {commands}\n{said}{text}e2fsck:\n{theirs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The check does not compare non-ASCII names without regard to case, and reports that.
#[test]
fn names_beyond_ascii_are_not_compared() {
    for (name, compared) in [("foo", true), ("f\u{fc}r", false)] {
        let features = "casefold,^metadata_csum -E encoding=utf8-12.1,encoding_flags=strict";
        let made = need!(base(&format!("-t ext4 -b 1024 -O {features}")));
        let first = format!("symlink /ci/{name} to");
        let commands = ["mkdir /ci", "sif /ci flags 0x40080000", &first, "symlink /ci/other to"];
        need!(e2fs::debugfs(&made.path(), true, &commands));
        e2fs::assert_clean(&made.path());
        let report = ours(&made.path()).unwrap();
        assert_eq!(report.is_whole(), compared, "{name}: {:?}", report.problems);
        assert_eq!(report.errors, 0, "{name}: {:?}", report.problems);
    }
}

/// MMP says that another machine checks the volume, or that a check was killed.
#[test]
fn multi_mount_protection_of_a_check() {
    let made = need!(base("-t ext4 -b 1024 -O mmp,^metadata_csum"));
    let text = need!(e2fs::dumpe2fs(&made.path(), true));
    let block = text.lines().find_map(|line| line.strip_prefix("MMP block number:")).unwrap();
    let at = block.trim().parse::<u64>().unwrap() * 1024 + 4;
    let file = std::fs::File::options().write(true).open(made.path()).unwrap();
    file.write_all_at(&[0x50, 0x4d, 0x4d, 0xe2], at).unwrap();
    drop(file);
    assert!(!need!(e2fs::e2fsck(&made.path())).is_clean());
    let report = ours(&made.path());
    assert!(report.as_ref().is_ok_and(|report| !report.is_clean()), "{}", lines(&report));
}

/// Without the superblock and all descriptors, the check uses the copies and finds every file.
#[test]
fn a_lost_start_of_the_volume() {
    for args in [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -g 4096 -O sparse_super2,^resize_inode",
    ] {
        let made = need!(base(args));
        let before = ours(&made.path()).unwrap().totals;
        let file = std::fs::File::options().write(true).open(made.path()).unwrap();
        file.write_all_at(&[0; 2048], 1024).unwrap();
        drop(file);
        let report = ours(&made.path()).unwrap();
        let codes: Vec<_> = report.problems.iter().map(|problem| problem.code).collect();
        assert!(codes.contains(&"superblock") && codes.contains(&"descriptors"), "{codes:?}");
        // The copies have old counts and checksums; no other problem.
        let old =
            ["superblock", "descriptors", "free-", "directories", "bitmap", "backup", "revision"];
        let astray = codes.iter().filter(|code| !old.iter().any(|word| code.contains(word)));
        assert_eq!(astray.count(), 0, "{args}:\n{}", lines(&Ok(report.clone())));
        assert_eq!(
            (before.files, before.directories),
            (report.totals.files, report.totals.directories)
        );
        // e2fsck finds as many problems.
        assert!(!need!(e2fs::e2fsck(&made.path())).is_clean() || args.contains("ext2"));
    }
}
