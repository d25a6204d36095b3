//! A shuttle model of fast commits beside full ones: what either made durable is there after a
//! crash, and every thread returns.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle`.
#![cfg(feature = "model-shuttle")]

mod small_journal;

use nextent_device::BlockDevice;
use nextent_ondisk::fast_commit::{self, Record, Records, Scanner};
use nextent_ondisk::{InodeNo, Tid};
use nextent_store::{AdmissionFactory, JournalSpec, Store, recover};
use nextent_sync::{Arc, thread};
use nextent_testkit::ModelDisk;
use small_journal::{BLOCK_SIZE, open, set_word, volume, word, word_on};
use std::cell::Cell;

/// Sets the word of block `no` in a handle; its transaction.
fn set(store: &Store, no: u64, value: u64) -> Tid {
    let handle = store.start(2).unwrap();
    set_word(store, &handle, no, value);
    handle.tid()
}

/// A record of inode `no`, whose bytes are the word and zeros.
fn record(no: u64, value: u64) -> Vec<u8> {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    fast_commit::inode(InodeNo(no as u32), &bytes)
}

/// The word of block `no` after a crash: that of the last record, else that on the device.
fn word_after_crash(device: &ModelDisk, spec: &JournalSpec, no: u64) -> u64 {
    let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    let recovery = recover(&copy, BLOCK_SIZE, spec).unwrap();
    let mut scanner = Scanner::new(recovery.next);
    for block in &recovery.fast_commits {
        scanner.block(block);
    }
    let records = recovery.fast_commits.iter().flat_map(|block| Records::new(block));
    let mine = records.take(scanner.valid_records()).filter_map(|record| match record.unwrap() {
        Record::Inode(ino, bytes) if u64::from(ino.0) == no => Some(word(bytes)),
        _ => None,
    });
    mine.last().unwrap_or_else(|| word_on(&*copy, no))
}

thread_local! {
    /// Fast commits that succeeded in all schedules, which run on one thread.
    static FAST: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn a_commit_that_succeeded_survives_a_crash() {
    let model = || {
        let (device, spec) = volume(true);
        let store = open(&device, &spec, &AdmissionFactory::default());
        let workers: Vec<_> = (1..=2u64)
            .map(|no| {
                let (store, device, spec) = (store.clone(), device.clone(), spec.clone());
                thread::spawn(move || {
                    for value in 1..=3 {
                        let tid = set(&store, no, value);
                        let records = vec![record(no, value)];
                        let fast = store.fast_tid() == Some(tid)
                            && store.commit_fast(tid, records, store.next_flush()).unwrap();
                        match fast {
                            true => FAST.set(FAST.get() + 1),
                            false => {
                                store.commit(tid).unwrap();
                                store.allow_fast();
                            }
                        }
                        // Blocks that the records name must not be reused in this transaction.
                        let handle = store.start(2).unwrap();
                        if fast && handle.tid() == tid {
                            assert!(handle.has_fast_commits());
                        }
                        handle.stop();
                        assert_eq!(word_after_crash(&device, &spec, no), value);
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
            assert_eq!(word_after_crash(&device, &spec, no), 3);
        }
        store.close().unwrap();
        assert_eq!(word_after_crash(&device, &spec, 1), 3);
    };
    shuttle::check_random(model, 300);
    shuttle::check_pct(model, 200, 3);
    assert!(FAST.get() > 500, "{} of 3000 by a fast commit", FAST.get());
}
