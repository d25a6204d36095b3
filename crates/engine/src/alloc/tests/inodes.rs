//! Allocation and freeing of inode numbers.

use super::*;
use nextent_ondisk::{GroupNo, numbers};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::thread;
use nextent_testkit::e2fs;
use std::collections::HashSet;

fn make(open: &Open, parent: InodeNo, kind: InodeKind, hash: u32) -> Result<InodeNo> {
    open.inodes.allocate(&open.start(), parent, kind, hash)
}

#[test]
fn concurrent_threads_allocate_each_number_once() {
    for (args, mib) in [
        ("-t ext4 -N 4000", 64),
        ("-t ext4 -b 1024 -O ^flex_bg -N 3000", 40),
        ("-t ext4 -O ^metadata_csum,uninit_bg -N 5000", 300),
        ("-t ext2 -N 1000", 20),
        ("-t ext4 -b 65536", 600),
    ] {
        let Some(image) = Image::make(args, mib) else { return };
        let open = image.open();
        let free = open.inodes.free_inodes();
        assert_eq!(free, u64::from(open.sb.free_inodes_count.get()));
        let all: Vec<(InodeNo, InodeKind)> = thread::scope(|scope| {
            let work = |n: u32| {
                let open = &open;
                let kind = if n.is_multiple_of(2) { InodeKind::Dir } else { InodeKind::File };
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    while let Ok(ino) = make(open, numbers::ROOT_INO, kind, n * 0x1234_5678) {
                        mine.push((ino, kind));
                        if mine.len() % 200 == 7 {
                            open.store.sync_all().unwrap();
                        }
                    }
                    mine
                })
            };
            let threads: Vec<_> = (0..8).map(work).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let numbers: HashSet<InodeNo> = all.iter().map(|(ino, _)| *ino).collect();
        assert_eq!((numbers.len(), all.len()), (free as usize, free as usize), "{args}");
        assert!(numbers.iter().all(|&ino| !open.geo.is_reserved_inode(ino)));
        assert!(matches!(make(&open, numbers::ROOT_INO, InodeKind::File, 0), Err(Error::NoInodes)));
        assert_eq!(open.counts_on_disk().1, 0);
        for (ino, kind) in all {
            open.inodes.free(&open.start(), ino, kind == InodeKind::Dir).unwrap();
        }
        assert_eq!(open.counts_on_disk().1, free);
        open.close(&image);
    }
}

#[test]
fn a_table_with_old_bytes_is_zeroed_before_use() {
    let Some(image) = Image::make("-t ext4", 64) else { return };
    let old = vec![0xa5u8; 64 << 20];
    std::fs::write(&image.path, old).unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=1,nodiscard", "-N", "8000"];
    let args = args.iter().map(|arg| (*arg).to_owned());
    let path = image.path.to_str().unwrap().to_owned();
    let Ok(output) = e2fs::run("mke2fs", args.chain([path])) else { return };
    assert!(output.status.success());
    image.assert_clean();
    let open = image.open();
    let mut all = Vec::new();
    for i in 0..600 {
        let kind = if i % 3 == 0 { InodeKind::Dir } else { InodeKind::File };
        all.push((make(&open, numbers::ROOT_INO, kind, i * 77).unwrap(), kind));
    }
    for (ino, kind) in all {
        open.inodes.free(&open.start(), ino, kind == InodeKind::Dir).unwrap();
    }
    open.close(&image);
}

#[test]
fn reserved_and_free_numbers_cannot_be_freed() {
    let Some(image) = Image::make("-t ext4", 64) else { return };
    let open = image.open();
    let ino = make(&open, numbers::ROOT_INO, InodeKind::File, 0).unwrap();
    assert!(open.inodes.is_used(ino).unwrap());
    let h = open.start();
    assert!(open.inodes.free(&h, numbers::ROOT_INO, true).is_err());
    assert!(open.inodes.free(&h, InodeNo(0), false).is_err());
    open.inodes.free(&h, ino, false).unwrap();
    let free = open.inodes.free_inodes();
    let text = open.inodes.free(&h, ino, false).unwrap_err().to_string();
    assert!(text.contains(&format!("inode {ino}")), "{text}");
    assert_eq!(open.inodes.free_inodes(), free);
}

#[test]
fn files_stay_near_their_directory_and_root_directories_spread() {
    let Some(image) = Image::make("-t ext4 -G 2", 1000) else { return };
    let open = image.open();
    let mut flexes = HashSet::new();
    for hash in 0..8 {
        let dir = make(&open, numbers::ROOT_INO, InodeKind::Dir, hash).unwrap();
        let (group, _) = open.geo.inode_group(dir).unwrap();
        flexes.insert(open.geo.flex_group_of(group));
        let below = make(&open, dir, InodeKind::Dir, 999).unwrap();
        let file = make(&open, dir, InodeKind::File, 0).unwrap();
        for ino in [below, file] {
            let (near, _) = open.geo.inode_group(ino).unwrap();
            assert_eq!(open.geo.flex_group_of(near), open.geo.flex_group_of(group));
        }
        let goal = open.inodes.data_goal(file, InodeKind::File);
        let goal = open.geo.group_of(goal).unwrap();
        assert_eq!(open.geo.flex_group_of(goal), open.geo.flex_group_of(group));
        open.store.sync_all().unwrap();
    }
    assert!(flexes.len() >= 3, "{flexes:?}");
}

#[test]
fn threads_in_one_directory_use_different_blocks_of_the_table() {
    let Some(image) = Image::make("-t ext4", 300) else { return };
    let open = image.open();
    let ready = AtomicUsize::new(0);
    let blocks: Vec<HashSet<(GroupNo, u32)>> = thread::scope(|scope| {
        let work = |_| {
            let (open, ready) = (&open, &ready);
            scope.spawn(move || {
                // All threads take a slot before one ends: an ended thread passes its slot, with
                // the leases, to the next thread.
                nextent_sync::current_slot();
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 4 {
                    thread::yield_now();
                }
                let one = |_| {
                    let ino = make(open, numbers::ROOT_INO, InodeKind::File, 0).unwrap();
                    let at = open.geo.inode_location(ino).unwrap();
                    (at.group, at.table_block)
                };
                (0..100).map(one).collect()
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (i, mine) in blocks.iter().enumerate() {
        for others in &blocks[..i] {
            assert!(mine.is_disjoint(others));
        }
    }
}
