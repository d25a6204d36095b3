//! The pieces of a transfer: parts of a buffer and their places on the device.

use nextent_num::to_u64;
use std::ops::Range;

/// One part of a buffer and its place on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Byte offset on the device.
    pub offset: u64,
    /// Byte offset in the buffer.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
}

impl Piece {
    /// The range of the buffer.
    #[must_use]
    pub fn of_buffer(self) -> Range<usize> {
        self.start..self.start.saturating_add(self.len)
    }
}

/// Pieces in order. A single piece, the usual case, needs no allocation.
#[derive(Clone, Debug)]
pub struct Pieces(Held);

#[derive(Clone, Debug)]
enum Held {
    None,
    One(Piece),
    Many(Vec<Piece>),
}

impl Default for Pieces {
    fn default() -> Self {
        Self(Held::None)
    }
}

impl From<Piece> for Pieces {
    fn from(piece: Piece) -> Self {
        Self(Held::One(piece))
    }
}

impl Pieces {
    /// The pieces.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Piece] {
        match &self.0 {
            Held::None => &[],
            Held::One(piece) => std::slice::from_ref(piece),
            Held::Many(pieces) => pieces,
        }
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.as_slice().iter().map(|piece| piece.len).sum()
    }

    /// Adds a piece. It extends the last piece if it continues that on both sides.
    #[inline]
    pub fn push(&mut self, piece: Piece) {
        let last = match &mut self.0 {
            Held::None => {
                self.0 = Held::One(piece);
                return;
            }
            Held::One(last) => last,
            Held::Many(pieces) => pieces.last_mut().expect("several parts are not none"),
        };
        let goes_on = last.offset + to_u64(last.len) == piece.offset;
        if goes_on && last.start + last.len == piece.start {
            last.len += piece.len;
            return;
        }
        match &mut self.0 {
            Held::Many(pieces) => pieces.push(piece),
            Held::One(first) => self.0 = Held::Many(vec![*first, piece]),
            Held::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_pieces_are_joined() {
        let piece = |offset, start, len| Piece { offset, start, len };
        let mut pieces = Pieces::default();
        assert_eq!((pieces.bytes(), pieces.as_slice()), (0, &[][..]));
        for next in [piece(100, 0, 10), piece(110, 10, 5), piece(200, 15, 5), piece(300, 20, 5)] {
            pieces.push(next);
        }
        pieces.push(piece(305, 25, 1));
        let all = [piece(100, 0, 15), piece(200, 15, 5), piece(300, 20, 6)];
        assert_eq!((pieces.as_slice(), pieces.bytes()), (&all[..], 26));
    }
}
