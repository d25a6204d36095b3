//! Shuttle model of inode numbers: allocate, free and commit on two groups of 48 numbers, over a
//! journal.
//!
//! Run with `cargo test -p nextent --features model-shuttle alloc::inode_models`.
//!
//! Checked in every schedule:
//!
//! - No number is allocated while it is in use. A freed number may be allocated at once.
//! - A crash at any moment leaves the bitmaps and totals of the last durable transaction.
//! - A number that is freed and allocated again in different transactions is in use at the end of
//!   both.

use super::inodes::INODE_CREDITS;
use super::{BlockAlloc, InodeAlloc, InodeKind};
use nextent_device::BlockDevice;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, Geometry, GroupNo, InodeNo, Superblock, Tid, numbers::ROOT_INO};
use nextent_store::{JournalRun, JournalSpec, JournalUse, Store, StoreOptions, recover};
use nextent_sync::{Arc, LockClass, Mutex, thread};
use nextent_testkit::{ModelDisk, Skip, e2fs};
use std::collections::BTreeSet;
use std::time::Duration;

static SHADOW: LockClass = LockClass::new("model.shadow", 990);

const SIZE: usize = 1024;
/// Blocks of the volume. The journal follows them on the device.
const VOLUME: u64 = 512;
const LOG: u32 = 64;

/// The bytes of a small volume. Made once, outside the model.
fn image() -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let args = ["-t", "ext2", "-b", "1024", "-g", "256", "-N", "48", "-m", "0"];
    if let Err(skip) = e2fs::mke2fs(&path, VOLUME << 10, &args) {
        Skip::note(&skip);
        return None;
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(JournalSuperblock::new(SIZE as u32, LOG, [1; 16]).to_bytes());
    bytes.resize((VOLUME as usize + LOG as usize) * SIZE, 0);
    Some(bytes)
}

fn spec() -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(VOLUME), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: VOLUME + u64::from(LOG),
    }
}

fn geometry(bytes: &[u8]) -> Geometry {
    Superblock::read(&bytes[1024..2048]).unwrap().check(VOLUME << 10).unwrap()
}

struct World {
    disk: Arc<ModelDisk>,
    store: Arc<Store>,
    inodes: InodeAlloc,
    geo: Arc<Geometry>,
    /// Numbers in use at the start.
    before: BTreeSet<u32>,
    /// Allocations (true) and frees (false) since, in order for each number.
    history: Mutex<Vec<(Tid, InodeNo, bool)>>,
}

impl World {
    fn new(bytes: &[u8]) -> Self {
        let disk = Arc::new(ModelDisk::with_bytes(bytes.to_vec()));
        let geo = Arc::new(geometry(bytes));
        let options = StoreOptions {
            block_size: SIZE,
            cache_bytes: 64 << 10,
            commit_interval: Duration::from_secs(3600),
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::with_journal(disk.clone(), &options, &spec()).unwrap());
        let blocks = BlockAlloc::open(store.clone(), geo.clone(), 0, &[]).unwrap();
        let inodes = InodeAlloc::new(&blocks);
        let (before, _) = on_disk(&*disk, &geo);
        let history = Mutex::new(&SHADOW, Vec::new());
        Self { disk, store, inodes, geo, before, history }
    }

    /// The numbers in use at the end of the transaction `last`.
    fn used_at(&self, last: Tid) -> BTreeSet<u32> {
        let mut used = self.before.clone();
        for (tid, ino, is_used) in self.history.lock().iter() {
            if last.is_at_least(*tid) {
                let changed = if *is_used { used.insert(ino.0) } else { used.remove(&ino.0) };
                assert!(changed, "inode {ino}: {is_used} twice");
            }
        }
        used
    }

    fn allocate(&self, kind: InodeKind) -> InodeNo {
        let h = self.store.start(INODE_CREDITS).unwrap();
        let ino = self.inodes.allocate(&h, ROOT_INO, kind, 1).unwrap();
        self.history.lock().push((h.tid(), ino, true));
        ino
    }

    fn free(&self, ino: InodeNo, kind: InodeKind) {
        let h = self.store.start(INODE_CREDITS).unwrap();
        self.history.lock().push((h.tid(), ino, false));
        self.inodes.free(&h, ino, kind == InodeKind::Dir).unwrap();
    }

    /// Compares what a crash at this moment leaves with the history.
    fn check_crash(&self) {
        let copy: Arc<dyn BlockDevice> = Arc::new(self.disk.snapshot());
        let found = recover(&copy, SIZE, &spec()).unwrap();
        let last = Tid(found.next.0.wrapping_sub(1));
        let (used, free) = on_disk(&*copy, &self.geo);
        assert_eq!(used, self.used_at(last), "after {last}");
        assert_eq!(free as usize, self.geo.inodes_count as usize - used.len());
    }
}

/// Numbers in use by the bitmaps, and the count of free ones by the superblock.
fn on_disk(device: &dyn BlockDevice, geo: &Geometry) -> (BTreeSet<u32>, u32) {
    let read = |no: u64| {
        let mut bytes = vec![0; SIZE];
        device.read_at(no * SIZE as u64, &mut bytes).unwrap();
        bytes
    };
    let mut used = BTreeSet::new();
    for group in geo.groups() {
        let (block, offset) = geo.desc_location(group);
        let bytes = offset..offset + usize::from(geo.desc_size);
        let desc = nextent_ondisk::GroupDesc::read(&read(block.0)[bytes]).unwrap();
        let bitmap = read(desc.inode_bitmap.0);
        used.extend(
            (0..geo.inodes_per_group)
                .filter(|at| nextent_ondisk::bitmap::test(&bitmap, *at))
                .map(|at| geo.inode_at(GroupNo(group.0), at).0),
        );
    }
    (used, Superblock::read(&read(1)).unwrap().free_inodes_count.get())
}

/// Allocates three numbers, frees two in separate transactions, and allocates again.
fn work(world: &World, kind: InodeKind) {
    let mine: Vec<InodeNo> = (0..3).map(|_| world.allocate(kind)).collect();
    for ino in &mine[1..] {
        world.free(*ino, kind);
    }
    world.allocate(kind);
    world.free(mine[0], kind);
    world.allocate(kind);
}

fn schedule(bytes: &[u8]) {
    let world = Arc::new(World::new(bytes));
    let threads: Vec<_> = [InodeKind::File, InodeKind::Dir]
        .into_iter()
        .map(|kind| {
            let world = world.clone();
            thread::spawn(move || work(&world, kind))
        })
        .collect();
    for _ in 0..2 {
        world.store.sync_all().unwrap();
        world.check_crash();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check_crash();
    let end = world.store.running();
    world.store.close().unwrap();
    let (used, free) = on_disk(&*world.disk, &world.geo);
    assert_eq!(used, world.used_at(end));
    assert_eq!(u64::from(free), world.inodes.free_inodes());
    assert_eq!(world.store.credit_overruns(), 0);
}

#[test]
fn numbers_are_exclusive_and_a_crash_leaves_whole_transactions() {
    let Some(bytes) = image() else { return };
    shuttle::check_random(move || schedule(&bytes), 300);
}
