//! Transactions without a log: gate, lists, frozen images, in-place writes.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::{BlockNo, Tid};
use nextent_store::{
    BlockRef, Dirty, Error, Handle, RenderSink, Result, Seal, Store, StoreOptions,
};
use nextent_sync::{Arc, LockClass, Mutex, thread};

const SIZE: usize = 1024;
static STATE: LockClass = LockClass::new("test.counter", 340);

fn store(blocks: u64) -> (Arc<MemoryDevice>, Store) {
    let device = Arc::new(MemoryDevice::new(blocks * SIZE as u64));
    let options = StoreOptions { block_size: SIZE, ..StoreOptions::default() };
    (device.clone(), Store::without_journal(device, &options).unwrap())
}

fn unchecked(_: &[u8]) -> Result<()> {
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A counter rendered into its eight bytes of a block that it shares with other counters.
struct Counter {
    block: BlockRef,
    at: usize,
    state: Mutex<CounterState>,
}

#[derive(Default)]
struct CounterState {
    value: u64,
    dirty: Option<Tid>,
    frozen: Option<u64>,
}

impl Counter {
    fn add(self: &Arc<Self>, handle: &Handle<'_>) {
        let mut state = self.state.lock();
        if state.dirty != Some(handle.tid()) {
            if state.dirty.is_some() {
                assert!(state.frozen.is_none());
                state.frozen = Some(state.value);
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
        let value = match state.frozen.take() {
            Some(value) => value,
            None => {
                assert_eq!(state.dirty.take(), Some(tid));
                state.value
            }
        };
        drop(state);
        out.patch(&self.block, |b| b[self.at..self.at + 8].copy_from_slice(&value.to_le_bytes()));
        Ok(())
    }
}

#[test]
fn a_changed_block_is_in_place_after_a_commit() {
    let (device, store) = store(16);
    let handle = store.start(4).unwrap();
    let block = store.create(&handle, BlockNo(3), Seal { f: |s, _, b| b[9] = s as u8, seed: 7 });
    handle.update(&block, |b| b[0] = 1);
    let tid = handle.tid();
    handle.stop();
    store.commit(tid).unwrap();
    let mut bytes = [0; SIZE];
    device.read_at(3 * SIZE as u64, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[9]), (1, 7));
    store.close().unwrap();
    assert!(matches!(store.start(1), Err(Error::ReadOnly)));
}

#[test]
fn rendered_and_changed_blocks_of_a_transaction_are_written_together() {
    let (device, store) = store(64);
    let shared = store.read::<Error>(BlockNo(1), unchecked).unwrap();
    let pairs: Vec<_> = (0..8)
        .map(|i| {
            let state = Mutex::new(&STATE, CounterState::default());
            Arc::new(Counter { block: shared.clone(), at: i * 8, state })
        })
        .collect();
    thread::scope(|scope| {
        for (i, counter) in pairs.iter().enumerate() {
            let store = &store;
            scope.spawn(move || {
                let own = store.read::<Error>(BlockNo(10 + i as u64), unchecked).unwrap();
                for n in 0..2000 {
                    let handle = store.start(4).unwrap();
                    counter.add(&handle);
                    handle.update(&own, |b| {
                        let next = word(b, 0) + 1;
                        b[..8].copy_from_slice(&next.to_le_bytes());
                    });
                    let tid = handle.tid();
                    handle.stop();
                    if n % 97 == 0 {
                        store.commit(tid).unwrap();
                    }
                }
            });
        }
    });
    store.close().unwrap();
    assert_eq!(store.credit_overruns(), 0);
    let mut bytes = [0; SIZE];
    device.read_at(SIZE as u64, &mut bytes).unwrap();
    for i in 0..8 {
        let mut own = [0; SIZE];
        device.read_at((10 + i as u64) * SIZE as u64, &mut own).unwrap();
        assert_eq!((word(&bytes, i * 8), word(&own, 0)), (2000, 2000));
    }
}

#[test]
fn a_forgotten_block_is_not_written() {
    let (device, store) = store(16);
    let handle = store.start(4).unwrap();
    let block = store.create(&handle, BlockNo(5), Seal::NONE);
    handle.update(&block, |b| b[0] = 1);
    handle.forget(BlockNo(5));
    handle.stop();
    store.sync_all().unwrap();
    let mut bytes = [0; SIZE];
    device.read_at(5 * SIZE as u64, &mut bytes).unwrap();
    assert_eq!(bytes[0], 0);
}

#[test]
fn freeze_keeps_handles_out() {
    let (_, store) = store(16);
    store.freeze().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| store.start(1).unwrap().tid());
        thread::sleep(std::time::Duration::from_millis(30));
        assert!(!waiter.is_finished());
        assert!(store.thaw());
        waiter.join().unwrap();
    });
    assert!(!store.thaw());
}

#[test]
fn freezes_are_allowed_again_when_a_close_is_given_up() {
    let (_, store) = store(16);
    store.freeze().unwrap();
    store.end_freezes();
    assert!(!store.thaw(), "the freeze has ended");
    assert!(matches!(store.freeze(), Err(Error::ReadOnly)));
    store.allow_freezes();
    store.freeze().unwrap();
    assert!(store.thaw());
    store.start(1).unwrap().stop();
}

#[test]
fn reservations_start_and_handles_restart() {
    let (_, store) = store(16);
    let handle = store.start(2).unwrap();
    let reservation = handle.reserve(3).unwrap();
    let first = handle.tid();
    store.commit_soon();
    handle.restart(5).unwrap();
    assert_eq!(handle.credits_left(), 5);
    assert!(handle.tid().is_at_least(first));
    assert!(handle.extend(10).unwrap());
    handle.stop();
    assert_eq!(reservation.start().unwrap().credits_left(), 3);
    assert!(matches!(store.start(1 << 20), Err(Error::TooBig { .. })));
}

/// Credits of a reservation are the handle's once it has started: as many can be set aside again.
#[test]
fn a_started_reservation_sets_nothing_aside() {
    let (_, store) = store(16);
    for _ in 0..200 {
        let handle = store.start(1).unwrap();
        let reservation = handle.reserve(store.max_credits() / 4).expect("nothing is set aside");
        handle.stop();
        reservation.start().unwrap().stop();
    }
}
