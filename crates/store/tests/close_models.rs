//! Shuttle models of `Store::close` beside handles, commits, fast commits and freezes.
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
