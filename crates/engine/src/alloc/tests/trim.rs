//! Trim, and discard at commits.

use super::*;
use nextent_device::BlockDevice;
use nextent_sync::thread;

#[test]
fn trim_discards_only_free_blocks() {
    variants().iter().for_each(trim_what_is_free);
}

fn trim_what_is_free(variant: &Variant) {
    let Some(image) = Image::make("-t ext4 -b 4096", 300) else { return };
    let open = image.open_as(variant);
    let run = open.allocate(500, 500, None).unwrap();
    let kept = open.allocate(100, 100, Some(run.end())).unwrap();
    let block = open.geo.block_len();
    let fill = |run: BlockRun| {
        for no in run.start.0..run.end().0 {
            open.device.write_at(no << open.geo.block_bits, &vec![7; block]).unwrap();
        }
    };
    let byte = |no: u64| {
        let mut byte = [0];
        open.device.read_at(no << open.geo.block_bits, &mut byte).unwrap();
        byte[0]
    };
    fill(run);
    fill(kept);
    open.store.sync_all().unwrap();
    open.free(run);
    let free = open.blocks.free_blocks();
    let all = open.geo.blocks_count;
    assert_eq!(open.blocks.trim(BlockNo(0), all, 1).unwrap(), free - 500, "held back");
    assert_eq!((byte(run.start.0), byte(kept.start.0)), (7, 7));
    open.store.sync_all().unwrap();
    assert_eq!(open.blocks.trim(run.start, 10, 11).unwrap(), 0, "too short");
    assert_eq!(open.blocks.trim(run.start, 10, 1).unwrap(), 10);
    assert_eq!((byte(run.start.0 + 9), byte(run.start.0 + 10)), (0, 7));
    assert_eq!(open.blocks.trim(BlockNo(0), u64::MAX, 1).unwrap(), free);
    assert_eq!((byte(run.end().0 - 1), byte(kept.start.0)), (0, 7));
    open.free(kept);
    open.close(&image);
}

#[test]
fn trim_runs_concurrently_with_allocations() {
    variants().iter().for_each(concurrent_trim);
}

fn concurrent_trim(variant: &Variant) {
    let Some(image) = Image::make("-t ext4 -b 4096", 300) else { return };
    let open = image.open_as(variant);
    let before = open.counts_on_disk();
    let worker = |seed: u8| {
        let mut held: Vec<BlockRun> = Vec::new();
        for i in 0..400u32 {
            let run = open.allocate(1 + i % 50, 1, None).unwrap();
            open.device.write_at(run.start.0 << open.geo.block_bits, &[seed]).unwrap();
            held.push(run);
            if i % 3 == 0 {
                let run = held.swap_remove(i as usize % held.len());
                let mut byte = [0];
                open.device.read_at(run.start.0 << open.geo.block_bits, &mut byte).unwrap();
                assert_eq!(byte, [seed], "discarded while in use");
                open.free(run);
            }
        }
        held.into_iter().for_each(|run| open.free(run));
    };
    with_commits(&open, || {
        thread::scope(|scope| {
            let worker = &worker;
            (1..=4).for_each(|seed| drop(scope.spawn(move || worker(seed))));
            for _ in 0..20 {
                open.blocks.trim(BlockNo(0), u64::MAX, 1).unwrap();
            }
        });
    });
    assert_eq!(open.counts_on_disk(), before);
    open.close(&image);
}

#[test]
fn freed_blocks_are_discarded_when_the_commit_is_durable() {
    variants().iter().for_each(discard_at_commit);
}

fn discard_at_commit(variant: &Variant) {
    let Some(image) = Image::make("-t ext4 -b 4096", 64) else { return };
    let open = image.open_as(variant);
    open.blocks.set_discard(true);
    let run = open.allocate(50, 50, None).unwrap();
    let at = run.start.0 << open.geo.block_bits;
    open.device.write_at(at, &[9]).unwrap();
    open.store.sync_all().unwrap();
    open.free(run);
    let mut byte = [0];
    open.device.read_at(at, &mut byte).unwrap();
    assert_eq!(byte, [9]);
    open.store.sync_all().unwrap();
    open.device.read_at(at, &mut byte).unwrap();
    assert_eq!(byte, [0]);
    open.close(&image);
}
