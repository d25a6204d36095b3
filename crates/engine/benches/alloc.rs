//! Cost of the allocator in steady state: one thread, everything in memory.
//!
//! `cargo bench -p nextent --features lab --bench alloc`. Needs mke2fs.

#![allow(missing_docs)] // of what criterion generates

use criterion::{Criterion, criterion_group, criterion_main};
use nextent::lab_seams::alloc::{
    BlockAlloc, BlockKind, BlockRequest, InodeAlloc, InodeKind, Privilege, Window,
};
use nextent_device::{BlockDevice, FileDevice, FileOptions, MemoryDevice};
use nextent_ondisk::{InodeNo, Superblock};
use nextent_store::{Store, StoreOptions};
use nextent_sync::Arc;
use nextent_testkit::e2fs;

struct Inodes {
    store: Arc<Store>,
    blocks: BlockAlloc,
    inodes: InodeAlloc,
}

fn open() -> Option<Inodes> {
    let dir = tempfile::tempdir().ok()?;
    let path = dir.path().join("image");
    e2fs::mke2fs(&path, 4 << 30, &["-t", "ext4"]).ok()?;
    let device = MemoryDevice::load(&path).ok()?;
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).ok()?;
    let geo = Arc::new(Superblock::read(&bytes).ok()?.check(4 << 30).ok()?);
    let store =
        Arc::new(Store::without_journal(Arc::new(device), &StoreOptions::default()).unwrap());
    let blocks = BlockAlloc::open(store.clone(), geo, 0, &[]).ok()?;
    let inodes = InodeAlloc::new(&blocks);
    Some(Inodes { store, blocks, inodes })
}

fn request(goal: Option<nextent_ondisk::BlockNo>, want: u32) -> BlockRequest {
    let (kind, privilege) = (BlockKind::Data, Privilege::User);
    BlockRequest { goal, want, min: want, kind, privilege, ino: InodeNo(12) }
}

fn alloc(c: &mut Criterion) {
    let Some(volume) = open() else { return };
    let Inodes { store, blocks, inodes } = &volume;
    c.bench_function("start and stop a handle", |b| {
        b.iter(|| store.start(8).unwrap());
    });
    let h = store.start(64).unwrap();
    c.bench_function("allocate and free 2 blocks", |b| {
        b.iter(|| {
            let run = blocks.allocate(&h, &request(None, 2)).unwrap();
            blocks.free(&h, run.start, run.len, BlockKind::Data).unwrap();
        });
    });
    c.bench_function("append 128 times 2 blocks, free all", |b| {
        b.iter(|| {
            let mut goal = None;
            let mut runs = Vec::with_capacity(128);
            for _ in 0..128 {
                let run = blocks.allocate(&h, &request(goal, 2)).unwrap();
                goal = Some(run.end());
                runs.push(run);
            }
            runs.iter().for_each(|r| blocks.free(&h, r.start, r.len, BlockKind::Data).unwrap());
        });
    });
    c.bench_function("append 128 times 2 blocks through a window, free all", |b| {
        b.iter(|| {
            let mut window = Window::new();
            let mut goal = None;
            let mut runs = Vec::with_capacity(128);
            for _ in 0..128 {
                let run = blocks.allocate_growing(&h, &request(goal, 2), &mut window).unwrap();
                goal = Some(run.end());
                runs.push(run);
            }
            blocks.release(&mut window);
            runs.iter().for_each(|r| blocks.free(&h, r.start, r.len, BlockKind::Data).unwrap());
        });
    });
    c.bench_function("allocate and free an inode number", |b| {
        b.iter(|| {
            let ino = inodes.allocate(&h, InodeNo(2), InodeKind::File, 0).unwrap();
            inodes.free(&h, ino, false).unwrap();
        });
    });
    drop(h);
    volume.store.close().unwrap();
}

/// The allocator's part of opening a volume of 16 TiB.
fn open_large(c: &mut Criterion) {
    const SIZE: u64 = 16383 << 30;
    let Ok(dir) = tempfile::tempdir() else { return };
    let path = dir.path().join("image");
    let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    if e2fs::mke2fs(&path, SIZE, &["-t", "ext4", "-E", lazy]).is_err() {
        return;
    }
    let Ok(device) = FileDevice::open(&path, &FileOptions::new().read_only(true)) else { return };
    let device = Arc::new(device);
    let mut bytes = [0; 1024];
    if device.read_at(1024, &mut bytes).is_err() {
        return;
    }
    let sb = Superblock::read(&bytes).expect("mke2fs made it");
    let geo = Arc::new(sb.check(SIZE).expect("mke2fs made it"));
    let mut group = c.benchmark_group("16 TiB");
    group.sample_size(10);
    group.bench_function("open", |b| {
        b.iter(|| {
            let store = Arc::new(Store::read_only(device.clone(), &StoreOptions::default()));
            BlockAlloc::open(store, geo.clone(), 0, &[]).expect("mke2fs made it")
        });
    });
}

criterion_group!(benches, alloc, open_large);
criterion_main!(benches);
