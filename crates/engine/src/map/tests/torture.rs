//! Large maps: many fragments, long extents, deep trees.

use super::super::*;
use super::fixture::Fixture;

/// Every second block of a file in file order. No two blocks are contiguous in the volume.
fn singles(n: u32) -> Vec<(u32, u64)> {
    (0..n).map(|i| (i * 2, 100_000 + u64::from(i) * 3)).collect()
}

/// Maps `n` single blocks, every second block of the file, in the order `at`. Then removes some of
/// them, then the second half, then the rest.
fn fragments(kind: MapKind, block_size: u32, n: u32, at: impl Fn(u32) -> u32) {
    let mut f = Fixture::new(kind, block_size);
    let blocks: Vec<_> = (0..n).map(|i| (at(i) * 2, 100_000 + u64::from(at(i)) * 3)).collect();
    f.insert_singles(&blocks);
    f.check();
    assert_eq!(f.look(|cx, root| extents(cx, root, FileBlock(0)).count()), n as usize);
    f.check_at(n);
    for i in (0..n).step_by(97) {
        f.remove(i * 2..i * 2 + 1);
    }
    f.check();
    let collapsed = f.root.depth();
    f.remove(n..u32::MAX);
    f.check();
    assert!(f.root.depth() <= collapsed);
    f.remove(0..u32::MAX);
    f.check();
    assert_eq!(f.owned, 0);
}

#[test]
fn a_file_of_single_blocks_from_front_to_back() {
    fragments(MapKind::Extents, 1024, 100_000, |i| i);
}

#[test]
fn a_file_of_single_blocks_from_back_to_front() {
    fragments(MapKind::Extents, 1024, 10_000, |i| 9_999 - i);
}

#[test]
fn a_file_of_single_blocks_in_odd_order() {
    // 7919 is prime to 10000.
    fragments(MapKind::Extents, 4096, 10_000, |i| (i * 7919) % 10_000);
}

#[test]
fn an_indirect_file_of_single_blocks() {
    fragments(MapKind::Indirect, 1024, 30_000, |i| i);
}

#[test]
fn nodes_are_full_when_a_file_is_written_in_order() {
    let mut f = Fixture::new(MapKind::Extents, 1024);
    f.insert_singles(&singles(84 * 84));
    let nodes = f.look(|cx, root| count_nodes(cx, root).expect("count"));
    assert!(nodes <= 84 + 2, "{nodes} nodes");
}

/// Each extent lies in another group, so that freeing them needs more credits than a transaction
/// has.
#[test]
fn scattered_blocks_are_freed_over_several_transactions() {
    for kind in [MapKind::Extents, MapKind::Indirect] {
        let mut f = Fixture::new(kind, 1024);
        for i in 0..3000 {
            let start = 100_000 + u64::from(i) * 7919 % 900 * 8192 + u64::from(i) * 2;
            f.insert(i * 2, start, 1, ExtentState::Written).expect("room");
        }
        f.check();
        f.remove(1500..4000);
        f.check();
        f.remove(0..u32::MAX);
        f.check();
        assert!(f.stops > 10, "{} stops", f.stops);
    }
}

/// Each extent overlaps so many groups, or has so many blocks to revoke, that no transaction has
/// the credits to free it.
#[test]
fn long_extents_are_freed_over_several_handles() {
    for (blocks_per_group, contents) in
        [(256, BlockKind::Data), (256, BlockKind::Metadata), (8192, BlockKind::Metadata)]
    {
        let mut f = Fixture::grouped(MapKind::Extents, 1024, blocks_per_group);
        f.contents = contents;
        for i in 0..4 {
            let start = 1_000_000 + u64::from(i) * 40_000;
            f.insert(i * 33_000, start, 32_767, ExtentState::Written).expect("room");
        }
        f.check();
        f.remove(20_000..60_000);
        f.check();
        f.remove(0..u32::MAX);
        f.check();
        assert_eq!((f.owned, f.stops > 3), (0, true), "{} stops", f.stops);
    }
}

#[test]
fn states_and_shifts_of_a_large_tree_take_several_transactions() {
    let mut f = Fixture::new(MapKind::Extents, 1024);
    for i in 0..8_000 {
        f.insert(i * 4, 100_000 + u64::from(i) * 5, 3, ExtentState::Unwritten).expect("room");
    }
    for i in 0..8_000 {
        f.set_state(i * 4 + 1..i * 4 + 2, ExtentState::Written);
    }
    f.check();
    f.stops = 0;
    f.set_state(0..u32::MAX, ExtentState::Unwritten);
    f.check();
    assert!(f.stops > 0);
    f.stops = 0;
    f.insert_range(2, 1000);
    f.check();
    assert!(f.stops > 0);
    f.stops = 0;
    f.collapse(1..20_000);
    f.check();
    assert!(f.stops > 0);
}

#[test]
fn scattered_runs_of_a_large_tree_are_converted_together() {
    let mut f = Fixture::new(MapKind::Extents, 1024);
    for i in 0..6_000 {
        f.insert(i * 10, 100_000 + u64::from(i) * 9, 9, ExtentState::Unwritten).expect("room");
    }
    // Each of the first runs splits an extent in three, so that leaves fill up. The later ones
    // convert the rest, so that the extents merge.
    let runs = |from: u32, len: u32| {
        (0..6_000).map(|i| i * 10 + from..i * 10 + from + len).collect::<Vec<_>>()
    };
    for (from, len) in [(4, 1), (7, 1), (1, 2), (0, 9)] {
        f.convert_runs(&runs(from, len));
        f.check();
    }
    assert!(f.stops > 0);
    let mut f = Fixture::new(MapKind::Extents, 4096);
    f.insert(0, 100_000, 30_000, ExtentState::Unwritten).expect("room");
    for step in [100, 33, 8, 3] {
        let runs: Vec<_> = (0..30_000 / step).map(|n| n * step..n * step + 1).collect();
        f.convert_runs(&runs);
        f.check();
    }
    f.convert_runs(&[0..10, 10..20_000, 20_000..30_000, 30_000..40_000]);
    f.check();
    assert!(f.look(|cx, root| extents(cx, root, FileBlock(0)).count()) < 250);
}

#[test]
fn subtrees_are_removed_from_every_position() {
    let n = 84 * 84 * 2;
    let ranges = [0..84, 0..84 * 5, 0..84 * 84, 84 * 3..84 * 7, 84 * 84..84 * 84 + 84, 50..n, 0..n];
    for range in ranges {
        let mut f = Fixture::new(MapKind::Extents, 1024);
        f.insert_singles(&singles(n));
        f.remove(range.start * 2..range.end * 2);
        f.check();
        f.check_at(0);
        f.insert(range.start * 2, 90_000, 1, ExtentState::Written).expect("room");
        f.check();
    }
}

#[test]
fn a_tree_collapses_into_the_root_as_soon_as_it_fits() {
    for left in 0..12 {
        let mut f = Fixture::new(MapKind::Extents, 1024);
        f.insert_singles(&singles(500));
        f.remove(left * 2..2000);
        f.check();
        assert_eq!(f.root.depth(), u32::from(left > 4), "{left} extents");
    }
}

#[test]
fn extent_lengths_stay_within_the_limit_of_their_state() {
    for (state, limit) in [(ExtentState::Written, 32768), (ExtentState::Unwritten, 32767)] {
        let mut f = Fixture::new(MapKind::Extents, 4096);
        f.insert(10, 100_000, 100_000, state).expect("room");
        f.check();
        let found: Vec<u32> = f.look(|cx, root| {
            extents(cx, root, FileBlock(0)).map(|e| e.expect("walk").len).collect()
        });
        assert_eq!(found, [limit, limit, limit, 100_000 - 3 * limit]);
        f.set_state(0..u32::MAX, ExtentState::Unwritten);
        f.check();
        f.set_state(0..u32::MAX, ExtentState::Written);
        f.check();
    }
}

#[test]
fn contiguous_appends_become_one_extent() {
    let mut f = Fixture::new(MapKind::Extents, 4096);
    for i in 0..1000 {
        f.insert(i * 2, 100_000 + u64::from(i) * 2, 2, ExtentState::Unwritten).expect("room");
        f.set_state(i * 2..i * 2 + 2, ExtentState::Written);
    }
    f.check();
    assert_eq!(f.look(|cx, root| extents(cx, root, FileBlock(0)).count()), 1);
}

#[test]
fn the_last_possible_block_can_be_mapped() {
    for kind in [MapKind::Extents, MapKind::Indirect] {
        let mut f = Fixture::new(kind, 8192);
        f.insert(u32::MAX - 1, 100_000, 1, ExtentState::Written).expect("room");
        assert!(matches!(f.insert(u32::MAX, 100_001, 1, ExtentState::Written), Err(Error::TooBig)));
        let short = f.insert(u32::MAX - 2, 100_001, 2, ExtentState::Written);
        assert!(matches!(short, Err(Error::Corrupt(_)) | Ok(1)), "{short:?}");
        f.remove(u32::MAX - 1..u32::MAX);
        f.remove(0..u32::MAX);
        f.check();
    }
}

#[test]
fn shifting_beyond_the_end_is_refused() {
    let mut f = Fixture::new(MapKind::Extents, 4096);
    f.insert(1000, 100_000, 10, ExtentState::Written).expect("room");
    let credits = shift_credits(&f.root);
    let range = FileBlock(0)..END_OF_BLOCKS;
    let by = u32::MAX - 1000;
    let end = f.with(credits, |cx, h, root| shift_right(cx, h, root, range, by));
    assert!(matches!(end, Err(Error::TooBig)));
    let left = f.with(credits, |cx, h, root| shift_left(cx, h, root, FileBlock(1000), 1001));
    assert!(matches!(left, Err(Error::TooBig)));
    let over = f.with(credits, |cx, h, root| shift_left(cx, h, root, FileBlock(1005), 3));
    assert!(matches!(over, Err(Error::Invalid)));
    f.check();
}

#[test]
fn goals_are_contiguous_with_the_neighbouring_extent() {
    for kind in [MapKind::Extents, MapKind::Indirect] {
        let mut f = Fixture::new(kind, 4096);
        f.insert(20, 100_000, 10, ExtentState::Written).expect("room");
        let goal = |f: &Fixture, at| {
            f.look(|cx, root| match lookup(cx, root, FileBlock(at), 1).expect("lookup") {
                Mapping::Hole { goal, .. } => goal,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(goal(&f, 30), Some(BlockNo(100_010)));
        assert_eq!(goal(&f, 35), Some(BlockNo(100_015)));
        if kind == MapKind::Extents {
            assert_eq!(goal(&f, 15), Some(BlockNo(99_995)));
        }
    }
}
