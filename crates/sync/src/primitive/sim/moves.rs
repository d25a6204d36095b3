//! Lines on their way: for each line a list of those who have asked for it, in turn.
//!
//! All lists are in one vector, and a line has two numbers. A list of its own for each line would
//! be freed in the order of a hash of addresses, which are others in each run: memory that is got
//! afterwards would lie elsewhere each time, and with it all that is simulated.

/// A line on its way to a core that has asked for it.
#[derive(Clone, Copy)]
struct Move {
    to: u16,
    /// The next in the list, plus one.
    next: u32,
    /// When whoever has it then loses it.
    leaves: u64,
    /// For a store that its core does not wait for, when it is done.
    stored: Option<u64>,
}

/// All that are on their way.
#[derive(Default)]
pub(super) struct Moves {
    all: Vec<Move>,
    free: Vec<u32>,
}

/// Those of one line: the first and the last, plus one.
#[derive(Clone, Copy, Default)]
pub(super) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub(super) fn is_empty(self) -> bool {
        self.first == 0
    }
}

impl Moves {
    fn at(&self, number: u32) -> Option<&Move> {
        self.all.get((number as usize).checked_sub(1)?)
    }

    /// When the line leaves whoever has it; none if nobody has asked.
    pub(super) fn leaves(&self, queue: Queue) -> Option<u64> {
        self.at(queue.first).map(|next| next.leaves)
    }

    /// Who will have it last of those who have asked.
    pub(super) fn last(&self, queue: Queue) -> Option<usize> {
        self.at(queue.last).map(|last| last.to.into())
    }

    /// When the store of a core will be done that does not wait for it.
    pub(super) fn stored(&self, queue: Queue, to: usize) -> Option<u64> {
        let mut number = queue.first;
        while let Some(one) = self.at(number) {
            if usize::from(one.to) == to && one.stored.is_some() {
                return one.stored;
            }
            number = one.next;
        }
        None
    }

    /// The core that comes first, and when, if that is by a store that it does not wait for.
    pub(super) fn first_stored(&self, queue: Queue) -> Option<(usize, u64)> {
        let first = self.at(queue.first)?;
        Some((first.to.into(), first.stored?))
    }

    /// A core asks, after all others; for a store that it does not wait for, until when.
    pub(super) fn push(&mut self, queue: &mut Queue, to: usize, leaves: u64, stored: Option<u64>) {
        let new = Move { to: to as u16, next: 0, leaves, stored };
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number as usize - 1] = new;
                number
            }
            None => {
                self.all.push(new);
                self.all.len() as u32
            }
        };
        if queue.last == 0 {
            queue.first = number;
        } else {
            self.all[queue.last as usize - 1].next = number;
        }
        queue.last = number;
    }

    /// It is with a core that has asked.
    pub(super) fn remove(&mut self, queue: &mut Queue, to: usize) {
        let (mut before, mut number) = (0, queue.first);
        while let Some(&one) = self.at(number) {
            if usize::from(one.to) != to {
                (before, number) = (number, one.next);
                continue;
            }
            match before {
                0 => queue.first = one.next,
                _ => self.all[before as usize - 1].next = one.next,
            }
            if queue.last == number {
                queue.last = before;
            }
            self.free.push(number);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_list_of_its_own() {
        let (mut moves, mut one, mut other) =
            (Moves::default(), Queue::default(), Queue::default());
        assert!(one.is_empty() && moves.leaves(one).is_none() && moves.last(one).is_none());
        for (to, leaves) in [(1, 10), (2, 20), (3, 30)] {
            moves.push(&mut one, to, leaves, None);
            moves.push(&mut other, to + 10, leaves + 1, Some(leaves + 9));
        }
        assert_eq!((moves.leaves(one), moves.last(one)), (Some(10), Some(3)));
        assert_eq!((moves.leaves(other), moves.last(other)), (Some(11), Some(13)));
        assert_eq!((moves.first_stored(one), moves.stored(one, 2)), (None, None));
        assert_eq!(
            (moves.first_stored(other), moves.stored(other, 12)),
            (Some((11, 19)), Some(29))
        );
        // From the middle, the end, and one that is not there.
        moves.remove(&mut one, 2);
        moves.remove(&mut one, 3);
        moves.remove(&mut one, 7);
        assert_eq!((moves.leaves(one), moves.last(one)), (Some(10), Some(1)));
        // In the places of those that went.
        moves.push(&mut one, 4, 40, None);
        assert_eq!((moves.leaves(one), moves.last(one), moves.all.len()), (Some(10), Some(4), 6));
        moves.remove(&mut one, 1);
        moves.remove(&mut one, 4);
        assert!(one.is_empty() && moves.last(one).is_none());
        assert_eq!((moves.leaves(other), moves.last(other)), (Some(11), Some(13)));
    }
}
