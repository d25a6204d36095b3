//! Tables of block pointers, in a block or in the root, and the position of a file block's pointer.

use nextent_num::{must_fit, to_usize};
pub(super) use nextent_ondisk::indirect::DIRECT;
use nextent_ondisk::indirect::{self, Path};
use nextent_ondisk::{BlockNo, FileBlock, Geometry};

/// The pointer in `slot`; 0 is a hole.
pub(super) fn pointer(bytes: &[u8], slot: u32) -> u32 {
    must_fit(indirect::pointer(bytes, to_usize(slot)).get())
}

pub(super) fn set_pointer(bytes: &mut [u8], slot: u32, value: u32) {
    indirect::set_pointer(bytes, to_usize(slot), BlockNo(u64::from(value)));
}

/// The length of the run of pointers that rise by one from `slot` on, below `end`.
pub(super) fn run(bytes: &[u8], slot: u32, end: u32) -> u32 {
    let first = pointer(bytes, slot);
    let follows = |&i: &u32| first.checked_add(i - slot) == Some(pointer(bytes, i));
    1 + must_fit::<u32, _>((slot + 1..end).take_while(follows).count())
}

/// The number of pointers of 0 from `slot` on, below `end`.
pub(super) fn zeros(bytes: &[u8], slot: u32, end: u32) -> u32 {
    must_fit((slot..end).take_while(|&i| pointer(bytes, i) == 0).count())
}

/// The position of a file block's pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PointerPos {
    /// Number of tables below the root on the path.
    pub(super) depth: usize,
    /// The slot in the root, then the slot in each table.
    pub(super) slots: [u32; 4],
    /// log2 of the pointers in a table.
    pub(super) bits: u32,
}

impl PointerPos {
    /// The position of the pointer of block `at`; none if three levels cannot map it.
    pub(super) fn of(geometry: &Geometry, at: u32) -> Option<Self> {
        let path = Path::to(geometry, FileBlock(at))?;
        let mut slots = [0; 4];
        let steps = path.steps();
        slots[..steps.len()].copy_from_slice(steps);
        Some(Self { depth: steps.len() - 1, slots, bits: geometry.block_bits - 2 })
    }

    /// Blocks under one pointer of the table at `level` (the root is 0).
    pub(super) fn span(&self, level: usize) -> u64 {
        1 << (to_usize(self.bits) * (self.depth - level))
    }

    /// The distance of the block from the first one under its pointer at `level`.
    pub(super) fn offset(&self, level: usize) -> u64 {
        (level + 1..=self.depth).map(|l| u64::from(self.slots[l]) * self.span(l)).sum()
    }

    /// The end of the slots in the last table that map data.
    pub(super) fn end_slot(&self) -> u32 {
        if self.depth == 0 { DIRECT } else { 1 << self.bits }
    }

    /// The block's slot in the last table.
    pub(super) fn slot(&self) -> u32 {
        self.slots[self.depth]
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::geometry;
    use super::*;

    #[test]
    fn positions_at_the_edges_of_the_levels() {
        let geometry = geometry(1024, 1 << 20);
        let at = |n| PointerPos::of(&geometry, n).map(|p| (p.depth, p.slots));
        assert_eq!(at(11), Some((0, [11, 0, 0, 0])));
        assert_eq!(at(12), Some((1, [12, 0, 0, 0])));
        assert_eq!(at(268 + 65536), Some((3, [14, 0, 0, 0])));
        assert_eq!(at(268 + 65536 + (1 << 24)), None);
        let pos = PointerPos::of(&geometry, 268 + 3 * 256 + 7).expect("mapped by two tables");
        assert_eq!((pos.span(0), pos.offset(0)), (65536, 3 * 256 + 7));
        assert_eq!((pos.span(1), pos.offset(1)), (256, 7));
        assert_eq!((pos.span(2), pos.offset(2)), (1, 0));
    }
}
