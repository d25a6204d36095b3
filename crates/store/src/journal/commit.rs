//! The commit: one transaction after another, from closed gate to durable.

use super::core::{Control, Journal};
use super::share;
use super::sink::{Dirty, Phase, RenderSink};
use super::slot::{Lists, Slot};
use crate::cache::{BlockRef, Buf};
use crate::{Error, Result};
use nextent_num::to_u64;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::HashSet;
use nextent_sync::atomic::Ordering;
use nextent_sync::{Arc, Instant, MutexGuard, injected};

/// What a transaction puts into the log.
pub(super) struct Content {
    pub(super) tid: Tid,
    /// Sorted by number, each once.
    pub(super) blocks: Vec<(BlockRef, Buf)>,
    /// Sorted, each once, none of them in `blocks`.
    pub(super) revokes: Vec<BlockNo>,
}

/// The commit thread's life: wait for a reason, commit, again.
pub(super) fn run(journal: &Journal) {
    loop {
        let mut control = journal.control.lock();
        match next_step(journal, &mut control) {
            Step::Stop => return,
            Step::Sleep => {
                control.outside = true;
                journal.wake.wait(&mut control);
                control.outside = false;
            }
            Step::Wait => {
                let left = journal.interval.saturating_sub(control.last.elapsed());
                let timed_out = journal.wake.wait_for(&mut control, left.max(MIN_WAIT));
                if timed_out && !journal.is_committing() && !journal.has_changes() {
                    control.last = Instant::now();
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

/// Commits that are less apart come often.
const OFTEN: std::time::Duration = std::time::Duration::from_millis(1);

const MIN_WAIT: std::time::Duration = std::time::Duration::from_millis(1);

enum Step {
    Stop,
    /// Somebody commits, and will say when that is over.
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
    if state == super::gate::State::Frozen {
        return if control.freezes > 0 { Step::Freeze } else { Step::Thaw };
    }
    let asked = control.requested.is_some_and(|r| r.is_at_least(tid));
    let due = control.last.elapsed() >= journal.interval && journal.has_changes();
    if asked || due || control.freezes > 0 {
        Step::Commit
    } else if control.starved > 0 {
        Step::Recall
    } else {
        Step::Wait
    }
}

/// Takes back the credits that slots have leased and do not use, with the gate closed for a moment;
/// asks for a commit where that is not enough.
fn recall(journal: &Journal, control: MutexGuard<'_, Control>) {
    let tid = journal.running();
    // No other thread closes the gate meanwhile.
    let turn = Turn::begin(journal, &control, Tid(tid.0.wrapping_sub(1)));
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
/// does. The commit thread is woken for whatever has come up meanwhile.
pub(super) fn lead(journal: &Journal, mut control: MutexGuard<'_, Control>) {
    let tid = journal.running();
    let turn = Turn::begin(journal, &control, tid);
    gather_callers(journal, &mut control, tid);
    drop(control);
    let begin = Instant::now();
    if let Err(error) = commit(journal, tid) {
        journal.fail(&error);
    }
    let mut control = journal.control.lock();
    control.last = Instant::now();
    control.group.took(begin.elapsed());
    turn.end(&mut control);
}

/// The turn of the thread that commits, fully or fast, or holds the gate closed: no other thread
/// does meanwhile. If the thread panics, the turn aborts the journal: all who wait for its end hear
/// why, and no later commit trusts what the thread left half done.
pub(super) struct Turn<'j> {
    journal: &'j Journal,
    /// All that will be committed when the turn ends.
    done: Tid,
}

impl<'j> Turn<'j> {
    /// Begins a turn. No thread has one: the caller saw so under `control`.
    pub(super) fn begin(journal: &'j Journal, control: &Control, done: Tid) -> Self {
        debug_assert!(!journal.is_committing());
        journal.set_committing(control, true);
        Self { journal, done }
    }

    /// Ends it, and wakes those who wait for that.
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if cfg!(feature = "model-shuttle") {
            return; // The model ends here, and no lock can be taken any more.
        }
        self.journal.abort("a commit panicked");
        let mut control = self.journal.control.lock();
        self.finish(&mut control);
        self.journal.done.notify_all();
    }
}

/// Waits a little for callers who come back together, see [`super::waiters`].
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

/// Commits `tid`, the running transaction; nobody else does.
fn commit(journal: &Journal, tid: Tid) -> Result<()> {
    journal.gate.drain(tid, &journal.control, &journal.left);
    let mut control = journal.control.lock();
    let last = control.stop;
    let freeze = control.freezes > 0 || last;
    let often = comes_often(&control, tid);
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
    } else if often {
        journal.gate.open_sharp(tid.next());
    } else {
        journal.gate.open(tid.next());
    }
    super::gate::notify(&journal.control, &journal.done);

    let mut lists = Lists::default();
    slots.into_iter().for_each(|mut slot| lists.append(&mut slot));
    let Lists { blocks, objects, forgotten, revokes } = lists;
    let mut objects = objects;
    let rendered = render(tid, &mut objects)?;
    let content = gather(tid, blocks, rendered, revokes);
    journal.log.make_space(journal)?;
    let extent = journal.log.write(journal, &content)?;
    if let Some(area) = journal.log.fast() {
        journal.fast.hold(tid);
        area.end_transaction()?;
    }

    withdraw(journal, &forgotten);
    journal.queue.push(content, extent);
    journal.set_durable(tid);
    for object in &objects {
        object.committed(tid);
    }
    journal.set_settled(tid);
    journal.queue.wake_if_needed(journal);
    Ok(())
}

/// Ends the last transaction, which is empty, without a trace in the log. The gate stays shut.
fn commit_nothing(journal: &Journal, tid: Tid) -> Result<()> {
    journal.gate.freeze(tid);
    journal.cache.flushes().flush()?;
    journal.set_durable(tid);
    journal.set_settled(tid);
    Ok(())
}

/// Whether the last commit was a moment ago, so that the next may be near too.
fn comes_often(control: &Control, tid: Tid) -> bool {
    match cfg!(feature = "model-shuttle") {
        true => tid.0.is_multiple_of(2),
        false => control.last.elapsed() < OFTEN,
    }
}

/// Takes every slot's lists, as they are: the gate is closed, everybody waits. No handle is inside.
fn collect(journal: &Journal) -> Vec<Lists> {
    let take = |slot: &Slot| {
        slot.used.store(false, Ordering::Release);
        std::mem::take(&mut *slot.lists.lock())
    };
    journal.gate.slots.used().map(take).collect()
}

/// Renders all objects, phase by phase, and adds those of later phases for `committed`; the
/// sealed images.
fn render(tid: Tid, objects: &mut Vec<Arc<dyn Dirty>>) -> Result<Vec<(BlockRef, Buf)>> {
    let mut sink = render_phase(tid, objects)?;
    for phase in [Phase::Group, Phase::Super] {
        let later = sink.take_later(phase);
        sink.absorb(render_phase(tid, &later)?);
        objects.extend(later);
    }
    Ok(share::map(sink.into_blocks(), sealed).into_iter().flatten().collect())
}

/// Renders the objects of one phase, each into its own part of what blocks they share.
fn render_phase(tid: Tid, objects: &[Arc<dyn Dirty>]) -> Result<RenderSink> {
    let parts = share::parts(objects, |part| -> Result<RenderSink> {
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

/// The images of everything the transaction changed.
fn gather(
    tid: Tid,
    in_place: Vec<BlockRef>,
    rendered: Vec<(BlockRef, Buf)>,
    mut revokes: Vec<BlockNo>,
) -> Content {
    let mut blocks = rendered;
    let taken = share::map(in_place, |block| {
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
    Content { tid, blocks, revokes }
}

/// Freed blocks are not written home any more: from now on they may be reused.
fn withdraw(journal: &Journal, forgotten: &[BlockRef]) {
    if forgotten.is_empty() {
        return;
    }
    let _no_write_in_flight = journal.queue.writeback();
    for block in forgotten {
        let mut marks = block.lock();
        if marks.forgotten {
            marks.home = None;
            drop(marks);
            journal.cache.remove_forgotten(block);
        }
    }
}

impl Journal {
    /// Writes all of `blocks` to their places, neighbours together.
    pub(super) fn write_home(&self, blocks: &[(BlockNo, Buf)]) -> Result<()> {
        const MOST: usize = 256;
        let device = self.cache.device();
        let size = to_u64(self.cache.block_size());
        let mut rest = blocks;
        while let Some((first, _)) = rest.first() {
            let mut run = 1;
            while run < rest.len().min(MOST) && rest[run].0.0 == first.0 + to_u64(run) {
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
