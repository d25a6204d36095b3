//! Small volumes are like those of mke2fs: block size, inodes, journal, features.

use crate::run;
use nextent_testkit::{e2fs, need};
use std::path::Path;

const OPTIONS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext3"],
    &["-t", "ext2"],
];

/// KiB, around each size at which a default changes.
const SIZES: &[u64] = &[
    128, 200, 256, 512, 1024, 1500, 2047, 2048, 2100, 3072, 4095, 4096, 5000, 8192, 8300, 9000,
    16384, 32767, 32768, 65536, 524_287, 524_288,
];

/// The fields of the superblock that are compared.
fn described(path: &Path) -> Vec<String> {
    let names =
        ["Block size", "Block count", "Filesystem features", "Inode count", "Total journal size"];
    let text = e2fs::dumpe2fs(path, true).unwrap_or_default();
    let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn small_volumes_are_like_those_of_mke2fs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let mut count = 0;
    for options in OPTIONS {
        for kib in SIZES {
            let _ = std::fs::remove_file(&ours);
            let _ = std::fs::remove_file(&theirs);
            let size = format!("{kib}k");
            let made = run(dir.path(), &[&["mkfs", "-q"], *options, &["ours", &size]].concat());
            let said = String::from_utf8_lossy(&made.stderr);
            let args = [&["-q", "-F"], *options].concat();
            let args = args.into_iter().chain([theirs.to_str().expect("plain"), &size]);
            let output = need!(e2fs::run("mke2fs", args));
            let refused = output.status.success() != made.status.success();
            assert!(!refused, "{options:?} {size}: mke2fs {}; {said}", output.status);
            if !made.status.success() {
                continue;
            }
            count += 1;
            assert_eq!(described(&ours), described(&theirs), "{options:?} {size}");
            e2fs::assert_clean(&ours);
        }
    }
    assert!(count > 100, "{count} of them were made");
}
