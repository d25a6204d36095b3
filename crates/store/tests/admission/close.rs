//! Models of `Store::close` beside handles, commits and freezes.

use crate::small_journal::{BLOCK_SIZE, open, set_word, volume, word_on};
use nextent_device::BlockDevice;
use nextent_ondisk::Tid;
use nextent_store::{AdmissionFactory, Error, JournalSpec, Result, Store, recover};
use nextent_sync::{Arc, thread};
use nextent_testkit::ModelDisk;

/// Sets the word of block `no` in a handle of its own; the handle's transaction.
pub(crate) fn set(store: &Store, no: u64, value: u64) -> Result<Tid> {
    let handle = store.start(1)?;
    set_word(store, &handle, no, value);
    let tid = handle.tid();
    handle.stop();
    Ok(tid)
}

pub(crate) fn assert_refused(error: &Error) {
    assert!(matches!(error, Error::ReadOnly), "{error}");
}

/// The word of block `no` on a closed device, whose log must be empty.
pub(crate) fn word_of_closed(device: &ModelDisk, spec: &JournalSpec, no: u64) -> u64 {
    let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    let report = recover(&copy, BLOCK_SIZE, spec).unwrap();
    assert_eq!(report.transactions, 0, "the log of a closed store holds transactions");
    word_on(&*copy, no)
}

/// Two threads change a block each and commit until they are refused; a third thread closes.
pub(crate) fn a_commit_beside_a_close_is_kept(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
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
        assert_eq!(word_of_closed(&closed, &spec, no), promised, "of block {no}");
    }
    // The store writes nothing after the close.
    assert_eq!(word_of_closed(&device, &spec, 1), word_of_closed(&closed, &spec, 1));
    assert_refused(&store.start(1).err().unwrap());
    store.close().unwrap();
}

/// A handle whose thread never commits is in the close's last transaction, or refused.
pub(crate) fn a_handle_beside_a_close_is_kept_or_refused(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
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
        assert_eq!(worker.join().unwrap(), word_of_closed(&device, &spec, no), "of block {no}");
    }
}

/// Two threads close at once: both return after the store is closed.
pub(crate) fn the_second_close_waits_for_the_first(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
    set(&store, 1, 5).unwrap();
    let other = store.clone();
    let (theirs, what) = (device.clone(), spec.clone());
    let second = thread::spawn(move || {
        other.close().unwrap();
        assert_eq!(word_of_closed(&theirs, &what, 1), 5);
    });
    store.close().unwrap();
    assert_eq!(word_of_closed(&device, &spec, 1), 5);
    second.join().unwrap();
}

/// A close ends although the store is frozen, or another thread waits for a freeze; a handle that
/// waits is refused.
pub(crate) fn a_close_ends_freezes(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
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
    assert_eq!(word_of_closed(&device, &spec, 1), 5);
    assert_eq!(word_of_closed(&device, &spec, 2), worker.join().unwrap());
    freezer.join().unwrap();
}

/// A sync of a frozen store returns: only handles wait for the thaw.
pub(crate) fn a_sync_of_a_frozen_store_returns(admission: &AdmissionFactory) {
    let (device, spec) = volume(false);
    let store = open(&device, &spec, admission);
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
    assert_eq!(word_of_closed(&device, &spec, 1), 6);
}
