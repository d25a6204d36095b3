//! Images that are clean for e2fsck have no problem: every feature set, filled by mke2fs and by
//! Linux.

use std::path::Path;

use nextent_testkit::{Access, KernelMount, TreeMaker, e2fs, need};

use super::support::{TestImage, lines, ours};

const SETS: [(&str, u64); 34] = [
    ("-t ext4", 64),
    ("-t ext4 -O orphan_file,metadata_csum_seed", 64),
    ("-t ext3", 64),
    ("-t ext2", 64),
    ("-t ext2 -r 0 -O none", 20),
    ("-t ext2 -b 1024", 40),
    ("-t ext4 -b 1024", 75),
    ("-t ext4 -b 2048", 64),
    ("-t ext4 -O ^metadata_csum,uninit_bg", 64),
    ("-t ext4 -O ^metadata_csum,uninit_bg,^64bit -b 1024", 64),
    ("-t ext4 -O meta_bg,^resize_inode -b 1024", 120),
    ("-t ext4 -O sparse_super2 -b 1024", 120),
    ("-t ext4 -O ^flex_bg -b 1024", 120),
    ("-t ext4 -G 4 -b 1024", 120),
    ("-t ext4 -I 128", 64),
    ("-t ext4 -I 1024", 64),
    ("-t ext4 -O bigalloc -C 65536", 200),
    ("-t ext4 -O bigalloc -C 4096 -b 1024", 64),
    ("-t ext4 -O quota,project", 64),
    ("-t ext4 -O quota,project,ea_inode,inline_data -b 1024 -I 512", 64),
    ("-t ext2 -o hurd -b 1024", 40),
    ("-t ext3 -o lites", 64),
    ("-t ext4 -O stable_inodes,encrypt,orphan_file -E packed_meta_blocks=1", 64),
    ("-t ext4 -O inline_data", 64),
    ("-t ext4 -O ea_inode", 64),
    ("-t ext4 -O encrypt", 64),
    ("-t ext4 -O casefold", 64),
    ("-t ext4 -O verity", 64),
    ("-t ext4 -O mmp", 64),
    ("-t ext4 -O large_dir", 64),
    ("-t ext4 -O fast_commit", 64),
    ("-t ext4 -O ^has_journal", 64),
    ("-t ext2 -O ^sparse_super,^resize_inode -b 1024", 100),
    ("-t ext4 -b 65536", 512),
];

fn assert_clean(path: &Path, what: &str) {
    let report = ours(path);
    let clean = report.as_ref().is_ok_and(|report| report.is_clean());
    assert!(clean, "{what}: not clean here:\n{}", lines(&report));
}

#[test]
fn images_of_mke2fs() {
    for (args, mib) in SETS {
        let made = need!(TestImage::empty(mib << 20, args));
        need!(e2fs::e2fsck(&made.path())).assert_clean();
        assert_clean(&made.path(), args);
    }
}

#[test]
fn images_filled_by_mke2fs() {
    let spec = TreeMaker { files: 150, big_dir: 300, depth: 10, ..TreeMaker::default() };
    for (args, mib) in SETS.iter().step_by(3) {
        let made = need!(TestImage::filled(*mib << 20, args, &spec));
        need!(e2fs::e2fsck(&made.path())).assert_clean();
        assert_clean(&made.path(), args);
    }
}

#[test]
fn images_filled_by_linux() {
    for (seed, (args, mib)) in SETS.iter().enumerate() {
        // Most kernels do not mount blocks larger than a page; some features need keys.
        if args.contains("65536") || args.contains("mmp") {
            continue;
        }
        let made = need!(TestImage::empty(*mib << 20, args));
        let spec =
            TreeMaker { seed: seed as u64, files: 120, big_dir: 250, ..TreeMaker::default() };
        let mount = match need!(KernelMount::try_new(&made.path(), Access::ReadWrite, "")) {
            Ok(mount) => mount,
            // The kernel lacks a feature.
            Err(_) => continue,
        };
        // A small volume may become full, and must be valid then.
        let _ = spec.make(mount.path());
        mount.unmount();
        need!(e2fs::e2fsck(&made.path())).assert_clean();
        assert_clean(&made.path(), args);
    }
}
