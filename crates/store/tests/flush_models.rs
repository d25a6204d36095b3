//! Shuttle models of shared flushes: data that a call reported as stable is stable, beside commits,
//! flushes of other threads, and a flush that fails.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle`.
#![cfg(feature = "model-shuttle")]

mod small_journal;

use nextent_device::BlockDevice;
use nextent_store::{Result, Store, StoreOptions, recover};
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{Arc, Duration, LockClass, Mutex, thread};
use nextent_testkit::ModelDisk;
use small_journal::{BLOCK_SIZE, journal_spec, set_word, word_on};
use std::io;

static STABLE: LockClass = LockClass::new("model.stable", 880);

/// A disk with a volatile cache: it loses what no flush has made stable, and reports a loss once.
struct VolatileDisk {
    disk: ModelDisk,
    stable: Mutex<ModelDisk>,
    flushes: AtomicU32,
    /// The flush that fails, if any.
    fails: Option<u32>,
    lost: AtomicBool,
}

impl VolatileDisk {
    fn new(fails: Option<u32>) -> Self {
        let disk = small_journal::disk(false);
        let stable = Mutex::new(&STABLE, disk.snapshot());
        Self { disk, stable, flushes: AtomicU32::new(0), fails, lost: AtomicBool::new(false) }
    }

    /// The disk as a power cut now would leave it.
    fn after_power_cut(&self) -> ModelDisk {
        self.stable.lock().snapshot()
    }
}

impl BlockDevice for VolatileDisk {
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
        // This flush does not cover later writes.
        let covered = self.disk.snapshot();
        if Some(self.flushes.fetch_add(1, Ordering::SeqCst)) == self.fails {
            self.lost.store(true, Ordering::SeqCst);
            return Err(io::Error::other("the model says so"));
        }
        thread::yield_now();
        if !self.lost.load(Ordering::SeqCst) {
            *self.stable.lock() = covered;
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

/// Writes data, for even values changes a block in a transaction too, and makes both durable.
fn sync_once(store: &Store, device: &VolatileDisk, thread: u64, value: u64) -> Result<()> {
    device.write_at((10 + thread) * BLOCK_SIZE as u64, &value.to_le_bytes()).unwrap();
    let number = store.next_flush();
    if value.is_multiple_of(2) {
        let handle = store.start(2)?;
        set_word(store, &handle, 20 + thread, value);
        let tid = handle.tid();
        handle.stop();
        store.commit(tid)?;
    }
    store.flushed(number)
}

fn model(fails: Option<u32>) {
    let device = Arc::new(VolatileDisk::new(fails));
    let options = StoreOptions {
        block_size: BLOCK_SIZE,
        cache_bytes: 64 * BLOCK_SIZE,
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let Ok(store) = Store::with_journal(device.clone(), &options, &journal_spec(false)) else {
        return;
    };
    let store = Arc::new(store);
    let workers: Vec<_> = (0..3)
        .map(|t| {
            let (store, device) = (store.clone(), device.clone());
            thread::spawn(move || {
                for value in 1 + t % 2..3 + t % 2 {
                    if sync_once(&store, &device, t, value).is_err() {
                        return;
                    }
                    let left: Arc<dyn BlockDevice> = Arc::new(device.after_power_cut());
                    recover(&left, BLOCK_SIZE, &journal_spec(false)).unwrap();
                    assert_eq!(word_on(&*left, 10 + t), value, "data of {t}");
                    let even = value / 2 * 2;
                    assert_eq!(word_on(&*left, 20 + t), even, "what {t} committed");
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
fn no_caller_takes_a_failed_flush_for_a_success() {
    for fails in 1..8 {
        shuttle::check_random(move || model(Some(fails)), 60);
    }
}
