//! Shuttle models of gates, commit, checkpoint and credits, on a tiny journal: every gate, the past
//! ones too. What must hold of handles (J1 to J6 in `journal/museum/mod.rs`) is asserted by the
//! journal itself on the way.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle`. Every
//! schedule ends in the same question: does a crash now leave each transaction
//! whole?
#![cfg(feature = "model-shuttle")]

use nextent_device::BlockDevice;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, Tid};
use nextent_store::{
    Admission, BlockRef, Dirty, Error, GateSpec, Handle, JournalRun, JournalSpec, JournalUse,
    RenderSink, Result, Seal, Store, StoreOptions, recover,
};
use nextent_sync::{Arc, LockClass, Mutex, thread};
use nextent_testkit::ModelDisk;

const SIZE: usize = 1024;
const LOG: u32 = 60;
static STATE: LockClass = LockClass::new("model.counter", 340);

fn volume() -> (Arc<ModelDisk>, JournalSpec) {
    let device = Arc::new(ModelDisk::new(120 * SIZE as u64));
    let spec = JournalSpec {
        runs: vec![JournalRun { start: BlockNo(50), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: 120,
    };
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.write_at(50 * SIZE as u64, &sb.to_bytes()).unwrap();
    (device, spec)
}

const GATES: [Admission; 4] =
    [Admission::Slots, Admission::StateLock, Admission::StateLockHack, Admission::RwLock];

/// Runs a model with each gate.
fn each(times: usize, model: fn(Admission)) {
    for gate in GATES {
        let times = if gate == Admission::Slots { times } else { times / 2 };
        shuttle::check_random(move || model(gate), times);
    }
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

fn any(_: &[u8]) -> Result<()> {
    Ok(())
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn on_device(device: &dyn BlockDevice, no: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_at(no * SIZE as u64, &mut bytes).unwrap();
    word(&bytes)
}

/// Blocks 1 and 2, and both words of block 3.
fn all_on_device(device: &dyn BlockDevice) -> [u64; 4] {
    let mut bytes = [0; 16];
    device.read_at(3 * SIZE as u64, &mut bytes).unwrap();
    [on_device(device, 1), on_device(device, 2), word(&bytes), word(&bytes[8..])]
}

fn bump(store: &Store, handle: &Handle<'_>, no: u64) {
    let block = store.read::<Error>(BlockNo(no), any).unwrap();
    handle.update(&block, |b| {
        let next = word(b) + 1;
        b[..8].copy_from_slice(&next.to_le_bytes());
    });
}

/// A rendered counter; see the protocol in `Dirty`.
struct Counter {
    block: BlockRef,
    /// Where in the block.
    at: usize,
    state: Mutex<(u64, Option<Tid>, Option<u64>)>,
}

impl Counter {
    fn add(self: &Arc<Self>, handle: &Handle<'_>) {
        let mut state = self.state.lock();
        if state.1 != Some(handle.tid()) {
            if state.1.is_some() {
                assert!(state.2.is_none(), "two older transactions at once");
                state.2 = Some(state.0);
            }
            state.1 = Some(handle.tid());
            handle.join(&self.block);
            handle.dirty(self.clone());
        }
        state.0 += 1;
    }
}

impl Dirty for Counter {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> Result<()> {
        let mut state = self.state.lock();
        let value = match state.2.take() {
            Some(value) => value,
            None => {
                assert_eq!(state.1.take(), Some(tid));
                state.0
            }
        };
        let place = self.at..self.at + 8;
        out.patch(&self.block, |b| b[place].copy_from_slice(&value.to_le_bytes()));
        Ok(())
    }
}

/// Replays a copy of the device as it is now.
fn crash(device: &ModelDisk, spec: &JournalSpec) -> Arc<dyn BlockDevice> {
    let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    recover(&copy, SIZE, spec).unwrap();
    copy
}

/// Each transaction bumps blocks 1 and 2 in place and two counters in block 3, rendered at the
/// same time; whatever is recovered, at any moment, the four agree.
#[test]
fn transactions_are_whole_at_every_moment() {
    each(300, |gate| {
        let (device, spec) = volume();
        let store = open(&device, &spec, gate);
        let block = store.read::<Error>(BlockNo(3), any).unwrap();
        let counters = [0, 8].map(|at| {
            let state = Mutex::new(&STATE, (0, None, None));
            Arc::new(Counter { block: block.clone(), at, state })
        });
        let order = Arc::new(Mutex::new(&ORDER, ()));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (store, counters) = (store.clone(), counters.clone());
                let order = order.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        // One at a time, as an inode's long lock does.
                        let guard = order.lock();
                        let handle = store.start(4).unwrap();
                        bump(&store, &handle, 1);
                        counters.iter().for_each(|counter| counter.add(&handle));
                        bump(&store, &handle, 2);
                        let tid = handle.tid();
                        handle.stop();
                        drop(guard);
                        store.commit(tid).unwrap();
                        assert!(store.is_durable(tid));
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let copy = crash(&device, &spec);
            let seen = all_on_device(&*copy);
            assert!(seen.iter().all(|one| *one == seen[0]), "torn: {seen:?}");
            thread::yield_now();
        }
        for worker in workers {
            worker.join().unwrap();
        }
        let copy = crash(&device, &spec);
        assert_eq!(all_on_device(&*copy), [4; 4]);
        store.close().unwrap();
        assert_eq!(all_on_device(&*device), [4; 4]);
        assert_eq!(store.credit_overruns(), 0);
    });
}

static ORDER: LockClass = LockClass::new("model.order", 110);

/// Handles that together want more than a transaction has: each gets its turn,
/// nobody waits for ever, no more is handed out than there is.
#[test]
fn credits_are_never_overdrawn() {
    each(300, |gate| {
        let (device, spec) = volume();
        let store = open(&device, &spec, gate);
        let most = store.max_credits();
        let workers: Vec<_> = (0..3u64)
            .map(|t| {
                let store = store.clone();
                thread::spawn(move || {
                    for n in 0..2 {
                        let handle = store.start(most).unwrap();
                        for k in 0..u64::from(most) {
                            bump(&store, &handle, 4 + (t * 2 + n) * 4 + k % 4);
                        }
                        if !handle.extend(1).unwrap() {
                            handle.restart(1).unwrap();
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        store.close().unwrap();
        assert_eq!(store.credit_overruns(), 0);
    });
}

/// A freed block that is reused for data once the free is durable keeps the
/// data, whatever checkpoint and replay do.
#[test]
fn freed_blocks_are_not_written_again() {
    each(300, |gate| {
        let (device, spec) = volume();
        let store = open(&device, &spec, gate);
        let handle = store.start(4).unwrap();
        let block = store.create(&handle, BlockNo(9), Seal::NONE);
        handle.update(&block, |b| b[0] = 1);
        handle.stop();
        store.sync_all().unwrap();
        let other = store.clone();
        let churn = thread::spawn(move || {
            for no in 20..24 {
                let handle = other.start(2).unwrap();
                bump(&other, &handle, no);
                let tid = handle.tid();
                handle.stop();
                other.commit(tid).unwrap();
            }
            // Writes everything home while the block is on its way out.
            other.freeze().unwrap();
            other.thaw();
        });
        let handle = store.start(4).unwrap();
        handle.forget(BlockNo(9));
        let tid = handle.tid();
        handle.stop();
        store.commit(tid).unwrap();
        device.write_at(9 * SIZE as u64, &77u64.to_le_bytes()).unwrap();
        churn.join().unwrap();
        let copy = crash(&device, &spec);
        assert_eq!(on_device(&*copy, 9), 77);
        store.close().unwrap();
        assert_eq!(on_device(&*device, 9), 77);
    });
}

/// A reservation starts while its transaction drains, and an abort wakes all.
#[test]
fn reservations_join_and_aborts_wake() {
    each(300, |gate| {
        let (device, spec) = volume();
        let store = open(&device, &spec, gate);
        let handle = store.start(2).unwrap();
        let reservation = handle.reserve(1).unwrap();
        handle.stop();
        let other = store.clone();
        let syncer = thread::spawn(move || other.sync_all());
        let handle = reservation.start().unwrap();
        bump(&store, &handle, 30);
        handle.stop();
        syncer.join().unwrap().unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || {
                    let first = store.start(1).map(|h| h.tid());
                    first.and_then(|tid| store.commit(tid))
                })
            })
            .collect();
        store.abort("the model says so");
        for waiter in waiters {
            if let Err(error) = waiter.join().unwrap() {
                assert_eq!(error.to_string(), "journal aborted: the model says so");
            }
        }
        assert!(matches!(store.start(1), Err(Error::Aborted(_))));
        drop(store);
        crash(&device, &spec);
    });
}

/// Who comes at the very moment at which a commit opens the gate again is in the transaction that
/// the journal says is running: else its changes would be left to a commit that has gone by.
#[test]
fn who_is_inside_has_the_running_transaction() {
    // One goes far while another stands still: schedules that are even hardly come across it.
    let model = |gate| {
        let (device, spec) = volume();
        let store = open(&device, &spec, gate);
        let workers: Vec<_> = (1..3)
            .map(|no| {
                let store = store.clone();
                thread::spawn(move || {
                    for _ in 0..6 {
                        let handle = store.start(1).unwrap();
                        assert_eq!(store.running(), handle.tid());
                        bump(&store, &handle, no);
                        handle.stop();
                    }
                    store.sync_all().unwrap();
                })
            })
            .collect();
        for _ in 0..3 {
            store.commit(store.running()).unwrap();
        }
        for worker in workers {
            worker.join().unwrap();
        }
        let copy = crash(&device, &spec);
        assert_eq!([1, 2].map(|no| on_device(&*copy, no)), [6; 2]);
        store.close().unwrap();
    };
    for gate in GATES {
        shuttle::check_pct(move || model(gate), 1000, 3);
    }
}

/// Credits are set aside by several at once, while commits drain: at most half of a transaction at
/// any moment, and each of them starts.
#[test]
fn half_may_be_set_aside() {
    each(200, |gate| {
        let (device, spec) = volume();
        let store = open(&device, &spec, gate);
        let half = store.max_credits();
        let workers: Vec<_> = (0..2u64)
            .map(|t| {
                let store = store.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let handle = store.start(1).unwrap();
                        let aside = handle.reserve(half);
                        let more = aside.as_ref().and_then(|_| handle.reserve(half));
                        assert!(more.is_none(), "more than half");
                        let tid = handle.tid();
                        handle.stop();
                        store.commit_soon();
                        if let Some(aside) = aside {
                            let handle = aside.start().unwrap();
                            assert!(handle.tid().is_at_least(tid));
                            bump(&store, &handle, 4 + t);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        let handle = store.start(1).unwrap();
        assert!(handle.reserve(half).is_some() || !handle.extend(half).unwrap());
        handle.stop();
        store.close().unwrap();
        assert_eq!(store.credit_overruns(), 0);
    });
}
