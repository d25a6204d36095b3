//! Something for each cache line that was ever used, by the line's number, or for each address.
//!
//! Lines side by side lie side by side here, and where they lie is looked up once for as long as
//! uses stay among them: most of what is asked about a use of a line is asked about the same one.
//! Nothing is freed before all is, in the order in which lines came into use, and what is allocated
//! depends on how many were used, and not on where they lie, which is another place in each run: in
//! the order of a hash of addresses what is allocated afterwards would lie elsewhere each time, and
//! with it the next simulation of a process.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// log2 of the lines that lie side by side here.
const ROW: u32 = 3;

/// Numbers are as good as any hash once their bits are spread.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
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

pub(crate) type Spreading = BuildHasherDefault<Spread>;

/// A value for each line.
pub(super) struct Table<T> {
    /// Where the values of a row begin.
    rows: HashMap<usize, u32, Spreading>,
    /// The row that was looked up last, and where it begins.
    last: Cell<Option<(usize, u32)>>,
    /// None for lines of a row that were never used themselves.
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

    /// What there is of a line; nothing if it was never used.
    pub(super) fn get(&self, line: usize) -> Option<&T> {
        self.all[self.place(line)?].as_ref()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, line: usize) -> Option<&mut T> {
        let place = self.place(line)?;
        self.all[place].as_mut()
    }

    /// What there is of a line that is used.
    pub(super) fn entry(&mut self, line: usize) -> &mut T {
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
    fn each_line_has_a_value_of_its_own() {
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
        // Beside one that was used.
        assert!(table.get(6).is_none() && table.get_mut(10).is_none());
    }

    std::thread_local! {
        static FREED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Default)]
    struct Noted(usize);

    impl Drop for Noted {
        fn drop(&mut self) {
            FREED.with_borrow_mut(|freed| freed.push(self.0));
        }
    }

    #[test]
    fn what_addresses_had_is_freed_in_the_order_in_which_it_came() {
        let addresses: Vec<usize> = (0..64).map(|n| (n * 37 % 64) << 6).collect();
        let mut all = Table::<Noted>::default();
        for address in &addresses {
            all.entry(*address).0 = *address;
        }
        drop(all);
        assert_eq!(FREED.take(), addresses);
    }
}
