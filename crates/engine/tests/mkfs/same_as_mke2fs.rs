//! The layout is that of mke2fs: the same counts, locations, flags and inodes. With mke2fs 1.47.0
//! the bytes are the same.

use std::path::Path;
use std::process::Command;

use nextent_device::{BlockDevice, FileDevice, FileOptions, SparseRanges};
use nextent_testkit::{Skip, e2fs, need};

use crate::args::{self, CLOCK, MkfsCase};

const CASES: &[&str] = &[
    "256m",
    "200k",
    "1m",
    "3m",
    "17m",
    "64m",
    "511m",
    "513m",
    "2178m",
    "100g",
    "20m -t ext2",
    "600m -t ext3",
    "60m -O none",
    "60m -r 0 -t ext2",
    "1000k -b 4096",
    // A last group that is too small; some layouts use smaller groups.
    "134627328 -b 4096",
    "138313728 -b 4096",
    "152649728 -b 4096",
    "107374194688 -m 7.3",
    "200m -O orphan_file,metadata_csum_seed",
    "60m -t ext3 -O orphan_file,metadata_csum -b 4096",
    "600m -O sparse_super2",
    "140m -b 4096 -O sparse_super2",
    "5g -O sparse_super2 -E num_backup_sb=1",
    "5g -O sparse_super2 -E num_backup_sb=0",
    "600m -O ^has_journal",
    "600m -O ^flex_bg",
    "600m -O ^flex_bg -E stride=16",
    "600m -O ^resize_inode",
    "3000m -O meta_bg,^resize_inode -b 1024",
    "1g -O meta_bg,^resize_inode -t ext3",
    "300m -O uninit_bg,^metadata_csum",
    "300m -O ^64bit",
    "60m -t ext3 -O uninit_bg,flex_bg",
    "500m -t ext2 -O metadata_csum",
    "600m -t ext2 -O ^sparse_super,^resize_inode",
    "300m -I 128",
    "300m -I 1024",
    "5g -i 65536 -I 512",
    "5g -i 1048576",
    "60m -N 10",
    "60m -i 1024",
    "9m -b 1024 -i 1024",
    "2g -b 65536",
    "2g -b 2048",
    "600m -G 1",
    "600m -G 2",
    "600m -g 8192",
    "600m -O fast_commit",
    "60m -J 2",
    "3g -E packed_meta_blocks=1",
    "600m -E lazy_itable_init=0",
    // Features that sizes imply.
    "128m -b 4096 -O ^large_file",
    "40m -b 8192 -t ext2 -O ^large_file",
    // More inodes than blocks, and too few inodes for one per group.
    "64m -b 4096 -i 1024",
    "8m -i 67108864",
    "8m -b 8192 -i 67108864",
    // The smallest volumes with a journal.
    "2m",
    "2m -t ext3",
    "8m -b 4096",
    "1900k -J 1",
    // Journals of half of the free blocks, before the flexible groups' tables have a location.
    "17191k -b 1024 -J 8",
    "16793600 -b 4096 -J 8",
    "8885248 -b 4096 -J 4",
    // A last group with a backup, too small for the descriptors that meta_bg has elsewhere.
    "186735k -b 1024 -g 256 -O meta_bg,^resize_inode",
    // Too few inodes for one per group, on a volume that drops its last group.
    "14m -b 2048 -i 16777216 -g 1000 -O ^metadata_csum",
    // Sizes that are no multiple of a page.
    "5000001 -b 1024",
    "5000001 -b 2048 -t ext2",
    // The inode of lost+found is not in the first group.
    "112m -b 1024 -t ext2 -N 11",
    "200m -b 1024 -i 16777216 -G 2",
    "98m -t ext2 -I 128 -g 512 -O flex_bg -E packed_meta_blocks=1",
    "190m -b 4096 -t ext3 -E packed_meta_blocks=1",
    "1600m -i 65536 -G 1 -E stride=4,stripe_width=8",
    "2440335k -b 8192 -t ext2 -i 2048 -J 8 -O ^resize_inode -E stride=16",
    "20m -b 16384 -E resize=100000000",
    "20m -t ext3 -O ^resize_inode -E resize=1000000",
    "600m -E resize=1000000",
    "600m -E resize=100000000,stride=4,stripe_width=8",
];

/// Debian's defaults, instead of those of the installed mke2fs.
const CONFIG: &str = "[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
default_mntopts = acl,user_xattr
enable_periodic_fsck = 0
blocksize = 4096
inode_size = 256
inode_ratio = 16384
[fs_types]
ext3 = {
features = has_journal
}
ext4 = {
features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
small = {
blocksize = 1024
inode_ratio = 4096
}
floppy = {
blocksize = 1024
inode_ratio = 8192
}
big = {
inode_ratio = 32768
}
huge = {
inode_ratio = 65536
}
";

fn make_theirs(dir: &Path, path: &Path, case: &MkfsCase) -> Result<(), Skip> {
    let config = dir.join("mke2fs.conf");
    std::fs::write(&config, CONFIG).expect("the test's directory can be written");
    let file = std::fs::File::create(path).expect("as above");
    file.set_len(case.size).expect("a sparse file takes no space");
    let output = Command::new("/sbin/mke2fs")
        .env("MKE2FS_CONFIG", &config)
        .env("E2FSPROGS_FAKE_TIME", CLOCK.to_string())
        .args(["-q", "-F"])
        .args(&case.words)
        .arg(path)
        .output()
        .map_err(|_| Skip::missing("/sbin/mke2fs"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mke2fs {:?} failed: {text}", case.words);
    Ok(())
}

/// The output of dumpe2fs, without checksums and fields that the programs count differently.
fn described(path: &Path) -> Result<Vec<String>, Skip> {
    let text = e2fs::dumpe2fs(path, false)?;
    let lines = text.lines().filter(|line| !line.starts_with("Lifetime"));
    let lines = lines.filter(|line| !line.starts_with("Checksum:"));
    let cut = |line: &str| match line.find(" csum 0x") {
        Some(at) => format!("{}{}", &line[..at], &line[(at + 18).min(line.len())..]),
        None => line.to_owned(),
    };
    Ok(lines.map(cut).collect())
}

/// Blanks the KiB written and the checksum in every block that starts with a superblock.
fn blank(bytes: &mut [u8]) {
    for at in (0..bytes.len()).step_by(1024) {
        if bytes.len() >= at + 1024 && bytes[at + 0x38..at + 0x3a] == [0x53, 0xef] {
            bytes[at + 0x178..at + 0x180].fill(0);
            bytes[at + 0x3fc..at + 0x400].fill(0);
        }
    }
}

/// The first byte in which the devices differ, over the data ranges of `a`.
fn difference(a: &FileDevice, b: &FileDevice) -> Option<u64> {
    const STEP: u64 = 1 << 16;
    for range in SparseRanges::new(a) {
        let range = range.expect("data ranges are known");
        let mut at = range.start / STEP * STEP;
        while at < range.end {
            let len = STEP.min(a.size() - at) as usize;
            let (mut x, mut y) = (vec![0; len], vec![0; len]);
            a.read_at(at, &mut x).expect("a read");
            b.read_at(at, &mut y).expect("a read");
            blank(&mut x);
            blank(&mut y);
            if let Some(byte) = x.iter().zip(&y).position(|(x, y)| x != y) {
                return Some(at + byte as u64);
            }
            at += STEP;
        }
    }
    None
}

fn same_version() -> bool {
    let output = Command::new("/sbin/mke2fs").arg("-V").output();
    output.is_ok_and(|out| String::from_utf8_lossy(&out.stderr).contains("mke2fs 1.47.0"))
}

#[test]
fn layout_is_that_of_mke2fs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (a, b) = (dir.path().join("ours"), dir.path().join("theirs"));
    let bytes = same_version();
    for line in CASES {
        let case = args::parse(line);
        need!(make_theirs(dir.path(), &b, &case));
        let made = args::make(&a, &case);
        assert!(made.is_ok(), "{line}: {:?}", made.err());
        let (x, y) = (need!(described(&a)), need!(described(&b)));
        for (ours, theirs) in x.iter().zip(&y) {
            assert_eq!(ours, theirs, "{line}");
        }
        assert_eq!(x.len(), y.len(), "{line}");
        let open = |path| FileDevice::open(path, &FileOptions::default()).expect("it opens");
        if bytes {
            let (ours, theirs) = (open(&a), open(&b));
            assert_eq!(difference(&ours, &theirs), None, "{line}: bytes");
            assert_eq!(difference(&theirs, &ours), None, "{line}: bytes");
        }
    }
}
