//! A group's bitmap in the ext3 designs: atomic words that threads change without a common lock,
//! and their images for the journal.
//!
//! There are two bitmaps. `live` has the clusters in use now. `held` is the journal's copy: the
//! clusters in use at the end of the last durable transaction, and those freed since. A cluster is
//! allocatable if its bit is clear in both, so none is before its free is durable.
//!
//! Concurrent operations on one bit:
//!
//! | | claim | free | durable | trim |
//! |---|---|---|---|---|
//! | claim | sets `live`; a thread that finds it set loses | clears `live` last, so a claim that gets the bit sees `held` | stores `held`, which only clears bits that are in use or were never durable | claim: `live`, then `held`; trim: `held`, then `live`; one of them sees the other and gives up |
//! | free | | clears `live`; the second finds it clear and reports it | the image has a bit that is freed meanwhile, unless it was allocated later | a trimmed cluster is already free |
//!
//! The first change in a transaction finds an older transaction in `dirty` and takes the lock of
//! the images. No handle of the older transaction runs, and no handle of the new one has changed a
//! bit yet, so the copied words are the older transaction's image. That lock is also the lock of
//! the bitmap's buffer, which one design takes around `held`.

use super::locks;
use nextent::lab_seams::alloc::{bits, buddy::Run};
use nextent_num::{low_half, must_fit, to_usize};
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{KindMutex, KindMutexGuard, LockKind, computes};

/// `dirty` of a group that no transaction has changed since the last was rendered.
const CLEAN: u64 = 0;

/// A group's bits.
pub(super) struct Bits {
    len: u32,
    /// In use. Each claim and release is a read-modify-write, SeqCst with `held`.
    live: Box<[AtomicU64]>,
    /// Not allocatable yet. SeqCst with `live`.
    held: Box<[AtomicU64]>,
    /// The transaction that may change `live` now. Release after the older image is saved; Acquire.
    dirty: AtomicU64,
    images: KindMutex<Images>,
}

/// `[historical.buffer]`
pub(super) struct Images {
    /// The state at the end of a transaction that is not durable.
    frozen: Option<Image>,
    /// Free clusters in the last rendered image.
    rendered_free: u32,
    trimming: Option<Run>,
}

struct Image {
    tid: Tid,
    words: Box<[u64]>,
    rendered: bool,
}

fn mark(tid: Tid) -> u64 {
    1 << 32 | u64::from(tid.0)
}

fn of_mark(mark: u64) -> Tid {
    Tid(low_half(mark))
}

impl Bits {
    /// A group of `len` clusters whose durable state is `used`.
    pub(super) fn new(len: u32, mut used: Vec<u64>, kind: LockKind) -> Self {
        let words = must_fit::<u32, _>(used.len()) * 64;
        bits::set(&mut used, len, words);
        let atomics = || used.iter().map(|&word| AtomicU64::new(word)).collect();
        let rendered_free = len - bits::count(&used, 0, len);
        let images = Images { frozen: None, rendered_free, trimming: None };
        Self {
            len,
            live: atomics(),
            held: atomics(),
            dirty: AtomicU64::new(CLEAN),
            images: KindMutex::of_kind(kind, &locks::BUFFER, images),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The lock of the bitmap's buffer.
    pub(super) fn buffer(&self) -> KindMutexGuard<'_, Images> {
        self.images.lock()
    }

    /// Prepares a change of the bits by `tid`. Runs `first` before the first change in `tid`.
    pub(super) fn begin(&self, tid: Tid, first: impl FnOnce()) {
        if self.dirty.load(Ordering::Acquire) != mark(tid) {
            self.begin_new(tid, first);
        }
    }

    #[cold]
    fn begin_new(&self, tid: Tid, first: impl FnOnce()) {
        let mut images = self.images.lock();
        let older = self.dirty.load(Ordering::Relaxed);
        if older == mark(tid) {
            return;
        }
        if older != CLEAN {
            self.save_image(&mut images, of_mark(older));
        }
        first();
        self.dirty.store(mark(tid), Ordering::Release);
    }

    fn save_image(&self, images: &mut Images, tid: Tid) {
        if let Some(older) = images.frozen.take() {
            // Its commit has not reported that it is durable: withhold the bits of both.
            for (held, word) in self.held.iter().zip(&older.words) {
                held.fetch_or(*word, Ordering::SeqCst);
            }
        }
        images.frozen = Some(Image { tid, words: self.words(), rendered: false });
    }

    fn words(&self) -> Box<[u64]> {
        self.live.iter().map(|word| word.load(Ordering::SeqCst)).collect()
    }

    /// The bits at the end of `tid`, and the increase of free clusters since the last rendered
    /// image. `None` if `tid` did not change them or was rendered.
    pub(super) fn render(&self, tid: Tid) -> Option<(Box<[u64]>, i64)> {
        let mut images = self.images.lock();
        let waiting = images.frozen.as_ref().is_some_and(|i| i.tid == tid && !i.rendered);
        if !waiting {
            if self.dirty.load(Ordering::Relaxed) != mark(tid) {
                return None;
            }
            self.save_image(&mut images, tid);
            self.dirty.store(CLEAN, Ordering::Release);
        }
        let image = images.frozen.as_mut()?;
        image.rendered = true;
        let words = image.words.clone();
        let free = self.len - bits::count(&words, 0, self.len);
        let freed = i64::from(free) - i64::from(images.rendered_free);
        images.rendered_free = free;
        Some((words, freed))
    }

    /// The runs that [`Self::committed`] of `tid` will release.
    pub(super) fn to_release(&self, tid: Tid) -> Vec<Run> {
        let images = self.images.lock();
        let Some(image) = images.frozen.as_ref().filter(|image| image.tid == tid) else {
            return Vec::new();
        };
        let released: Vec<u64> = (0..self.live.len())
            .map(|i| {
                let now = self.live[i].load(Ordering::SeqCst);
                self.held[i].load(Ordering::SeqCst) & !image.words[i] & !now
            })
            .collect();
        bits::runs(&released, 0, self.len).collect()
    }

    /// Releases the clusters that the durable transaction `tid` has freed.
    pub(super) fn committed(&self, tid: Tid) {
        let mut images = self.images.lock();
        let Some(mut image) = images.frozen.take_if(|image| image.tid == tid) else { return };
        if let Some((start, n)) = images.trimming {
            bits::set(&mut image.words, start, start + n);
        }
        for (held, word) in self.held.iter().zip(&image.words) {
            if held.load(Ordering::Relaxed) != *word {
                held.store(*word, Ordering::SeqCst);
            }
        }
    }

    /// The first of `n` allocatable clusters in `[from, to)`.
    pub(super) fn find(&self, n: u32, from: u32, to: u32) -> Option<u32> {
        let mut at = self.next(from, to, false)?;
        if n == 1 {
            return Some(at);
        }
        loop {
            let end = self.next(at, to, true).unwrap_or(to.min(self.len));
            if end - at >= n {
                return Some(at);
            }
            at = self.next(end, to, false)?;
        }
    }

    /// The first cluster of `[from, to)` that is allocatable, or, if `taken`, the first that is
    /// not.
    fn next(&self, from: u32, to: u32, taken: bool) -> Option<u32> {
        let to = to.min(self.len);
        if from >= to {
            return None;
        }
        let range = to_usize(from / 64)..to_usize(to.div_ceil(64));
        let unwanted = if taken { 0 } else { u64::MAX };
        let mut mask = u64::MAX << (from % 64);
        // This loop must be short: a search may pass all clusters that were freed since the last
        // commit, in many groups.
        let words = self.live[range.clone()].iter().zip(&self.held[range.clone()]);
        for (word, (live, held)) in range.zip(words) {
            // As compiled for x86-64, with fused compare and jump: six for each word.
            if word > to_usize(from / 64) {
                computes(3);
            }
            let live = live.load(Ordering::SeqCst);
            computes(3);
            let used = live | held.load(Ordering::SeqCst);
            let wanted = (used ^ unwanted) & mask;
            if wanted != 0 {
                let at = must_fit::<u32, _>(word) * 64 + wanted.trailing_zeros();
                return (at < to).then_some(at);
            }
            mask = u64::MAX;
        }
        None
    }

    fn bit(at: u32) -> (usize, u64) {
        (to_usize(at / 64), 1 << (at % 64))
    }

    /// Sets a bit. Returns false if another thread was first.
    pub(super) fn set(&self, at: u32) -> bool {
        let (word, bit) = Self::bit(at);
        self.live[word].fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Whether a claimed bit is allocatable. Otherwise clears it in `live` again.
    pub(super) fn keep_if_allowed(&self, at: u32) -> bool {
        let (word, bit) = Self::bit(at);
        let allowed = self.held[word].load(Ordering::SeqCst) & bit == 0;
        if !allowed {
            self.live[word].fetch_and(!bit, Ordering::SeqCst);
        }
        allowed
    }

    /// Undoes a claim. No other thread has used the bit.
    pub(super) fn unset(&self, at: u32) {
        let (word, bit) = Self::bit(at);
        self.live[word].fetch_and(!bit, Ordering::SeqCst);
    }

    /// Sets a bit in the journal's copy, before it is cleared in the bitmap.
    pub(super) fn hold(&self, at: u32) {
        let (word, bit) = Self::bit(at);
        self.held[word].fetch_or(bit, Ordering::SeqCst);
    }

    /// Clears a bit. Returns false if it was clear.
    pub(super) fn clear(&self, at: u32) -> bool {
        let (word, bit) = Self::bit(at);
        self.live[word].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// The first clear, or set, bit of a range of the bitmap.
    pub(super) fn first(&self, (start, n): Run, set: bool) -> Option<u32> {
        bits::words(start, start + n).find_map(|(word, mask)| {
            let live = self.live[word].load(Ordering::SeqCst);
            let wanted = if set { live } else { !live } & mask;
            (wanted != 0).then(|| must_fit::<u32, _>(word) * 64 + wanted.trailing_zeros())
        })
    }

    /// The runs of clear bits.
    pub(super) fn free_runs(&self) -> Vec<Run> {
        let free: Vec<u64> = self.words().iter().map(|word| !word).collect();
        bits::runs(&free, 0, self.len).collect()
    }

    /// Whether a free cluster is withheld.
    pub(super) fn has_pending(&self) -> bool {
        let pairs = self.live.iter().zip(&self.held);
        let mut held = pairs.map(|(l, h)| h.load(Ordering::SeqCst) & !l.load(Ordering::SeqCst));
        held.any(|word| word != 0)
    }

    /// Withholds the next run of at least `min` clusters in `[from, to)` for a trim.
    pub(super) fn start_trim(&self, from: u32, to: u32, min: u32) -> Option<Run> {
        let mut images = self.images.lock();
        if images.trimming.is_some() {
            return None;
        }
        let (mut at, to) = (from, to.min(self.len));
        while at < to {
            let start = self.next(at, to, false)?;
            let end = self.next(start, to, true).unwrap_or(to);
            let run = (start, end - start);
            if run.1 >= min.max(1) && self.withhold(run) {
                images.trimming = Some(run);
                return Some(run);
            }
            at = end;
        }
        None
    }

    /// Sets a run in `held`, unless another thread claims or frees a cluster of it meanwhile.
    fn withhold(&self, (start, n): Run) -> bool {
        let words = || bits::words(start, start + n);
        let mut set = Vec::new();
        let mut whole = true;
        for (word, mask) in words() {
            let before = self.held[word].fetch_or(mask, Ordering::SeqCst);
            set.push((word, mask & !before));
            whole &= before & mask == 0 && self.live[word].load(Ordering::SeqCst) & mask == 0;
        }
        if !whole {
            for (word, mine) in set {
                // A cluster that was claimed and freed meanwhile stays in `held`.
                let live = self.live[word].load(Ordering::SeqCst);
                self.held[word].fetch_and(!mine | live, Ordering::SeqCst);
            }
        }
        whole
    }

    /// Ends a trim.
    pub(super) fn end_trim(&self) {
        if let Some((start, n)) = self.images.lock().trimming.take() {
            for (word, mask) in bits::words(start, start + n) {
                self.held[word].fetch_and(!mask, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_the_same_as_a_scan_of_each_bit() {
        const LEN: u32 = 200;
        let used = vec![!0 << 3, u64::MAX, !(0b11 << 62), 0b1];
        let bits = Bits::new(LEN, used, LockKind::Spin);
        // Withheld free bits, in an empty word and in a full one.
        bits.hold(1);
        bits.hold(190);
        let may = |at: u32| !matches!(at, 3..190 | 192) && !matches!(at, 1 | 190);
        for from in 0..=LEN {
            for to in [from, from + 1, from + 63, from + 64, LEN - 1, LEN, LEN + 64] {
                let all = || from..to.min(LEN);
                assert_eq!(bits.next(from, to, false), all().find(|at| may(*at)), "{from} {to}");
                assert_eq!(bits.next(from, to, true), all().find(|at| !may(*at)), "{from} {to}");
                for n in 2..9 {
                    let fits = |at: &u32| at + n <= to.min(LEN) && (*at..at + n).all(may);
                    assert_eq!(bits.find(n, from, to), all().find(fits), "{n} of {from} {to}");
                }
            }
        }
    }
}
