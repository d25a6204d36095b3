//! Whether some order of the calls on one directory explains all their answers.
//!
//! A call that had returned before another began comes before it. The search goes through orders
//! thread by thread and remembers where it was; a few calls of three threads take no time.

use std::collections::{BTreeMap, HashSet};

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Create(u64),
    Unlink(u64),
    Rename(u64, u64),
    Lookup(u64),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done; an inode's number where one is told.
    Done(u32),
    NotFound,
    Exists,
    /// Not done, for want of space: nothing was changed.
    NoSpace,
}

/// A call with its steps of begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) ask: Ask,
    pub(crate) answer: Answer,
}

/// Names and what they mean.
pub(crate) type Names = BTreeMap<u64, u32>;

/// Does what the call does, if it may answer so now.
fn apply(names: &Names, call: &Call) -> Option<Names> {
    if call.answer == Answer::NoSpace {
        return Some(names.clone());
    }
    let mut after = names.clone();
    let answer = match call.ask {
        Ask::Create(name) if names.contains_key(&name) => Answer::Exists,
        Ask::Create(name) => {
            if let Answer::Done(ino) = call.answer {
                after.insert(name, ino);
            }
            call.answer
        }
        Ask::Unlink(name) => after.remove(&name).map_or(Answer::NotFound, |_| Answer::Done(0)),
        Ask::Rename(from, to) => after.remove(&from).map_or(Answer::NotFound, |ino| {
            after.insert(to, ino);
            Answer::Done(0)
        }),
        Ask::Lookup(name) => names.get(&name).map_or(Answer::NotFound, |ino| Answer::Done(*ino)),
    };
    let wrong_create = matches!(call.ask, Ask::Create(_)) && call.answer == Answer::NotFound;
    (answer == call.answer && !wrong_create).then_some(after)
}

/// Whether an order explains all answers and leaves `last`.
pub(crate) fn explained(threads: &[Vec<Call>], last: &Names) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0; threads.len()], Names::new())];
    while let Some((at, names)) = open.pop() {
        if !seen.insert((at.clone(), names.clone())) {
            continue;
        }
        let next: Vec<Option<&Call>> =
            threads.iter().zip(&at).map(|(calls, at)| calls.get(*at)).collect();
        if next.iter().all(Option::is_none) {
            if names == *last {
                return true;
            }
            continue;
        }
        let first_end = next.iter().flatten().map(|call| call.end).min().unwrap_or(u64::MAX);
        for (thread, call) in next.iter().enumerate() {
            let Some(call) = call.filter(|call| call.begin <= first_end) else { continue };
            if let Some(after) = apply(&names, call) {
                let mut at = at.clone();
                at[thread] += 1;
                open.push((at, after));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(begin: u64, end: u64, ask: Ask, answer: Answer) -> Call {
        Call { begin, end, ask, answer }
    }

    #[test]
    fn what_overlaps_may_come_in_any_order() {
        let made = call(0, 10, Ask::Create(1), Answer::Done(7));
        let seen = call(5, 6, Ask::Lookup(1), Answer::Done(7));
        let last = Names::from([(1, 7)]);
        assert!(explained(&[vec![made], vec![seen]], &last));
        assert!(explained(&[vec![made], vec![Call { answer: Answer::NotFound, ..seen }]], &last));
        assert!(!explained(&[vec![made], vec![Call { answer: Answer::Done(8), ..seen }]], &last));
    }

    #[test]
    fn what_was_over_stays_over() {
        let made = call(0, 10, Ask::Create(1), Answer::Done(7));
        let gone = call(11, 20, Ask::Unlink(1), Answer::Done(0));
        let stale = call(21, 22, Ask::Lookup(1), Answer::Done(7));
        assert!(!explained(&[vec![made, gone], vec![stale]], &Names::new()));
        let early = Call { begin: 15, ..stale };
        assert!(explained(&[vec![made, gone], vec![early]], &Names::new()));
        assert!(!explained(&[vec![made]], &Names::new()), "the directory says otherwise");
    }

    #[test]
    fn moves_replace() {
        let calls = vec![
            call(0, 1, Ask::Create(1), Answer::Done(7)),
            call(2, 3, Ask::Create(2), Answer::Done(8)),
            call(4, 5, Ask::Rename(1, 2), Answer::Done(0)),
            call(6, 7, Ask::Rename(1, 2), Answer::NotFound),
        ];
        assert!(explained(std::slice::from_ref(&calls), &Names::from([(2, 7)])));
        assert!(!explained(&[calls], &Names::from([(2, 8)])));
    }
}
