//! Linearizability: whether some order of the calls on one directory explains all their answers.
//!
//! A call that returned before another one began precedes it in the order. The search extends
//! orders thread by thread and skips states that it has visited.

use std::collections::{BTreeMap, HashSet};

/// A call and its arguments, which are names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Create(u64),
    Unlink(u64),
    Rename(u64, u64),
    Lookup(u64),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Success, with the inode's number if the call returns one.
    Done(u32),
    NotFound,
    Exists,
    /// The volume was full; the call changed nothing.
    NoSpace,
}

/// A call with the schedule's steps at which it began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) request: Request,
    pub(crate) answer: Answer,
}

/// The inode of each name.
pub(crate) type Names = BTreeMap<u64, u32>;

/// The names after the call, if it may have this answer now.
fn apply(names: &Names, call: &Call) -> Option<Names> {
    if call.answer == Answer::NoSpace {
        return Some(names.clone());
    }
    let mut after = names.clone();
    let answer = match call.request {
        Request::Create(name) if names.contains_key(&name) => Answer::Exists,
        Request::Create(name) => {
            if let Answer::Done(ino) = call.answer {
                after.insert(name, ino);
            }
            call.answer
        }
        Request::Unlink(name) => after.remove(&name).map_or(Answer::NotFound, |_| Answer::Done(0)),
        Request::Rename(from, to) => after.remove(&from).map_or(Answer::NotFound, |ino| {
            after.insert(to, ino);
            Answer::Done(0)
        }),
        Request::Lookup(name) => {
            names.get(&name).map_or(Answer::NotFound, |ino| Answer::Done(*ino))
        }
    };
    let wrong_create =
        matches!(call.request, Request::Create(_)) && call.answer == Answer::NotFound;
    (answer == call.answer && !wrong_create).then_some(after)
}

/// Whether some order of the calls explains all answers and ends with the names `last`.
pub(crate) fn is_linearizable(threads: &[Vec<Call>], last: &Names) -> bool {
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

    fn call(begin: u64, end: u64, request: Request, answer: Answer) -> Call {
        Call { begin, end, request, answer }
    }

    #[test]
    fn overlapping_calls_may_come_in_any_order() {
        let made = call(0, 10, Request::Create(1), Answer::Done(7));
        let seen = call(5, 6, Request::Lookup(1), Answer::Done(7));
        let last = Names::from([(1, 7)]);
        assert!(is_linearizable(&[vec![made], vec![seen]], &last));
        assert!(is_linearizable(
            &[vec![made], vec![Call { answer: Answer::NotFound, ..seen }]],
            &last
        ));
        assert!(!is_linearizable(
            &[vec![made], vec![Call { answer: Answer::Done(8), ..seen }]],
            &last
        ));
    }

    #[test]
    fn calls_that_do_not_overlap_keep_their_order() {
        let made = call(0, 10, Request::Create(1), Answer::Done(7));
        let gone = call(11, 20, Request::Unlink(1), Answer::Done(0));
        let stale = call(21, 22, Request::Lookup(1), Answer::Done(7));
        assert!(!is_linearizable(&[vec![made, gone], vec![stale]], &Names::new()));
        let early = Call { begin: 15, ..stale };
        assert!(is_linearizable(&[vec![made, gone], vec![early]], &Names::new()));
        assert!(!is_linearizable(&[vec![made]], &Names::new()), "the directory says otherwise");
    }

    #[test]
    fn a_rename_replaces_its_target() {
        let calls = vec![
            call(0, 1, Request::Create(1), Answer::Done(7)),
            call(2, 3, Request::Create(2), Answer::Done(8)),
            call(4, 5, Request::Rename(1, 2), Answer::Done(0)),
            call(6, 7, Request::Rename(1, 2), Answer::NotFound),
        ];
        assert!(is_linearizable(std::slice::from_ref(&calls), &Names::from([(2, 7)])));
        assert!(!is_linearizable(&[calls], &Names::from([(2, 8)])));
    }
}
