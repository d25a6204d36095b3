//! Compares the buddy with a naive model.

use super::buddy::{Buddy, Run};
use proptest::prelude::*;

/// One flag for each cluster. Each query scans all of them.
struct Model(Vec<bool>);

impl Model {
    fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut at = 0;
        while at < self.0.len() {
            let n = self.0[at..].iter().take_while(|&&free| free).count();
            if n > 0 {
                runs.push((at as u32, n as u32));
            }
            at += n.max(1);
        }
        runs
    }

    fn chunk_free(&self, order: usize, i: usize) -> bool {
        let size = 1 << order;
        let end = (i + 1) * size;
        end <= self.0.len() && self.0[i * size..end].iter().all(|&free| free)
    }

    fn largest_order(&self) -> Option<usize> {
        (0..=13).rev().find(|&order| (0..=self.0.len() >> order).any(|i| self.chunk_free(order, i)))
    }

    fn set(&mut self, (start, n): Run, free: bool) {
        self.0[start as usize..(start + n) as usize].fill(free);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Take(u32, u32),
    Give(u32, u32),
    Find(u32, u32),
    NearLongest(u32),
    Chunk(usize),
}

fn op(len: u32) -> impl Strategy<Value = Op> {
    let size = prop_oneof![1..5u32, 1..70u32, 1..=len];
    prop_oneof![
        3 => (0..len, size.clone()).prop_map(|(at, n)| Op::Take(at, n)),
        3 => (0..len, size.clone()).prop_map(|(at, n)| Op::Give(at, n)),
        2 => (size.clone(), 0..len).prop_map(|(n, hint)| Op::Find(n, hint)),
        1 => size.prop_map(Op::NearLongest),
        1 => (0..14usize).prop_map(Op::Chunk),
    ]
}

fn case() -> impl Strategy<Value = (u32, Vec<Op>)> {
    prop_oneof![1..200u32, Just(64), Just(512), Just(1000), Just(8192)]
        .prop_flat_map(|len| (Just(len), proptest::collection::vec(op(len), 1..60)))
}

/// The first run of `[at, at + n)`, clipped to the region, in which each cluster is `free`.
fn clip_run(model: &Model, at: u32, n: u32, free: bool) -> Option<Run> {
    let end = model.0.len().min((at + n) as usize);
    let start = (at as usize..end).find(|&i| model.0[i] == free)?;
    let len = model.0[start..end].iter().take_while(|&&is| is == free).count();
    Some((start as u32, len as u32))
}

fn step(buddy: &mut Buddy, model: &mut Model, op: &Op) {
    match *op {
        Op::Take(at, n) => {
            if let Some(run) = clip_run(model, at, n, true) {
                buddy.take(run.0, run.1);
                model.set(run, false);
            }
        }
        Op::Give(at, n) => {
            if let Some(run) = clip_run(model, at, n, false) {
                buddy.give(run.0, run.1);
                model.set(run, true);
            }
        }
        Op::Find(n, hint) => find(buddy, model, n, hint),
        Op::NearLongest(max) => {
            let found = buddy.find_near_longest(max);
            assert_eq!(found.is_some(), !model.runs().is_empty());
            if let Some((start, len)) = found {
                assert!(len <= max && clip_run(model, start, len, true) == Some((start, len)));
                let half = model.runs().iter().map(|run| run.1).max().unwrap_or(0) / 4;
                assert!(len >= half.min(max));
            }
        }
        Op::Chunk(order) => {
            let found = buddy.find_chunk(order);
            assert_eq!(found.is_some(), model.largest_order().is_some_and(|top| top >= order));
            if let Some(start) = found {
                assert!(model.chunk_free(order, (start >> order) as usize));
            }
        }
    }
}

fn find(buddy: &Buddy, model: &Model, n: u32, hint: u32) {
    let runs = model.runs();
    let fits = |from: u32| {
        runs.iter().find_map(|&(start, len)| {
            let begin = start.max(from);
            (begin < start + len && start + len - begin >= n).then_some((begin, n))
        })
    };
    assert_eq!(buddy.find_run(n, hint), fits(hint).or_else(|| fits(0)));
}

fn same(buddy: &Buddy, model: &Model) {
    let runs = model.runs();
    assert_eq!(buddy.runs().collect::<Vec<_>>(), runs);
    assert_eq!(buddy.free(), runs.iter().map(|run| run.1).sum::<u32>());
    assert_eq!(buddy.fragments(), runs.len() as u32);
    assert_eq!(buddy.largest_order(), model.largest_order());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn buddy_agrees_with_model((len, ops) in case()) {
        let mut buddy = Buddy::full(len);
        let mut model = Model(vec![false; len as usize]);
        for op in &ops {
            step(&mut buddy, &mut model, op);
            same(&buddy, &model);
        }
    }
}

#[test]
fn a_whole_region_is_one_chunk() {
    let mut buddy = Buddy::from_used(8192, &[0; 128]);
    assert_eq!((buddy.largest_order(), buddy.fragments()), (Some(13), 1));
    buddy.take(4095, 2);
    assert_eq!((buddy.largest_order(), buddy.fragments()), (Some(11), 2));
    assert_eq!(buddy.find_chunk(11), Some(0));
    buddy.give(4095, 2);
    assert_eq!((buddy.largest_order(), buddy.free()), (Some(13), 8192));
}

#[test]
#[should_panic(expected = "not free")]
fn taking_a_range_twice_panics() {
    let mut buddy = Buddy::from_used(64, &[0]);
    buddy.take(3, 2);
    buddy.take(4, 1);
}
