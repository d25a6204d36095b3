//! Models of handles and commits: what a crash leaves, credits, reservations, aborts.

use crate::small_journal::{
    BLOCK_SIZE, increment, open, recovered, unchecked, volume, word, word_on,
};
use nextent_device::BlockDevice;
use nextent_ondisk::{BlockNo, Tid};
use nextent_store::{AdmissionFactory, BlockRef, Dirty, Error, Handle, RenderSink, Result, Seal};
use nextent_sync::{Arc, LockClass, Mutex, thread};

static STATE: LockClass = LockClass::new("model.counter", 340);
static ORDER: LockClass = LockClass::new("model.order", 110);

/// The words of blocks 1 and 2, and both words of block 3.
fn all_on_device(device: &dyn BlockDevice) -> [u64; 4] {
    let mut bytes = [0; 16];
    device.read_at(3 * BLOCK_SIZE as u64, &mut bytes).unwrap();
    [word_on(device, 1), word_on(device, 2), word(&bytes), word(&bytes[8..])]
}

/// A rendered counter; see the protocol in `Dirty`.
struct Counter {
    block: BlockRef,
    /// Its offset in the block.
    at: usize,
    state: Mutex<CounterState>,
}

#[derive(Default)]
struct CounterState {
    value: u64,
    /// The transaction that changed it last and has not rendered it.
    dirty: Option<Tid>,
    /// The value as of the end of an older transaction that has not rendered it.
    older: Option<u64>,
}

impl Counter {
    fn add(self: &Arc<Self>, handle: &Handle<'_>) {
        let mut state = self.state.lock();
        if state.dirty != Some(handle.tid()) {
            if state.dirty.is_some() {
                assert!(state.older.is_none(), "two older transactions at once");
                state.older = Some(state.value);
            }
            state.dirty = Some(handle.tid());
            handle.join(&self.block);
            handle.dirty(self.clone());
        }
        state.value += 1;
    }
}

impl Dirty for Counter {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> Result<()> {
        let mut state = self.state.lock();
        let value = match state.older.take() {
            Some(value) => value,
            None => {
                assert_eq!(state.dirty.take(), Some(tid));
                state.value
            }
        };
        let range = self.at..self.at + 8;
        out.patch(&self.block, |b| b[range].copy_from_slice(&value.to_le_bytes()));
        Ok(())
    }
}

/// Each transaction increments blocks 1 and 2 in place and two rendered counters in block 3. The
/// four agree after a recovery at any moment.
pub(crate) fn transactions_are_whole_at_every_moment(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
    let block = store.read::<Error>(BlockNo(3), unchecked).unwrap();
    let counters = [0, 8].map(|at| {
        let state = Mutex::new(&STATE, CounterState::default());
        Arc::new(Counter { block: block.clone(), at, state })
    });
    let order = Arc::new(Mutex::new(&ORDER, ()));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (store, counters) = (store.clone(), counters.clone());
            let order = order.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    // One operation at a time, as under an inode's lock.
                    let guard = order.lock();
                    let handle = store.start(4).unwrap();
                    increment(&store, &handle, 1);
                    counters.iter().for_each(|counter| counter.add(&handle));
                    increment(&store, &handle, 2);
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
        let copy = recovered(&device, &spec);
        let seen = all_on_device(&*copy);
        assert!(seen.iter().all(|one| *one == seen[0]), "torn: {seen:?}");
        thread::yield_now();
    }
    for worker in workers {
        worker.join().unwrap();
    }
    let copy = recovered(&device, &spec);
    assert_eq!(all_on_device(&*copy), [4; 4]);
    store.close().unwrap();
    assert_eq!(all_on_device(&*device), [4; 4]);
    assert_eq!(store.credit_overruns(), 0);
}

/// Handles that together want more than a transaction has all start in the end, and the journal
/// grants no more than there is.
pub(crate) fn credits_are_never_overdrawn(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
    let most = store.max_credits();
    let workers: Vec<_> = (0..3u64)
        .map(|t| {
            let store = store.clone();
            thread::spawn(move || {
                for n in 0..2 {
                    let handle = store.start(most).unwrap();
                    for k in 0..u64::from(most) {
                        increment(&store, &handle, 4 + (t * 2 + n) * 4 + k % 4);
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
}

/// A freed block is reused for data once the free is durable. Neither checkpoint nor replay
/// overwrites the data.
pub(crate) fn freed_blocks_are_not_written_again(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
    let handle = store.start(4).unwrap();
    let block = store.create(&handle, BlockNo(9), Seal::NONE);
    handle.update(&block, |b| b[0] = 1);
    handle.stop();
    store.sync_all().unwrap();
    let other = store.clone();
    let churn = thread::spawn(move || {
        for no in 20..24 {
            let handle = other.start(2).unwrap();
            increment(&other, &handle, no);
            let tid = handle.tid();
            handle.stop();
            other.commit(tid).unwrap();
        }
        // Checkpoints while the commit withdraws the block.
        other.freeze().unwrap();
        other.thaw();
    });
    let handle = store.start(4).unwrap();
    handle.forget(BlockNo(9));
    let tid = handle.tid();
    handle.stop();
    store.commit(tid).unwrap();
    device.write_at(9 * BLOCK_SIZE as u64, &77u64.to_le_bytes()).unwrap();
    churn.join().unwrap();
    let copy = recovered(&device, &spec);
    assert_eq!(word_on(&*copy, 9), 77);
    store.close().unwrap();
    assert_eq!(word_on(&*device, 9), 77);
}

/// A reservation starts while its transaction drains, and an abort wakes all.
pub(crate) fn reservations_join_and_aborts_wake(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
    let handle = store.start(2).unwrap();
    let reservation = handle.reserve(1).unwrap();
    handle.stop();
    let other = store.clone();
    let syncer = thread::spawn(move || other.sync_all());
    let handle = reservation.start().unwrap();
    increment(&store, &handle, 30);
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
    recovered(&device, &spec);
}

/// A handle that joins at the moment at which a commit opens the gate again is in the transaction
/// that [`Store::running`](nextent_store::Store::running) names. Otherwise no commit would take its
/// changes.
pub(crate) fn a_handle_inside_has_the_running_transaction(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
    let workers: Vec<_> = (1..3)
        .map(|no| {
            let store = store.clone();
            thread::spawn(move || {
                for _ in 0..6 {
                    let handle = store.start(1).unwrap();
                    assert_eq!(store.running(), handle.tid());
                    increment(&store, &handle, no);
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
    let copy = recovered(&device, &spec);
    assert_eq!([1, 2].map(|no| word_on(&*copy, no)), [6; 2]);
    store.close().unwrap();
}

/// Several handles set credits aside while commits drain: at most half of a transaction at any
/// moment, and every reservation starts.
pub(crate) fn half_may_be_set_aside(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
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
                        increment(&store, &handle, 4 + t);
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
}
