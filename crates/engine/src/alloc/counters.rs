//! Free-space accounting: an escrow counter with a quota for each per-thread slot.
//!
//! - `global` counts the clusters available to users and not drawn by a slot. Each slot draws a
//!   quota from it, and returns a surplus to it, in large steps.
//! - In steady state a thread stores only to its slot's cache line, and reads `global`, which does
//!   not change.
//!
//! # Invariants
//!
//! - Free clusters = `global` + all quotas + reserves. The reserves are root's and the pool's.
//! - `global` is negative by the clusters that were allocated from the reserves.
//! - A claim is refused, or granted from a reserve, only after a [recall](Quotas::recall) of all
//!   quotas. Counts are exact then.
//! - Slots do not use quotas while `global` is negative. Freed clusters go to `global` while it is
//!   low, so the reserves fill first. An unprivileged caller never gets clusters of a reserve.
//!
//! Lock rank: `alloc.recall` (440), one recall at a time.

use super::locks;
use super::quotas::Quotas;
use super::request::Privilege;
use nextent_num::{must_fit, to_u64};
use nextent_sync::atomic::{AtomicI64, Ordering};
use nextent_sync::{CachePadded, Mutex, injected};

/// Most clusters drawn at once.
const BATCH: i64 = 8192;
/// Quota above which a slot returns half.
const HIGH: u64 = 2 * BATCH.unsigned_abs();
/// Value of `global` below which it takes all freed clusters.
const LOW: i64 = 1024;
/// Largest pool for operations that must not fail.
const POOL_LIMIT: u64 = 4096;

/// A count of clusters as a signed number. Saturates, because the counts of a damaged volume may
/// exceed any real volume.
pub fn signed(clusters: u64) -> i64 {
    i64::try_from(clusters).unwrap_or(i64::MAX).min(i64::MAX >> 2)
}

/// The escrow counter of the volume's free clusters.
pub(crate) struct Counters {
    /// Available to users and not drawn by a slot. Relaxed: the count publishes no other data.
    global: CachePadded<AtomicI64>,
    /// Drawn by each slot.
    quotas: Quotas,
    /// Root's reserve.
    root: u64,
    /// The reserve for operations that must not fail.
    pool: u64,
    recall: Mutex<()>,
}

impl Counters {
    /// Counters for a volume of `total` clusters, `free` of them free, `root` reserved for root.
    pub(crate) fn new(total: u64, free: u64, root: u64) -> Self {
        let pool = (total / 50).min(POOL_LIMIT);
        let global = signed(free) - signed(root) - signed(pool);
        Self {
            global: CachePadded::new(AtomicI64::new(global)),
            quotas: Quotas::new(),
            root,
            pool,
            recall: Mutex::new(&locks::RECALL, ()),
        }
    }

    /// Claims `min` to `want` clusters; none if fewer than `min` are available to `privilege`.
    pub(crate) fn claim(&self, min: u32, want: u32, privilege: Privilege) -> Option<u32> {
        let enough = |have: u64| have.checked_sub(u64::from(want));
        if self.global.load(Ordering::Relaxed) >= 0 && self.quotas.update(enough) {
            return Some(want);
        }
        self.draw(want).or_else(|| self.claim_exactly(min, want, privilege))
    }

    /// Claims `want` from `global`, and draws a quota; none if `global` is less than `want`.
    fn draw(&self, want: u32) -> Option<u32> {
        let (slots, may_keep) = (signed(to_u64(self.quotas.len())), Quotas::available_to_caller());
        let need = i64::from(want);
        let mut have = self.global.load(Ordering::Relaxed);
        if injected("counter-lost-update") && have >= need {
            self.global.store(have - need, Ordering::Relaxed);
            return Some(want);
        }
        while have >= need {
            let batch = if may_keep { ((have - need) / (8 * slots)).min(BATCH) } else { 0 };
            let left = have - need - batch;
            let swap =
                self.global.compare_exchange_weak(have, left, Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => {
                    self.deposit(batch.unsigned_abs());
                    return Some(want);
                }
                Err(now) => have = now,
            }
        }
        None
    }

    /// Adds to the caller's quota, and what exceeds its limit to `global`.
    fn deposit(&self, n: u64) {
        if n == 0 {
            return;
        }
        let mut surplus = 0;
        let kept = self.quotas.update(|have| {
            let all = have + n;
            surplus = if all > HIGH { all / 2 } else { 0 };
            Some(all - surplus)
        });
        let rest = if kept { surplus } else { n };
        if rest > 0 {
            self.global.fetch_add(signed(rest), Ordering::Relaxed);
        }
    }

    #[cold]
    fn claim_exactly(&self, min: u32, want: u32, privilege: Privilege) -> Option<u32> {
        let _one = self.recall.lock();
        let drawn = self.quotas.recall();
        self.global.fetch_add(signed(drawn), Ordering::Relaxed);
        let mut have = self.global.load(Ordering::Relaxed);
        loop {
            let take = (have + self.reserves(privilege)).clamp(0, i64::from(want));
            if take < i64::from(min) {
                return None;
            }
            let swap = self.global.compare_exchange_weak(
                have,
                have - take,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                Ok(_) => return Some(must_fit(take)),
                Err(now) => have = now,
            }
        }
    }

    fn reserves(&self, privilege: Privilege) -> i64 {
        match privilege {
            Privilege::User => 0,
            Privilege::Root => signed(self.root),
            Privilege::Reserved => signed(self.root + self.pool),
        }
    }

    /// Returns `n` clusters that were freed, or claimed and not used.
    pub(crate) fn release(&self, n: u64) {
        if self.global.load(Ordering::Relaxed) < LOW {
            self.global.fetch_add(signed(n), Ordering::Relaxed);
            return;
        }
        self.deposit(n);
    }

    /// Subtracts clusters that replay marked as in use, even below zero.
    pub(crate) fn subtract_used(&self, n: u64) {
        self.global.fetch_sub(signed(n), Ordering::Relaxed);
    }

    fn undrawn(&self) -> i64 {
        self.global.load(Ordering::Relaxed) + signed(self.quotas.sum())
    }

    /// Clusters not in use.
    pub(crate) fn free(&self) -> u64 {
        (self.undrawn() + self.reserves(Privilege::Reserved)).max(0).unsigned_abs()
    }

    /// Clusters available to `privilege`.
    pub(crate) fn available(&self, privilege: Privilege) -> u64 {
        (self.undrawn() + self.reserves(privilege)).max(0).unsigned_abs()
    }

    /// Whether too little is left to reserve windows.
    pub(crate) fn is_low(&self) -> bool {
        self.global.load(Ordering::Relaxed) < LOW
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;
    use nextent_sync::{Arc, thread};

    #[test]
    fn reserves_are_available_by_privilege() {
        let counters = Counters::new(5000, 1000, 200);
        assert_eq!(counters.available(Privilege::User), 700);
        assert_eq!(counters.claim(1, 690, Privilege::User), Some(690));
        assert_eq!(counters.claim(1, 50, Privilege::User), Some(10));
        assert_eq!(counters.claim(1, 1, Privilege::User), None);
        assert_eq!(counters.claim(1, 150, Privilege::Root), Some(150));
        counters.release(20);
        assert_eq!(counters.claim(1, 1, Privilege::User), None, "root's reserve fills first");
        assert_eq!(counters.claim(71, 90, Privilege::Root), None);
        assert_eq!(counters.claim(1, 90, Privilege::Root), Some(70));
        assert_eq!(counters.claim(1, 200, Privilege::Reserved), Some(100));
        assert_eq!(counters.free(), 0);
        counters.release(350);
        assert_eq!((counters.free(), counters.available(Privilege::User)), (350, 50));
    }

    #[test]
    fn concurrent_claims_grant_every_cluster_once() {
        let counters = Arc::new(Counters::new(1_000_000, 300_000, 10_000));
        let users = 300_000 - 10_000 - 4096;
        let taken: u64 = (0..8)
            .map(|i| {
                let counters = Arc::clone(&counters);
                thread::spawn(move || {
                    let (mut taken, mut turn) = (0, 0u32);
                    while let Some(n) = counters.claim(1, 1 + i * 3, Privilege::User) {
                        taken += u64::from(n);
                        turn += 1;
                        if turn < 100_000 && turn.is_multiple_of(5) {
                            counters.release(1);
                            taken -= 1;
                        }
                    }
                    taken
                })
            })
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(taken, users);
        assert_eq!((counters.free(), counters.available(Privilege::User)), (300_000 - users, 0));
    }
}
