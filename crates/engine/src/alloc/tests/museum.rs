//! The designs of the museum, held to what the default is held to.

use super::*;
use super::{blocks, crash_rule, damage, threads, trim};
use nextent_sync::LockKind;

/// Every preset but the default, by order where it can search by order; with `both`, those also
/// without.
fn designs(both: bool) -> Vec<Design> {
    let presets = Design::all().iter().filter(|design| **design != Design::default());
    let variants = presets.flat_map(|design| {
        let with = |option| Design::named(&format!("{design}/{option}")).unwrap();
        match design.options() {
            [] => vec![*design],
            _ if both => vec![with("s0"), with("s1")],
            _ => vec![with("s1")],
        }
    });
    // By turns sleeping and spinning.
    let kinds = [LockKind::Sleep, LockKind::Spin].into_iter().cycle();
    variants.zip(kinds).map(|(design, kind)| design.with_locks(kind)).collect()
}

fn each_of(designs: Vec<Design>, test: impl Fn(&Design)) {
    for design in designs {
        eprintln!("design {design}");
        test(&design);
    }
}

fn each(test: impl Fn(&Design)) {
    each_of(designs(false), test);
}

#[test]
fn every_layout_is_left_as_it_was() {
    each(blocks::every_layout);
}

#[test]
fn every_last_block_is_handed_out_by_privilege() {
    each(blocks::last_blocks);
}

#[test]
fn own_blocks_and_free_blocks_cannot_be_freed() {
    each(blocks::wrong_frees);
}

#[test]
fn promises_are_kept() {
    each(blocks::promises);
}

#[test]
fn replay_marks_blocks_once() {
    each(blocks::marks);
}

#[test]
fn sixteen_threads_hand_out_exactly_what_is_free() {
    each_of(designs(true), threads::sixteen_threads);
}

#[test]
fn mixed_work_with_commits_leaves_nothing_behind() {
    each_of(designs(true), threads::mixed_work);
}

#[test]
fn no_block_returns_before_its_release_is_durable() {
    each_of(designs(true), crash_rule::no_early_return);
}

#[test]
fn trim_runs_beside_work() {
    each(trim::trim_beside_work);
}

#[test]
fn trim_discards_what_is_free() {
    each(trim::trim_what_is_free);
}

#[test]
fn discard_at_commit_spares_what_is_taken_again() {
    each(trim::discard_at_commit);
}

#[test]
fn a_damaged_bitmap_excludes_its_group() {
    each(damage::damaged_bitmap);
}
