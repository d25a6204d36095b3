//! Bounds checks, and the division of ranges into fixed units.

use nextent_num::{to_u64, to_usize};
use std::io;

/// Refuses a range that is not within `size`.
pub(crate) fn check(size: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{len} bytes at {offset} reach beyond the device's end at {size}"),
        )),
    }
}

/// The error of a read from a file that was truncated after its open.
pub(crate) fn cut_short(at: u64, len: u64) -> io::Error {
    let text = format!("the file was cut short: it ends before byte {}", at.saturating_add(len));
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// The error of a write to a read-only device.
pub(crate) fn read_only() -> io::Error {
    io::Error::from_raw_os_error(libc::EROFS)
}

/// The part of a range that lies in one fixed-size unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the unit.
    pub(crate) unit: u64,
    /// Offset of the part in the unit.
    pub(crate) within: usize,
    /// Offset of the part in the range.
    pub(crate) done: u64,
    /// Length of the part.
    pub(crate) len: usize,
}

impl Piece {
    /// The part as a range of the caller's buffer.
    pub(crate) fn of_buffer(self) -> std::ops::Range<usize> {
        let start = to_usize(self.done);
        start..start + self.len
    }

    /// The part as a range of the unit.
    pub(crate) fn of_unit(self) -> std::ops::Range<usize> {
        self.within..self.within + self.len
    }
}

/// Divides a range at each multiple of `unit`.
pub(crate) fn pieces(unit: usize, offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done;
        let within = to_usize(at % to_u64(unit));
        let share = to_usize(to_u64(unit - within).min(len - done));
        let piece = Piece { unit: at / to_u64(unit), within, done, len: share };
        done += to_u64(share);
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_once() {
        let cut: Vec<Piece> = pieces(10, 17, 25).collect();
        assert_eq!(cut.iter().map(|p| p.len as u64).sum::<u64>(), 25);
        assert_eq!(cut[0], Piece { unit: 1, within: 7, done: 0, len: 3 });
        assert_eq!(cut[3], Piece { unit: 4, within: 0, done: 23, len: 2 });
        assert_eq!(pieces(10, 17, 0).count(), 0);
    }

    #[test]
    fn check_refuses_overflow() {
        assert!(check(100, 90, 10).is_ok());
        assert!(check(100, 91, 10).is_err());
        assert!(check(100, u64::MAX, 2).is_err());
    }
}
