//! The inode cache: inodes in memory by number, in shards.
//!
//! Invariants:
//!
//! - There is at most one [`Inode`] object for a number. An object is evicted only if the cache has
//!   the only reference and [`Inode::is_idle`] says that its table block, as it is in memory,
//!   contains all of its state. A commit references the objects that it renders until it is
//!   durable.
//! - Pins outlive objects. On eviction they move into a table of the shard, and back into the next
//!   object. So a server's clients can know millions of inodes at the cost of the pins alone.
//! - An inode without a name is never idle. So an inode without an object has a name, and removing
//!   its last pin frees nothing.
//!
//! Objects are kept in *cache groups* of 16 consecutive numbers, which on a usual volume fill one
//! block of the inode table. An object keeps its table block in memory, so a group costs the block
//! once plus a little for each object. Each shard has a bound in bytes. Above it a clock algorithm
//! visits the groups and evicts idle objects of groups that were not used since the last visit.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use nextent_num::{low_half, to_usize};
use nextent_ondisk::{Geometry, InodeNo};
use nextent_sync::atomic::{Ordering, fence};
use nextent_sync::{Arc, CachePadded, Mutex};

use super::locks;
use super::object::Inode;

/// Bounds of the number of shards: powers of two.
const MAX_SHARDS: usize = 1024;
const MIN_SHARDS: usize = 16;
/// Bytes of the bound for each shard.
const SHARD_BYTES: usize = 64 << 10;
/// Inodes of a cache group.
const GROUP_INODES: usize = 16;
const GROUP_NUMBERS: u32 = 16;
const _: () = assert!(GROUP_INODES == nextent_num::usize_of_u32(GROUP_NUMBERS));
/// Groups that the clock visits for each inode that is inserted.
const CLOCK_STEPS: usize = 8;

/// Bytes of an object, including its allocation.
const INODE_BYTES: usize = size_of::<Inode>() + 160;
/// Bytes of a cache group without its inodes and blocks.
const GROUP_BYTES: usize = size_of::<CacheGroup>() + 64;

/// An odd number with half of its bits set, from the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes a number by one multiplication. A shard has numbers of one volume only, so numbers chosen
/// to collide slow down only their own volume.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(SPREAD).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type NumberMap<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

/// The pins of an inode without an object: low and high half, so that a table entry takes 12 bytes.
type PinHalves = [u32; 2];

/// Inodes with consecutive numbers.
#[derive(Default)]
struct CacheGroup {
    inodes: [Option<Arc<Inode>>; GROUP_INODES],
    /// Used since the last visit of the clock.
    referenced: bool,
}

/// `[icache.shard]`
#[derive(Default)]
struct Shard {
    groups: NumberMap<Box<CacheGroup>>,
    /// The number of each group in `groups` once, in the order of the clock.
    clock: VecDeque<u32>,
    /// Inodes in all groups.
    inodes: usize,
    /// Pins of inodes that have no object.
    pinned: NumberMap<PinHalves>,
    /// Raised when a changed inode is evicted: contents of a table block that were read before that
    /// are out of date.
    evictions: u64,
    /// Size in bytes from which on the clock scans again.
    scan_at: usize,
}

/// The contents of the cache, for reports and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InodeCacheUsage {
    /// Inode objects.
    pub(crate) inodes: usize,
    /// Their bytes, including table blocks.
    pub(crate) bytes: usize,
    /// Pinned inodes without an object.
    pub(crate) pinned: usize,
}

/// Which cached objects to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrink {
    /// As many as needed to get below the bound.
    ToBound,
    /// All that were not used since the last such call, or since the cache was last at its bound.
    Unused,
    /// All that are not in use now.
    All,
}

/// The inode cache.
pub(crate) struct InodeCache {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Bytes that a shard may keep of idle inodes.
    bound: usize,
    /// Bytes of a group's table blocks.
    blocks: usize,
}

/// Whether an inode that only the cache references may be evicted.
pub(crate) type MayEvict<'a> = &'a dyn Fn(&Inode) -> bool;

impl InodeCache {
    /// A cache that keeps up to `bytes` of idle inodes.
    pub(crate) fn new(bytes: usize, geometry: &Geometry) -> Self {
        let shards = (bytes / SHARD_BYTES).clamp(MIN_SHARDS, MAX_SHARDS).next_power_of_two();
        let shard = || CachePadded::new(Mutex::new(&locks::ICACHE, Shard::default()));
        let block = geometry.block_len();
        let bytes_of_table = GROUP_INODES * usize::from(geometry.inode_size);
        let blocks = bytes_of_table.max(block) / block * (block + nextent_store::BLOCK_OVERHEAD);
        Self { shards: (0..shards).map(|_| shard()).collect(), bound: bytes / shards, blocks }
    }

    fn shard(&self, ino: InodeNo) -> &Mutex<Shard> {
        let mixed = u64::from(group_of(ino).0).wrapping_mul(SPREAD);
        &self.shards[to_usize(mixed >> (64 - self.shards.len().ilog2()))]
    }

    /// The inode `ino`, which `load` makes if it is not cached. `load` runs without a lock and may
    /// run more than once. Takes `[icache.shard]`.
    pub(crate) fn get<E>(
        &self,
        ino: InodeNo,
        mut load: impl FnMut() -> Result<Inode, E>,
        may_evict: impl Fn(&Inode) -> bool,
    ) -> Result<Arc<Inode>, E> {
        loop {
            let before = {
                let mut shard = self.shard(ino).lock();
                if let Some(inode) = shard.find(ino) {
                    return Ok(inode);
                }
                shard.evictions
            };
            let loaded = load()?;
            let mut shard = self.shard(ino).lock();
            if let Some(inode) = shard.find(ino) {
                return Ok(inode);
            }
            if shard.evictions == before {
                let inode = shard.insert(loaded);
                self.evict_some(&mut shard, &may_evict);
                return Ok(inode);
            }
        }
    }

    /// Removes `times` pins of `ino`. If these were the last, returns the object, if there is one
    /// and it cannot be evicted, so that the caller can free a file without a name. Takes
    /// `[icache.shard]`.
    ///
    /// # Errors
    /// If there are fewer pins.
    pub(crate) fn unpin(
        &self,
        ino: InodeNo,
        times: u64,
        may_evict: MayEvict<'_>,
    ) -> Result<Option<Arc<Inode>>, ()> {
        let mut shard = self.shard(ino).lock();
        let Some(inode) = shard.get_unmarked(ino) else {
            return shard.unpin_without_object(ino, times).map(|()| None);
        };
        let pins = inode
            .pins
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |pins| pins.checked_sub(times));
        if pins.map_err(|_| ())? != times {
            return Ok(None);
        }
        Ok(if shard.evict_one(ino, may_evict) { None } else { shard.get_unmarked(ino).cloned() })
    }

    /// Evicts unused inodes. Takes `[icache.shard]`, one after another.
    pub(crate) fn shrink(&self, how: Shrink, may_evict: MayEvict<'_>) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut steps = shard.clock.len();
            while steps > 0 && (how != Shrink::ToBound || shard.bytes(self.blocks) > self.bound) {
                steps -= 1;
                shard.visit_next(how == Shrink::All, may_evict);
            }
            shard.scan_at = 0;
            shard.shrink_tables();
        }
    }

    /// The present contents. Takes `[icache.shard]`, one after another.
    pub(crate) fn usage(&self) -> InodeCacheUsage {
        let mut all = InodeCacheUsage::default();
        for shard in &self.shards {
            let shard = shard.lock();
            all.inodes += shard.inodes;
            all.bytes += shard.bytes(self.blocks);
            all.pinned += shard.pinned.len();
        }
        all
    }

    /// All cached inodes that something beside the cache references. Takes `[icache.shard]`, one
    /// after another.
    pub(crate) fn referenced(&self) -> Vec<Arc<Inode>> {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let all = shard.groups.values().flat_map(|group| group.inodes.iter().flatten());
            all.filter(|inode| Arc::strong_count(inode) > 1).map(Arc::clone).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| of_shard(shard)).collect()
    }

    /// The pinned inodes, with or without an object. Takes `[icache.shard]`, one after another.
    pub(crate) fn pinned(&self) -> Vec<InodeNo> {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let all = shard.groups.values().flat_map(|group| group.inodes.iter().flatten());
            let objects = all.filter(|inode| inode.pins.load(Ordering::SeqCst) > 0);
            let numbers = shard.pinned.keys().map(|ino| InodeNo(*ino));
            objects.map(|inode| inode.ino).chain(numbers).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| of_shard(shard)).collect()
    }

    /// All cached inodes for which `wanted` returns true. Takes `[icache.shard]`, one after
    /// another.
    pub(crate) fn select(&self, wanted: impl Fn(&Inode) -> bool) -> Vec<Arc<Inode>> {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let all = shard.groups.values().flat_map(|group| group.inodes.iter().flatten());
            all.filter(|inode| wanted(inode)).map(Arc::clone).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| of_shard(shard)).collect()
    }

    /// Advances the clock by a few groups if the shard is too large.
    fn evict_some(&self, shard: &mut Shard, may_evict: MayEvict<'_>) {
        if shard.bytes(self.blocks) <= self.bound.max(shard.scan_at) {
            return;
        }
        let (before, mut visited) = (shard.inodes, false);
        for _ in 0..CLOCK_STEPS {
            visited |= shard.visit_next(false, may_evict);
            if shard.bytes(self.blocks) <= self.bound {
                break;
            }
        }
        // If all visited inodes are in use, the next scan waits until the shard has grown by a
        // quarter.
        let in_vain = visited && shard.inodes == before;
        let bytes = shard.bytes(self.blocks);
        shard.scan_at = if in_vain { bytes + bytes / 4 } else { 0 };
    }
}

/// The cache group of an inode and its index there.
fn group_of(ino: InodeNo) -> (u32, usize) {
    let index = ino.0.wrapping_sub(1);
    (index / GROUP_NUMBERS, to_usize(index % GROUP_NUMBERS))
}

impl Shard {
    fn bytes(&self, blocks: usize) -> usize {
        self.groups.len() * (GROUP_BYTES + blocks) + self.inodes * INODE_BYTES
    }

    /// The object, if it is cached, without marking its group as used.
    fn get_unmarked(&self, ino: InodeNo) -> Option<&Arc<Inode>> {
        let (group, at) = group_of(ino);
        self.groups.get(&group)?.inodes[at].as_ref()
    }

    #[inline]
    fn find(&mut self, ino: InodeNo) -> Option<Arc<Inode>> {
        let (group, at) = group_of(ino);
        let group = self.groups.get_mut(&group)?;
        let inode = group.inodes[at].as_ref()?;
        if !group.referenced {
            group.referenced = true;
        }
        Some(Arc::clone(inode))
    }

    fn insert(&mut self, inode: Inode) -> Arc<Inode> {
        let (no, at) = group_of(inode.ino);
        if let Some([low, high]) = self.pinned.remove(&inode.ino.0) {
            let pins = u64::from(high) << 32 | u64::from(low);
            inode.pins.store(pins, Ordering::SeqCst);
        }
        let inode = Arc::new(inode);
        let clock = &mut self.clock;
        let group = self.groups.entry(no).or_insert_with(|| {
            clock.push_back(no);
            Box::default()
        });
        group.inodes[at] = Some(Arc::clone(&inode));
        self.inodes += 1;
        inode
    }

    /// Evicts the idle inodes of the next group of the clock, unless it was used since the last
    /// visit; with `used` in any case. Returns whether it visited the inodes.
    fn visit_next(&mut self, used: bool, may_evict: MayEvict<'_>) -> bool {
        let Some(no) = self.clock.pop_front() else { return false };
        let Some(group) = self.groups.get_mut(&no) else { return false };
        if std::mem::take(&mut group.referenced) && !used {
            self.clock.push_back(no);
            return false;
        }
        let mut left = 0;
        for entry in &mut group.inodes {
            let Some(inode) = entry else { continue };
            if let Some(evicted) = try_evict(inode, may_evict) {
                evicted.note(inode.ino, &mut self.pinned, &mut self.evictions);
                *entry = None;
                self.inodes -= 1;
            } else {
                left += 1;
            }
        }
        if left == 0 {
            self.groups.remove(&no);
        } else {
            self.clock.push_back(no);
        }
        true
    }

    /// Evicts `ino` if it is idle. A group that becomes empty stays until the clock's next visit.
    fn evict_one(&mut self, ino: InodeNo, may_evict: MayEvict<'_>) -> bool {
        let (no, at) = group_of(ino);
        let Some(group) = self.groups.get_mut(&no) else { return false };
        let Some(inode) = &group.inodes[at] else { return false };
        let Some(evicted) = try_evict(inode, may_evict) else { return false };
        evicted.note(ino, &mut self.pinned, &mut self.evictions);
        group.inodes[at] = None;
        self.inodes -= 1;
        true
    }

    fn unpin_without_object(&mut self, ino: InodeNo, times: u64) -> Result<(), ()> {
        let pins = self.pinned.get_mut(&ino.0).ok_or(())?;
        let have = u64::from(pins[1]) << 32 | u64::from(pins[0]);
        match have.checked_sub(times).ok_or(())? {
            0 => drop(self.pinned.remove(&ino.0)),
            left => *pins = halves(left),
        }
        Ok(())
    }

    /// Shrinks tables that have become much smaller.
    fn shrink_tables(&mut self) {
        fn small(capacity: usize, len: usize) -> bool {
            capacity > 64 && len < capacity / 4
        }
        if small(self.groups.capacity(), self.groups.len()) {
            self.groups.shrink_to(2 * self.groups.len());
        }
        if small(self.pinned.capacity(), self.pinned.len()) {
            self.pinned.shrink_to(2 * self.pinned.len());
        }
        if small(self.clock.capacity(), self.clock.len()) {
            self.clock.shrink_to(2 * self.clock.len());
        }
    }
}

/// What remains of an evicted inode.
struct Evicted {
    pins: u64,
    changed: bool,
}

impl Evicted {
    fn note(self, ino: InodeNo, pinned: &mut NumberMap<PinHalves>, evictions: &mut u64) {
        if self.pins > 0 {
            pinned.insert(ino.0, halves(self.pins));
        }
        *evictions += u64::from(self.changed);
    }
}

/// Evicts `inode` if that is possible. The shard is locked, so no thread can get a new reference.
fn try_evict(inode: &Arc<Inode>, may_evict: MayEvict<'_>) -> Option<Evicted> {
    if Arc::strong_count(inode) != 1 {
        return None;
    }
    // Pairs with the release of each dropped reference: other threads' changes come before.
    fence(Ordering::Acquire);
    let pins = inode.pins.load(Ordering::SeqCst);
    may_evict(inode).then(|| Evicted { pins, changed: inode.was_changed() })
}

fn halves(pins: u64) -> PinHalves {
    [low_half(pins), low_half(pins >> 32)]
}
