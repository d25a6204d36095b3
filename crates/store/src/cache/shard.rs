//! The cache's sharded and bounded map from number to block.

use super::{BlockRef, Buf, MetaBlock};
use crate::flushes::Flushes;
use crate::{Error, locks};
use nextent_device::BlockDevice;
use nextent_num::{to_u64, to_usize};
use nextent_ondisk::BlockNo;
use nextent_sync::atomic::Ordering;
use nextent_sync::{Arc, CachePadded, Mutex, available_cores};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Bounds of the number of shards: powers of two.
const MIN_SHARDS: usize = 128;
const MAX_SHARDS: usize = 4096;
// 256 cores have as many shards each as few cores have. With 1024 shards in all, 96 and more cores
// contend for the locks.
const _: () = assert!(MAX_SHARDS >= SHARDS_PER_CORE * 256 && MIN_SHARDS >= SHARDS_PER_CORE * 2);
/// Shards for each core: every core uses a few blocks all the time, and cores whose blocks share a
/// shard contend for its lock.
const SHARDS_PER_CORE: usize = 16;

/// Odd, and half of its bits set: the golden ratio's.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes a number by one multiplication. The block numbers come from the volume's own image, so an
/// image whose numbers collide slows down only its own volume.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(SPREAD).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A part of the map. `[cache.shard]`
#[derive(Default)]
struct Shard {
    blocks: HashMap<u64, BlockRef, BuildHasherDefault<NumberHasher>>,
    /// Every number in `blocks` once, in the order in which the clock hand reaches them.
    clock: VecDeque<u64>,
}

/// All metadata blocks in memory.
pub(crate) struct Cache {
    device: Arc<dyn BlockDevice>,
    flushes: Flushes,
    block_size: usize,
    /// Blocks that a shard keeps before it drops idle ones.
    shard_capacity: usize,
    /// Their number is a power of two.
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

impl Cache {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, block_size: usize, bytes: usize) -> Self {
        let shards =
            (SHARDS_PER_CORE * available_cores()).next_power_of_two().clamp(MIN_SHARDS, MAX_SHARDS);
        let shard_capacity = (bytes / block_size / shards).max(8);
        let shards = (0..shards)
            .map(|_| CachePadded::new(Mutex::new(&locks::SHARD, Shard::default())))
            .collect();
        let flushes = Flushes::new(device.clone());
        Self { device, flushes, block_size, shard_capacity, shards }
    }

    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The flushes of the device.
    pub(crate) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    fn shard(&self, no: BlockNo) -> &Mutex<Shard> {
        // Tables lie in runs: the hash spreads adjacent blocks, and blocks of distant groups.
        let hash = no.0.wrapping_mul(SPREAD) >> (64 - self.shards.len().ilog2());
        &self.shards[to_usize(hash)]
    }

    /// The block, read and checked if it was not in memory.
    ///
    /// A block that fails `check` stays unread: the next caller tries again. If another thread
    /// [creates](Self::create) the block during the read, the created contents stay and the bytes
    /// from the device are dropped. A caller that holds no lock over the block may then get a block
    /// of another kind, and must validate it.
    pub(crate) fn read<E: From<Error>>(
        &self,
        no: BlockNo,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<BlockRef, E> {
        let block = self.shard(no).lock().get_or_insert(no, self.shard_capacity);
        if block.loaded.load(Ordering::Acquire) {
            return Ok(block);
        }
        let guard = block.load.lock();
        if !block.loaded.load(Ordering::Acquire) {
            let mut bytes = vec![0; self.block_size];
            let offset = no.0.saturating_mul(to_u64(self.block_size));
            self.device.read_at(offset, &mut bytes).map_err(|e| Error::io("read", no, e))?;
            check(&bytes)?;
            block.fill(bytes);
        }
        drop(guard);
        Ok(block)
    }

    /// The block, if it is in memory and read.
    pub(crate) fn peek(&self, no: BlockNo) -> Option<BlockRef> {
        let block = self.shard(no).lock().blocks.get(&no.0)?.clone();
        block.loaded.load(Ordering::Acquire).then_some(block)
    }

    /// The block as newly allocated: `init` sets its marks before another thread can see it. Under
    /// the shard's lock, so that no thread can drop it meanwhile.
    pub(crate) fn create(
        &self,
        no: BlockNo,
        init: impl FnOnce(&mut super::BlockMarks),
    ) -> BlockRef {
        let mut shard = self.shard(no).lock();
        let block = shard.get_or_insert(no, self.shard_capacity);
        let mut marks = block.lock();
        marks.data = Buf::zeroed(self.block_size);
        block.unmark();
        init(&mut marks);
        block.loaded.store(true, Ordering::Release);
        drop(marks);
        block
    }

    /// Drops a freed block that was not created anew.
    pub(crate) fn remove_forgotten(&self, block: &BlockRef) {
        let mut shard = self.shard(block.number()).lock();
        let is_it = shard.blocks.get(&block.number().0).is_some_and(|b| Arc::ptr_eq(b, block));
        if is_it && block.lock().forgotten {
            shard.blocks.remove(&block.number().0);
            // Else the clock would hold the number twice when the block is created anew.
            shard.clock.retain(|no| *no != block.number().0);
        }
    }

    /// Drops idle blocks; unless `all`, only those not used since the clock hand passed.
    pub(crate) fn drop_blocks(&self, all: bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for _ in 0..shard.clock.len() {
                shard.step(all);
            }
            let (len, capacity) = (shard.clock.len(), shard.clock.capacity());
            if capacity > 64 && len < capacity / 4 {
                shard.clock.shrink_to(2 * len);
                shard.blocks.shrink_to(2 * len);
            }
        }
    }

    /// Number of blocks in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().blocks.len()).sum()
    }
}

impl Shard {
    fn get_or_insert(&mut self, no: BlockNo, capacity: usize) -> BlockRef {
        if let Some(block) = self.blocks.get(&no.0) {
            // A hint: not stored again when set, so that readers share the cache line.
            if !block.referenced.load(Ordering::Relaxed) {
                block.referenced.store(true, Ordering::Relaxed);
            }
            return block.clone();
        }
        self.evict(capacity);
        let block = BlockRef::new(MetaBlock::new(no));
        self.blocks.insert(no.0, block.clone());
        self.clock.push_back(no.0);
        block
    }

    /// Lets the clock hand pass a few blocks, and drops idle ones.
    fn evict(&mut self, capacity: usize) {
        let mut steps = 8;
        while self.clock.len() >= capacity && steps > 0 {
            steps -= 1;
            self.step(false);
        }
    }

    /// Drops the block at the clock hand if it is idle, and was not used since the hand passed it
    /// last or `used` blocks are dropped too.
    fn step(&mut self, used: bool) {
        let Some(no) = self.clock.pop_front() else { return };
        let Some(block) = self.blocks.get(&no) else { return };
        let unshared = || Arc::strong_count(block) == 1;
        let referenced = unshared() && block.referenced.swap(false, Ordering::Relaxed);
        let idle = unshared() && (used || !referenced) && block.lock().is_clean();
        if idle {
            self.blocks.remove(&no);
        } else {
            self.clock.push_back(no);
        }
    }
}
