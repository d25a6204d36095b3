//! The program as dumpe2fs, tune2fs -l and e2label: line by line what these tools print.

use crate::called::{Said, called, called_with};
use nextent_testkit::{Skip, e2fs, need};
use std::path::Path;
use std::process::Command;

/// Options of mke2fs, and changes of the superblock by debugfs.
const IMAGES: &[(&str, &[&str])] = &[
    ("-t ext2", &[]),
    ("-t ext3", &[]),
    ("-t ext4", &[]),
    ("-t ext4 -O orphan_file,fast_commit -E stride=4,stripe_width=8,test_fs -e panic -M /m", &[]),
    ("-t ext4 -O ^flex_bg,^metadata_csum,uninit_bg", &[]),
    ("-t ext4 -O sparse_super2,meta_bg,^resize_inode", &[]),
    ("-t ext4 -O ^sparse_super,^resize_inode -b 2048", &[]),
    ("-r 0", &[]),
    ("-o hurd -L label", &[]),
    ("-t ext4 -O mmp,quota,project,metadata_csum_seed -e remount-ro", &[]),
    ("-t ext4 -O casefold,encrypt,verity,inline_data,ea_inode,large_dir", &[]),
    ("-t ext4 -b 1024 -g 1024 -G 4", &[]),
    ("-t ext4 -O bigalloc -C 16384", &[]),
    ("-t ext4 -J size=9", &[]),
    (
        "-t ext4",
        &[
            "state 3",
            "last_orphan 11",
            "error_count 3",
            "first_error_time 20200101000000",
            "first_error_func foo",
            "first_error_line 5",
            "first_error_ino 7",
            "first_error_block 8",
            "last_error_time 20210101000000",
            "last_error_func bar",
            "last_error_line 6",
            "mount_opts foo,bar",
            "def_resuid 7",
            "def_resgid 12345",
            "max_mnt_count 20",
            "checkinterval 40000000",
            "mnt_count 7",
            "errors 9",
            "snapshot_inum 5",
            "snapshot_id 6",
            "snapshot_r_blocks_count 7",
            "snapshot_list 8",
            "kbytes_written 4000000",
            "default_mount_opts 0xfff",
            "mtime 20220202020202",
            "flags 7",
        ],
    ),
    (
        "-t ext4",
        &[
            "state 0",
            "flags 8",
            "def_hash_version tea",
            "hash_seed clear",
            "jnl_backup_type 2",
            "mkfs_time 0",
            "lastcheck 0",
            "default_mount_opts 0",
            "max_mnt_count 0",
            "checkinterval 3661",
            "kbytes_written 8192",
            "error_count 1",
            "first_error_time 20200101000000",
            "overhead_clusters 0",
            "journal_dev 0x801",
            "journal_uuid dd3f53e3-46bb-430a-988f-1dbfc7daee1e",
            "raid_stride 5",
            "want_extra_isize 0",
            "log_groups_per_flex 3",
        ],
    ),
];

fn real(tool: &str, args: &[&str]) -> Result<Said, Skip> {
    let mut command = Command::new(format!("/usr/sbin/{tool}"));
    command.env("LC_ALL", "C").env("TZ", "UTC").args(args);
    let output = command.output().map_err(|_| Skip::missing("e2fsprogs"))?;
    Ok(Said::of(&output))
}

/// The lines but that with the version.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.contains(" 1.47.0 (")).collect()
}

#[track_caller]
fn same(image: &str, context: &str) -> Result<(), Skip> {
    for (tool, options) in [
        ("dumpe2fs", &["-h"][..]),
        ("dumpe2fs", &[]),
        ("dumpe2fs", &["-x"]),
        ("dumpe2fs", &["-b"]),
        ("tune2fs", &["-l"]),
    ] {
        let args = [options, &[image]].concat();
        let theirs = real(tool, &args)?;
        let ours = called(tool, &args);
        let what = format!("{context}: {tool} {options:?}");
        for (ours, theirs) in lines(&ours.out).iter().zip(&lines(&theirs.out)) {
            assert_eq!(ours, theirs, "{what}");
        }
        let (count, least) = (lines(&ours.out).len(), lines(&theirs.out).len());
        assert!(count == least, "{what}: {count} lines, not {least}");
        assert_eq!(ours.code, theirs.code, "{what}: {ours:?}");
        assert_eq!(ours.err.lines().count(), theirs.err.lines().count(), "{what}: {ours:?}");
    }
    Ok(())
}

#[test]
fn superblocks_and_groups_are_described_alike() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    for (options, changes) in IMAGES {
        let words: Vec<&str> = options.split(' ').collect();
        need!(e2fs::mke2fs(&path, 40 << 20, &words));
        let changes: Vec<String> = changes.iter().map(|change| format!("ssv {change}")).collect();
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        if !changes.is_empty() {
            need!(e2fs::debugfs(&path, true, &changes));
        }
        need!(same(image, options));
    }
    // An image with files, and with a journal that this program has used.
    for options in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-O", "fast_commit"]] {
        need!(e2fs::mke2fs(&path, 40 << 20, options));
        let inside = format!("{image}:/dir");
        assert_eq!(called("nextent", &["mkdir", &inside]).code, 0);
        assert_eq!(called("nextent", &["cp", "-r", "/etc/init.d", &inside]).code, 0);
        need!(same(image, "after changes"));
        e2fs::assert_clean(&path);
    }
}

#[test]
fn a_backup_superblock_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    need!(e2fs::mke2fs(&path, 40 << 20, &["-t", "ext4", "-b", "1024"]));
    let args = ["-h", "-o", "superblock=8193", "-o", "blocksize=1024", image];
    let (ours, theirs) = (called("dumpe2fs", &args), need!(real("dumpe2fs", &args)));
    assert_eq!(lines(&ours.out), lines(&theirs.out));
}

#[test]
fn what_is_no_file_system_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (none, text) = (dir.path().join("none"), dir.path().join("text"));
    std::fs::write(&text, "no file system\n").unwrap();
    for (tool, option) in [("dumpe2fs", Some("-h")), ("tune2fs", Some("-l")), ("e2label", None)] {
        for path in [&none, &text] {
            let image = path.to_str().unwrap();
            let args: Vec<&str> = option.into_iter().chain([image]).collect();
            let said = called(tool, &args);
            assert!(said.code == 1 && said.err.contains(image), "{said:?}");
            assert!(said.err.contains("Couldn't find valid filesystem superblock."), "{said:?}");
        }
        let usage = called::<&str>(tool, &[]);
        assert!(usage.code == 1 && usage.err.contains("Usage: "), "{usage:?}");
    }
    let said = called("dumpe2fs", &["-V"]);
    assert!(said.code == 0 && said.err.starts_with("dumpe2fs 1.47.0 (nextent "), "{said:?}");
}

#[test]
fn labels_are_shown_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = path.to_str().unwrap();
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        need!(e2fs::mke2fs(&path, 40 << 20, options));
        let said = |args: &[&str]| {
            let said = called("e2label", args);
            (said.code, said.out, said.err)
        };
        assert_eq!(said(&[image]), (0, "\n".into(), String::new()));
        assert_eq!(said(&[image, "root"]), (0, String::new(), String::new()));
        assert_eq!(said(&[image]), (0, "root\n".into(), String::new()));
        let warning = "Warning: label too long, truncating.\n".to_owned();
        assert_eq!(said(&[image, "0123456789abcdefgh"]), (0, String::new(), warning));
        assert_eq!(need!(real("e2label", &[image])).out, "0123456789abcdef\n");
        let backup = need!(e2fs::run("dumpe2fs", ["-h", "-o", "superblock=8193", image]));
        assert!(String::from_utf8_lossy(&backup.stdout).contains("0123456789abcdef\n"));
        assert_eq!(said(&[image, "a", "b"]).0, 1);
        let text = need!(real("tune2fs", &["-l", image])).out;
        assert!(text.contains("Mount count:              0\n"), "a change is no mount: {text}");
        e2fs::assert_clean(&path);
    }
    // Programs read the numbers from tune2fs -l.
    let said = called_with("nextent", &["tune2fs", "-l", image], &[]);
    assert!(said.out.contains("Block size:               1024\n"), "{said:?}");
    assert!(Path::new(image).exists());
}
