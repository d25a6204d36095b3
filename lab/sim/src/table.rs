//! A value for each cache line, found fast.
//!
//! Eight neighbouring lines share a row, so that a structure of some lines is one look-up.
//! Invariant: values are dropped in the order in which they came, not in that of a hash of
//! addresses. Else memory that is allocated afterwards would lie elsewhere in each run, and with it
//! the lines that are simulated.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// log2 of the lines of a row.
const ROW: u32 = 3;

/// A hash of numbers.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_usize(&mut self, value: usize) {
        let spread = (self.0 ^ value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ spread >> 32;
    }
}

/// A map by numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A value for each line.
pub(crate) struct Table<T> {
    /// Where the values of a row begin.
    rows: NumberMap<usize, u32>,
    /// The row that was looked up last, and where it begins.
    last: Cell<Option<(usize, u32)>>,
    /// None for lines that were never used.
    all: Vec<Option<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: HashMap::default(), last: Cell::new(None), all: Vec::new() }
    }
}

impl<T: Default> Table<T> {
    fn place(&self, line: usize) -> Option<usize> {
        let row = line >> ROW;
        let begin = match self.last.get() {
            Some((last, begin)) if last == row => begin,
            _ => {
                let begin = *self.rows.get(&row)?;
                self.last.set(Some((row, begin)));
                begin
            }
        };
        Some(begin as usize + line % (1 << ROW))
    }

    /// The value of a line, if it was ever used.
    pub(crate) fn get(&self, line: usize) -> Option<&T> {
        self.all[self.place(line)?].as_ref()
    }

    /// As [`get`](Self::get), for changing.
    pub(crate) fn get_mut(&mut self, line: usize) -> Option<&mut T> {
        let place = self.place(line)?;
        self.all[place].as_mut()
    }

    /// The value of a line, made if there is none.
    pub(crate) fn entry(&mut self, line: usize) -> &mut T {
        let place = self.place(line).unwrap_or_else(|| {
            let begin = self.all.len();
            self.all.resize_with(begin + (1 << ROW), || None);
            self.rows.insert(line >> ROW, begin as u32);
            begin + line % (1 << ROW)
        });
        self.all[place].get_or_insert_with(T::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn each_line_has_its_own_value() {
        let mut table = Table::<u64>::default();
        assert!(table.get(7).is_none() && table.get_mut(7).is_none());
        let lines = [7, 8, 9, 1 << 50, 0, 7 + (1 << 20), usize::MAX];
        for (n, line) in lines.into_iter().enumerate() {
            assert_eq!(*table.entry(line), 0);
            *table.entry(line) = n as u64;
        }
        for (n, line) in lines.into_iter().enumerate() {
            assert_eq!(table.get(line).copied(), Some(n as u64));
            assert_eq!(table.get_mut(line).copied(), Some(n as u64));
        }
        // Neighbours of used lines.
        assert!(table.get(6).is_none() && table.get_mut(10).is_none());
    }

    std::thread_local! {
        static DROPPED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Default)]
    struct Noted(usize);

    impl Drop for Noted {
        fn drop(&mut self) {
            DROPPED.with_borrow_mut(|dropped| dropped.push(self.0));
        }
    }

    #[test]
    fn values_are_dropped_in_the_order_in_which_they_came() {
        let addresses: Vec<usize> = (0..64).map(|n| (n * 37 % 64) << 6).collect();
        let mut all = Table::<Noted>::default();
        for address in &addresses {
            all.entry(*address).0 = *address;
        }
        drop(all);
        assert_eq!(DROPPED.take(), addresses);
    }
}
