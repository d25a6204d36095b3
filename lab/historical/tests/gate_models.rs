//! Shuttle models that every historical gate must pass.
//!
//! Run with `cargo test -p nextent-historical --features model-shuttle --test gate_models`.
#![cfg(feature = "model-shuttle")]

#[path = "../../../crates/store/tests/admission/mod.rs"]
mod admission;
#[path = "../../../crates/store/tests/small_journal/mod.rs"]
mod small_journal;

use admission::{close, handles};
use nextent_historical::design::Admission;
use nextent_historical::gates;
use nextent_store::AdmissionFactory;
use nextent_sync::LockKind;

const GATES: [Admission; 3] = [Admission::StateLock, Admission::StateLockHack, Admission::RwLock];

fn each_gate(check: impl Fn(Box<dyn Fn() + Send + Sync>), model: fn(&AdmissionFactory)) {
    for gate in GATES {
        check(Box::new(move || model(&gates::factory(gate, LockKind::Sleep))));
    }
}

/// Runs a model in random schedules under each gate.
fn each_schedule(times: usize, model: fn(&AdmissionFactory)) {
    each_gate(|model| shuttle::check_random(model, times), model);
}

/// The same, and also with random priorities.
fn each_kind_of_schedule(times: usize, model: fn(&AdmissionFactory)) {
    each_schedule(times, model);
    each_gate(|model| shuttle::check_pct(model, times, 3), model);
}

#[test]
fn transactions_are_whole_at_every_moment() {
    each_schedule(150, handles::transactions_are_whole_at_every_moment);
}

#[test]
fn credits_are_never_overdrawn() {
    each_schedule(150, handles::credits_are_never_overdrawn);
}

#[test]
fn freed_blocks_are_not_written_again() {
    each_schedule(150, handles::freed_blocks_are_not_written_again);
}

#[test]
fn reservations_join_and_aborts_wake() {
    each_schedule(150, handles::reservations_join_and_aborts_wake);
}

/// Needs schedules in which one thread runs long while another is stopped, which uniform schedules
/// rarely have.
#[test]
fn a_handle_inside_has_the_running_transaction() {
    let model = handles::a_handle_inside_has_the_running_transaction;
    each_gate(|model| shuttle::check_pct(model, 1000, 3), model);
}

#[test]
fn half_may_be_set_aside() {
    each_schedule(100, handles::half_may_be_set_aside);
}

#[test]
fn a_commit_beside_a_close_is_kept() {
    each_kind_of_schedule(100, close::a_commit_beside_a_close_is_kept);
}

#[test]
fn a_handle_beside_a_close_is_kept_or_refused() {
    each_kind_of_schedule(75, close::a_handle_beside_a_close_is_kept_or_refused);
}

#[test]
fn the_second_close_waits_for_the_first() {
    each_kind_of_schedule(50, close::the_second_close_waits_for_the_first);
}

#[test]
fn a_close_ends_freezes() {
    each_kind_of_schedule(50, close::a_close_ends_freezes);
}

#[test]
fn a_sync_of_a_frozen_store_returns() {
    each_kind_of_schedule(50, close::a_sync_of_a_frozen_store_returns);
}
