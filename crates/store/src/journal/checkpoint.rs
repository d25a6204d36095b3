//! The checkpoint: writes committed blocks in place and frees log space.
//!
//! A block keeps its newest committed image until that is in place. A transaction is checkpointed
//! when no block carries an image of it any more; a block that a later transaction logged again
//! belongs to that one.
//!
//! Lock ranks: `[journal.checkpoint]` 470 for a whole checkpoint, in it `[journal.writeback]` 480
//! for one batch, in it `[cache.block]` 510; `[journal.queue]` 605.

use super::commit::TransactionContent;
use super::core::Journal;
use super::log::LogExtent;
use crate::cache::BlockRef;
use crate::{Result, locks};
use nextent_ondisk::Tid;
use nextent_sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;

/// Blocks written under one hold of the write-back lock.
const BATCH: usize = 512;

/// A committed transaction whose blocks are not all in place.
struct Committed {
    tid: Tid,
    extent: LogExtent,
    blocks: Vec<BlockRef>,
}

#[derive(Default)]
struct QueueState {
    transactions: VecDeque<Committed>,
    wanted: bool,
    stop: bool,
}

/// Committed transactions, oldest first.
pub(super) struct CheckpointQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Held while images are being written in place. `[journal.writeback]`
    writeback: Mutex<()>,
    /// Held for a whole checkpoint. `[journal.checkpoint]`
    turn: Mutex<()>,
}

impl CheckpointQueue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(&locks::QUEUE, QueueState::default()),
            wake: Condvar::new(),
            writeback: Mutex::new(&locks::WRITEBACK, ()),
            turn: Mutex::new(&locks::CHECKPOINT, ()),
        }
    }

    /// While held, no image is being written in place.
    pub(super) fn writeback(&self) -> MutexGuard<'_, ()> {
        self.writeback.lock()
    }

    /// Takes over a durable transaction. Without a log its blocks are in place already, and nothing
    /// is queued.
    pub(super) fn push(&self, content: TransactionContent, extent: Option<LogExtent>) {
        let Some(extent) = extent else { return };
        let tid = content.tid;
        let mut blocks = Vec::with_capacity(content.blocks.len());
        for (block, image) in content.blocks {
            let mut marks = block.lock();
            // The next transaction may have freed the block; its commit withdraws the image.
            marks.to_checkpoint = Some((tid, image));
            drop(marks);
            blocks.push(block);
        }
        self.state.lock().transactions.push_back(Committed { tid, extent, blocks });
    }

    /// Starts a background checkpoint when a quarter of the log is in use.
    pub(super) fn wake_if_needed(&self, journal: &Journal) {
        if journal.log.wants_checkpoint() {
            self.wake_now();
        }
    }

    /// Starts a background checkpoint.
    pub(super) fn wake_now(&self) {
        self.state.lock().wanted = true;
        self.wake.notify_all();
    }

    /// Whether every committed transaction is in place.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().transactions.is_empty()
    }

    pub(super) fn wake_all(&self) {
        drop(self.state.lock());
        self.wake.notify_all();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    /// Undoes [`stop`](Self::stop), before the thread starts again.
    pub(super) fn restart(&self) {
        let mut state = self.state.lock();
        (state.stop, state.wanted) = (false, false);
    }
}

/// The checkpoint thread: waits for a request, checkpoints, and waits again.
pub(super) fn run(journal: &Journal) {
    let queue = &journal.queue;
    loop {
        let mut state = queue.state.lock();
        while !state.wanted && !state.stop && !journal.is_aborted() {
            queue.wake.wait(&mut state);
        }
        if state.stop || journal.is_aborted() {
            return;
        }
        state.wanted = false;
        drop(state);
        if let Err(error) = checkpoint(journal)
            && !journal.is_aborted()
        {
            journal.fail(&error);
        }
    }
}

/// Writes everything in place that is committed when this begins, and frees the log up to there.
/// After an abort it writes nothing: the log must keep its contents.
pub(crate) fn checkpoint(journal: &Journal) -> Result<()> {
    let queue = &journal.queue;
    let _turn = queue.turn.lock();
    journal.check()?;
    let (last, end, blocks) = {
        let state = queue.state.lock();
        let Some(last) = state.transactions.back() else { return Ok(()) };
        let all = state.transactions.iter().flat_map(|t| t.blocks.iter().cloned());
        (last.tid, last.extent.end, all.collect::<Vec<_>>())
    };
    write_blocks(journal, blocks, last)?;
    journal.cache.flushes().flush()?;
    // The blocks are in place and stable; that the log may still hold them has no effect.
    journal.fast.release(last);
    let mut state = queue.state.lock();
    while state.transactions.front().is_some_and(|t| last.is_at_least(t.tid)) {
        state.transactions.pop_front();
    }
    let tail = state.transactions.front().map(|t| (t.tid, t.extent.start));
    drop(state);
    // If none is left, the tail is where the next transaction begins, written already or not.
    let (tid, start) = tail.unwrap_or((last.next(), end));
    journal.log.set_tail(journal.cache.flushes(), tid, start)
}

/// Writes the images that belong to `last` or older transactions.
fn write_blocks(journal: &Journal, mut blocks: Vec<BlockRef>, last: Tid) -> Result<()> {
    blocks.sort_unstable_by_key(|block| block.number());
    blocks.dedup_by(|one, other| Arc::ptr_eq(one, other));
    for batch in blocks.chunks(BATCH) {
        let _guard = journal.queue.writeback();
        let mut images = Vec::with_capacity(batch.len());
        for block in batch {
            if let Some((tid, image)) = &block.lock().to_checkpoint
                && last.is_at_least(*tid)
            {
                images.push((block.number(), *tid, image.clone()));
            }
        }
        let pairs: Vec<_> = images.iter().map(|(no, _, image)| (*no, image.clone())).collect();
        journal.write_in_place(&pairs)?;
        for block in batch {
            block.lock().to_checkpoint.take_if(|(tid, _)| {
                images
                    .binary_search_by_key(&block.number(), |(no, _, _)| *no)
                    .is_ok_and(|at| images[at].1 == *tid)
            });
        }
    }
    Ok(())
}
