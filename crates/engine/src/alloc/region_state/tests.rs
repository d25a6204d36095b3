use super::*;
use proptest::prelude::*;

const LEN: u32 = 200;

/// The naive model: keeps all images, and searches all of them for each query.
struct Model {
    now: Vec<bool>,
    /// Images of ended transactions that are not durable, oldest first.
    ended: Vec<(u32, Vec<bool>)>,
    durable: Vec<bool>,
    /// In use at the last fast commit of the running transaction.
    fast_committed: Vec<bool>,
    /// Freed after a fast commit, whether it named the cluster or not: the state does not
    /// distinguish them.
    freed_after_fast: Vec<bool>,
    /// The running transaction has a fast commit.
    fast: bool,
    tid: u32,
    changed: bool,
}

impl Model {
    fn new() -> Self {
        let none = vec![false; LEN as usize];
        let [now, durable, fast_committed, freed_after_fast] =
            std::array::from_fn(|_| none.clone());
        let (ended, fast, tid, changed) = (Vec::new(), false, 1, false);
        Self { now, ended, durable, fast_committed, freed_after_fast, fast, tid, changed }
    }

    fn is_allocatable(&self, at: usize) -> bool {
        let held = self.durable[at] || self.ended.iter().any(|(_, image)| image[at]);
        !self.now[at] && !held && !self.freed_after_fast[at]
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate(u32, u32),
    Free(u32, u32),
    Window(u32),
    UseWindow(u32),
    Recall,
    Trim(u32),
    /// A fast commit that names all clusters in use.
    FastCommit,
    End,
    Render,
    Durable,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..LEN, 1..40u32).prop_map(|(at, n)| Op::Allocate(at, n)),
        4 => (0..LEN, 1..60u32).prop_map(|(at, n)| Op::Free(at, n)),
        1 => (1..20u32).prop_map(Op::Window),
        1 => (1..20u32).prop_map(Op::UseWindow),
        1 => Just(Op::Recall),
        1 => (1..10u32).prop_map(Op::Trim),
        2 => Just(Op::FastCommit),
        2 => Just(Op::End),
        2 => Just(Op::Render),
        2 => Just(Op::Durable),
    ]
}

struct Pair {
    state: RegionState,
    model: Model,
    window: Option<(Run, u32)>,
    rendered_free: i64,
}

impl Pair {
    fn begin(&mut self) {
        assert_eq!(self.state.begin(Tid(self.model.tid)), !self.model.changed);
        self.model.changed = true;
    }

    fn allocate(&mut self, at: u32, n: u32) {
        let Some(run) = self.state.find(n, 1, Aim::From(at)) else {
            let window = self.window.map_or(0, |(run, _)| run.1);
            let left = (0..LEN as usize).filter(|&i| self.model.is_allocatable(i)).count() as u32;
            assert!(left <= window || self.state.reserved() > 0);
            return;
        };
        assert!(run.1 >= 1 && run.1 <= n);
        self.begin();
        self.state.take(run);
        for i in run.0..run.0 + run.1 {
            assert!(self.model.is_allocatable(i as usize), "cluster {i} is in an image");
            assert!(!self.model.fast_committed[i as usize], "a fast commit names cluster {i}");
            self.model.now[i as usize] = true;
        }
    }

    fn free(&mut self, at: u32, n: u32) {
        let end = (at + n).min(LEN);
        self.begin();
        let first = (at..end).find(|&i| !self.model.now[i as usize]);
        assert_eq!(self.state.free_run((at, end - at), self.model.fast).err(), first);
        if first.is_none() {
            self.model.now[at as usize..end as usize].fill(false);
            if self.model.fast {
                self.model.freed_after_fast[at as usize..end as usize].fill(true);
            }
        }
    }

    fn use_window(&mut self, n: u32) {
        let Some(((start, len), epoch)) = self.window.take() else { return };
        let n = n.min(len);
        self.begin();
        assert!(self.state.take_reserved((start, n), epoch));
        self.model.now[start as usize..(start + n) as usize].fill(true);
        self.state.release_window((start + n, len - n), epoch);
    }

    fn end(&mut self) {
        // The store starts a transaction's commit only when the one before is durable.
        if self.model.ended.is_empty() {
            if self.model.changed {
                self.model.ended.push((self.model.tid, self.model.now.clone()));
            }
            self.model.fast = false;
            self.model.changed = false;
            self.model.tid += 1;
        }
    }

    fn render(&mut self) {
        let Some((tid, image)) = self.model.ended.first() else { return };
        let Some(rendered) = self.state.render(Tid(*tid)) else { return };
        for (i, &used) in image.iter().enumerate() {
            assert_eq!(bits::test(rendered.bits, i as u32), used);
        }
        self.rendered_free += rendered.freed;
        let free = image.iter().filter(|&&used| !used).count() as i64;
        assert_eq!(self.rendered_free, free);
    }

    fn durable(&mut self) {
        self.render();
        if let Some((tid, image)) = self.model.ended.pop() {
            let coming: u32 = self.state.to_release(Tid(tid)).iter().map(|run| run.1).sum();
            assert_eq!(self.state.committed(Tid(tid)), coming);
            self.model.durable = image;
            self.model.fast_committed.fill(false);
            self.model.freed_after_fast.fill(false);
        }
    }

    /// A fast commit is possible only while no older transaction is being committed.
    fn fast_commit(&mut self) {
        if self.model.ended.is_empty() {
            self.model.fast_committed = self.model.now.clone();
            self.model.fast = true;
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Allocate(at, n) => self.allocate(at, n),
            Op::Free(at, n) => self.free(at, n),
            Op::Window(n) if self.window.is_none() => {
                if let Some(run) = self.state.find(n, 1, Aim::Anywhere) {
                    self.window = Some((run, self.state.reserve(run)));
                }
            }
            Op::Window(_) => {}
            Op::UseWindow(n) => self.use_window(n),
            Op::Recall => {
                self.state.recall_windows();
                if let Some((run, epoch)) = self.window.take() {
                    assert!(!self.state.holds_window(epoch));
                    self.state.release_window(run, epoch);
                }
            }
            Op::Trim(min) => {
                if self.state.start_trim(0, LEN, min).is_some() {
                    self.state.recall_windows();
                    self.window = None;
                    assert!(self.state.start_trim(0, LEN, min).is_none());
                    self.state.end_trim();
                }
            }
            Op::FastCommit => self.fast_commit(),
            Op::End => self.end(),
            Op::Render => self.render(),
            Op::Durable => self.durable(),
        }
    }

    fn compare(&self) {
        self.state.check();
        let window = self.window.map_or(0, |(run, _)| run.1);
        let allocatable =
            (0..LEN as usize).filter(|&i| self.model.is_allocatable(i)).count() as u32;
        assert_eq!(self.state.buddy().free() + window, allocatable);
        assert_eq!(self.state.held_back(), self.state.free() - allocatable);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_cluster_is_reused_before_its_release_is_durable(
        ops in proptest::collection::vec(op(), 1..120)
    ) {
        let state = RegionState::new(LEN, vec![0; 4].into());
        let rendered_free = i64::from(LEN);
        let mut pair = Pair { state, model: Model::new(), window: None, rendered_free };
        for op in &ops {
            pair.step(op);
            pair.compare();
        }
    }
}

#[test]
fn clusters_allocated_and_freed_in_one_transaction_are_reusable_at_once() {
    let mut state = RegionState::new(64, vec![0].into());
    state.begin(Tid(1));
    state.take((0, 64));
    state.free_run((10, 4), false).unwrap();
    assert_eq!(state.find(4, 4, Aim::Anywhere), Some((10, 4)));
    state.begin(Tid(2));
    state.free_run((20, 4), false).unwrap();
    assert_eq!(state.held_back(), 4, "in use at the end of 1");
    state.render(Tid(1)).unwrap();
    assert_eq!(state.committed(Tid(1)), 0);
    state.render(Tid(2)).unwrap();
    assert_eq!(state.buddy().free(), 4);
    assert_eq!(state.committed(Tid(2)), 4);
    assert_eq!(state.buddy().free(), 8);
}

#[test]
fn clusters_freed_after_a_fast_commit_are_held_back_until_the_commit() {
    let mut state = RegionState::new(64, vec![0].into());
    state.begin(Tid(1));
    state.take((0, 32));
    state.free_run((10, 4), true).unwrap();
    assert_eq!((state.held_back(), state.find(4, 4, Aim::At(10))), (4, None));
    assert_eq!(state.start_trim(0, 64, 1), Some((32, 32)), "trim skips them");
    state.end_trim();
    state.recall_windows();
    state.check();
    state.render(Tid(1)).unwrap();
    assert_eq!(state.to_release(Tid(1)), [(10, 4)]);
    assert_eq!(state.committed(Tid(1)), 4);
    assert_eq!(state.find(4, 4, Aim::At(10)), Some((10, 4)));
}

#[test]
fn freeing_a_free_cluster_returns_it_and_changes_nothing() {
    let mut state = RegionState::new(64, vec![0xff].into());
    state.begin(Tid(1));
    assert_eq!(state.free_run((4, 10), false), Err(8));
    assert_eq!(state.free(), 56);
}

#[test]
fn the_last_allocation_is_reused_first_after_its_free() {
    let mut state = RegionState::new(LEN, vec![0; 4].into());
    state.begin(Tid(1));
    for _ in 0..3 {
        let first = state.find(30, 30, Aim::Anywhere).unwrap();
        state.take(first);
        let second = state.find(10, 10, Aim::Anywhere).unwrap();
        assert_eq!(second.0, first.0 + 30);
        state.take(second);
        // The cursor moves back over both, in whichever order the file's clusters are freed.
        state.free_run(second, false).unwrap();
        state.free_run(first, false).unwrap();
        assert_eq!((first.0, second.0), (0, 30));
    }
    state.check();
}
