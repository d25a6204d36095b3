//! In steady state the allocator of one thread makes no shared stores with other threads.
//!
//! The lock statistics count the whole process, so this test has a process of its own:
//! `cargo test -p nextent --features lockstat,lab --test alloc_shared_stores`.
#![cfg(all(feature = "lockstat", feature = "lab"))]

use nextent::lab_seams::alloc::{
    BlockAlloc, BlockKind, BlockRequest, BlockRun, InodeAlloc, InodeKind, Privilege, Window,
};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::{InodeNo, Superblock};
use nextent_store::{Store, StoreOptions};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, stats, thread};
use nextent_testkit::{Skip, e2fs};
use std::time::Duration;

const THREADS: usize = 4;
const ROUNDS: u64 = 400;
/// Allocations in a round.
const APPENDS: u64 = 128;

struct TestVolume {
    store: Arc<Store>,
    blocks: BlockAlloc,
    inodes: InodeAlloc,
}

fn open() -> Option<TestVolume> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    if let Err(skip) = e2fs::mke2fs(&path, 1 << 30, &["-t", "ext4"]) {
        Skip::note(&skip);
        return None;
    }
    let device = MemoryDevice::load(&path).unwrap();
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let geo = Arc::new(Superblock::read(&bytes).unwrap().check(1 << 30).unwrap());
    let options =
        StoreOptions { commit_interval: Duration::from_secs(3600), ..StoreOptions::default() };
    let store = Arc::new(Store::without_journal(Arc::new(device), &options).unwrap());
    let blocks = BlockAlloc::open(store.clone(), geo, 1000, &[]).unwrap();
    let inodes = InodeAlloc::new(&blocks);
    Some(TestVolume { store, blocks, inodes })
}

/// Creates a file, grows it by 2 blocks 128 times and truncates it, with and without a window, and
/// unlinks it.
fn round(volume: &TestVolume) {
    let TestVolume { store, blocks, inodes } = volume;
    let h = store.start(8).unwrap();
    let ino = inodes.allocate(&h, InodeNo(2), InodeKind::File, 0).unwrap();
    drop(h);
    let mut window = Window::new();
    let mut runs: Vec<BlockRun> = Vec::new();
    for _ in 0..APPENDS {
        let goal = runs.last().map(BlockRun::end);
        let (kind, privilege) = (BlockKind::Data, Privilege::User);
        let request = BlockRequest { goal, want: 2, min: 2, kind, privilege, ino };
        let h = store.start(8).unwrap();
        let run = blocks.allocate_growing(&h, &request, &mut window).unwrap();
        match runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => runs.push(run),
        }
    }
    let h = store.start(8).unwrap();
    blocks.release(&mut window);
    runs.into_iter().for_each(|run| blocks.free(&h, run.start, run.len, BlockKind::Data).unwrap());
    inodes.free(&h, ino, false).unwrap();
}

/// A barrier that threads use several times.
struct Rendezvous(AtomicUsize);

impl Rendezvous {
    /// Waits until all threads have arrived for the `turn`th time. Returns true in the last one.
    fn wait(&self, turn: usize) -> bool {
        let last = self.0.fetch_add(1, Ordering::SeqCst) + 1 == turn * THREADS;
        while self.0.load(Ordering::SeqCst) < turn * THREADS {
            thread::yield_now();
        }
        last
    }
}

#[test]
fn threads_make_no_shared_stores() {
    let Some(volume) = open() else { return };
    let rendezvous = Rendezvous(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // The first rounds take leases and quotas and load groups.
                nextent_sync::current_slot();
                rendezvous.wait(1);
                round(&volume);
                if rendezvous.wait(2) {
                    stats::enable();
                    stats::reset();
                }
                rendezvous.wait(3);
                (0..ROUNDS).for_each(|_| round(&volume));
                rendezvous.wait(4);
                stats::disable();
            });
        }
    });
    let operations = THREADS as u64 * ROUNDS * (APPENDS + 3);
    for class in stats::snapshot() {
        let shared = class.shared_stores as f64 / operations as f64;
        println!("{:20} {:9} {shared:.5}", class.name, class.acquisitions);
        let ours = class.name.starts_with("alloc.") || class.name == "(atomics)";
        assert!(!ours || shared < 0.01, "{}: {:?}", class.name, class.sharers);
    }
    volume.store.close().unwrap();
}
