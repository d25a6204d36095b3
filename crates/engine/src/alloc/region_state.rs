//! The state of a region: three images of its bitmap, and the clusters that are allocatable.
//!
//! | image | state |
//! |---|---|
//! | `current` | the running transaction |
//! | `committing` | the end of the transaction that is being committed |
//! | `committed` | the durable state |
//!
//! # Invariants
//!
//! - A cluster is allocatable if its bit is clear in all three images. Then no crash can bring back
//!   a file that maps it.
//! - The buddy holds the allocatable clusters, less those reserved for a window or being trimmed:
//!   free in `current` = buddy + reserved + trimming + held back.
//! - A fast commit makes allocations of the running transaction durable before the transaction.
//!   Clusters freed after a fast commit are therefore set in `committed` until the transaction is
//!   durable.
//!
//! No list of freed ranges exists. A free gives the clusters to the buddy if no image holds them.
//! [`RegionState::committed`] gives it the difference of the old and the new durable image.
//!
//! This module has no locks and no I/O, so that tests can drive it. The lock and the journal are in
//! `region`. All methods need `[alloc.region]`.

use super::bits;
use super::buddy::{Buddy, Run};
use nextent_num::must_fit;
use nextent_ondisk::Tid;
use nextent_sync::injected;

type Bits = Box<[u64]>;

/// The state at the end of one transaction that is not yet durable.
struct PendingImage {
    tid: Tid,
    bits: Bits,
    /// Whether the commit of `tid` has rendered it.
    rendered: bool,
}

/// Where in the region a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Only at this cluster.
    At(u32),
    /// From this cluster on, then from the start of the region.
    From(u32),
    /// From `cursor` on, then from the start of the region.
    Anywhere,
}

/// The state of one region.
pub(crate) struct RegionState {
    buddy: Buddy,
    current: Bits,
    committed: Bits,
    committing: Option<PendingImage>,
    /// The transaction that changed `current` and whose image is not saved.
    dirty: Option<Tid>,
    /// Clear bits of `current`.
    free: u32,
    /// `free` at the end of the last rendered transaction.
    rendered_free: u32,
    /// Clusters reserved for windows of the current epoch.
    reserved: u32,
    /// Incremented to void all windows.
    epoch: u32,
    trimming: Option<Run>,
    /// After the last allocation. A free of the clusters before it moves it back.
    cursor: u32,
}

/// A rendered image.
pub(crate) struct Rendered<'a> {
    /// The region's part of the bitmap. Set bits are in use.
    pub(crate) bits: &'a [u64],
    /// Free clusters, less those of the image rendered before.
    pub(crate) freed: i64,
}

impl RegionState {
    /// A region of `len` clusters whose durable state is `used`.
    pub(crate) fn new(len: u32, mut used: Bits) -> Self {
        let words = must_fit::<u32, _>(used.len()) * 64;
        bits::set(&mut used, len, words);
        let buddy = Buddy::from_used(len, &used);
        let free = buddy.free();
        Self {
            buddy,
            committed: used.clone(),
            current: used,
            committing: None,
            dirty: None,
            free,
            rendered_free: free,
            reserved: 0,
            epoch: 0,
            trimming: None,
            cursor: 0,
        }
    }

    /// Clusters that are not in use, allocatable or not.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// The allocatable clusters.
    pub(crate) fn buddy(&self) -> &Buddy {
        &self.buddy
    }

    /// Clusters reserved for windows.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Free clusters that wait for a transaction to become durable.
    pub(crate) fn held_back(&self) -> u32 {
        self.free - self.buddy.free() - self.reserved - self.trimming.map_or(0, |run| run.1)
    }

    /// Whether free clusters will become allocatable: after a commit, or once they are trimmed.
    pub(crate) fn is_withholding(&self) -> bool {
        self.held_back() > 0 || self.trimming.is_some()
    }

    /// Whether `current` is the whole state: it is durable, and no free cluster is held back or
    /// reserved.
    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_none() && self.committing.is_none() && self.buddy.free() == self.free
    }

    /// Prepares a change in `tid`; true if it is the first change in `tid`.
    ///
    /// Saves the image of an older transaction that is not rendered yet.
    pub(crate) fn begin(&mut self, tid: Tid) -> bool {
        match self.dirty {
            Some(owner) if owner == tid => return false,
            Some(owner) => self.save_image(owner, false),
            None => {}
        }
        self.dirty = Some(tid);
        true
    }

    fn save_image(&mut self, tid: Tid, rendered: bool) {
        if let Some(older) = self.committing.take() {
            // The older commit has not completed: treat both images as not durable.
            for (held, word) in self.committed.iter_mut().zip(&older.bits) {
                *held |= word;
            }
        }
        self.committing = Some(PendingImage { tid, bits: self.current.clone(), rendered });
    }

    /// The image at the end of `tid`, if `tid` changed the region and is not rendered yet.
    pub(crate) fn render(&mut self, tid: Tid) -> Option<Rendered<'_>> {
        let waiting = self.committing.as_ref().is_some_and(|i| i.tid == tid && !i.rendered);
        if !waiting {
            if self.dirty != Some(tid) {
                return None;
            }
            self.dirty = None;
            self.save_image(tid, false);
        }
        let len = self.buddy.size();
        let image = self.committing.as_mut().filter(|image| image.tid == tid)?;
        image.rendered = true;
        let free = len - bits::count(&image.bits, 0, len);
        let freed = i64::from(free) - i64::from(self.rendered_free);
        self.rendered_free = free;
        Some(Rendered { bits: &image.bits, freed })
    }

    /// Makes the image of `tid` the durable one. Clusters that only the old durable image used
    /// become allocatable. Returns their number.
    pub(crate) fn committed(&mut self, tid: Tid) -> u32 {
        let Some(image) = self.committing.take_if(|image| image.tid == tid) else { return 0 };
        let len = self.buddy.size();
        let older = std::mem::replace(&mut self.committed, image.bits);
        let images = older.iter().zip(&self.committed).zip(&self.current);
        let released: Vec<u64> = images.map(|((old, new), now)| old & !new & !now).collect();
        let mut count = 0;
        for (start, n) in bits::runs(&released, 0, len) {
            self.buddy.give(start, n);
            count += n;
        }
        count
    }

    /// Clusters that [`Self::committed`] of `tid` will release.
    pub(crate) fn to_release(&self, tid: Tid) -> Vec<Run> {
        let Some(image) = self.committing.as_ref().filter(|i| i.tid == tid) else {
            return Vec::new();
        };
        let images = self.committed.iter().zip(&image.bits).zip(&self.current);
        let released: Vec<u64> = images.map(|((old, new), now)| old & !new & !now).collect();
        bits::runs(&released, 0, self.buddy.size()).collect()
    }

    /// Finds `min` to `want` contiguous allocatable clusters.
    pub(crate) fn find(&self, want: u32, min: u32, aim: Aim) -> Option<Run> {
        let hint = match aim {
            Aim::At(at) => {
                let n = self.buddy.run_at(at, want);
                return (n >= min).then_some((at, n));
            }
            Aim::From(at) => at,
            Aim::Anywhere => self.cursor,
        };
        if min > self.buddy.size() {
            return None;
        }
        if let Some(run) = self.buddy.find_run(want.min(self.buddy.size()), hint) {
            return Some(run);
        }
        let longest = self.buddy.find_near_longest(want)?;
        if longest.1 >= min { Some(longest) } else { self.buddy.find_run(min, hint) }
    }

    /// Allocates clusters that [`Self::find`] returned. Needs [`Self::begin`].
    pub(crate) fn take(&mut self, (start, n): Run) {
        debug_assert!(self.dirty.is_some());
        self.buddy.take(start, n);
        self.set_in_use(start, n);
    }

    fn set_in_use(&mut self, start: u32, n: u32) {
        bits::set(&mut self.current, start, start + n);
        self.free -= n;
        self.cursor = start + n;
    }

    /// Frees clusters that are in use. With `fast_committed`, a fast commit of this transaction may
    /// name them, so they are held back until the transaction is durable. Needs [`Self::begin`].
    ///
    /// # Errors
    /// The first cluster that is not in use; nothing is freed then.
    pub(crate) fn free_run(&mut self, (start, n): Run, fast_committed: bool) -> Result<(), u32> {
        let end = start + n;
        if let Some(clear) = bits::next_clear(&self.current, start, end) {
            return Err(clear);
        }
        debug_assert!(self.dirty.is_some());
        bits::clear(&mut self.current, start, end);
        self.free += n;
        if self.cursor == end {
            // Reuse the last allocation first: its data may still be in a processor's cache.
            self.cursor = start;
        }
        if fast_committed {
            bits::set(&mut self.committed, start, end);
        }
        let mut at = start;
        while let Some(first) = self.next_held(at, end, false) {
            let stop = self.next_held(first, end, true).unwrap_or(end);
            self.buddy.give(first, stop - first);
            at = stop;
        }
        Ok(())
    }

    /// The first cluster of `[from, to)` that `committing` or `committed` holds, or does not hold.
    fn next_held(&self, from: u32, to: u32, held: bool) -> Option<u32> {
        bits::words(from, to).find_map(|(word, mask)| {
            let newer = self.committing.as_ref().map_or(0, |image| image.bits[word]);
            let used = self.committed[word] | newer;
            let used = if injected("freed-too-early") { 0 } else { used };
            let wanted = if held { used } else { !used } & mask;
            (wanted != 0).then(|| must_fit::<u32, _>(word) * 64 + wanted.trailing_zeros())
        })
    }

    /// Marks the free clusters of a range as in use, also those held back. Returns how many were
    /// free. For the replay of fast commits. Needs [`Self::begin`].
    pub(crate) fn mark_used(&mut self, (start, n): Run) -> u32 {
        let end = start + n;
        let mut marked = 0;
        for (at, len) in self.free_runs(start, end) {
            for (first, n) in self.available_in(at, at + len) {
                self.buddy.take(first, n);
            }
            self.set_in_use(at, len);
            marked += len;
        }
        marked
    }

    /// Runs of `[start, end)` that are clear in `current`.
    pub(crate) fn free_runs(&self, start: u32, end: u32) -> Vec<Run> {
        let free: Vec<u64> = self.current.iter().map(|word| !word).collect();
        bits::runs(&free, start, end.min(self.buddy.size())).collect()
    }

    fn available_in(&self, start: u32, end: u32) -> Vec<Run> {
        let mut found = Vec::new();
        let mut at = start;
        while at < end {
            let n = self.buddy.run_at(at, end - at);
            if n > 0 {
                found.push((at, n));
            }
            at += n.max(1);
        }
        found
    }

    /// Whether a range is free in `current`.
    #[cfg(any(test, feature = "lab"))]
    pub(crate) fn is_free(&self, (start, n): Run) -> bool {
        bits::next_set(&self.current, start, start + n).is_none()
    }

    /// Reserves clusters for a window. They stay free on disk. Returns the epoch.
    pub(crate) fn reserve(&mut self, (start, n): Run) -> u32 {
        self.buddy.take(start, n);
        self.reserved += n;
        self.epoch
    }

    /// Reserves clusters in front of a window; false if the window is void or they are not
    /// allocatable.
    pub(crate) fn extend_window_front(&mut self, run: Run, epoch: u32) -> bool {
        let fits = epoch == self.epoch && self.buddy.all_free(run.0, run.1);
        if fits {
            self.reserve(run);
        }
        fits
    }

    /// Allocates clusters of a window; false if the window is void. Needs [`Self::begin`].
    pub(crate) fn take_reserved(&mut self, (start, n): Run, epoch: u32) -> bool {
        if epoch != self.epoch {
            return false;
        }
        debug_assert!(self.dirty.is_some());
        self.reserved -= n;
        self.set_in_use(start, n);
        true
    }

    /// Whether a window of `epoch` still has its clusters.
    pub(crate) fn holds_window(&self, epoch: u32) -> bool {
        epoch == self.epoch
    }

    /// Releases the remaining clusters of a window.
    pub(crate) fn release_window(&mut self, (start, n): Run, epoch: u32) {
        if epoch == self.epoch && n > 0 {
            self.reserved -= n;
            self.buddy.give(start, n);
        }
    }

    /// Voids all windows and makes their clusters allocatable. Returns their number.
    pub(crate) fn recall_windows(&mut self) -> u32 {
        let recalled = std::mem::take(&mut self.reserved);
        if recalled > 0 {
            self.epoch = self.epoch.wrapping_add(u32::from(!injected("window-epoch-kept")));
            self.buddy = Buddy::from_used(self.buddy.size(), &self.unavailable());
        }
        recalled
    }

    fn unavailable(&self) -> Bits {
        let mut used: Bits = self.current.clone();
        for (word, held) in used.iter_mut().zip(&self.committed) {
            *word |= held;
        }
        if let Some(image) = &self.committing {
            for (word, held) in used.iter_mut().zip(&image.bits) {
                *word |= held;
            }
        }
        if let Some((start, n)) = self.trimming {
            bits::set(&mut used, start, start + n);
        }
        used
    }

    /// Takes the next allocatable run of at least `min` clusters in `[from, to)` out of the buddy,
    /// for trimming.
    pub(crate) fn start_trim(&mut self, from: u32, to: u32, min: u32) -> Option<Run> {
        if self.trimming.is_some() {
            return None;
        }
        let mut at = from;
        while at < to.min(self.buddy.size()) {
            let (start, n) = self.buddy.next_run(at)?;
            let n = n.min(to.saturating_sub(start));
            if n >= min.max(1) {
                self.buddy.take(start, n);
                self.trimming = Some((start, n));
                return self.trimming;
            }
            at = start + n.max(1);
        }
        None
    }

    /// Returns the run of [`Self::start_trim`] to the buddy.
    pub(crate) fn end_trim(&mut self) {
        if let Some((start, n)) = self.trimming.take() {
            self.buddy.give(start, n);
        }
    }

    /// Checks the invariants of the module.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let len = self.buddy.size();
        assert_eq!(self.free, len - bits::count(&self.current, 0, len));
        let unavailable = self.unavailable();
        let available = len - bits::count(&unavailable, 0, len);
        assert_eq!(self.buddy.free() + self.reserved, available);
        for (start, n) in self.buddy.runs() {
            assert!(bits::next_set(&unavailable, start, start + n).is_none());
        }
    }
}

#[cfg(test)]
mod tests;
