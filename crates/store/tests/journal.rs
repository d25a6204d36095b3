//! The log: e2fsck and this crate recover alike what this crate writes.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, FileDevice, FileOptions, MemoryDevice};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, Incompat, Superblock};
use nextent_store::{
    Error, JournalRun, JournalSpec, JournalUse, Result, Seal, Store, StoreOptions, inspect_journal,
    recover,
};
use nextent_sync::{Arc, thread};
use nextent_testkit::e2fs;
use std::path::Path;
use std::sync::Barrier;

fn unchecked(_: &[u8]) -> Result<()> {
    Ok(())
}

struct Image {
    dir: tempfile::TempDir,
    block_size: usize,
    spec: JournalSpec,
}

impl Image {
    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("image")
    }

    /// Makes an image; `None` where e2fsprogs is missing.
    fn make(args: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        if let Err(skip) = e2fs::mke2fs(&path, 48 << 20, args) {
            skip.note();
            return None;
        }
        let sb = superblock(&path);
        // One command per block: a list of all blocks would include indirect blocks.
        let size = e2fs::debugfs(&path, false, &["stat <8>"]).unwrap();
        let size: u64 =
            size.split("Size: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        let commands: Vec<_> =
            (0..size >> (10 + sb.log_block_size.get())).map(|n| format!("bmap <8> {n}")).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let listed = e2fs::debugfs(&path, false, &commands).unwrap();
        let numbers: Vec<u64> = listed.lines().filter_map(|l| l.trim().parse().ok()).collect();
        assert_eq!(numbers.len(), commands.len());
        let mut runs: Vec<JournalRun> = Vec::new();
        for no in numbers {
            match runs.last_mut() {
                Some(run) if run.start.0 + u64::from(run.len) == no => run.len += 1,
                _ => runs.push(JournalRun { start: BlockNo(no), len: 1 }),
            }
        }
        let features = sb.features();
        let form = JournalUse {
            checksums: features.metadata_csum(),
            wide: features.has(Incompat::BIT64),
            fast: false,
        };
        let spec = JournalSpec { runs, form, volume_blocks: sb.blocks_count() };
        Some(Self { dir, block_size: 1024 << sb.log_block_size.get(), spec })
    }

    fn open(&self, path: &Path) -> Arc<dyn BlockDevice> {
        // A forked child of another test holds the file open until it executes e2fsck.
        let open = || FileDevice::open(path, &FileOptions::new());
        let opened = (0..500).find_map(|_| {
            let opened = open().ok();
            if opened.is_none() {
                thread::sleep(std::time::Duration::from_millis(2));
            }
            opened
        });
        Arc::new(opened.unwrap_or_else(|| open().unwrap()))
    }

    fn store(&self, device: Arc<dyn BlockDevice>) -> Store {
        let options = StoreOptions { block_size: self.block_size, ..StoreOptions::default() };
        Store::with_journal(device, &options, &self.spec).unwrap()
    }

    /// Free blocks at the volume's end, for the tests to change.
    fn block(&self, i: u64) -> BlockNo {
        BlockNo(self.spec.volume_blocks - 2 - i)
    }

    fn read(&self, path: &Path, i: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size];
        let offset = self.block(i).0 * self.block_size as u64;
        self.open(path).read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Sets the feature of a volume in use, as a mount does.
    fn mark_in_use(&self, device: &dyn BlockDevice) {
        let mut bytes = vec![0; 1024];
        device.read_at(1024, &mut bytes).unwrap();
        let mut sb = Superblock::read(&bytes).unwrap();
        let mut features = sb.features();
        features.set(Incompat::RECOVER, true);
        sb.set_features(features);
        sb.seal();
        device.write_at(1024, sb.bytes()).unwrap();
    }
}

fn superblock(path: &Path) -> Superblock {
    let device = FileDevice::open(path, &FileOptions::new().read_only(true)).unwrap();
    let mut bytes = vec![0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::read(&bytes).unwrap()
}

const BLOCKS: u64 = 40;

/// Writes 300 transactions, several laps of the log. Every block ends with a known pattern; some
/// patterns begin like journal blocks.
fn write_laps(image: &Image, device: Arc<dyn BlockDevice>) -> Vec<Vec<u8>> {
    let store = image.store(device);
    let mut last = vec![vec![0; image.block_size]; BLOCKS as usize];
    for round in 0..300u64 {
        let handle = store.start(20).unwrap();
        for k in 0..12 {
            let i = (round * 7 + k * 3) % BLOCKS;
            let block = store.read::<Error>(image.block(i), unchecked).unwrap();
            let want = &mut last[i as usize];
            want.fill((round + k) as u8);
            if i.is_multiple_of(5) {
                want[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
            }
            handle.update(&block, |b| b.copy_from_slice(want));
        }
        let tid = handle.tid();
        handle.stop();
        store.commit(tid).unwrap();
    }
    assert_eq!(store.credit_overruns(), 0);
    last
}

/// Laps the log, cuts the power, recovers. If the checkpoint thread has emptied the log just before
/// the cut, this starts over.
fn laps_survive(args: &[&str]) {
    for _ in 0..20 {
        let Some(image) = Image::make(args) else { return };
        if laps_survive_in(&image) {
            return;
        }
    }
    panic!("20 times the log was empty at the cut");
}

/// Whether the log had a transaction to recover.
fn laps_survive_in(image: &Image) -> bool {
    let path = image.path();
    let last = {
        let device = image.open(&path);
        image.mark_in_use(&*device);
        write_laps(image, device)
    };
    let theirs = image.dir.path().join("theirs");
    std::fs::copy(&path, &theirs).unwrap();
    let report = e2fs::e2fsck_recover(&theirs).unwrap();
    assert!(report.is_clean(), "{}", report.text);
    let replayed = {
        let device = image.open(&path);
        assert!(inspect_journal(&device, image.block_size, &image.spec).unwrap().needs_recovery);
        let report = recover(&device, image.block_size, &image.spec).unwrap();
        assert_eq!(report.transactions > 0, report.replayed > 0);
        let again = recover(&device, image.block_size, &image.spec).unwrap();
        assert_eq!((again.transactions, again.next), (0, report.next));
        report.replayed > 0
    };
    for i in 0..BLOCKS {
        let want = &last[i as usize];
        assert!(image.read(&theirs, i) == *want, "e2fsck's block {i}");
        assert!(image.read(&path, i) == *want, "our block {i}");
    }
    replayed
}

#[test]
fn laps_with_checksums() {
    laps_survive(&["-t", "ext4", "-J", "size=4"]);
}

#[test]
fn laps_without_checksums() {
    laps_survive(&["-t", "ext4", "-O", "^metadata_csum,^64bit", "-J", "size=4"]);
}

#[test]
fn laps_on_ext3_with_small_blocks() {
    laps_survive(&["-t", "ext3", "-b", "1024", "-J", "size=1"]);
}

#[test]
fn a_closed_log_is_empty_and_its_blocks_in_place() {
    let Some(image) = Image::make(&["-t", "ext4"]) else { return };
    let path = image.path();
    let device = image.open(&path);
    let store = image.store(device.clone());
    let handle = store.start(2).unwrap();
    let block = store.create(&handle, image.block(0), Seal::NONE);
    handle.update(&block, |b| b.fill(9));
    handle.stop();
    store.close().unwrap();
    assert!(!inspect_journal(&device, image.block_size, &image.spec).unwrap().needs_recovery);
    drop((store, device));
    assert_eq!(image.read(&path, 0), vec![9; image.block_size]);
    e2fs::assert_clean(&path);
}

/// A block freed as metadata and used for data keeps the data over a replay.
#[test]
fn a_revoked_block_keeps_its_data() {
    let Some(image) = Image::make(&["-t", "ext4"]) else { return };
    let path = image.path();
    let data = vec![0xdd; image.block_size];
    {
        let device = image.open(&path);
        image.mark_in_use(&*device);
        let store = image.store(device.clone());
        let handle = store.start(2).unwrap();
        let block = store.create(&handle, image.block(0), Seal::NONE);
        handle.update(&block, |b| b.fill(1));
        handle.stop();
        store.sync_all().unwrap();
        let handle = store.start(4).unwrap();
        handle.forget(image.block(0));
        let other = store.read::<Error>(image.block(1), unchecked).unwrap();
        handle.update(&other, |b| b.fill(2));
        handle.stop();
        store.sync_all().unwrap();
        device.write_at(image.block(0).0 * image.block_size as u64, &data).unwrap();
    }
    let theirs = image.dir.path().join("theirs");
    std::fs::copy(&path, &theirs).unwrap();
    e2fs::e2fsck_recover(&theirs).unwrap().assert_clean();
    let report = recover(&image.open(&path), image.block_size, &image.spec).unwrap();
    assert_eq!(report.revoked, 1);
    for file in [&path, &theirs] {
        assert!(image.read(file, 0) == data);
        assert!(image.read(file, 1) == vec![2; image.block_size]);
    }
}

/// Many threads change blocks and commit over a log of a few hundred blocks: it neither deadlocks
/// nor overflows, and a recovery restores everything.
#[test]
fn many_threads_share_a_small_log() {
    let Some(image) = Image::make(&["-t", "ext4", "-b", "1024", "-J", "size=1"]) else { return };
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let store = image.store(device.clone());
    thread::scope(|scope| {
        for t in 0..8u64 {
            let (store, image) = (&store, &image);
            scope.spawn(move || {
                for n in 0..300u64 {
                    let handle = store.start(10).unwrap();
                    for k in 0..8 {
                        let no = image.block(t * 40 + (n * 3 + k * 5) % 40);
                        let block = store.read::<Error>(no, unchecked).unwrap();
                        handle.update(&block, |b| b.fill(n as u8));
                    }
                    let tid = handle.tid();
                    handle.stop();
                    if n % 11 == t {
                        store.commit(tid).unwrap();
                    }
                }
            });
        }
    });
    store.sync_all().unwrap();
    let crash = Arc::new(device.snapshot()) as Arc<dyn BlockDevice>;
    recover(&crash, image.block_size, &image.spec).unwrap();
    store.close().unwrap();
    let (mut a, mut b) = (vec![0; 1024], vec![0; 1024]);
    for i in 0..320 {
        let offset = image.block(i).0 * 1024;
        crash.read_at(offset, &mut a).unwrap();
        device.read_at(offset, &mut b).unwrap();
        assert!(a == b, "block {i}");
    }
}

/// Threads that are idle have leased credits. The committer recalls them, instead of committing a
/// transaction that is nearly empty.
#[test]
fn idle_credits_are_recalled() {
    let Some(image) = Image::make(&["-t", "ext4", "-b", "1024", "-J", "size=1"]) else { return };
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let store = image.store(device);
    let credits = store.max_credits() / 5;
    let (all_had_some, done) = (Barrier::new(33), Barrier::new(33));
    let tids: Vec<_> = thread::scope(|scope| {
        let once = || {
            let tid = store.start(credits).unwrap().tid();
            all_had_some.wait();
            done.wait();
            tid
        };
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(once)).collect();
        all_had_some.wait();
        let handle = store.start(store.max_credits()).unwrap();
        let tid = handle.tid();
        handle.stop();
        done.wait();
        threads.into_iter().map(|thread| thread.join().unwrap()).chain([tid]).collect()
    });
    assert!(tids.iter().all(|tid| *tid == tids[0]), "{tids:?}");
    assert_eq!(store.credit_overruns(), 0);
    store.close().unwrap();
}

/// A journal whose runs overlap is refused: it could be longer than its device.
#[test]
fn overlapping_runs_are_refused() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(200 * 1024));
    let sb = JournalSuperblock::new(1024, 60, [0; 16]);
    device.write_at(100 * 1024, &sb.to_bytes()).unwrap();
    let run = |start, len| JournalRun { start: BlockNo(start), len };
    let inspect = |runs: &[JournalRun]| {
        let form = JournalUse { checksums: true, wide: true, fast: false };
        let spec = JournalSpec { runs: runs.to_vec(), form, volume_blocks: 200 };
        inspect_journal(&device, 1024, &spec).map(|_| ())
    };
    assert!(inspect(&[run(100, 30), run(10, 30)]).is_ok());
    assert!(inspect(&[run(100, 30), run(130, 30), run(70, 30)]).is_ok());
    for runs in [[run(100, 30), run(129, 31)], [run(100, 30), run(71, 30)]] {
        let error = inspect(&runs).unwrap_err();
        assert!(matches!(error, Error::Corrupt { block: 0 | 30, .. }));
    }
}
