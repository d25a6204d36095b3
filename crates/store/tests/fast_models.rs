//! A shuttle model of fast commits beside full ones: what either promised is there after a crash,
//! and nobody waits for ever.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle`.
#![cfg(feature = "model-shuttle")]

use nextent_device::BlockDevice;
use nextent_ondisk::fast_commit::{self, Record, Records, Scanner};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, InodeNo, Tid};
use nextent_store::{
    Error, JournalRun, JournalSpec, JournalUse, Result, Store, StoreOptions, recover,
};
use nextent_sync::{Arc, thread};
use nextent_testkit::ModelDisk;
use std::cell::Cell;

const SIZE: usize = 1024;
const LOG: u32 = 60;

fn volume() -> (Arc<ModelDisk>, JournalSpec) {
    let device = Arc::new(ModelDisk::new(120 * SIZE as u64));
    let spec = JournalSpec {
        runs: vec![JournalRun { start: BlockNo(50), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: true },
        volume_blocks: 120,
    };
    let mut sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    sb.set_fc_blocks(5);
    device.write_at(50 * SIZE as u64, &sb.to_bytes()).unwrap();
    (device, spec)
}

/// Sets the word of block `no` in a handle; its transaction.
fn set(store: &Store, no: u64, value: u64) -> Tid {
    let handle = store.start(2).unwrap();
    let block = store.read::<Error>(BlockNo(no), |_| -> Result<()> { Ok(()) }).unwrap();
    handle.update(&block, |bytes| bytes[..8].copy_from_slice(&value.to_le_bytes()));
    handle.tid()
}

/// The word as a record: of inode `no`, the bytes of an inode being the word and zeros.
fn told(no: u64, value: u64) -> Vec<u8> {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    fast_commit::inode(InodeNo(no as u32), &bytes)
}

/// The word of block `no` after a crash: in its place, or as the last record has it.
fn kept(device: &ModelDisk, spec: &JournalSpec, no: u64) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    let recovery = recover(&copy, SIZE, spec).unwrap();
    let mut bytes = [0; 8];
    copy.read_at(no * SIZE as u64, &mut bytes).unwrap();
    let mut scanner = Scanner::new(recovery.next);
    for block in &recovery.fast_commits {
        scanner.block(block);
    }
    let records = recovery.fast_commits.iter().flat_map(|block| Records::new(block));
    let mine = records.take(scanner.valid_records()).filter_map(|record| match record.unwrap() {
        Record::Inode(ino, bytes) if u64::from(ino.0) == no => Some(word(bytes)),
        _ => None,
    });
    mine.last().unwrap_or_else(|| word(&bytes))
}

thread_local! {
    /// Fast commits that were kept, in all schedules, which run on one thread.
    static FAST: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn what_was_promised_is_kept() {
    let model = || {
        let (device, spec) = volume();
        let options =
            StoreOptions { block_size: SIZE, cache_bytes: 64 * SIZE, ..StoreOptions::default() };
        let store = Arc::new(Store::with_journal(device.clone(), &options, &spec).unwrap());
        let workers: Vec<_> = (1..=2u64)
            .map(|no| {
                let (store, device, spec) = (store.clone(), device.clone(), spec.clone());
                thread::spawn(move || {
                    for value in 1..=3 {
                        let tid = set(&store, no, value);
                        let records = vec![told(no, value)];
                        let fast = store.fast_tid() == Some(tid)
                            && store.commit_fast(tid, records, store.next_flush()).unwrap();
                        match fast {
                            true => FAST.set(FAST.get() + 1),
                            false => {
                                store.commit(tid).unwrap();
                                store.allow_fast();
                            }
                        }
                        // What the records name is not to be used again in this transaction.
                        let handle = store.start(2).unwrap();
                        if fast && handle.tid() == tid {
                            assert!(handle.has_fast_commits());
                        }
                        handle.stop();
                        assert_eq!(kept(&device, &spec, no), value);
                    }
                })
            })
            .collect();
        // Bars fast commits, and asks for full ones.
        let handle = store.start(2).unwrap();
        handle.bar_fast();
        handle.stop();
        store.sync_all().unwrap();
        for worker in workers {
            worker.join().unwrap();
        }
        for no in 1..=2 {
            assert_eq!(kept(&device, &spec, no), 3);
        }
        store.close().unwrap();
        assert_eq!(kept(&device, &spec, 1), 3);
    };
    shuttle::check_random(model, 300);
    shuttle::check_pct(model, 200, 3);
    assert!(FAST.get() > 500, "{} of 3000 by a fast commit", FAST.get());
}
