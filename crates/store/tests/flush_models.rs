//! Shuttle models of who flushes for whom: whoever is told that data is stable finds it so, beside
//! commits, others' flushes, and a flush that fails.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle`.
#![cfg(feature = "model-shuttle")]

use nextent_device::BlockDevice;
use nextent_ondisk::BlockNo;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_store::{
    Error, JournalRun, JournalSpec, JournalUse, Result, Store, StoreOptions, recover,
};
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{Arc, Duration, LockClass, Mutex, thread};
use nextent_testkit::ModelDisk;
use std::io;

const SIZE: usize = 1024;
static STABLE: LockClass = LockClass::new("model.stable", 880);

/// A disk that loses what no flush has made stable, and tells of a loss once.
struct Volatile {
    disk: ModelDisk,
    stable: Mutex<ModelDisk>,
    flushes: AtomicU32,
    /// The flush that fails, if any.
    fails: Option<u32>,
    lost: AtomicBool,
}

impl Volatile {
    fn new(fails: Option<u32>) -> Self {
        let disk = ModelDisk::new(120 * SIZE as u64);
        let sb = JournalSuperblock::new(SIZE as u32, 60, [1; 16]);
        disk.write_at(50 * SIZE as u64, &sb.to_bytes()).unwrap();
        let stable = Mutex::new(&STABLE, disk.snapshot());
        Self { disk, stable, flushes: AtomicU32::new(0), fails, lost: AtomicBool::new(false) }
    }

    /// What a power cut now would leave.
    fn bare(&self) -> ModelDisk {
        self.stable.lock().snapshot()
    }
}

impl BlockDevice for Volatile {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.disk.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        // Not what is written from here on.
        let seen = self.disk.snapshot();
        if Some(self.flushes.fetch_add(1, Ordering::SeqCst)) == self.fails {
            self.lost.store(true, Ordering::SeqCst);
            return Err(io::Error::other("the model says so"));
        }
        thread::yield_now();
        if !self.lost.load(Ordering::SeqCst) {
            *self.stable.lock() = seen;
        }
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.write_zeroes(offset, len)
    }
    fn is_read_only(&self) -> bool {
        false
    }
}

fn spec() -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(50), len: 60 }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: 120,
    }
}

fn word(disk: &dyn BlockDevice, no: u64) -> u64 {
    let mut bytes = [0; 8];
    disk.read_at(no * SIZE as u64, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Writes data, perhaps changes a block in a transaction, and makes both durable, as fsync does.
fn sync_once(store: &Store, device: &Volatile, thread: u64, value: u64) -> Result<()> {
    device.write_at((10 + thread) * SIZE as u64, &value.to_le_bytes()).unwrap();
    let number = store.next_flush();
    if value.is_multiple_of(2) {
        let handle = store.start(2)?;
        let block = store.read::<Error>(BlockNo(20 + thread), |_| Ok(()))?;
        handle.update(&block, |bytes| bytes[..8].copy_from_slice(&value.to_le_bytes()));
        let tid = handle.tid();
        handle.stop();
        store.commit(tid)?;
    }
    store.flushed(number)
}

fn model(fails: Option<u32>) {
    let device = Arc::new(Volatile::new(fails));
    let options = StoreOptions {
        block_size: SIZE,
        cache_bytes: 64 * SIZE,
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let Ok(store) = Store::with_journal(device.clone(), &options, &spec()) else { return };
    let store = Arc::new(store);
    let workers: Vec<_> = (0..3)
        .map(|t| {
            let (store, device) = (store.clone(), device.clone());
            thread::spawn(move || {
                for value in 1 + t % 2..3 + t % 2 {
                    if sync_once(&store, &device, t, value).is_err() {
                        return;
                    }
                    let bare: Arc<dyn BlockDevice> = Arc::new(device.bare());
                    recover(&bare, SIZE, &spec()).unwrap();
                    assert_eq!(word(&*bare, 10 + t), value, "data of {t}");
                    let even = value / 2 * 2;
                    assert_eq!(word(&*bare, 20 + t), even, "what {t} committed");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert!(fails.is_some() || store.close().is_ok());
}

#[test]
fn what_was_synced_is_stable() {
    shuttle::check_random(|| model(None), 400);
}

#[test]
fn a_failed_flush_is_nobodys_success() {
    for fails in 1..8 {
        shuttle::check_random(move || model(Some(fails)), 60);
    }
}
