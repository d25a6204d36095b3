//! The inodes in use, by number, in shards.
//!
//! There is one [`Inode`] object for a number at any time. An inode leaves the cache only when no
//! one else holds it and nothing of it waits for a commit, so what is on its table block's image
//! is the whole truth about an inode that is not here. Neighbouring numbers share a shard: they
//! mostly belong to one core's files.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use nextent_num::to_usize;
use nextent_ondisk::InodeNo;
use nextent_sync::{Arc, CachePadded, Mutex};

use super::locks;
use super::object::Inode;

const SHARDS: usize = 1024;
/// Inodes that a shard keeps without need.
const KEEP: usize = 32;
/// Inodes looked at when a shard is too full.
const SWEEP: usize = 32;

/// Odd, and half of its bits set: the golden ratio's.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes a number by one multiplication. A shard's numbers come from one volume, so whoever
/// chose them to collide slows down nobody else.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
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

#[derive(Default)]
struct Shard {
    inodes: HashMap<InodeNo, Arc<Inode>, BuildHasherDefault<Mix>>,
    /// Grows whenever inodes leave: what was read from a table block before is then not to be used.
    departures: u64,
    /// The size at which to look for inodes to drop again.
    sweep_at: usize,
}

/// The cache.
pub(crate) struct InodeCache {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

impl InodeCache {
    pub(crate) fn new() -> Self {
        let shard = || CachePadded::new(Mutex::new(&locks::ICACHE, Shard::default()));
        Self { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    fn shard(&self, ino: InodeNo) -> &Mutex<Shard> {
        let mixed = (u64::from(ino.0) >> 4).wrapping_mul(SPREAD);
        &self.shards[to_usize(mixed >> 54) % SHARDS]
    }

    /// The inode `ino`, made by `load` when it is not here. `load` runs without a lock and may
    /// run more than once. Takes `[icache.shard]`.
    pub(crate) fn get<E>(
        &self,
        ino: InodeNo,
        mut load: impl FnMut() -> Result<Inode, E>,
    ) -> Result<Arc<Inode>, E> {
        loop {
            let before = {
                let shard = self.shard(ino).lock();
                if let Some(inode) = shard.inodes.get(&ino) {
                    return Ok(Arc::clone(inode));
                }
                shard.departures
            };
            let loaded = load()?;
            let mut shard = self.shard(ino).lock();
            if let Some(inode) = shard.inodes.get(&ino) {
                return Ok(Arc::clone(inode));
            }
            if shard.departures == before {
                let inode = Arc::new(loaded);
                shard.inodes.insert(ino, Arc::clone(&inode));
                shard.sweep();
                return Ok(inode);
            }
        }
    }

    /// All that are here and that `wanted` names. Takes `[icache.shard]`, one after another.
    pub(crate) fn select(&self, wanted: impl Fn(&Inode) -> bool) -> Vec<Arc<Inode>> {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let all = shard.inodes.values().filter(|inode| wanted(inode));
            all.map(Arc::clone).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| of_shard(shard)).collect()
    }
}

impl Shard {
    fn sweep(&mut self) {
        if self.inodes.len() <= self.sweep_at.max(KEEP) {
            return;
        }
        let idle = |inode: &Arc<Inode>| Arc::strong_count(inode) == 1 && inode.is_idle();
        let gone: Vec<InodeNo> =
            self.inodes.values().filter(|inode| idle(inode)).take(SWEEP).map(|i| i.ino).collect();
        for ino in &gone {
            self.inodes.remove(ino);
        }
        self.departures += u64::from(!gone.is_empty());
        // When all are in use, the next look comes after the shard has grown by half.
        let len = self.inodes.len();
        self.sweep_at = if gone.is_empty() { len + len / 2 } else { KEEP };
    }
}
