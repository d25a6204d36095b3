//! Writing committed blocks home and giving log space back.
//!
//! A block's newest committed image hangs on the block; a transaction is done
//! when none of its blocks still carries its mark. A block logged again by a
//! later transaction belongs to that one.

use super::commit::Content;
use super::core::Journal;
use super::log::LogExtent;
use crate::cache::BlockRef;
use crate::{Result, locks};
use nextent_ondisk::Tid;
use nextent_sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;

/// Blocks written between two looks at who else wants the write-back lock.
const BATCH: usize = 512;

/// A committed transaction whose blocks are not all home.
struct Committed {
    tid: Tid,
    extent: LogExtent,
    blocks: Vec<BlockRef>,
}

#[derive(Default)]
struct State {
    transactions: VecDeque<Committed>,
    wanted: bool,
    stop: bool,
}

/// Committed transactions, oldest first.
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// Held while images are on their way home. `[journal.writeback]`
    writeback: Mutex<()>,
    /// Held by the one who checkpoints. `[journal.checkpoint]`
    turn: Mutex<()>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(&locks::QUEUE, State::default()),
            wake: Condvar::new(),
            writeback: Mutex::new(&locks::WRITEBACK, ()),
            turn: Mutex::new(&locks::CHECKPOINT, ()),
        }
    }

    /// While held, no image is being written home.
    pub(super) fn writeback(&self) -> MutexGuard<'_, ()> {
        self.writeback.lock()
    }

    /// Takes over a durable transaction. Without a log its blocks are home
    /// already and nothing is kept.
    pub(super) fn push(&self, content: Content, extent: Option<LogExtent>) {
        let Some(extent) = extent else { return };
        let tid = content.tid;
        let mut blocks = Vec::with_capacity(content.blocks.len());
        for (block, image) in content.blocks {
            let mut marks = block.lock();
            // Freed by the next transaction, maybe: that one withdraws it.
            marks.home = Some((tid, image));
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
}

/// The checkpoint thread's life.
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

/// Writes everything home that is committed when this begins, and frees the log
/// up to there. After an abort nothing is written: the log must keep what it has.
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
    // In place and stable: the log may still have it too, to no effect.
    journal.fast.release(last);
    let mut state = queue.state.lock();
    while state.transactions.front().is_some_and(|t| last.is_at_least(t.tid)) {
        state.transactions.pop_front();
    }
    let tail = state.transactions.front().map(|t| (t.tid, t.extent.start));
    drop(state);
    // With nothing left the next transaction's place is the tail, whether or
    // not it is there already.
    let (tid, start) = tail.unwrap_or((last.next(), end));
    journal.log.set_tail(journal.cache.flushes(), tid, start)
}

/// Writes the images that belong to `last` or older transactions.
fn write_blocks(journal: &Journal, mut blocks: Vec<BlockRef>, last: Tid) -> Result<()> {
    blocks.sort_unstable_by_key(|block| block.number());
    blocks.dedup_by(|one, other| one.ptr_eq(other));
    for batch in blocks.chunks(BATCH) {
        let _guard = journal.queue.writeback();
        let mut images = Vec::with_capacity(batch.len());
        for block in batch {
            if let Some((tid, image)) = &block.lock().home
                && last.is_at_least(*tid)
            {
                images.push((block.number(), *tid, image.clone()));
            }
        }
        let pairs: Vec<_> = images.iter().map(|(no, _, image)| (*no, image.clone())).collect();
        journal.write_home(&pairs)?;
        for block in batch {
            block.lock().home.take_if(|(tid, _)| {
                images
                    .binary_search_by_key(&block.number(), |(no, _, _)| *no)
                    .is_ok_and(|at| images[at].1 == *tid)
            });
        }
    }
    Ok(())
}
