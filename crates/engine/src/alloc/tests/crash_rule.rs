//! A block freed in a transaction is not handed out before that is durable,
//! unless the same transaction had allocated it.

use super::*;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{LockClass, Mutex, thread};
use nextent_testkit::Rng;

static HISTORY: LockClass = LockClass::new("test.history", 990);

/// When a block was last allocated and last freed.
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
    fn allocate(&self, want: u32) -> Option<BlockRun> {
        let h = self.open.start();
        let (kind, privilege, ino) = (Kind::Data, Privilege::User, InodeNo(12));
        let request = BlockRequest { goal: None, want, min: 1, kind, privilege, ino };
        let run = self.open.blocks.allocate(&h, &request).ok()?;
        for no in run.start.0..run.end().0 {
            let mut history = self.history.lock();
            let block = &mut history[no as usize];
            if let (Some(allocated), Some(freed)) = (block.allocated, block.freed) {
                let durable = self.open.store.is_durable(freed);
                assert!(durable || allocated == freed, "block {no}, freed in {freed}");
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
        self.open.blocks.free(&h, run.start, run.len, Kind::Data).unwrap();
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
fn no_block_returns_before_its_release_is_durable() {
    // Small enough that blocks come round often.
    let Some(image) = Image::make("-t ext4 -b 1024 -m 0 -N 64", 8) else { return };
    let open = image.open();
    let history = Mutex::new(&HISTORY, vec![Block::default(); open.geo.blocks_count as usize]);
    let rule = Rule { open: &open, history: &history };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let rule = &rule;
        let workers: Vec<_> = (0..6).map(|seed| scope.spawn(move || rule.work(seed))).collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                open.store.sync_all().unwrap();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(open.counts_on_disk().0, open.sb.free_blocks_count());
    open.close(&image);
}
