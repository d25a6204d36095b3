//! Shuttle models of `Store::close`, `suspend` and `resume` beside handles, commits, fast commits
//! and freezes.
//!
//! Promises: a commit that returned success is on the device after the close. A handle that was
//! stopped before is too, if the close succeeded. A later handle is refused with `ReadOnly`. Every
//! thread returns.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle --test close_models`.
#![cfg(feature = "model-shuttle")]

mod admission;
mod small_journal;

use admission::close::{self, assert_refused, set, word_of_closed};
use nextent_ondisk::InodeNo;
use nextent_ondisk::fast_commit;
use nextent_store::AdmissionFactory;
use nextent_sync::thread;
use small_journal::{open, volume};

/// Runs a model in random schedules, evenly and by priorities.
fn each_schedule(times: usize, model: fn(&AdmissionFactory)) {
    let model = move || model(&AdmissionFactory::default());
    shuttle::check_random(model, times);
    shuttle::check_pct(model, times, 3);
}

#[test]
fn a_commit_beside_a_close_is_kept() {
    each_schedule(400, close::a_commit_beside_a_close_is_kept);
}

#[test]
fn a_handle_beside_a_close_is_kept_or_refused() {
    each_schedule(300, close::a_handle_beside_a_close_is_kept_or_refused);
}

#[test]
fn the_second_close_waits_for_the_first() {
    each_schedule(200, close::the_second_close_waits_for_the_first);
}

#[test]
fn a_close_ends_freezes() {
    each_schedule(200, close::a_close_ends_freezes);
}

#[test]
fn a_sync_of_a_frozen_store_returns() {
    each_schedule(200, close::a_sync_of_a_frozen_store_returns);
}

/// A thread changes a block and makes fast commits until it is refused; another thread closes.
#[test]
fn a_fast_commit_beside_a_close_is_kept() {
    let model = || {
        let (device, spec) = volume(true);
        let store = open(&device, &spec, &AdmissionFactory::default());
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
        assert_eq!(word_of_closed(&closed, &spec, 1), promised);
    };
    shuttle::check_random(model, 500);
    shuttle::check_pct(model, 500, 3);
}

/// Two threads change a block each and commit, fully or fast, until they are done. A third thread
/// suspends and resumes the store twice. A refused change has no effect; every other one is kept.
/// A suspended device has an empty log and keeps its bytes until the store is resumed.
fn changes_beside_suspensions(fast: bool) {
    let (device, spec) = volume(fast);
    let store = open(&device, &spec, &AdmissionFactory::default());
    let workers: Vec<_> = (1..=2u64)
        .map(|no| {
            let store = store.clone();
            thread::spawn(move || {
                let mut last = 0;
                for value in 1..=3u64 {
                    match set(&store, no, value) {
                        Ok(tid) => {
                            last = value;
                            store.commit(tid).unwrap();
                        }
                        Err(error) => assert_refused(&error),
                    }
                }
                last
            })
        })
        .collect();
    for _ in 0..2 {
        store.suspend().unwrap();
        let suspended = device.snapshot();
        assert_refused(&store.start(1).err().unwrap());
        store.sync_all().unwrap();
        thread::yield_now();
        for no in 1..=2 {
            let now = word_of_closed(&device, &spec, no);
            assert_eq!(now, word_of_closed(&suspended, &spec, no), "of block {no}");
        }
        store.resume().unwrap();
    }
    let last: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    // A crash now: the log has all that was committed.
    let crashed = small_journal::recovered(&device, &spec);
    for (no, last) in (1..).zip(&last) {
        assert_eq!(small_journal::word_on(&*crashed, no), *last, "of block {no} after a crash");
    }
    set(&store, 3, 9).unwrap();
    store.close().unwrap();
    assert_eq!(word_of_closed(&device, &spec, 3), 9);
    for (no, last) in (1..).zip(last) {
        assert_eq!(word_of_closed(&device, &spec, no), last, "of block {no}");
    }
}

#[test]
fn changes_beside_suspensions_are_kept_or_refused() {
    shuttle::check_random(|| changes_beside_suspensions(false), 300);
    shuttle::check_pct(|| changes_beside_suspensions(false), 300, 3);
}

#[test]
fn changes_beside_suspensions_of_a_log_with_fast_commits() {
    shuttle::check_random(|| changes_beside_suspensions(true), 150);
    shuttle::check_pct(|| changes_beside_suspensions(true), 150, 3);
}

/// A handle that waits at the gate while the store is suspended is refused, or joins after the
/// store has been resumed. A freeze beside it ends.
#[test]
fn waiters_return_from_a_suspension() {
    let model = || {
        let (device, spec) = volume(false);
        let store = open(&device, &spec, &AdmissionFactory::default());
        let other = store.clone();
        let freezer = thread::spawn(move || {
            if other.freeze().is_ok() {
                let _ = other.thaw();
            }
        });
        let other = store.clone();
        let worker = thread::spawn(move || match set(&other, 1, 5) {
            Ok(_) => 5,
            Err(error) => {
                assert_refused(&error);
                0
            }
        });
        store.suspend().unwrap();
        store.resume().unwrap();
        freezer.join().unwrap();
        let kept = worker.join().unwrap();
        while store.thaw() {}
        store.close().unwrap();
        assert_eq!(word_of_closed(&device, &spec, 1), kept);
    };
    shuttle::check_random(model, 300);
    shuttle::check_pct(model, 300, 3);
}
