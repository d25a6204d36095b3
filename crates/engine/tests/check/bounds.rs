//! Maps that have more blocks than the volume. The device's size bounds the check's reads and
//! memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nextent::check::{CheckReport, Severity};
use nextent_sync::{Duration, Instant};
use nextent_testkit::{Skip, need};

use super::support::{TestImage, lines, ours};

const BLOCK: u64 = 4096;
/// `shared_blocks`, in the read-only features.
const SHARED_BLOCKS: u32 = 0x4000;
/// `large_dir`, in the incompatible ones.
const LARGE_DIR: u32 = 0x4000;
/// The first block of the last 128 MiB, which all extents of the map point to.
const TARGET: u32 = 65536;
const LONGEST: u32 = 32768;
/// Leaves, and extents in each: they map 2^23 blocks.
const LEAVES: u32 = 4;
const EXTENTS: u32 = 64;

/// A sparse image of 384 MiB without checksums. The extents of inode 11 all map the same blocks.
/// `set` changes further bytes of the inode.
fn overlaid(features: &str, set: impl Fn(&mut [u8])) -> Result<TestImage, Skip> {
    let args = format!("-t ext4 -b 4096 -O ^metadata_csum,^64bit,{features}");
    let made = TestImage::empty(384 << 20, &args)?;
    let file = File::options().read(true).write(true).open(made.path()).unwrap();
    let word = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    };
    let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    put(1024 + 0x60, &(word(1024 + 0x60) | LARGE_DIR).to_le_bytes());
    put(1024 + 0x64, &(word(1024 + 0x64) | SHARED_BLOCKS).to_le_bytes());
    let header = |entries: u32, depth: u32| {
        [0xf30a | entries << 16, 340 | depth << 16, 0].map(u32::to_le_bytes).concat()
    };
    let (mut logical, mut root) = (0u32, header(LEAVES, 1));
    root[4..6].copy_from_slice(&[4, 0]);
    for leaf in 0..LEAVES {
        let place = 40_000 + leaf;
        root.extend([logical, place, 0].map(u32::to_le_bytes).concat());
        let mut node = header(EXTENTS, 0);
        for _ in 0..EXTENTS {
            node.extend([logical, LONGEST, TARGET].map(u32::to_le_bytes).concat());
            logical += LONGEST;
        }
        put(u64::from(place) * BLOCK, &node);
    }
    // Inode 11, of 256 bytes, in the table of the first descriptor.
    let at = u64::from(word(BLOCK + 8)) * BLOCK + 10 * 256;
    let mut inode = [0; 128];
    file.read_exact_at(&mut inode, at).unwrap();
    let size = u64::from(logical) * BLOCK;
    inode[4..8].copy_from_slice(&(size as u32).to_le_bytes());
    inode[0x6c..0x70].copy_from_slice(&((size >> 32) as u32).to_le_bytes());
    inode[40..100].copy_from_slice(&root);
    inode[32..36].copy_from_slice(&0x80000u32.to_le_bytes());
    set(&mut inode);
    put(at, &inode);
    Ok(made)
}

fn codes(report: &Result<CheckReport, String>) -> Vec<&str> {
    let report = report.as_ref().expect("it is checked");
    let errors = report.problems.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.code).collect()
}

/// The check reads none of the 2^23 blocks of a hashed directory.
#[test]
fn directories_share_no_blocks() {
    let made = need!(overlaid("^has_journal", |inode| {
        inode[32..36].copy_from_slice(&0x81000u32.to_le_bytes());
    }));
    let start = Instant::now();
    let report = ours(&made.path());
    let codes = codes(&report);
    assert!(codes.contains(&"shared-block"), "{}", lines(&report));
    assert!(!codes.contains(&"directory-entry"), "{}", lines(&report));
    assert!(codes.len() < 20, "{}", lines(&report));
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// The check reads at most 512 blocks of the orphan file, as a mount does.
#[test]
fn the_orphan_file_has_the_bound_of_the_mount() {
    let made = need!(overlaid("^has_journal", |inode| {
        inode[0..2].copy_from_slice(&0o100_600u16.to_le_bytes());
    }));
    let file = File::options().read(true).write(true).open(made.path()).unwrap();
    // `orphan_file`, and its inode.
    let mut compat = [0; 4];
    file.read_exact_at(&mut compat, 1024 + 0x5c).unwrap();
    let compat = u32::from_le_bytes(compat) | 0x1000;
    file.write_all_at(&compat.to_le_bytes(), 1024 + 0x5c).unwrap();
    file.write_all_at(&11u32.to_le_bytes(), 1024 + 0x280).unwrap();
    let start = Instant::now();
    let report = ours(&made.path());
    let count = codes(&report).iter().filter(|code| **code == "orphan-file").count();
    // One problem for each block that pass 1 reads, and one for the size.
    assert!((1..=513).contains(&count), "{count}\n{}", lines(&report));
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// With `shared_blocks` regular files may share blocks, also within one file.
#[test]
fn files_may_share_blocks() {
    let made = need!(overlaid("^has_journal", |inode| {
        inode[0..2].copy_from_slice(&0o100_600u16.to_le_bytes());
    }));
    let report = ours(&made.path());
    assert!(!codes(&report).contains(&"shared-block"), "{}", lines(&report));
    assert!(!codes(&report).contains(&"map-too-large"), "{}", lines(&report));
}
