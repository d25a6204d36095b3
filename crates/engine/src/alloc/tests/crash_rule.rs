//! The crash rule: a freed block is not allocated before its release is durable, unless the same
//! transaction had allocated it.

use super::*;
use nextent_ondisk::Tid;
use nextent_sync::{Instant, LockClass, Mutex, thread};
use nextent_testkit::Rng;
use std::time::Duration;

static HISTORY: LockClass = LockClass::new("test.history", 990);

/// The transactions that last allocated and last freed a block.
#[derive(Clone, Copy, Default)]
struct Block {
    allocated: Option<Tid>,
    freed: Option<Tid>,
}

struct Rule<'a> {
    open: &'a Open,
    history: &'a Mutex<Vec<Block>>,
}

impl Rule<'_> {
    /// Whether `tid` is durable. The store reports that a moment after it calls
    /// `Dirty::committed`, so this waits. A commit that has not started cannot complete meanwhile:
    /// it waits for the caller's handle.
    fn is_durable(&self, tid: Tid) -> bool {
        let start = Instant::now();
        while !self.open.store.is_durable(tid) {
            if start.elapsed() > Duration::from_secs(2) {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    fn allocate(&self, want: u32) -> Option<BlockRun> {
        let h = self.open.start();
        let (kind, privilege, ino) = (BlockKind::Data, Privilege::User, InodeNo(12));
        let request = BlockRequest { goal: None, want, min: 1, kind, privilege, ino };
        let run = self.open.blocks.allocate(&h, &request).ok()?;
        for no in run.start.0..run.end().0 {
            let mut history = self.history.lock();
            let block = &mut history[no as usize];
            if let (Some(allocated), Some(freed)) = (block.allocated, block.freed) {
                let fine = allocated == freed || self.is_durable(freed);
                assert!(fine, "block {no} reused before {freed} is durable");
            }
            *block = Block { allocated: Some(h.tid()), freed: None };
        }
        Some(run)
    }

    fn free(&self, run: BlockRun) {
        let h = self.open.start();
        for no in run.start.0..run.end().0 {
            let mut history = self.history.lock();
            assert!(history[no as usize].freed.is_none());
            history[no as usize].freed = Some(h.tid());
        }
        self.open.blocks.free(&h, run.start, run.len, BlockKind::Data).unwrap();
    }

    fn work(&self, seed: u64) {
        let mut rng = Rng::new(seed + 7);
        let mut held = Vec::new();
        for _ in 0..2000 {
            if rng.percent(55) {
                held.extend(self.allocate(1 + rng.below(60) as u32));
            } else if !held.is_empty() {
                let at = rng.below(held.len() as u64) as usize;
                self.free(held.swap_remove(at));
            }
            if held.len() > 40 {
                held.drain(..20).for_each(|run| self.free(run));
            }
        }
        held.into_iter().for_each(|run| self.free(run));
    }
}

#[test]
fn no_block_is_reused_before_its_release_is_durable() {
    all_variants().iter().for_each(no_early_return);
}

fn no_early_return(variant: &Variant) {
    // Small, so that blocks are reused often.
    let Some(image) = Image::make("-t ext4 -b 1024 -m 0 -N 64", 8) else { return };
    let open = image.open_as(variant);
    let history = Mutex::new(&HISTORY, vec![Block::default(); open.geo.blocks_count as usize]);
    let rule = Rule { open: &open, history: &history };
    with_commits(&open, || {
        thread::scope(|scope| {
            for seed in 0..6 {
                let rule = &rule;
                scope.spawn(move || rule.work(seed));
            }
        });
    });
    assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count());
    open.close(&image);
}
