//! Free space as an escrow: who may still take how much.
//!
//! `centre` holds what users may take and nobody has drawn; every slot draws a
//! quota from it in large steps and gives surplus back in large steps, so a
//! steady state of taking and freeing stores only to the slot's own line and
//! loads `centre`, which then does not change.
//!
//! Identity: free clusters = `centre` + all quotas + reserves,
//! where the reserves are root's share plus the pool. `centre` falls below zero
//! by what root and the pool's users took of the reserves.
//!
//! Exact when it matters: a slot that finds neither quota nor centre sufficient
//! [takes away](Quotas::recall) every quota into the centre before it refuses, and a reserve is
//! touched only after such a recall. While `centre` is negative quotas are not
//! used, and while it is low freed clusters go to it, so the reserves fill
//! first. A user can therefore not take what belongs to a reserve.

use super::locks;
use super::quotas::Quotas;
use super::request::Privilege;
use nextent_num::{must_fit, to_u64};
use nextent_sync::atomic::{AtomicI64, Ordering};
use nextent_sync::{CachePadded, Mutex, injected};

/// Largest quota drawn at once, in clusters.
const BATCH: i64 = 8192;
/// Quota above which a slot gives half back.
const HIGH: u64 = 2 * BATCH.unsigned_abs();
/// Below this the centre keeps what is freed.
const LOW: i64 = 1024;
/// Largest pool for what must not fail.
const POOL_LIMIT: u64 = 4096;

/// A count of clusters in sums that may be negative. Counts of a damaged volume may be larger than
/// any volume is: they count as the largest.
pub fn signed(clusters: u64) -> i64 {
    i64::try_from(clusters).unwrap_or(i64::MAX).min(i64::MAX >> 2)
}

/// Escrow of the volume's free clusters.
pub(crate) struct Counters {
    /// Available to users and not drawn. Relaxed: counts carry no other data with them.
    centre: CachePadded<AtomicI64>,
    /// Drawn by each slot.
    quotas: Quotas,
    root: u64,
    pool: u64,
    recall: Mutex<()>,
}

impl Counters {
    /// An escrow of `free` clusters on a volume of `total`, of which `root` are root's share.
    pub(crate) fn new(total: u64, free: u64, root: u64) -> Self {
        let pool = (total / 50).min(POOL_LIMIT);
        let centre = signed(free) - signed(root) - signed(pool);
        Self {
            centre: CachePadded::new(AtomicI64::new(centre)),
            quotas: Quotas::new(),
            root,
            pool,
            recall: Mutex::new(&locks::RECALL, ()),
        }
    }

    /// Takes up to `want` clusters, at least `min`, or none.
    pub(crate) fn claim(&self, min: u32, want: u32, privilege: Privilege) -> Option<u32> {
        let enough = |have: u64| have.checked_sub(u64::from(want));
        if self.centre.load(Ordering::Relaxed) >= 0 && self.quotas.update(enough) {
            return Some(want);
        }
        self.draw(want).or_else(|| self.claim_exactly(min, want, privilege))
    }

    /// Draws `want` and a quota on top from the centre, if it has plenty.
    fn draw(&self, want: u32) -> Option<u32> {
        let (slots, may_keep) = (signed(to_u64(self.quotas.len())), Quotas::available_to_caller());
        let need = i64::from(want);
        let mut have = self.centre.load(Ordering::Relaxed);
        if injected("counter-lost-update") && have >= need {
            self.centre.store(have - need, Ordering::Relaxed);
            return Some(want);
        }
        while have >= need {
            let batch = if may_keep { ((have - need) / (8 * slots)).min(BATCH) } else { 0 };
            let left = have - need - batch;
            let swap =
                self.centre.compare_exchange_weak(have, left, Ordering::Relaxed, Ordering::Relaxed);
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

    /// Adds to the caller's quota, as far as it may be so large, the rest to the centre.
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
            self.centre.fetch_add(signed(rest), Ordering::Relaxed);
        }
    }

    #[cold]
    fn claim_exactly(&self, min: u32, want: u32, privilege: Privilege) -> Option<u32> {
        let _one = self.recall.lock();
        let drawn = self.quotas.recall();
        self.centre.fetch_add(signed(drawn), Ordering::Relaxed);
        let mut have = self.centre.load(Ordering::Relaxed);
        loop {
            let take = (have + self.reserves(privilege)).clamp(0, i64::from(want));
            if take < i64::from(min) {
                return None;
            }
            let swap = self.centre.compare_exchange_weak(
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

    /// Gives `n` clusters back: freed, or claimed and not used.
    pub(crate) fn give(&self, n: u64) {
        if self.centre.load(Ordering::Relaxed) < LOW {
            self.centre.fetch_add(signed(n), Ordering::Relaxed);
            return;
        }
        self.deposit(n);
    }

    /// Takes clusters that were found in use, whatever is left.
    pub(crate) fn take(&self, n: u64) {
        self.centre.fetch_sub(signed(n), Ordering::Relaxed);
    }

    fn undrawn(&self) -> i64 {
        self.centre.load(Ordering::Relaxed) + signed(self.quotas.sum())
    }

    /// Clusters not in use.
    pub(crate) fn free(&self) -> u64 {
        (self.undrawn() + self.reserves(Privilege::Reserved)).max(0).unsigned_abs()
    }

    /// Clusters that `privilege` may still take.
    pub(crate) fn available(&self, privilege: Privilege) -> u64 {
        (self.undrawn() + self.reserves(privilege)).max(0).unsigned_abs()
    }

    /// Whether so little is left that nothing should be held in reserve for one file.
    pub(crate) fn is_low(&self) -> bool {
        self.centre.load(Ordering::Relaxed) < LOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_sync::{Arc, thread};

    #[test]
    fn reserves_open_by_privilege() {
        let counters = Counters::new(5000, 1000, 200);
        assert_eq!(counters.available(Privilege::User), 700);
        assert_eq!(counters.claim(1, 690, Privilege::User), Some(690));
        assert_eq!(counters.claim(1, 50, Privilege::User), Some(10));
        assert_eq!(counters.claim(1, 1, Privilege::User), None);
        assert_eq!(counters.claim(1, 150, Privilege::Root), Some(150));
        counters.give(20);
        assert_eq!(counters.claim(1, 1, Privilege::User), None, "root's share fills first");
        assert_eq!(counters.claim(71, 90, Privilege::Root), None);
        assert_eq!(counters.claim(1, 90, Privilege::Root), Some(70));
        assert_eq!(counters.claim(1, 200, Privilege::Reserved), Some(100));
        assert_eq!(counters.free(), 0);
        counters.give(350);
        assert_eq!((counters.free(), counters.available(Privilege::User)), (350, 50));
    }

    #[test]
    fn threads_hand_out_everything_and_nothing_twice() {
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
                            counters.give(1);
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
