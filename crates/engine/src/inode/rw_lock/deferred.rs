//! Deferred conversions: per-slot lists of blocks that hold data but are still marked unwritten.
//!
//! A writer to unwritten blocks inside a file adds their numbers to the list of its slot and
//! returns. It needs no handle and no map, and stores to no cache line that another core stores to.
//! A long list, also the writer's own, is *folded* into a [`BlockSet`]. *Completing* takes the
//! lists of all slots and converts their blocks in order, adjacent runs as one.
//!
//! Invariants:
//!
//! - The map of a file is current only when no conversion is deferred. A reader that finds an
//!   unwritten block calls [`SharedIo::map_is_current`] before the lookup, or looks up again
//!   afterwards.
//! - The exclusive holder completes the deferred conversions before it changes the map. No writer
//!   defers another one during an exclusive hold.
//! - Deferred blocks lie inside the file and stay mapped until they are converted, since only the
//!   exclusive holder unmaps blocks.
//!
//! | writer | completer, under `[inode.complete-deferred]` |
//! |---|---|
//! | appends to its list, under the list's lock | sets [`COMPLETING`], clears [`PENDING`] |
//! | `asymmetric_fast()` | `asymmetric_slow()` |
//! | sets [`PENDING`] if it is clear | takes all lists, converts, clears [`COMPLETING`] |
//!
//! The pair of barriers orders like two full fences: either the completer takes the new entry, or
//! the writer finds [`PENDING`] clear and sets it. So an entry that is not yet converted always has
//! a flag set. A reader that finds both flags clear and then reads the map sees every write that
//! ended before the check.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{
    BiasedMutex, SMALL_LIMITS, asymmetric_fast, asymmetric_slow, current_slot, injected, reads,
};

use super::super::locks;
use super::block_set::BlockSet;
use super::shared_io::SharedIo;

/// Length of a slot's list, in runs, at which it is folded.
const FOLD_RUNS: usize = if SMALL_LIMITS { 2 } else { 4096 };

/// Memory of a slot's block set, in bytes, at which the file's conversions are completed.
const COMPLETE_BYTES: usize = if SMALL_LIMITS { 1 } else { 1 << 20 };

/// Runs that are passed to the converter at once.
const BATCH_RUNS: usize = 1 << 16;

/// Some slot may have an entry.
const PENDING: u32 = 1;
/// The entries taken from the slots are being converted.
const COMPLETING: u32 = 2;
/// The file is on the volume's list of files with deferred conversions.
const LISTED: u32 = 4;
/// Some conversion was deferred since the inode was loaded.
const EVER_DEFERRED: u32 = 8;

/// The deferred conversions of one slot.
#[derive(Default)]
struct DeferredRuns {
    runs: Vec<Range<FileBlock>>,
    blocks: BlockSet,
}

/// A slot's list and its lock.
pub(super) struct SlotDeferred {
    /// [inode.deferred]
    list: BiasedMutex<DeferredRuns>,
    /// Whether the list has entries. Relaxed, stored under the lock. The completer skips a slot
    /// whose flag is clear after the slow barrier.
    nonempty: AtomicBool,
}

/// What a writer must do after it has deferred a conversion.
#[must_use = "the caller must list the file or complete its conversions"]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferral {
    /// The file must be added to the volume's list.
    pub(crate) list_file: bool,
    /// The list is so long that the writer completes the conversions, unless another thread is
    /// doing so.
    pub(crate) complete: bool,
    /// The list is so long that the writer must wait for the completion.
    pub(crate) wait: bool,
}

impl SlotDeferred {
    pub(super) fn new() -> Self {
        Self {
            list: BiasedMutex::new(&locks::DEFERRED, DeferredRuns::default()),
            nonempty: AtomicBool::new(false),
        }
    }

    /// Adds `runs`. Returns the memory of the block set, in bytes.
    #[inline]
    fn add(&self, runs: &[Range<FileBlock>]) -> usize {
        let mut list = self.list.lock();
        for run in runs {
            match list.runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => list.runs.push(run.clone()),
            }
        }
        self.nonempty.store(true, Ordering::Relaxed);
        if list.runs.len() < FOLD_RUNS { 0 } else { list.fold() }
    }

    /// Takes the whole list, if it has entries.
    fn take(&self) -> Option<DeferredRuns> {
        if !self.nonempty.load(Ordering::Relaxed) {
            return None;
        }
        let mut list = self.list.lock();
        self.nonempty.store(false, Ordering::Relaxed);
        let taken = std::mem::take(&mut *list);
        reads(&taken.runs[..]);
        Some(taken)
    }
}

impl DeferredRuns {
    /// Moves the runs into the block set. Returns its memory in bytes.
    #[cold]
    fn fold(&mut self) -> usize {
        self.runs.drain(..).for_each(|run| self.blocks.insert(run));
        self.blocks.bytes()
    }
}

impl SharedIo {
    /// Whether a conversion was ever deferred.
    #[inline]
    pub(super) fn ever_deferred(&self) -> bool {
        self.words.deferred_flags.load(Ordering::Acquire) & EVER_DEFERRED != 0
    }

    /// Whether the map contains every write that ended before this call. A lookup made earlier may
    /// be out of date.
    #[inline]
    pub(crate) fn map_is_current(&self) -> bool {
        self.words.deferred_flags.load(Ordering::Acquire) & (PENDING | COMPLETING) == 0
    }

    /// Defers the conversion of `runs`: unwritten blocks inside the file whose data is on the
    /// device. The caller has a transfer in flight.
    #[inline]
    pub(crate) fn defer(&self, runs: &[Range<FileBlock>]) -> Deferral {
        let bytes = self.slots.get(current_slot()).deferred.add(runs);
        asymmetric_fast();
        let state = self.words.deferred_flags.load(Ordering::Acquire);
        let list_file = state & PENDING == 0 && self.set_pending();
        Deferral { list_file, complete: bytes >= COMPLETE_BYTES, wait: bytes >= 2 * COMPLETE_BYTES }
    }

    /// Sets [`PENDING`]. Returns whether the file must be added to the volume's list.
    #[cold]
    fn set_pending(&self) -> bool {
        let old =
            self.words.deferred_flags.fetch_or(PENDING | LISTED | EVER_DEFERRED, Ordering::AcqRel);
        old & LISTED == 0
    }

    /// Notes that the file is off the volume's list: the caller completes its conversions or lists
    /// it again.
    pub(crate) fn clear_listed(&self) {
        self.words.deferred_flags.fetch_and(!LISTED, Ordering::AcqRel);
    }

    /// Notes that the file is on the volume's list; false if it already was.
    pub(crate) fn set_listed(&self) -> bool {
        self.words.deferred_flags.fetch_or(LISTED, Ordering::AcqRel) & LISTED == 0
    }

    /// Has `convert` convert everything that was deferred before this call, or waits for the thread
    /// that is doing so. Runs are in rising order; `convert` may be called several times. If it
    /// fails, the runs that it leaves in its list remain deferred.
    ///
    /// Takes `[inode.complete-deferred]` and holds it during the conversion; not under a handle.
    ///
    /// # Errors
    /// The error of `convert`.
    pub(crate) fn complete_deferred<E>(
        &self,
        convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _turn = self.completing.lock();
        self.complete_locked(BATCH_RUNS, convert)
    }

    /// Like [`complete_deferred`](Self::complete_deferred), with all runs in one call, for a
    /// converter that must know the gaps between them.
    ///
    /// # Errors
    /// As [`complete_deferred`](Self::complete_deferred).
    pub(crate) fn complete_deferred_as_one<E>(
        &self,
        convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _turn = self.completing.lock();
        self.complete_locked(usize::MAX, convert)
    }

    /// Like [`complete_deferred`](Self::complete_deferred), but returns at once if another thread
    /// is completing.
    pub(crate) fn try_complete_deferred<E>(
        &self,
        convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.completing.try_lock() {
            Some(_turn) => self.complete_locked(BATCH_RUNS, convert),
            None => Ok(()),
        }
    }

    fn complete_locked<E>(
        &self,
        batch: usize,
        mut convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let state = &self.words.deferred_flags;
        if state.load(Ordering::Acquire) & PENDING == 0 {
            return Ok(());
        }
        if !injected("conversion-unpublished") {
            state.fetch_or(COMPLETING, Ordering::AcqRel);
        }
        state.fetch_and(!PENDING, Ordering::AcqRel);
        asymmetric_slow();
        let (mut runs, mut blocks) = self.take_all(batch);
        let outcome = loop {
            let done = convert(&mut runs);
            if done.is_err() {
                break done;
            }
            runs = blocks.take_runs(batch);
            if runs.is_empty() {
                break Ok(());
            }
        };
        if outcome.is_err() {
            let own = &self.slots.get(current_slot()).deferred;
            let mut list = own.list.lock();
            runs.into_iter().for_each(|run| list.blocks.insert(run));
            list.blocks.merge(blocks);
            own.nonempty.store(true, Ordering::Relaxed);
            drop(list);
            state.fetch_or(PENDING, Ordering::AcqRel);
        }
        state.fetch_and(!COMPLETING, Ordering::AcqRel);
        outcome
    }

    /// Takes all lists. Returns about `batch` of the lowest runs, and the rest.
    fn take_all(&self, batch: usize) -> (Vec<Range<FileBlock>>, BlockSet) {
        let (mut runs, mut blocks) = (Vec::new(), BlockSet::default());
        for list in self.slots.used().filter_map(|slot| slot.deferred.take()) {
            runs.extend(list.runs);
            blocks.merge(list.blocks);
        }
        if blocks.is_empty() {
            merge_runs(&mut runs);
        } else {
            runs.drain(..).for_each(|run| blocks.insert(run));
            runs = blocks.take_runs(batch);
        }
        (runs, blocks)
    }
}

/// Sorts runs and merges adjacent and overlapping ones.
pub(crate) fn merge_runs(runs: &mut Vec<Range<FileBlock>>) {
    if runs.len() > 1 {
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|next, last| {
            let adjoins = next.start <= last.end;
            if adjoins {
                last.end = last.end.max(next.end);
            }
            adjoins
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_runs_are_merged() {
        let merged = |runs: &[(u32, u32)]| {
            let mut runs = runs.iter().map(|(a, b)| FileBlock(*a)..FileBlock(*b)).collect();
            merge_runs(&mut runs);
            runs.iter().map(|run| (run.start.0, run.end.0)).collect::<Vec<_>>()
        };
        let runs = [(8, 9), (1, 3), (3, 5), (4, 6), (20, 21), (9, 10)];
        assert_eq!(merged(&runs), [(1, 6), (8, 10), (20, 21)]);
        assert_eq!(merged(&[(2, 3)]), [(2, 3)]);
        assert_eq!(merged(&[]), []);
    }
}
