//! The commit: one transaction after another, from the closed gate to durable.
//!
//! One thread at a time has the [`CommitTurn`]: the commit thread, or a caller of a commit that
//! finds none under way. It
//!
//! 1. closes the gate and waits for the last handle ([`Gate::drain`](super::gate::Gate::drain));
//! 2. takes the lists of all slots, and opens the gate for the next transaction;
//! 3. renders objects, takes the images of changed blocks, and writes them to the log;
//! 4. hands the transaction to the checkpoint and notifies the objects.
//!
//! Lock ranks: `[journal.control]` 610, not held across a step; `[journal.slot]` 600,
//! `[cache.block]` 510 and `[journal.writeback]` 480 within one.

use super::core::{Control, Journal};
use super::gate::{self, GateState};
use super::parallel;
use super::sink::{Dirty, Phase, RenderSink};
use super::slot::{ChangeLists, JournalSlot};
use crate::cache::{BlockRef, Buf};
use crate::{Error, Result};
use nextent_num::to_u64;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::HashSet;
use nextent_sync::atomic::Ordering;
use nextent_sync::{Arc, Instant, MutexGuard, injected};
use std::time::Duration;

/// The blocks that a transaction writes to the log.
pub(super) struct TransactionContent {
    pub(super) tid: Tid,
    /// Sorted by number, each once.
    pub(super) blocks: Vec<(BlockRef, Buf)>,
    /// Sorted, each once, none of them in `blocks`.
    pub(super) revokes: Vec<BlockNo>,
}

/// The commit thread: waits for a reason to commit, commits, and waits again.
pub(super) fn run(journal: &Journal) {
    loop {
        let mut control = journal.control.lock();
        match next_step(journal, &mut control) {
            Step::Stop => return,
            Step::Sleep => {
                control.commit_thread_waits = true;
                journal.wake.wait(&mut control);
                control.commit_thread_waits = false;
            }
            Step::Wait => {
                let left = journal.interval.saturating_sub(control.last_commit.elapsed());
                let timed_out = journal.wake.wait_for(&mut control, left.max(MIN_WAIT));
                if timed_out && !journal.is_committing() && !journal.has_changes() {
                    control.last_commit = Instant::now();
                }
            }
            Step::Commit => lead(journal, control),
            Step::Recall => recall(journal, control),
            Step::Freeze => {
                control.frozen = true;
                journal.done.notify_all();
                journal.wake.wait(&mut control);
            }
            Step::Thaw => {
                control.frozen = false;
                journal.gate.open(journal.running());
                journal.done.notify_all();
            }
        }
    }
}

/// A commit that begins sooner after the last one makes commits frequent.
const FREQUENT: Duration = Duration::from_millis(1);

const MIN_WAIT: Duration = Duration::from_millis(1);

/// The next step of the commit thread.
enum Step {
    Stop,
    /// Another thread commits, and wakes this one at the end.
    Sleep,
    Wait,
    Commit,
    Recall,
    Freeze,
    Thaw,
}

fn next_step(journal: &Journal, control: &mut Control) -> Step {
    if control.stop || journal.is_aborted() {
        return Step::Stop;
    }
    if journal.is_committing() {
        return Step::Sleep;
    }
    let (state, tid) = journal.gate.load();
    if state == GateState::Frozen {
        return if control.freezes > 0 { Step::Freeze } else { Step::Thaw };
    }
    let asked = control.requested.is_some_and(|r| r.is_at_least(tid));
    let due = control.last_commit.elapsed() >= journal.interval && journal.has_changes();
    if asked || due || control.freezes > 0 {
        Step::Commit
    } else if control.starved > 0 {
        Step::Recall
    } else {
        Step::Wait
    }
}

/// Recalls the unused credits that slots have leased, with the gate closed for a moment; requests a
/// commit if those are too few.
fn recall(journal: &Journal, control: MutexGuard<'_, Control>) {
    let tid = journal.running();
    // No other thread closes the gate meanwhile.
    let turn = CommitTurn::begin(journal, &control, Tid(tid.0.wrapping_sub(1)));
    drop(control);
    if !injected("recall-unfenced") {
        journal.gate.drain(tid, &journal.control, &journal.left);
    }
    let mut control = journal.control.lock();
    if journal.recall_leases(std::mem::take(&mut control.starved)) {
        control.recalls += 1;
    } else if control.requested.is_none_or(|r| tid.is_after(r)) {
        control.requested = Some(tid);
    }
    journal.gate.open(tid);
    turn.end(&mut control);
    journal.done.notify_all();
}

/// Commits the running transaction in the calling thread, which saw under `control` that no other
/// thread does. Wakes the commit thread for requests that came meanwhile.
pub(super) fn lead(journal: &Journal, mut control: MutexGuard<'_, Control>) {
    let tid = journal.running();
    let turn = CommitTurn::begin(journal, &control, tid);
    gather_callers(journal, &mut control, tid);
    drop(control);
    let begin = Instant::now();
    if let Err(error) = commit(journal, tid) {
        journal.fail(&error);
    }
    let mut control = journal.control.lock();
    control.last_commit = Instant::now();
    control.group.took(begin.elapsed());
    turn.end(&mut control);
}

/// The turn of the one thread that commits, fully or fast, or holds the gate closed. If the thread
/// panics, the turn aborts the journal: all waiters get the cause, and no later commit trusts the
/// unfinished work.
pub(super) struct CommitTurn<'j> {
    journal: &'j Journal,
    /// The newest transaction that is committed when the turn ends.
    done: Tid,
}

impl<'j> CommitTurn<'j> {
    /// Begins a turn. The caller saw under `control` that no thread has one.
    pub(super) fn begin(journal: &'j Journal, control: &Control, done: Tid) -> Self {
        debug_assert!(!journal.is_committing());
        journal.set_committing(control, true);
        Self { journal, done }
    }

    /// Ends the turn, and wakes the threads that wait for its end.
    pub(super) fn end(self, control: &mut Control) {
        self.finish(control);
        std::mem::forget(self);
    }

    fn finish(&self, control: &mut Control) {
        self.journal.set_committing(control, false);
        self.journal.wake_if_wanted(control, self.done);
        if control.stop || control.fast.is_awaited() {
            self.journal.done.notify_all();
        }
    }
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        if cfg!(feature = "model-shuttle") {
            return; // The model ends here: no thread can take a lock any more.
        }
        self.journal.abort("a commit panicked");
        let mut control = self.journal.control.lock();
        self.finish(&mut control);
        self.journal.done.notify_all();
    }
}

/// Waits for callers that return together, see [`super::waiters`].
fn gather_callers(journal: &Journal, control: &mut MutexGuard<'_, Control>, tid: Tid) {
    let Some(time) = control.group.patience(tid) else { return };
    let begin = Instant::now();
    while !control.group.is_complete(tid) {
        let left = time.saturating_sub(begin.elapsed());
        let wanted = control.starved > 0 || control.freezes > 0 || control.stop;
        if wanted || journal.is_aborted() {
            return;
        }
        if left.is_zero() {
            return control.group.give_up(tid);
        }
        journal.left.wait_for(control, left);
    }
}

/// Commits `tid`, the running transaction. The caller has the turn.
fn commit(journal: &Journal, tid: Tid) -> Result<()> {
    let begin = Instant::now();
    journal.gate.drain(tid, &journal.control, &journal.left);
    let mut control = journal.control.lock();
    let last = control.stop;
    let freeze = control.freezes > 0 || last;
    let frequent = is_frequent(&control, tid);
    control.starved = 0;
    control.group.close(tid);
    control.fast.refuse();
    drop(control);

    if last && !journal.has_changes() {
        return commit_nothing(journal, tid);
    }
    let mut slots = collect(journal);
    if injected("slot-forgotten") {
        slots.pop();
    }
    journal.reset_budget();
    if freeze {
        journal.gate.freeze(tid.next());
    } else if frequent {
        journal.gate.open_fenced(tid.next());
    } else {
        journal.gate.open(tid.next());
    }
    gate::notify(&journal.control, &journal.done);

    let mut lists = ChangeLists::default();
    slots.into_iter().for_each(|mut slot| lists.append(&mut slot));
    let ChangeLists { blocks, objects, forgotten, revokes } = lists;
    let mut objects = objects;
    let rendered = render(tid, &mut objects)?;
    let content = gather(tid, blocks, rendered, revokes);
    journal.log.make_space(journal)?;
    let extent = journal.log.write(journal, &content)?;
    if let Some(area) = journal.log.fast() {
        journal.fast.hold(tid);
        area.end_transaction()?;
    }

    journal.counts.count(content.blocks.len(), begin.elapsed());
    withdraw(journal, &forgotten);
    journal.queue.push(content, extent);
    journal.set_durable(tid);
    for object in &objects {
        object.committed(tid);
    }
    journal.set_complete(tid);
    journal.queue.wake_if_needed(journal);
    Ok(())
}

/// Ends the last transaction, which is empty, without a record in the log. The gate stays closed.
fn commit_nothing(journal: &Journal, tid: Tid) -> Result<()> {
    journal.gate.freeze(tid);
    journal.cache.flushes().flush()?;
    journal.set_durable(tid);
    journal.set_complete(tid);
    Ok(())
}

/// Whether the last commit ended a moment ago, so that the next may come soon too.
fn is_frequent(control: &Control, tid: Tid) -> bool {
    match cfg!(feature = "model-shuttle") {
        true => tid.0.is_multiple_of(2),
        false => control.last_commit.elapsed() < FREQUENT,
    }
}

/// Takes every slot's lists. The gate is closed and no handle is inside, so handles wait for this.
fn collect(journal: &Journal) -> Vec<ChangeLists> {
    let take = |slot: &JournalSlot| {
        slot.used.store(false, Ordering::Release);
        std::mem::take(&mut *slot.lists.lock())
    };
    journal.gate.slots.used().map(take).collect()
}

/// Renders all objects, phase by phase, and adds those of later phases to `objects`; returns the
/// sealed images.
fn render(tid: Tid, objects: &mut Vec<Arc<dyn Dirty>>) -> Result<Vec<(BlockRef, Buf)>> {
    let mut sink = render_phase(tid, objects)?;
    for phase in [Phase::Group, Phase::Super] {
        let later = sink.take_later(phase);
        sink.absorb(render_phase(tid, &later)?);
        objects.extend(later);
    }
    Ok(parallel::map(sink.into_blocks(), sealed).into_iter().flatten().collect())
}

/// Renders the objects of one phase. Objects that share a block write to disjoint bytes.
fn render_phase(tid: Tid, objects: &[Arc<dyn Dirty>]) -> Result<RenderSink> {
    let parts = parallel::parts(objects, |part| -> Result<RenderSink> {
        let mut sink = RenderSink::new(tid);
        part.iter().try_for_each(|object| object.render(tid, &mut sink))?;
        Ok(sink)
    });
    let mut all = RenderSink::new(tid);
    for part in parts {
        all.absorb(part?);
    }
    Ok(all)
}

/// A rendered block with the image that goes into the log.
fn sealed(block: BlockRef) -> Option<(BlockRef, Buf)> {
    let mut marks = block.lock();
    let seal = marks.seal;
    (seal.f)(seal.seed, block.number(), marks.data.make_mut());
    let image = marks.data.clone();
    drop(marks);
    Some((block, image))
}

/// The images of all blocks that the transaction changed.
fn gather(
    tid: Tid,
    in_place: Vec<BlockRef>,
    rendered: Vec<(BlockRef, Buf)>,
    mut revokes: Vec<BlockNo>,
) -> TransactionContent {
    let mut blocks = rendered;
    let taken = parallel::map(in_place, |block| {
        let image = block.lock().take_image(block.number(), tid)?;
        Some((block, image))
    });
    blocks.extend(taken.into_iter().flatten());
    blocks.sort_unstable_by_key(|(block, _)| block.number());
    revokes.sort_unstable();
    revokes.dedup();
    if !revokes.is_empty() {
        // Freed and used as metadata again: the new image must be replayed.
        let logged: HashSet<BlockNo> = blocks.iter().map(|(b, _)| b.number()).collect();
        revokes.retain(|no| !logged.contains(no));
    }
    TransactionContent { tid, blocks, revokes }
}

/// Withdraws freed blocks from the checkpoint: from now on they may be reused.
fn withdraw(journal: &Journal, forgotten: &[BlockRef]) {
    if forgotten.is_empty() {
        return;
    }
    let _no_write_in_flight = journal.queue.writeback();
    for block in forgotten {
        let mut marks = block.lock();
        if marks.forgotten {
            marks.to_checkpoint = None;
            drop(marks);
            journal.cache.remove_forgotten(block);
        }
    }
}

impl Journal {
    /// Writes `blocks` in place, adjacent ones together.
    pub(super) fn write_in_place(&self, blocks: &[(BlockNo, Buf)]) -> Result<()> {
        const MAX_RUN: usize = 256;
        let device = self.cache.device();
        let size = to_u64(self.cache.block_size());
        let mut rest = blocks;
        while let Some((first, _)) = rest.first() {
            let mut run = 1;
            while run < rest.len().min(MAX_RUN) && rest[run].0.0 == first.0 + to_u64(run) {
                run += 1;
            }
            let slices: Vec<_> =
                rest[..run].iter().map(|(_, image)| std::io::IoSlice::new(image)).collect();
            device
                .write_vectored_at(first.0 * size, &slices)
                .map_err(|e| Error::io("write", *first, e))?;
            rest = &rest[run..];
        }
        Ok(())
    }
}
