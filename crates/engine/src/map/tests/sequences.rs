//! Random sequences of operations, compared with the model.

use super::super::*;
use super::fixture::Fixture;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// File block, length, whether written, and whether the blocks follow the last ones allocated.
    Insert(u32, u32, bool, bool),
    Remove(u32, u32),
    Convert(u32, u32),
    /// First file block, length of each run, gap between runs, and number of runs.
    ConvertRuns(u32, u32, u32, u32),
    MarkUnwritten(u32, u32),
    Collapse(u32, u32),
    InsertRange(u32, u32),
    NodesLeft(u32),
}

fn op(extents: bool) -> impl Strategy<Value = Op> {
    let at = || prop_oneof![0..200u32, 0..4000u32];
    let len = || prop_oneof![4 => 1..6u32, 2 => 1..200u32, 1 => 1..1500u32];
    let basic = prop_oneof![
        6 => (at(), len(), any::<bool>(), any::<bool>())
            .prop_map(move |(a, l, w, c)| Op::Insert(a, l, w || !extents, c)),
        3 => (at(), len()).prop_map(|(a, l)| Op::Remove(a, l)),
        1 => (0..3u32).prop_map(Op::NodesLeft),
    ];
    let more = prop_oneof![
        3 => (at(), len()).prop_map(|(a, l)| Op::Convert(a, l)),
        3 => (at(), 1..9u32, 0..40u32, 1..200u32)
            .prop_map(|(a, l, gap, n)| Op::ConvertRuns(a, l, gap, n)),
        2 => (at(), len()).prop_map(|(a, l)| Op::MarkUnwritten(a, l)),
        1 => (at(), len()).prop_map(|(a, l)| Op::Collapse(a, l)),
        1 => (at(), len()).prop_map(|(a, l)| Op::InsertRange(a, l)),
    ];
    if extents { prop_oneof![basic, more].boxed() } else { basic.boxed() }
}

/// Allocates data blocks, with a gap before each run unless it follows the last one.
struct Blocks(u64);

impl Blocks {
    fn take(&mut self, len: u32, follows: bool) -> u64 {
        let start = self.0 + u64::from(!follows);
        self.0 = start + u64::from(len);
        start
    }
}

fn insert(f: &mut Fixture, blocks: &mut Blocks, at: u32, len: u32, written: bool, follows: bool) {
    let (mut at, end) = (at, at + len);
    let state = if written { ExtentState::Written } else { ExtentState::Unwritten };
    while at < end {
        if f.model.get(at).is_some() {
            at += 1;
            continue;
        }
        let n = f.model.hole_len(at).min(end - at);
        match f.insert(at, blocks.take(n, follows), n, state) {
            Ok(done) => at += done,
            Err(Error::NoSpace) => {
                f.limit_nodes(None);
                f.check();
            }
            Err(error) => panic!("insertion at {at}: {error}"),
        }
    }
}

fn run(f: &mut Fixture, blocks: &mut Blocks, op: &Op) {
    match *op {
        Op::Insert(at, len, written, follows) => insert(f, blocks, at, len, written, follows),
        Op::NodesLeft(n) => return f.limit_nodes(Some(n)),
        // Removing the middle of an extent may need a node. Only insertions are tested on a full
        // volume.
        Op::Remove(at, len) => {
            f.limit_nodes(None);
            f.remove(at..at + len);
        }
        Op::Convert(at, len) => {
            f.limit_nodes(None);
            f.set_state(at..at + len, ExtentState::Written);
        }
        Op::ConvertRuns(at, len, gap, count) => {
            f.limit_nodes(None);
            let starts = (0..count).map(|n| at + n * (len + gap));
            let runs: Vec<_> = starts.map(|start| start..start + len).collect();
            f.convert_runs(&runs);
        }
        Op::MarkUnwritten(at, len) => {
            f.limit_nodes(None);
            f.set_state(at..at + len, ExtentState::Unwritten);
        }
        Op::Collapse(at, len) => {
            f.limit_nodes(None);
            f.collapse(at..at + len);
        }
        Op::InsertRange(at, len) => {
            f.limit_nodes(None);
            f.insert_range(at, len);
        }
    }
    match *op {
        Op::Insert(at, len, ..) | Op::Remove(at, len) | Op::Convert(at, len) => {
            for at in [at, at + len, at + len / 2, at.saturating_sub(1)] {
                f.check_at(at);
            }
        }
        _ => f.check_at(0),
    }
}

fn sequence(kind: MapKind, block_size: u32, fragments: u32, ops: &[Op]) {
    let mut f = Fixture::new(kind, block_size);
    let mut blocks = Blocks(600_000);
    for i in 0..fragments {
        f.insert(i * 3, blocks.take(2, false), 2, ExtentState::Written).expect("room");
    }
    f.check();
    for op in ops {
        run(&mut f, &mut blocks, op);
        f.check();
    }
    f.limit_nodes(None);
    f.remove(0..u32::MAX);
    f.check();
    assert_eq!(f.owned, 0);
    assert_eq!(f.root.bytes(), MapRoot::empty(kind).bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn extent_trees_agree_with_the_model(
        small: bool,
        fragments in prop_oneof![Just(0u32), Just(450)],
        ops in proptest::collection::vec(op(true), 1..60),
    ) {
        sequence(MapKind::Extents, if small { 1024 } else { 4096 }, fragments, &ops);
    }

    #[test]
    fn indirect_maps_agree_with_the_model(
        small: bool,
        fragments in prop_oneof![Just(0u32), Just(450)],
        ops in proptest::collection::vec(op(false), 1..60),
    ) {
        sequence(MapKind::Indirect, if small { 1024 } else { 4096 }, fragments, &ops);
    }
}
