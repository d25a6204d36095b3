//! Counts of free clusters, and claims on them.
//!
//! A caller claims clusters against the reserves before a search, and subtracts the allocated ones
//! after it. The counts order no other data.
//!
//! | variant | the count | a claim |
//! |---|---|---|
//! | `Super` | stored under the volume's lock, which the caller holds | exact |
//! | `OneLock` | stored under its lock, together with the group's | advisory: checks, but claims nothing |
//! | `PerCpu` | a part for each slot, moved to the whole under a lock when it exceeds a batch | exact: adds to the claimed clusters, then compares; by the whole far from the limit, else by sums |

use super::locks;
use nextent::lab_seams::alloc::{Privilege, signed};
use nextent_num::{must_fit, to_usize};
use nextent_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use nextent_sync::{CachePadded, KindMutex, LockKind, PerCore, available_cores};

/// Number of hashed locks of groups: 4 << log2(32), as in a kernel for 32 CPUs or more.
pub(super) const GROUP_LOCKS: usize = 128;
/// Largest pool for operations that must not fail, as in the default design.
const POOL_LIMIT: u64 = 4096;

/// Clusters that a privilege may not take.
#[derive(Clone, Copy)]
pub(super) struct Reserves {
    root: i64,
    pool: i64,
}

impl Reserves {
    /// The reserves of a volume of `total` clusters, `root` of them root's.
    pub(super) fn new(total: u64, root: u64) -> Self {
        Self { root: signed(root), pool: signed((total / 50).min(POOL_LIMIT)) }
    }

    fn withheld_from(self, privilege: Privilege) -> i64 {
        match privilege {
            Privilege::User => self.root + self.pool,
            Privilege::Root => self.pool,
            Privilege::Reserved => 0,
        }
    }
}

/// The count of free clusters.
pub(super) struct Space {
    reserves: Reserves,
    count: Count,
}

enum Count {
    Super(LockedCount),
    OneLock(LockedCount, KindMutex<()>),
    PerCpu { free: Box<PerCpu>, claimed: Box<PerCpu>, groups: Box<[CachePadded<KindMutex<()>>]> },
}

/// A count that is stored under a lock and read with or without it. Relaxed: reads without the lock
/// are hints.
struct LockedCount {
    free: AtomicI64,
}

impl LockedCount {
    fn new(free: i64) -> Self {
        Self { free: AtomicI64::new(free) }
    }

    fn left(&self) -> i64 {
        self.free.load(Ordering::Relaxed)
    }

    fn add(&self, n: i64) {
        self.free.store(self.free.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

impl Space {
    pub(super) fn under_super(free: u64, reserves: Reserves) -> Self {
        Self { reserves, count: Count::Super(LockedCount::new(signed(free))) }
    }

    pub(super) fn one_lock(free: u64, reserves: Reserves, kind: LockKind) -> Self {
        let lock = KindMutex::of_kind(kind, &locks::COUNTERS, ());
        Self { reserves, count: Count::OneLock(LockedCount::new(signed(free)), lock) }
    }

    pub(super) fn per_cpu(free: u64, reserves: Reserves, kind: LockKind) -> Self {
        let lock = |_| CachePadded::new(KindMutex::of_kind(kind, &locks::GROUP_COUNT, ()));
        let count = Count::PerCpu {
            free: Box::new(PerCpu::new(signed(free), kind)),
            claimed: Box::new(PerCpu::new(0, kind)),
            groups: (0..GROUP_LOCKS).map(lock).collect(),
        };
        Self { reserves, count }
    }

    /// Claims `n` clusters, until [`Self::take`] or [`Self::end_claim`]. Returns whether that fits.
    pub(super) fn claim(&self, n: u32, privilege: Privilege) -> bool {
        let (n, withheld) = (i64::from(n), self.reserves.withheld_from(privilege));
        match &self.count {
            Count::Super(plain) | Count::OneLock(plain, _) => plain.left() - withheld >= n,
            Count::PerCpu { free, claimed, .. } => {
                claimed.add(n);
                let fits = fits(free, claimed, withheld);
                if !fits {
                    claimed.add(-n);
                }
                fits
            }
        }
    }

    /// Claims `want` clusters, or half as many, and so on down to `min`.
    pub(super) fn claim_some(&self, want: u32, min: u32, privilege: Privilege) -> Option<u32> {
        let mut n = want;
        while !self.claim(n, privilege) {
            if n <= min {
                return None;
            }
            n = (n / 2).max(min);
        }
        Some(n)
    }

    /// Ends a claim of which `taken` clusters were allocated in group `group`, whose count is
    /// `of_group`.
    pub(super) fn take(&self, claimed: u32, taken: u32, group: u32, of_group: &AtomicU32) {
        let n = i64::from(taken);
        match &self.count {
            Count::Super(plain) => {
                subtract(of_group, taken);
                plain.add(-n);
            }
            Count::OneLock(plain, lock) => {
                let _guard = lock.lock();
                subtract(of_group, taken);
                plain.add(-n);
            }
            Count::PerCpu { groups, .. } => {
                let guard = groups[to_usize(group) % GROUP_LOCKS].lock();
                subtract(of_group, taken);
                drop(guard);
            }
        }
        self.end_claim(claimed, taken);
    }

    /// Ends a claim of which `taken` clusters were allocated. The caller updates the group's count.
    pub(super) fn end_claim(&self, claimed: u32, taken: u32) {
        if let Count::PerCpu { free, claimed: all, .. } = &self.count {
            // In this order the two counts never exceed the free clusters.
            free.add(-i64::from(taken));
            all.add(-i64::from(claimed));
        }
    }

    /// Adds `n` free clusters to the volume's count. The caller updates the group's count.
    pub(super) fn give_volume(&self, n: u32) {
        if let Count::PerCpu { free, .. } = &self.count {
            free.add(i64::from(n));
        }
    }

    /// Adds `n` free clusters of a group. `OneLock` takes the lock for each cluster, as the
    /// original.
    pub(super) fn give(&self, n: u32, group: u32, of_group: &AtomicU32) {
        match &self.count {
            Count::Super(plain) => {
                add_to(of_group, n);
                plain.add(i64::from(n));
            }
            Count::OneLock(plain, lock) => {
                for _ in 0..n {
                    let _guard = lock.lock();
                    add_to(of_group, 1);
                    plain.add(1);
                }
            }
            Count::PerCpu { free, groups, .. } => {
                let guard = groups[to_usize(group) % GROUP_LOCKS].lock();
                add_to(of_group, n);
                drop(guard);
                free.add(i64::from(n));
            }
        }
    }

    /// Subtracts a cluster of a group that is found to be in use.
    pub(super) fn mark(&self, group: u32, of_group: &AtomicU32) {
        self.take(0, 1, group, of_group);
    }

    /// Free clusters.
    pub(super) fn free(&self) -> u64 {
        let free = match &self.count {
            Count::Super(plain) | Count::OneLock(plain, _) => plain.free.load(Ordering::Relaxed),
            Count::PerCpu { free, .. } => free.sum(),
        };
        free.max(0).unsigned_abs()
    }

    /// Clusters that `privilege` may still take.
    pub(super) fn available(&self, privilege: Privilege) -> u64 {
        let left = match &self.count {
            Count::Super(plain) | Count::OneLock(plain, _) => plain.left(),
            Count::PerCpu { free, claimed, .. } => {
                let claimed = claimed.sum();
                free.sum() - claimed
            }
        };
        (left - self.reserves.withheld_from(privilege)).max(0).unsigned_abs()
    }
}

/// Whether all claims, with the caller's, fit beside the reserves.
fn fits(free: &PerCpu, claimed: &PerCpu, withheld: i64) -> bool {
    let approximate = free.approximate() - claimed.approximate() - withheld;
    if approximate > free.watermark() {
        return true;
    }
    // An allocation is subtracted from `free` first, so in this order nothing is counted twice.
    let claimed = claimed.sum();
    free.sum() - claimed - withheld >= 0
}

fn subtract(count: &AtomicU32, n: u32) {
    count.store(count.load(Ordering::Relaxed).saturating_sub(n), Ordering::Relaxed);
}

fn add_to(count: &AtomicU32, n: u32) {
    count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// A count with a part for each slot.
struct PerCpu {
    /// Stored under the lock, read without it. Relaxed: approximate.
    whole: CachePadded<AtomicI64>,
    lock: KindMutex<()>,
    /// Relaxed: a thread that sums them holds the lock, under which a part moves to the whole.
    parts: PerCore<AtomicI64>,
    batch: i64,
}

impl PerCpu {
    fn new(value: i64, kind: LockKind) -> Self {
        Self {
            whole: CachePadded::new(AtomicI64::new(value)),
            lock: KindMutex::of_kind(kind, &locks::PER_CPU, ()),
            parts: PerCore::new(|_| AtomicI64::new(0)),
            batch: (2 * must_fit::<i64, _>(available_cores())).max(32),
        }
    }

    fn add(&self, n: i64) {
        let part = self.parts.here();
        let mut have = part.load(Ordering::Relaxed);
        while (have + n).abs() < self.batch {
            let swap =
                part.compare_exchange_weak(have, have + n, Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return,
                Err(now) => have = now,
            }
        }
        let _guard = self.lock.lock();
        let more = part.swap(0, Ordering::Relaxed) + n;
        self.whole.store(self.whole.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// The count without the parts.
    fn approximate(&self) -> i64 {
        self.whole.load(Ordering::Relaxed)
    }

    fn sum(&self) -> i64 {
        let _guard = self.lock.lock();
        let parts: i64 = self.parts.used().map(|part| part.load(Ordering::Relaxed)).sum();
        self.approximate() + parts
    }

    /// Twice the largest error of two approximate counts.
    fn watermark(&self) -> i64 {
        4 * self.batch * must_fit::<i64, _>(self.parts.used().count())
    }
}
