//! One operation's share of the running transaction.

use super::core::Journal;
use super::seam::Joiner;
use super::sink::Dirty;
use super::slot::SlotRef;
use crate::cache::{BlockRef, Seal};
use crate::{Result, locks};
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::atomic::Ordering;
use nextent_sync::{Arc, RankToken, enter_rank, injected, thread};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

/// Blocks that [`Handle::forget`] takes for one credit: their records share a revoke block.
pub const REVOKES_PER_CREDIT: u32 = 64;

/// Right to change metadata atomically. Dropping it stops it.
///
/// Belongs to the thread that started it. While it lives no commit of its transaction can finish,
/// so a thread must not keep it while it waits for a user. No second handle may be started on the
/// same thread; nested calls pass `&Handle` down.
///
/// Lock ranks: counts as `[journal.handle]`, 200; its calls take `[cache.shard]`, `[cache.block]`
/// and `[journal.slot]` for a moment.
pub struct Handle<'s> {
    journal: &'s Journal,
    slot: SlotRef<'s>,
    tid: Cell<Tid>,
    credits: Cell<i64>,
    revoked: Cell<u32>,
    rank: RefCell<Option<RankToken>>,
    not_send: PhantomData<*mut ()>,
}

/// Credits set aside for a handle that must be able to start.
///
/// May be held while an I/O runs: a commit does not wait for it.
pub struct Reservation<'s> {
    journal: &'s Journal,
    credits: i64,
}

impl<'s> Handle<'s> {
    #[inline]
    pub(super) fn new(journal: &'s Journal, slot: SlotRef<'s>, tid: Tid, credits: i64) -> Self {
        Self {
            journal,
            slot,
            tid: Cell::new(tid),
            credits: Cell::new(credits),
            revoked: Cell::new(0),
            rank: RefCell::new(Some(enter_rank(&locks::HANDLE))),
            not_send: PhantomData,
        }
    }

    /// The transaction this handle belongs to; changes with [`restart`](Self::restart).
    pub fn tid(&self) -> Tid {
        self.tid.get()
    }

    /// Changes a block in slot, on a copy if an older image of it is in use.
    ///
    /// Uses a credit the first time in the transaction. `f` runs under `[cache.block]`: it edits
    /// bytes and takes no lock. A freed block is no reason to panic, because a block of a damaged
    /// image may have two owners.
    pub fn update<R>(&self, block: &BlockRef, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let tid = self.tid();
        let mut marks = block.lock();
        let is_new = marks.begin_change(tid);
        let done = f(marks.data.make_mut());
        drop(marks);
        if is_new {
            self.join(block);
            self.with_lists(|lists| lists.blocks.push(block.clone()));
        }
        done
    }

    /// A new metadata block of zeros, changed in this transaction.
    pub fn create(&self, no: BlockNo, seal: Seal) -> BlockRef {
        let tid = self.tid();
        let mut is_new = false;
        let block = self.journal.cache.create(no, |marks| {
            marks.seal = seal;
            marks.created = Some(tid);
            marks.forgotten = false;
            is_new = marks.dirty != Some(tid);
            marks.dirty = Some(tid);
        });
        if is_new {
            self.join(&block);
            self.with_lists(|lists| lists.blocks.push(block.clone()));
        }
        block
    }

    /// Whether this transaction has fast commits. A block that is freed in it may then be named by
    /// one, and must not be used again before the transaction is durable.
    #[inline]
    pub fn has_fast_commits(&self) -> bool {
        self.journal.has_fast(self.tid())
    }

    /// Allows no further fast commit of this transaction. For changes that the records of other
    /// inodes depend on: only a full commit makes them durable.
    pub fn bar_fast(&self) {
        self.journal.bar_fast(self.tid());
    }

    /// Frees a metadata block: it leaves this transaction, its older images in the log are revoked,
    /// and no checkpoint writes it once this transaction is durable.
    pub fn forget(&self, no: BlockNo) {
        let tid = self.tid();
        let used = self.revoked.replace(self.revoked.get() + 1);
        if used.is_multiple_of(REVOKES_PER_CREDIT) {
            self.use_credit();
        }
        let block = self.journal.cache.peek(no);
        let mut born_here = false;
        if let Some(block) = &block {
            let mut marks = block.lock();
            marks.begin_change(tid);
            marks.dirty = None;
            marks.forgotten = true;
            born_here = marks.created.take() == Some(tid);
        }
        self.with_lists(|lists| {
            if !born_here && !injected("revoke-forgotten") {
                lists.revokes.push(no);
            }
            lists.forgotten.extend(block);
        });
    }

    /// Makes sure that a block into which an object will be rendered has a credit in this
    /// transaction.
    pub fn join(&self, block: &BlockRef) {
        if block.charge(self.tid()) {
            self.use_credit();
        }
    }

    /// Has a replacement admission do what it does before each use of a block;
    /// [`join`](Self::join) is called before the first only.
    #[doc(hidden)]
    #[inline]
    pub fn look(&self) {
        if let Some(replacement) = self.journal.gate.replacement.get() {
            replacement.before_use();
        }
    }

    /// Has `obj` rendered by this transaction's commit.
    pub fn dirty(&self, obj: Arc<dyn Dirty>) {
        self.with_lists(|lists| lists.objects.push(obj));
    }

    /// Credits that are left.
    pub fn credits_left(&self) -> u32 {
        u32::try_from(self.credits.get()).unwrap_or(0)
    }

    /// Gets `n` more credits; false if the transaction has too few left.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error.
    pub fn extend(&self, n: u32) -> Result<bool> {
        self.journal.check()?;
        let got = self.journal.take_credits(self.slot, i64::from(n));
        if got {
            self.credits.set(self.credits.get() + i64::from(n));
        }
        Ok(got)
    }

    /// Makes sure that at least `n` credits are left; false if the caller must
    /// [`restart`](Self::restart) first.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error.
    pub fn ensure(&self, n: u32) -> Result<bool> {
        let missing = i64::from(n) - self.credits.get();
        if missing <= 0 { Ok(true) } else { self.extend(must_fit(missing)) }
    }

    /// Ends this handle's part and starts again with `n` credits, perhaps in a later transaction.
    /// The changes so far may become durable without the later ones. The caller holds no lock that
    /// a commit or the holder of another handle may need.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error, `TooBig` if no transaction has `n`
    /// credits. The handle is unusable then and may only be dropped.
    pub fn restart(&self, n: u32) -> Result<()> {
        self.leave();
        let next = self.journal.start(n)?;
        self.tid.set(next.tid());
        self.credits.set(next.credits.get());
        self.revoked.set(0);
        *self.rank.borrow_mut() = next.rank.borrow_mut().take();
        // `next` is pinned in the same slot; this handle takes over its pin.
        std::mem::forget(next);
        Ok(())
    }

    /// Sets credits aside for a handle that is started later, in the transaction that runs then,
    /// without waiting for credits; `None` if too many are set aside already.
    pub fn reserve(&self, n: u32) -> Option<Reservation<'s>> {
        self.journal.reserve(self.slot, n)
    }

    /// Ends this handle's part of the transaction.
    #[inline(always)]
    pub fn stop(self) {
        // Here, so that it is inlined: `drop` is not. Afterwards nothing is left to drop.
        self.leave();
        std::mem::forget(self);
    }

    fn use_credit(&self) {
        let left = self.credits.get() - 1;
        self.credits.set(left);
        if left < 0 {
            // An estimate was too low. The log keeps slack for this; tests assert that the count is
            // 0.
            self.journal.count_overrun();
        }
    }

    /// J2 and J3: the handle's transaction is the running one still.
    #[inline]
    fn assert_inside(&self) {
        let inside = || self.journal.running() == self.tid();
        debug_assert!(thread::panicking() || inside(), "J2, J3: the transaction moved on");
    }

    fn with_lists(&self, f: impl FnOnce(&mut super::slot::ChangeLists)) {
        self.assert_inside();
        if !self.slot.slot.used.load(Ordering::Relaxed) {
            self.slot.slot.used.store(true, Ordering::Relaxed);
        }
        f(&mut self.slot.slot.lists.lock());
    }

    #[inline(always)]
    fn leave(&self) {
        if let Some(rank) = self.rank.borrow_mut().take() {
            drop(rank);
            self.assert_inside();
            self.journal.leave(self.slot, self.credits.replace(0));
        }
    }
}

impl Drop for Handle<'_> {
    #[inline]
    fn drop(&mut self) {
        self.leave();
    }
}

impl<'s> Reservation<'s> {
    pub(super) fn new(journal: &'s Journal, credits: i64) -> Self {
        Self { journal, credits }
    }

    /// Starts the handle. It joins even a transaction that is draining.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error.
    pub fn start(mut self) -> Result<Handle<'s>> {
        let journal = self.journal;
        let (slot, tid) = journal.enter(Joiner::Reserved)?;
        // The credits are the handle's from here on: the next transaction keeps none free for them.
        let credits = std::mem::take(&mut self.credits);
        journal.unreserve(credits);
        Ok(Handle::new(journal, slot, tid, credits))
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.journal.unreserve(self.credits);
    }
}
