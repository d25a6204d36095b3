//! Shuttle models of `Store::close` beside handles, commits, fast commits and freezes.
//!
//! Promises: a commit that returned success is on the device after the close; a handle that was
//! stopped before is too, if the close succeeded; a later handle is refused with `ReadOnly`; no
//! thread waits for ever.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle --test close_models`.
#![cfg(feature = "model-shuttle")]

use nextent_device::BlockDevice;
use nextent_ondisk::fast_commit;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, InodeNo, Tid};
use nextent_store::{
    Admission, Error, GateSpec, JournalRun, JournalSpec, JournalUse, Result, Store, StoreOptions,
    recover,
};
use nextent_sync::{Arc, thread};
use nextent_testkit::ModelDisk;

const SIZE: usize = 1024;
const LOG: u32 = 60;
const GATES: [Admission; 4] =
    [Admission::Slots, Admission::StateLock, Admission::StateLockHack, Admission::RwLock];

fn volume(fast: bool) -> (Arc<ModelDisk>, JournalSpec) {
    let device = Arc::new(ModelDisk::new(120 * SIZE as u64));
    let spec = JournalSpec {
        runs: vec![JournalRun { start: BlockNo(50), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast },
        volume_blocks: 120,
    };
    let mut sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    if fast {
        sb.set_fc_blocks(5);
    }
    device.write_at(50 * SIZE as u64, &sb.to_bytes()).unwrap();
    (device, spec)
}

fn open(device: &Arc<ModelDisk>, spec: &JournalSpec, admission: Admission) -> Arc<Store> {
    let options = StoreOptions {
        block_size: SIZE,
        cache_bytes: 64 * SIZE,
        gate: GateSpec { admission, ..GateSpec::default() },
        ..StoreOptions::default()
    };
    Arc::new(Store::with_journal(device.clone(), &options, spec).unwrap())
}

/// Runs a model with each gate, evenly and by priorities.
fn each(times: usize, model: fn(Admission)) {
    for gate in GATES {
        let times = if gate == Admission::Slots { times } else { times / 4 };
        shuttle::check_random(move || model(gate), times);
        shuttle::check_pct(move || model(gate), times, 3);
    }
}

/// Sets the word of block `no` in a handle of its own; its transaction.
fn set(store: &Store, no: u64, value: u64) -> Result<Tid> {
    let handle = store.start(1)?;
    let block = store.read::<Error>(BlockNo(no), |_| Ok(()))?;
    handle.update(&block, |bytes| bytes[..8].copy_from_slice(&value.to_le_bytes()));
    let tid = handle.tid();
    handle.stop();
    Ok(tid)
}

fn assert_refused(error: &Error) {
    assert!(matches!(error, Error::ReadOnly), "{error}");
}

/// The word of block `no` in its place, once what is in the log is replayed: nothing may be.
fn word(device: &ModelDisk, spec: &JournalSpec, no: u64) -> u64 {
    let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    let report = recover(&copy, SIZE, spec).unwrap();
    assert_eq!(report.transactions, 0, "the log of a closed store holds transactions");
    let mut bytes = [0; 8];
    copy.read_at(no * SIZE as u64, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Two threads change a block each and commit, until they are refused; a third closes.
#[test]
fn a_commit_beside_a_close_is_kept() {
    each(400, |gate| {
        let (device, spec) = volume(false);
        let store = open(&device, &spec, gate);
        let workers: Vec<_> = (1..=2u64)
            .map(|no| {
                let store = store.clone();
                thread::spawn(move || {
                    for value in 1..=3 {
                        match set(&store, no, value) {
                            // A commit may be refused only if the close failed, which it does not.
                            Ok(tid) => store.commit(tid).unwrap(),
                            Err(error) => {
                                assert_refused(&error);
                                return value - 1;
                            }
                        }
                    }
                    3
                })
            })
            .collect();
        store.close().unwrap();
        let closed = device.snapshot();
        for (no, worker) in (1..).zip(workers) {
            let promised = worker.join().unwrap();
            assert_eq!(word(&closed, &spec, no), promised, "of block {no}");
        }
        // Nothing is written any more.
        assert_eq!(word(&device, &spec, 1), word(&closed, &spec, 1));
        assert_refused(&store.start(1).err().unwrap());
        store.close().unwrap();
    });
}

/// The same with fast commits.
#[test]
fn a_fast_commit_beside_a_close_is_kept() {
    let model = || {
        let (device, spec) = volume(true);
        let store = open(&device, &spec, Admission::Slots);
        let other = store.clone();
        let worker = thread::spawn(move || {
            for value in 1..=3u64 {
                let tid = match set(&other, 1, value) {
                    Ok(tid) => tid,
                    Err(error) => {
                        assert_refused(&error);
                        return value - 1;
                    }
                };
                let mut bytes = [0; 128];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                let records = vec![fast_commit::inode(InodeNo(1), &bytes)];
                let fast = other.fast_tid() == Some(tid)
                    && other.commit_fast(tid, records, other.next_flush()).unwrap();
                if !fast {
                    other.commit(tid).unwrap();
                }
            }
            3
        });
        store.close().unwrap();
        let closed = device.snapshot();
        let promised = worker.join().unwrap();
        assert_eq!(word(&closed, &spec, 1), promised);
    };
    shuttle::check_random(model, 500);
    shuttle::check_pct(model, 500, 3);
}

/// Handles whose threads never commit are in the close's last transaction, or refused.
#[test]
fn a_handle_beside_a_close_is_kept_or_refused() {
    each(300, |gate| {
        let (device, spec) = volume(false);
        let store = open(&device, &spec, gate);
        let workers: Vec<_> = (1..=2u64)
            .map(|no| {
                let store = store.clone();
                thread::spawn(move || match set(&store, no, 7) {
                    Ok(_) => 7,
                    Err(error) => {
                        assert_refused(&error);
                        0
                    }
                })
            })
            .collect();
        store.close().unwrap();
        for (no, worker) in (1..).zip(workers) {
            assert_eq!(worker.join().unwrap(), word(&device, &spec, no), "of block {no}");
        }
    });
}

/// Two threads close at once: both return after the store is closed.
#[test]
fn who_closes_second_waits_for_the_first() {
    each(200, |gate| {
        let (device, spec) = volume(false);
        let store = open(&device, &spec, gate);
        set(&store, 1, 5).unwrap();
        let other = store.clone();
        let (theirs, what) = (device.clone(), spec.clone());
        let second = thread::spawn(move || {
            other.close().unwrap();
            assert_eq!(word(&theirs, &what, 1), 5);
        });
        store.close().unwrap();
        assert_eq!(word(&device, &spec, 1), 5);
        second.join().unwrap();
    });
}

/// A freeze, or a frozen store, does not keep a close from ending; a thread at the gate is refused.
#[test]
fn a_close_ends_freezes() {
    each(200, |gate| {
        let (device, spec) = volume(false);
        let store = open(&device, &spec, gate);
        set(&store, 1, 5).unwrap();
        let other = store.clone();
        let freezer = thread::spawn(move || match other.freeze() {
            Ok(()) => {
                // It was frozen for a moment at least; the close may have ended that.
                let _ = other.thaw();
            }
            Err(error) => assert_refused(&error),
        });
        let other = store.clone();
        let worker = thread::spawn(move || match set(&other, 2, 6) {
            Ok(_) => 6,
            Err(error) => {
                assert_refused(&error);
                0
            }
        });
        store.close().unwrap();
        assert_eq!(word(&device, &spec, 1), 5);
        assert_eq!(word(&device, &spec, 2), worker.join().unwrap());
        freezer.join().unwrap();
    });
}

/// A sync of a frozen store returns: nothing waits for the thaw but handles.
#[test]
fn a_sync_of_a_frozen_store_returns() {
    each(200, |gate| {
        let (device, spec) = volume(false);
        let store = open(&device, &spec, gate);
        let tid = set(&store, 1, 5).unwrap();
        let other = store.clone();
        let syncer = thread::spawn(move || {
            other.sync_all().unwrap();
            other.commit(tid).unwrap();
            other.commit(other.running()).unwrap();
        });
        store.freeze().unwrap();
        store.sync_all().unwrap();
        syncer.join().unwrap();
        assert!(store.thaw());
        set(&store, 1, 6).unwrap();
        store.close().unwrap();
        assert_eq!(word(&device, &spec, 1), 6);
    });
}
