//! Allocation and freeing by many threads.

use super::*;
use nextent_sync::thread;
use nextent_testkit::Rng;

const THREADS: u64 = 16;

#[test]
fn sixteen_threads_allocate_exactly_the_available_blocks() {
    all_variants().iter().for_each(sixteen_threads);
}

fn sixteen_threads(variant: &Variant) {
    for (args, mib) in [("-t ext4 -b 1024", 40), ("-t ext4", 64), ("-t ext4 -b 1024 -g 256", 8)] {
        let Some(image) = Image::make(args, mib) else { return };
        let open = image.open_as(variant);
        let expected = open.blocks.available(Privilege::User);
        let all: Vec<BlockRun> = thread::scope(|scope| {
            let work = |seed| {
                let open = &open;
                scope.spawn(move || exhaust(open, seed))
            };
            let threads: Vec<_> = (0..THREADS).map(work).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut shadow = Shadow::new(&open.geo);
        all.iter().for_each(|&run| shadow.take(run));
        let got: u64 = all.iter().map(|run| u64::from(run.len)).sum();
        let beyond = if variant.overdraws { THREADS - 1 } else { 0 };
        assert!((expected..=expected + beyond).contains(&got), "{args}: {got} of {expected}");
        assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count() - got);
        all.into_iter().for_each(|run| open.free(run));
        assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count());
        open.close(&image);
    }
}

/// Allocates until no block is available, with a few frees. Returns the runs allocated at the end.
fn exhaust(open: &Open, seed: u64) -> Vec<BlockRun> {
    let mut rng = Rng::new(seed + 1);
    let mut held: Vec<BlockRun> = Vec::new();
    let mut turns = 0;
    loop {
        let want = 1 + rng.below(40) as u32;
        match open.allocate(want, 1, held.last().map(BlockRun::end)) {
            Ok(run) => held.push(run),
            // Freed blocks may wait for a commit, or another thread may be about to return the rest
            // of its claim.
            Err(_) if open.blocks.available(Privilege::User) > 0 => open.store.sync_all().unwrap(),
            Err(_) => return held,
        }
        turns += 1;
        if turns < 300 && rng.percent(20) && !held.is_empty() {
            let at = rng.below(held.len() as u64) as usize;
            open.free(held.swap_remove(at));
        }
    }
}

#[test]
fn mixed_work_with_commits_leaves_the_counts_unchanged() {
    all_variants().iter().for_each(mixed_work);
}

fn mixed_work(variant: &Variant) {
    for (args, mib) in [("-t ext4", 300), ("-t ext4 -O ^flex_bg -b 1024", 64), ("-t ext2", 32)] {
        let Some(image) = Image::make(args, mib) else { return };
        let open = image.open_as(variant);
        let before = open.counts_on_disk();
        with_commits(&open, || {
            thread::scope(|scope| {
                for seed in 0..THREADS {
                    let open = &open;
                    scope.spawn(move || mixed(open, seed));
                }
            });
        });
        assert_eq!(open.counts_on_disk(), before, "{args}");
        assert_eq!(open.blocks.free_blocks(), before.0);
        assert_eq!(open.inodes.free_inodes(), before.1);
        open.close(&image);
    }
}

/// Creates, extends and removes files.
fn mixed(open: &Open, seed: u64) {
    let mut rng = Rng::new(seed + 100);
    let mut files: Vec<(InodeNo, InodeKind, Window, Vec<BlockRun>)> = Vec::new();
    for _ in 0..600 {
        let h = open.store.start(CREDITS + INODE_CREDITS).unwrap();
        if files.len() < 4 || rng.percent(10) {
            let kind = if rng.percent(30) { InodeKind::Dir } else { InodeKind::File };
            let hash = rng.below(1 << 32) as u32;
            let ino = open.inodes.allocate(&h, InodeNo(2), kind, hash).unwrap();
            files.push((ino, kind, Window::new(), Vec::new()));
        }
        let at = rng.below(files.len() as u64) as usize;
        if rng.percent(15) {
            let (ino, kind, mut window, runs) = files.swap_remove(at);
            open.blocks.release(&mut window);
            for run in runs.into_iter().take(20) {
                open.blocks.free(&h, run.start, run.len, BlockKind::Data).unwrap();
            }
            open.inodes.free(&h, ino, kind == InodeKind::Dir).unwrap();
        } else if files[at].3.len() < 20 {
            let (ino, kind, window, runs) = &mut files[at];
            let goal = runs.last().map_or(open.inodes.data_goal(*ino, *kind), BlockRun::end);
            let want = 1 + rng.below(30) as u32;
            let (kind, privilege) = (BlockKind::Data, Privilege::User);
            let request =
                BlockRequest { goal: Some(goal), want, min: 1, kind, privilege, ino: *ino };
            if let Ok(run) = open.blocks.allocate_growing(&h, &request, window) {
                runs.push(run);
            }
        }
    }
    for (ino, kind, mut window, runs) in files {
        let h = open.store.start(CREDITS).unwrap();
        open.blocks.release(&mut window);
        for run in runs {
            open.blocks.free(&h, run.start, run.len, BlockKind::Data).unwrap();
        }
        open.inodes.free(&h, ino, kind == InodeKind::Dir).unwrap();
    }
}
