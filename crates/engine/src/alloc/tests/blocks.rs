//! Allocation and freeing by one thread, on volumes of many layouts.

use super::*;

/// Arguments of mke2fs and sizes in MiB. The layouts differ in features that the allocator handles.
const LAYOUTS: &[(&str, u64)] = &[
    ("-t ext4", 64),
    ("-t ext4 -O orphan_file,metadata_csum_seed", 300),
    ("-t ext4 -b 1024", 40),
    ("-t ext4 -b 1024 -g 1024", 33),
    ("-t ext4 -b 1024 -O ^resize_inode,meta_bg -g 256", 20),
    ("-t ext4 -O sparse_super2,^resize_inode -b 1024 -g 2048", 48),
    ("-t ext4 -O ^metadata_csum,uninit_bg,^64bit", 260),
    ("-t ext4 -O ^flex_bg", 300),
    ("-t ext3 -b 1024", 40),
    ("-t ext2 -r 0 -b 1024", 20),
    ("-t ext4 -b 65536", 600),
    ("-t ext4 -b 2048 -I 128 -O ^64bit", 70),
];

#[test]
fn allocate_and_free_leave_every_layout_as_it_was() {
    variants().iter().for_each(every_layout);
}

fn every_layout(variant: &Variant) {
    for (args, mib) in LAYOUTS {
        let Some(image) = Image::make(args, *mib) else { return };
        let open = image.open_as(variant);
        assert_eq!(open.blocks.free_blocks(), open.sb.free_blocks_count(), "{args}");
        let mut shadow = Shadow::new(&open.geo);
        let mut runs = Vec::new();
        for (i, want) in [1, 2, 7, 100, 1000, 5000, 3, 64].into_iter().cycle().take(60).enumerate()
        {
            let Ok(run) = open.allocate(want, 1, None) else { break };
            assert!(run.len >= 1 && run.len <= want);
            shadow.take(run);
            runs.push(run);
            if i % 16 == 5 {
                open.store.sync_all().unwrap();
            }
            if i % 5 == 0 {
                let run = runs.swap_remove(i / 2 % runs.len());
                shadow.give(run);
                open.free(run);
            }
        }
        let used: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count() - used, "{args}");
        assert_eq!(open.blocks.free_blocks(), open.sb.free_blocks_count() - used);
        runs.into_iter().for_each(|run| open.free(run));
        assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count(), "{args}");
        open.close(&image);
    }
}

#[test]
fn all_blocks_are_allocatable_by_privilege() {
    variants().iter().for_each(last_blocks);
}

fn last_blocks(variant: &Variant) {
    for (args, mib) in LAYOUTS.iter().filter(|(_, mib)| *mib < 65) {
        let Some(image) = Image::make(args, *mib) else { return };
        let open = image.open_as(variant);
        let free = open.blocks.free_blocks();
        let pool = (open.geo.blocks_count / 50).min(4096);
        let root = open.sb.reserved_blocks_count();
        let mut shadow = Shadow::new(&open.geo);
        let mut all = Vec::new();
        for (privilege, expected) in [
            (Privilege::User, free - pool - root),
            (Privilege::Root, root),
            (Privilege::Reserved, pool),
        ] {
            assert_eq!(open.blocks.available(privilege), expected, "{args} {privilege:?}");
            let mut got = 0;
            while let Ok(run) = open.allocate_as(300, 1, None, privilege) {
                shadow.take(run);
                got += u64::from(run.len);
                all.push(run);
            }
            assert_eq!(got, expected, "{args} {privilege:?}");
        }
        assert_eq!(open.blocks.free_blocks(), 0);
        assert!(!open.blocks.has_pending());
        all.into_iter().for_each(|run| open.free(run));
        assert!(open.blocks.has_pending() || open.allocate(1, 1, None).is_ok());
        drop(open);
    }
}

#[test]
fn freed_blocks_are_allocatable_after_a_commit() {
    let Some(image) = Image::make("-t ext4 -m 0", 16) else { return };
    let open = image.open();
    let mut runs = Vec::new();
    let take = |want, min| open.allocate_as(want, min, None, Privilege::Reserved);
    while let Ok(run) = take(5000, 1) {
        runs.push(run);
    }
    open.store.sync_all().unwrap();
    let run = runs.pop().unwrap();
    open.free(run);
    assert!(matches!(take(run.len, run.len), Err(Error::NoSpace)));
    assert!(open.blocks.has_pending());
    // The same search by another operation of this thread's slot, and before another's commit.
    let before = open.blocks.releases();
    assert!(matches!(take(run.len, run.len), Err(Error::NoSpace)));
    assert_eq!(
        open.blocks.available(Privilege::Reserved),
        u64::from(run.len),
        "claims were returned"
    );
    open.store.sync_all().unwrap();
    // Both operations may succeed now, although no blocks wait for a commit any more.
    assert!(!open.blocks.has_pending() && open.blocks.releases() != before);
    let after = open.blocks.releases();
    open.store.sync_all().unwrap();
    assert_eq!(open.blocks.releases(), after, "nothing was released");
    assert_eq!(take(run.len, run.len).unwrap(), run);
    // The allocation is not durable yet, so the blocks are reusable at once.
    open.free(run);
    assert_eq!(take(run.len, run.len).unwrap(), run);
    open.finish();
}

#[test]
fn allocations_start_at_the_goal_in_regions_of_no_other_slot() {
    let Some(image) = Image::make("-t ext4", 300) else { return };
    let open = image.open();
    let first = open.allocate(10, 10, None).unwrap();
    assert_eq!(open.allocate(10, 1, Some(first.end())).unwrap().start, first.end());
    let far = BlockNo(open.geo.group_first_block(nextent_ondisk::GroupNo(2)).0 + 9000);
    assert_eq!(open.allocate(100, 1, Some(far)).unwrap().start, far);
    let taken = open.allocate(20, 20, Some(far)).unwrap();
    assert_eq!(taken.start.0, far.0 + 100, "after a goal that is in use");
    open.finish();
}

#[test]
fn system_zone_and_free_blocks_cannot_be_freed() {
    variants().iter().for_each(wrong_frees);
}

fn wrong_frees(variant: &Variant) {
    let Some(image) = Image::make("-t ext4", 300) else { return };
    let open = image.open_as(variant);
    let h = open.start();
    for group in open.geo.groups() {
        let table = open.blocks.inode_table(group).unwrap();
        assert!(open.blocks.free(&h, table, 1, BlockKind::Data).is_err());
        assert!(open.blocks.overlaps_system_zone(BlockNo(table.0 - 1), 2));
    }
    assert!(
        open.blocks.overlaps_system_zone(BlockNo(1), 1)
            && open.blocks.overlaps_system_zone(BlockNo(u64::MAX), 3)
    );
    assert!(!open.blocks.overlaps_system_zone(BlockNo(open.geo.blocks_count - 20), 20));
    for (start, len) in [(0, 1), (1, 1), (open.geo.blocks_count - 1, 2), (u64::MAX, 1), (9999, 0)] {
        assert!(open.blocks.free(&h, BlockNo(start), len, BlockKind::Data).is_err());
    }
    drop(h);
    let run = open.allocate(10, 10, None).unwrap();
    let before = open.blocks.free_blocks();
    let error = open.blocks.free(&open.start(), BlockNo(run.start.0 + 4), 10, BlockKind::Data);
    let named = format!("block {}", run.end());
    let text = error.unwrap_err().to_string();
    assert!(text.contains(&named), "{text}");
    assert_eq!(open.blocks.free_blocks(), before, "the count is unchanged");
    assert_eq!(open.blocks.damage().len(), 1, "the group is excluded");
    let elsewhere = open.allocate(10, 1, Some(run.start)).unwrap();
    assert_ne!(open.geo.group_of(elsewhere.start), open.geo.group_of(run.start));
}

#[test]
fn files_that_grow_in_turns_have_few_extents() {
    let Some(image) = Image::make("-t ext4", 300) else { return };
    let open = image.open();
    let mut files: Vec<(Window, Vec<BlockRun>)> = (0..10).map(|_| Default::default()).collect();
    for _ in 0..500 {
        for (window, runs) in &mut files {
            let goal = runs.last().map(BlockRun::end);
            let (kind, privilege) = (BlockKind::Data, Privilege::User);
            let request = BlockRequest { goal, want: 1, min: 1, kind, privilege, ino: InodeNo(12) };
            let run = open.blocks.allocate_growing(&open.start(), &request, window).unwrap();
            match runs.last_mut() {
                Some(last) if last.end() == run.start => last.len += run.len,
                _ => runs.push(run),
            }
        }
    }
    let pieces: usize = files.iter().map(|(_, runs)| runs.len()).sum();
    assert!(pieces <= 10 * 9, "{pieces} extents of 10 files");
    for (window, runs) in &mut files {
        open.blocks.release(window);
        runs.iter().for_each(|&run| open.free(run));
    }
    assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count());
    open.close(&image);
}

#[test]
fn windows_are_voided_when_space_runs_out() {
    let Some(image) = Image::make("-t ext4 -m 0", 16) else { return };
    let open = image.open();
    let mut window = Window::new();
    let mut goal = None;
    let (kind, privilege, ino) = (BlockKind::Data, Privilege::User, InodeNo(12));
    for _ in 0..200 {
        let request = BlockRequest { goal, want: 1, min: 1, kind, privilege, ino };
        let run = open.blocks.allocate_growing(&open.start(), &request, &mut window).unwrap();
        goal = Some(run.end());
    }
    assert!(!window.is_empty());
    let mut left = open.blocks.available(Privilege::Reserved);
    while let Ok(run) = open.allocate_as(1000, 1, None, Privilege::Reserved) {
        left -= u64::from(run.len);
    }
    assert_eq!(left, 0);
    let request = BlockRequest { goal, want: 1, min: 1, kind, privilege, ino };
    assert!(open.blocks.allocate_growing(&open.start(), &request, &mut window).is_err());
    open.blocks.release(&mut window);
    open.finish();
}

#[test]
fn mark_used_counts_only_free_blocks() {
    variants().iter().for_each(marks);
}

fn marks(variant: &Variant) {
    let Some(image) = Image::make("-t ext4", 64) else { return };
    let open = image.open_as(variant);
    let run = open.allocate(50, 50, None).unwrap();
    let start = BlockNo(run.start.0 + 40);
    let free = open.blocks.free_blocks();
    assert!(!open.blocks.is_free(start, 20).unwrap());
    assert_eq!(open.blocks.mark_used(&open.start(), start, 20).unwrap(), 10);
    assert_eq!(open.blocks.mark_used(&open.start(), start, 20).unwrap(), 0);
    assert_eq!(open.blocks.free_blocks(), free - 10);
    open.free(BlockRun { start: run.start, len: 60 });
    assert!(open.blocks.is_free(run.start, 60).unwrap());
    assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count());
    open.close(&image);
}
