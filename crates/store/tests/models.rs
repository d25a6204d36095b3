//! Shuttle models of admission, commit, checkpoint and credits, on a tiny journal.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle --test models`. Every schedule
//! ends in the same question: does a crash now leave each transaction whole?
#![cfg(feature = "model-shuttle")]

mod admission;
mod small_journal;

use admission::handles;
use nextent_store::AdmissionFactory;

fn each_schedule(times: usize, model: fn(&AdmissionFactory)) {
    shuttle::check_random(move || model(&AdmissionFactory::default()), times);
}

#[test]
fn transactions_are_whole_at_every_moment() {
    each_schedule(300, handles::transactions_are_whole_at_every_moment);
}

#[test]
fn credits_are_never_overdrawn() {
    each_schedule(300, handles::credits_are_never_overdrawn);
}

#[test]
fn freed_blocks_are_not_written_again() {
    each_schedule(300, handles::freed_blocks_are_not_written_again);
}

#[test]
fn reservations_join_and_aborts_wake() {
    each_schedule(300, handles::reservations_join_and_aborts_wake);
}

/// One thread runs far while another stands still: even schedules hardly meet that.
#[test]
fn a_handle_inside_has_the_running_transaction() {
    let model =
        || handles::a_handle_inside_has_the_running_transaction(&AdmissionFactory::default());
    shuttle::check_pct(model, 1000, 3);
}

#[test]
fn half_may_be_set_aside() {
    each_schedule(200, handles::half_may_be_set_aside);
}
