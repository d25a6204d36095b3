//! Truncated images: the message has both sizes, and the check examines the remaining part.

use crate::{run, shell, works};

#[test]
fn both_sizes_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    works(dir, &["mkfs", "-q", "whole", "64m"]);
    shell(dir, "head -c 20971520 whole > cut");
    let commands: &[&[&str]] = &[
        &["ls", "cut:/"],
        &["cp", "whole", "cut:/"],
        &["tar", "-c", "cut:/"],
        &["replay", "cut"],
        &["resize", "cut"],
        &["resize", "-M", "cut"],
        &["resize", "-P", "cut"],
        &["rm", "cut:/x"],
    ];
    for args in commands {
        let output = run(dir, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        for word in ["cut short", "67108864", "20971520", "46137344 bytes are missing"] {
            assert!(said.contains(word), "{args:?}: {said}");
        }
        assert!(said.lines().count() == 1 && !said.contains("corrupt"), "{said}");
    }
}

#[test]
fn the_remaining_part_is_checked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    shell(
        dir,
        "mkdir s; for k in $(seq 50); do head -c 100000 /dev/urandom > s/f$k; done; \
         $N mkfs -q -b 1024 -d s whole 64m; head -c 20971520 whole > cut; \
         head -c 67108000 whole > tail",
    );
    for cut in ["cut", "tail"] {
        for args in [&["fsck", "-n", cut][..], &["fsck", "-n", "-f", cut]] {
            let output = run(dir, args);
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(4), "{said}");
            assert!(said.contains("cut short") && said.contains("bytes are missing"), "{said}");
            assert!(said.contains("Pass 5"), "{said}");
            // The last block of a volume is mostly free.
            assert!(said.contains("beyond the device's end") == (cut == "cut"), "{said}");
        }
        // As dumpe2fs, which shows the superblock.
        assert!(works(dir, &["info", cut]).contains("Block count:"), "{cut}");
    }
    // A volume so large that its bitmaps would not fit in memory.
    shell(dir, "truncate -s 8t huge; $N mkfs -q -O ^has_journal huge; truncate -s 1m huge");
    let output = run(dir, &["fsck", "-n", "huge"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("8796093022208") && said.contains("1048576"), "{said}");
}
