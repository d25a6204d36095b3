//! Shuttle model of lease, allocate, free and commit on a volume of three groups of 256 blocks.
//!
//! Checked in every schedule:
//!
//! - No block is allocated while it is in use, or before the release of its former use is durable.
//! - The bitmaps on disk at the end are those of the blocks in use.

use super::{AllocatorChoice, BlockAlloc, BlockKind, BlockRequest, BlockRun, Privilege};
use nextent_device::BlockDevice;
use nextent_ondisk::{BlockNo, Geometry, InodeNo, Superblock, Tid};
use nextent_store::{Store, StoreOptions};
use nextent_sync::{Arc, LockClass, Mutex, thread};
use nextent_testkit::{ModelDisk, Skip, e2fs};
use std::collections::HashMap;
use std::time::Duration;

static SHADOW: LockClass = LockClass::new("model.shadow", 990);

/// The bytes of a small volume. Made once, outside the model.
pub(super) fn image(kilobytes: u64) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let args = ["-t", "ext2", "-b", "1024", "-g", "256", "-N", "48", "-m", "0"];
    match e2fs::mke2fs(&path, kilobytes << 10, &args) {
        Ok(()) => Some(std::fs::read(&path).unwrap()),
        Err(skip) => {
            Skip::note(&skip);
            None
        }
    }
}

pub(super) struct World {
    pub(super) store: Arc<Store>,
    pub(super) blocks: BlockAlloc,
    pub(super) geo: Arc<Geometry>,
    /// For each block in use, the transaction that allocated it.
    used: Mutex<HashMap<u64, Tid>>,
    /// For each freed block, the transactions that allocated and freed it.
    freed: Mutex<HashMap<u64, (Tid, Tid)>>,
}

impl World {
    fn new(bytes: &[u8], choice: &AllocatorChoice) -> Self {
        let device: Arc<dyn BlockDevice> = Arc::new(ModelDisk::with_bytes(bytes.to_vec()));
        let sb = Superblock::read(&bytes[1024..2048]).unwrap();
        let geo = Arc::new(sb.check(bytes.len() as u64).unwrap());
        let options = StoreOptions {
            block_size: 1024,
            cache_bytes: 64 << 10,
            commit_interval: Duration::from_secs(3600),
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::without_journal(device, &options).unwrap());
        let blocks = BlockAlloc::open_as(store.clone(), geo.clone(), 0, &[], choice).unwrap();
        let used = Mutex::new(&SHADOW, HashMap::new());
        let freed = Mutex::new(&SHADOW, HashMap::new());
        Self { store, blocks, geo, used, freed }
    }

    fn allocate(&self, want: u32) -> Option<BlockRun> {
        let h = self.store.start(8).unwrap();
        let (kind, privilege, ino) = (BlockKind::Data, Privilege::Reserved, InodeNo(12));
        let request = BlockRequest { goal: None, want, min: 1, kind, privilege, ino };
        let run = self.blocks.allocate(&h, &request).ok()?;
        for no in run.start.0..run.end().0 {
            let older = self.used.lock().insert(no, h.tid());
            assert!(older.is_none(), "block {no} allocated twice");
            let former = self.freed.lock().remove(&no);
            if let Some((allocated, freed)) = former {
                let fine = allocated == freed || self.store.is_durable(freed);
                assert!(fine, "block {no} was freed in {freed}");
            }
        }
        Some(run)
    }

    fn free(&self, run: BlockRun) {
        let h = self.store.start(8).unwrap();
        for no in run.start.0..run.end().0 {
            let allocated = self.used.lock().remove(&no).unwrap();
            self.freed.lock().insert(no, (allocated, h.tid()));
        }
        self.blocks.free(&h, run.start, run.len, BlockKind::Data).unwrap();
    }
}

/// Allocates three runs and frees two of them, twice.
pub(super) fn work(world: &World) {
    for _ in 0..2 {
        let runs: Vec<BlockRun> = (0..3).filter_map(|_| world.allocate(90)).collect();
        for run in runs.into_iter().skip(1) {
            world.free(run);
        }
    }
}

pub(super) fn schedule(bytes: &[u8], choice: &AllocatorChoice, jobs: &[fn(&World)]) -> Arc<World> {
    let world = Arc::new(World::new(bytes, choice));
    let free = world.blocks.free_blocks();
    let threads: Vec<_> = jobs
        .iter()
        .map(|job| {
            let (world, job) = (world.clone(), *job);
            thread::spawn(move || job(&world))
        })
        .collect();
    world.store.sync_all().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let used = world.used.lock().len() as u64;
    assert_eq!(world.blocks.free_blocks(), free - used);
    world.store.close().unwrap();
    let mut bytes = [0; 1024];
    world.store.device().read_at(1024, &mut bytes).unwrap();
    let sb = Superblock::read(&bytes).unwrap();
    assert_eq!(sb.free_blocks_count(), free - used);
    let device = world.store.device().clone();
    let again = Arc::new(Store::read_only(device, &options_of(&world)));
    let geo = world.geo.clone();
    let again = BlockAlloc::open(again, geo, 0, &[]).unwrap();
    let used: Vec<u64> = world.used.lock().keys().copied().collect();
    for no in used {
        assert!(!again.is_free(BlockNo(no), 1).unwrap());
    }
    let freed: Vec<u64> = world.freed.lock().keys().copied().collect();
    for no in freed {
        assert!(again.is_free(BlockNo(no), 1).unwrap());
    }
    world
}

fn options_of(world: &World) -> StoreOptions {
    StoreOptions { block_size: world.store.block_size(), ..StoreOptions::default() }
}
