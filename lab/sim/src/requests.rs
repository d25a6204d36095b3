//! Requests for lines: for each line a queue of the cores that it is transferred to, in order.
//!
//! All queues share one vector, and a line has two indexes into it. Invariant: no queue has memory
//! of its own, for it would be freed in the order of a hash of addresses (see `table`).

/// A requested transfer of a line.
#[derive(Clone, Copy)]
struct Transfer {
    to: u16,
    /// The next in the queue, plus one.
    next: u32,
    /// When the line leaves the core that has it before.
    leaves: u64,
    /// For a store that its core does not wait for, when it is done.
    store: Option<u64>,
}

/// The requests of all lines.
#[derive(Default)]
pub(crate) struct Requests {
    all: Vec<Transfer>,
    free: Vec<u32>,
}

/// The requests of one line: the first and the last, plus one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub(crate) fn is_empty(self) -> bool {
        self.first == 0
    }
}

impl Requests {
    fn at(&self, number: u32) -> Option<&Transfer> {
        self.all.get((number as usize).checked_sub(1)?)
    }

    /// When the line leaves the core that has it, if it is requested.
    pub(crate) fn leaves(&self, queue: Queue) -> Option<u64> {
        self.at(queue.first).map(|next| next.leaves)
    }

    /// The core that has the line once all requests are done.
    pub(crate) fn last(&self, queue: Queue) -> Option<usize> {
        self.at(queue.last).map(|last| last.to.into())
    }

    /// When the buffered store of a core will be done.
    pub(crate) fn store_of(&self, queue: Queue, to: usize) -> Option<u64> {
        let mut number = queue.first;
        while let Some(one) = self.at(number) {
            if usize::from(one.to) == to && one.store.is_some() {
                return one.store;
            }
            number = one.next;
        }
        None
    }

    /// If the first request is for a buffered store, its core and when it is done.
    pub(crate) fn first_store(&self, queue: Queue) -> Option<(usize, u64)> {
        let first = self.at(queue.first)?;
        Some((first.to.into(), first.store?))
    }

    /// Appends a request; `store` for a buffered store, when it is done.
    pub(crate) fn push(&mut self, queue: &mut Queue, to: usize, leaves: u64, store: Option<u64>) {
        let new = Transfer { to: to as u16, next: 0, leaves, store };
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

    /// Removes the first request of a core, if it has one.
    pub(crate) fn remove(&mut self, queue: &mut Queue, to: usize) {
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
    fn each_line_has_its_own_queue() {
        let (mut all, mut one, mut other) =
            (Requests::default(), Queue::default(), Queue::default());
        assert!(one.is_empty() && all.leaves(one).is_none() && all.last(one).is_none());
        for (to, leaves) in [(1, 10), (2, 20), (3, 30)] {
            all.push(&mut one, to, leaves, None);
            all.push(&mut other, to + 10, leaves + 1, Some(leaves + 9));
        }
        assert_eq!((all.leaves(one), all.last(one)), (Some(10), Some(3)));
        assert_eq!((all.leaves(other), all.last(other)), (Some(11), Some(13)));
        assert_eq!((all.first_store(one), all.store_of(one, 2)), (None, None));
        assert_eq!((all.first_store(other), all.store_of(other, 12)), (Some((11, 19)), Some(29)));
        // From the middle, from the end, and a core that has none.
        all.remove(&mut one, 2);
        all.remove(&mut one, 3);
        all.remove(&mut one, 7);
        assert_eq!((all.leaves(one), all.last(one)), (Some(10), Some(1)));
        // Removed entries are used again.
        all.push(&mut one, 4, 40, None);
        assert_eq!((all.leaves(one), all.last(one), all.all.len()), (Some(10), Some(4), 6));
        all.remove(&mut one, 1);
        all.remove(&mut one, 4);
        assert!(one.is_empty() && all.last(one).is_none());
        assert_eq!((all.leaves(other), all.last(other)), (Some(11), Some(13)));
    }
}
