//! Conversions put off: which unwritten blocks hold data by now, kept by the slot that wrote them.
//!
//! Whoever has written to unwritten blocks inside a file leaves their numbers in its slot's list
//! and is done: no handle, no map, no line that another core stores to. A list that is long is
//! *folded* into a set of bits ([`super::bits`]), the slot's own too. *Settling* takes the lists
//! and bits of all slots and converts everything in them at once, in order, neighbours as one.
//!
//! What the map says about a file is the truth only when nothing is put off. So whoever is about to
//! believe that a block is unwritten asks [`Refs::is_settled`] before it looks, or looks again
//! after; whoever changes the map with the file to itself settles first, and as long as it has the
//! file nothing more is put off. Blocks in a list lie inside the file and keep their places until
//! they are settled, since nobody takes them away before.
//!
//! Protocol. A writer appends to its list under the list's lock, passes a light barrier, and sees
//! to it that [`PENDING`] is set. Who settles does so under `[inode.settle]`: it sets [`SETTLING`],
//! clears [`PENDING`], passes a heavy barrier, takes the lists and the bits, converts, and clears
//! [`SETTLING`]. A light and a heavy barrier order like two full fences: either the list has the
//! entry when it is taken, or the writer finds [`PENDING`] cleared and sets it. So an entry that is
//! neither converted nor announced is never there: a reader who finds both marks cleared, and looks
//! at the map then, sees all that was written before it began.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{
    BiasedMutex, SMALL_LIMITS, asymmetric_fast, asymmetric_slow, current_slot, injected, reads,
};

use super::super::locks;
use super::bits::Bits;
use super::refs::Refs;

/// Runs in a slot's list from which on it is folded.
const MANY: usize = if SMALL_LIMITS { 2 } else { 4096 };

/// Bytes that the bits of a slot may take before the file is settled.
const BYTES: usize = if SMALL_LIMITS { 1 } else { 1 << 20 };

/// Runs that are converted at once.
const BATCH: usize = 1 << 16;

/// Something may be in a slot.
const PENDING: u32 = 1;
/// What was there is being converted.
const SETTLING: u32 = 2;
/// The file is among those that are settled after a while.
const LISTED: u32 = 4;
/// Something was put off once.
const EVER: u32 = 8;

/// What one slot has put off.
#[derive(Default)]
struct List {
    runs: Vec<Range<FileBlock>>,
    bits: Bits,
}

/// The same, for all to take.
pub(super) struct Deferred {
    /// [inode.deferred]
    list: BiasedMutex<List>,
    /// Whether there is anything. Relaxed, stored under the lock: what was empty behind the heavy
    /// barrier is not looked at.
    any: AtomicBool,
}

/// What putting off asks for.
#[must_use = "the file is to be listed, or settled"]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    /// The file is to be [listed](Refs::unlist).
    pub(crate) first: bool,
    /// There is so much by now that it is to be settled, unless somebody is at it.
    pub(crate) settle: bool,
    /// There is so much that it is to be waited for.
    pub(crate) wait: bool,
}

impl Deferred {
    pub(super) fn new() -> Self {
        Self {
            list: BiasedMutex::new(&locks::DEFERRED, List::default()),
            any: AtomicBool::new(false),
        }
    }

    /// Adds `runs`; how many bytes the bits take then.
    #[inline]
    fn add(&self, runs: &[Range<FileBlock>]) -> usize {
        let mut list = self.list.lock();
        for run in runs {
            match list.runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => list.runs.push(run.clone()),
            }
        }
        self.any.store(true, Ordering::Relaxed);
        if list.runs.len() < MANY { 0 } else { list.fold() }
    }

    /// Takes all, if there is anything.
    fn take(&self) -> Option<List> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut list = self.list.lock();
        self.any.store(false, Ordering::Relaxed);
        let taken = std::mem::take(&mut *list);
        reads(&taken.runs[..]);
        Some(taken)
    }
}

impl List {
    /// Moves the runs into the bits; how many bytes those take then.
    #[cold]
    fn fold(&mut self) -> usize {
        self.runs.drain(..).for_each(|run| self.bits.insert(run));
        self.bits.bytes()
    }
}

impl Refs {
    /// Whether anything was ever put off.
    #[inline]
    pub(super) fn ever_deferred(&self) -> bool {
        self.state.deferred.load(Ordering::Acquire) & EVER != 0
    }

    /// Whether the map says all that was written before this call. A map that was looked at before
    /// may have been behind.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.state.deferred.load(Ordering::Acquire) & (PENDING | SETTLING) == 0
    }

    /// Puts the conversion of `runs` off: unwritten blocks inside the file whose data is on the
    /// device. The caller has a reference.
    #[inline]
    pub(crate) fn defer(&self, runs: &[Range<FileBlock>]) -> Put {
        let bytes = self.slots.get(current_slot()).deferred.add(runs);
        asymmetric_fast();
        let state = self.state.deferred.load(Ordering::Acquire);
        let first = state & PENDING == 0 && self.announce();
        Put { first, settle: bytes >= BYTES, wait: bytes >= 2 * BYTES }
    }

    /// Says that something is in a slot; true if the file is to be listed for that.
    #[cold]
    fn announce(&self) -> bool {
        let old = self.state.deferred.fetch_or(PENDING | LISTED | EVER, Ordering::AcqRel);
        old & LISTED == 0
    }

    /// The file is not listed any more: the caller settles it now, or lists it again.
    pub(crate) fn unlist(&self) {
        self.state.deferred.fetch_and(!LISTED, Ordering::AcqRel);
    }

    /// The file is listed again.
    pub(crate) fn relist(&self) -> bool {
        self.state.deferred.fetch_or(LISTED, Ordering::AcqRel) & LISTED == 0
    }

    /// Has `convert` deal with all that was put off before this call, by this thread or by one that
    /// is at it; runs rise, and there may be several lists of them. What `convert` leaves in a list
    /// when it fails stays put off.
    ///
    /// Takes `[inode.settle]` and holds it meanwhile; not under a handle.
    ///
    /// # Errors
    /// What `convert` says.
    pub(crate) fn settle<E>(
        &self,
        convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _turn = self.settling.lock();
        self.settle_in_turn(BATCH, convert)
    }

    /// The same with all in one list, for who must know all: what lies between.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(crate) fn settle_as_one<E>(
        &self,
        convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _turn = self.settling.lock();
        self.settle_in_turn(usize::MAX, convert)
    }

    /// The same, unless somebody else is at it.
    pub(crate) fn try_settle<E>(
        &self,
        convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.settling.try_lock() {
            Some(_turn) => self.settle_in_turn(BATCH, convert),
            None => Ok(()),
        }
    }

    fn settle_in_turn<E>(
        &self,
        batch: usize,
        mut convert: impl FnMut(&mut Vec<Range<FileBlock>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let state = &self.state.deferred;
        if state.load(Ordering::Acquire) & PENDING == 0 {
            return Ok(());
        }
        if !injected("conversion-unpublished") {
            state.fetch_or(SETTLING, Ordering::AcqRel);
        }
        state.fetch_and(!PENDING, Ordering::AcqRel);
        asymmetric_slow();
        let (mut runs, mut bits) = self.take_all(batch);
        let outcome = loop {
            let done = convert(&mut runs);
            if done.is_err() {
                break done;
            }
            runs = bits.take_runs(batch);
            if runs.is_empty() {
                break Ok(());
            }
        };
        if outcome.is_err() {
            let own = &self.slots.get(current_slot()).deferred;
            let mut list = own.list.lock();
            runs.into_iter().for_each(|run| list.bits.insert(run));
            list.bits.take_in(bits);
            own.any.store(true, Ordering::Relaxed);
            drop(list);
            state.fetch_or(PENDING, Ordering::AcqRel);
        }
        state.fetch_and(!SETTLING, Ordering::AcqRel);
        outcome
    }

    /// The first runs of what is put off, about `batch` of them, and the rest.
    fn take_all(&self, batch: usize) -> (Vec<Range<FileBlock>>, Bits) {
        let (mut runs, mut bits) = (Vec::new(), Bits::default());
        for list in self.slots.used().filter_map(|slot| slot.deferred.take()) {
            runs.extend(list.runs);
            bits.take_in(list.bits);
        }
        if bits.is_empty() {
            join(&mut runs);
        } else {
            runs.drain(..).for_each(|run| bits.insert(run));
            runs = bits.take_runs(batch);
        }
        (runs, bits)
    }
}

/// Brings runs into order, neighbours as one.
pub(crate) fn join(runs: &mut Vec<Range<FileBlock>>) {
    if runs.len() > 1 {
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let joined = |runs: &[(u32, u32)]| {
            let mut runs = runs.iter().map(|(a, b)| FileBlock(*a)..FileBlock(*b)).collect();
            join(&mut runs);
            runs.iter().map(|run| (run.start.0, run.end.0)).collect::<Vec<_>>()
        };
        let runs = [(8, 9), (1, 3), (3, 5), (4, 6), (20, 21), (9, 10)];
        assert_eq!(joined(&runs), [(1, 6), (8, 10), (20, 21)]);
        assert_eq!(joined(&[(2, 3)]), [(2, 3)]);
        assert_eq!(joined(&[]), []);
    }
}
