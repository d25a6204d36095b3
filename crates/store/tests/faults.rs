//! A device that fails once, at every write and flush of a workload in turn.
//!
//! After each fault the journal aborts, and later calls get the first cause. A recovery restores
//! whole transactions, and all durable ones.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, Rule};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, Tid};
use nextent_store::{
    Dirty, Error, JournalRun, JournalSpec, JournalUse, RenderSink, Result, Store, StoreOptions,
    recover,
};
use nextent_sync::{Arc, thread};

const SIZE: usize = 1024;
const LOG: u32 = 60;
const ROUNDS: u64 = 24;

fn spec() -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(20), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: 120,
    }
}

fn increment(store: &Store, handle: &nextent_store::Handle<'_>, no: u64) {
    let block = store.read::<Error>(BlockNo(no), |_| Ok(())).unwrap();
    handle.update(&block, |b| {
        let next = u64::from_le_bytes(b[..8].try_into().unwrap()) + 1;
        b[..8].copy_from_slice(&next.to_le_bytes());
    });
}

/// Increments three blocks in each round; returns the rounds that were reported durable.
fn work(store: &Store) -> (u64, Result<()>) {
    for round in 0..ROUNDS {
        let step = || -> Result<()> {
            let handle = store.start(4)?;
            for no in [1, 2 + round % 3, 7] {
                increment(store, &handle, no);
            }
            let tid = handle.tid();
            handle.stop();
            store.commit(tid)
        };
        if let Err(error) = step() {
            return (round, Err(error));
        }
    }
    (ROUNDS, Ok(()))
}

fn word(device: &dyn BlockDevice, no: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_at(no * SIZE as u64, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Runs the workload with one fault at operation `n`; false if the workload has fewer operations.
fn strike(kind: OpKind, fault: &Fault, n: u64) -> bool {
    let device = Arc::new(FaultDevice::new(MemoryDevice::new(120 * SIZE as u64), 1));
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.inner().write_at(20 * SIZE as u64, &sb.to_bytes()).unwrap();
    device.add(Rule::on(kind, fault.clone()).after(n).times(1));
    let options = StoreOptions { block_size: SIZE, ..StoreOptions::default() };
    let durable = match Store::with_journal(device.clone(), &options, &spec()) {
        Err(_) => 0,
        Ok(store) => {
            let (durable, outcome) = work(&store);
            if outcome.is_ok() && store.close().is_ok() {
                return device.struck() > 0;
            }
            if let Err(Error::Aborted(cause)) = outcome {
                let Err(Error::Aborted(again)) = store.start(1).map(drop) else {
                    panic!("a handle after an abort");
                };
                assert_eq!(cause, again);
                assert!(cause.contains("failed"), "{cause}");
            }
            durable
        }
    };
    let copy: Arc<dyn BlockDevice> = Arc::new(device.inner().snapshot());
    recover(&copy, SIZE, &spec()).unwrap();
    let all = word(&*copy, 1);
    let parts: u64 = (2..5).map(|no| word(&*copy, no)).sum();
    assert!(all == parts && all == word(&*copy, 7), "{kind:?} {n}: {all} {parts}");
    assert!(all >= durable, "{kind:?} {n}: {durable} were durable, {all} are recovered");
    true
}

fn strike_everywhere(kind: OpKind, fault: &Fault) {
    let struck = (0..1000).take_while(|&n| strike(kind, fault, n)).count();
    assert!(struck > ROUNDS as usize, "only {struck} operations to fail");
}

#[test]
fn every_write_fails_once() {
    strike_everywhere(OpKind::Write, &Fault::Error(libc_eio()));
}

#[test]
fn every_write_is_torn_once() {
    strike_everywhere(OpKind::Write, &Fault::Torn { sectors: 1 });
}

#[test]
fn every_flush_fails_once() {
    strike_everywhere(OpKind::Flush, &Fault::Error(libc_eio()));
}

#[test]
fn every_write_finds_the_device_full_once() {
    const ENOSPC: i32 = 28;
    strike_everywhere(OpKind::Write, &Fault::Error(ENOSPC));
}

fn libc_eio() -> i32 {
    5
}

/// A journal that is too small for a handle refuses it at once, and admits others.
#[test]
fn a_handle_too_big_for_the_journal_is_refused() {
    let device = Arc::new(MemoryDevice::new(120 * SIZE as u64));
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.write_at(20 * SIZE as u64, &sb.to_bytes()).unwrap();
    let options = StoreOptions { block_size: SIZE, ..StoreOptions::default() };
    let store = Store::with_journal(device.clone(), &options, &spec()).unwrap();
    let most = store.max_credits();
    let refused = |outcome: Result<()>| match outcome {
        Err(Error::TooBig { wanted, limit }) => assert_eq!((wanted, limit), (most + 1, most)),
        other => panic!("{other:?}"),
    };
    refused(store.start(most + 1).map(drop));
    let handle = store.start(most).unwrap();
    increment(&store, &handle, 1);
    // Takes all credits that the transaction has.
    while handle.extend(most).unwrap() {}
    refused(handle.restart(most + 1));
    drop(handle);
    let handle = store.start(most).unwrap();
    increment(&store, &handle, 1);
    let tid = handle.tid();
    handle.stop();
    store.commit(tid).unwrap();
    drop(store);
    let device: Arc<dyn BlockDevice> = device;
    recover(&device, SIZE, &spec()).unwrap();
    assert_eq!(word(&*device, 1), 2);
}

struct PanickingObject;

impl Dirty for PanickingObject {
    fn render(&self, _: Tid, _: &mut RenderSink) -> Result<()> {
        panic!("an object that cannot be rendered");
    }
}

/// A commit that panics in one caller's thread aborts the journal: the other callers and the close
/// return an error.
#[test]
fn a_commit_that_panics_aborts_the_journal() {
    let device = Arc::new(MemoryDevice::new(120 * SIZE as u64));
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.write_at(20 * SIZE as u64, &sb.to_bytes()).unwrap();
    let options = StoreOptions { block_size: SIZE, ..StoreOptions::default() };
    let store = Arc::new(Store::with_journal(device.clone(), &options, &spec()).unwrap());
    let handle = store.start(1).unwrap();
    handle.dirty(Arc::new(PanickingObject));
    let tid = handle.tid();
    handle.stop();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || store.commit(tid))
        })
        .collect();
    let outcomes: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    for outcome in outcomes.into_iter().flatten() {
        let Err(Error::Aborted(cause)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(&*cause, "a commit panicked");
    }
    assert!(matches!(store.start(1).map(drop), Err(Error::Aborted(_))));
    assert!(store.close().is_err());
    drop(store);
    let device: Arc<dyn BlockDevice> = device;
    recover(&device, SIZE, &spec()).unwrap();
}
