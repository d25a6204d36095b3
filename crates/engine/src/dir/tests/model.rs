//! Random changes against a map, with scans going on meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::fake::{Fake, geometry};
use crate::dir::{Cursor, DirError, init};

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u8),
    Remove(u16),
    Lookup(u16, u8),
    Scan(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0..600u16, 1..=255u8).prop_map(|(n, len)| Op::Insert(n, len)),
        3 => (0..600u16).prop_map(Op::Remove),
        1 => (0..600u16, 1..=255u8).prop_map(|(n, len)| Op::Lookup(n, len)),
        2 => (1..40u8).prop_map(Op::Scan),
    ]
}

fn name(n: u16, len: u8) -> Vec<u8> {
    let mut name = format!("{n}.").into_bytes();
    let len = usize::from(len).max(name.len());
    name.resize(len, b'a' + (n % 26) as u8);
    name
}

/// A scan that began at some time: what was there all the while, and what it has seen.
struct Watch {
    cursor: Cursor,
    stateless: bool,
    always: BTreeSet<Vec<u8>>,
    seen: BTreeSet<Vec<u8>>,
}

impl Watch {
    fn new(model: &BTreeMap<Vec<u8>, u32>, stateless: bool) -> Self {
        let always = model.keys().cloned().collect();
        Self { cursor: Cursor::new(), stateless, always, seen: BTreeSet::new() }
    }

    /// True at the end, after having checked the promise.
    fn step(&mut self, dir: &Fake, max: usize) -> bool {
        if self.stateless {
            self.cursor = Cursor::from_cookie(self.cursor.cookie());
        }
        let some = dir.scan(&mut self.cursor, max).unwrap();
        let end = some.len() < max;
        for (name, _) in some {
            assert!(self.seen.insert(name.clone()), "{name:?} came twice");
        }
        if end {
            for name in &self.always {
                assert!(self.seen.contains(name), "{name:?} was missed");
            }
        }
        end
    }
}

fn run(dir: &Fake, ops: &[Op]) {
    let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut lengths = BTreeMap::new();
    let mut watches = [Watch::new(&model, false), Watch::new(&model, true)];
    for (i, op) in ops.iter().enumerate() {
        match *op {
            Op::Insert(n, len) => {
                let len = *lengths.entry(n).or_insert(len);
                let name = name(n, len);
                let expected =
                    if model.contains_key(&name) { Err(DirError::Exists) } else { Ok(()) };
                assert_eq!(dir.insert(&name, i as u32 + 100), expected);
                model.entry(name).or_insert(i as u32 + 100);
            }
            Op::Remove(n) => {
                let name = name(n, *lengths.get(&n).unwrap_or(&1));
                let expected = model.remove(&name).ok_or(DirError::NotFound);
                assert_eq!(dir.remove(&name), expected);
                for watch in &mut watches {
                    watch.always.remove(&name);
                    watch.seen.remove(&name);
                }
            }
            Op::Lookup(n, len) => {
                let name = name(n, len);
                assert_eq!(dir.lookup(&name).unwrap(), model.get(&name).copied());
            }
            Op::Scan(max) => {
                for watch in &mut watches {
                    if watch.step(dir, max.into()) {
                        *watch = Watch::new(&model, watch.stateless);
                    }
                }
            }
        }
    }
    for watch in &mut watches {
        while !watch.step(dir, 7) {}
    }
    assert_eq!(dir.all(), model);
    assert_eq!(init::is_empty(dir).unwrap(), model.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_agree_with_a_map(
        ops in prop::collection::vec(op(), 1..1000),
        shift in 0..7u32,
        csum: bool,
        version in prop::option::weighted(0.85, 0..6u8),
        collide in prop::bool::weighted(0.3),
    ) {
        let features = match (csum, shift) {
            (true, _) => "filetype,metadata_csum",
            (false, 2) => "none",
            (false, _) => "filetype",
        };
        let seed = if collide { super::COLLIDE } else { [1, 2, 3, 4] };
        run(&Fake::with(geometry(1024 << shift, features), version, seed), &ops);
    }
}
