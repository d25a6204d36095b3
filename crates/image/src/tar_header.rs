//! Fields of a tar header: checksum, size, path, and the map of sparse files.

use super::tar_number::{does_not_fit, header_number};
use super::{EntryError, Result};
use tar::Header;

/// A block that continues the map of a sparse file.
pub(super) const SPARSE_BLOCK: usize = 512;
/// Bytes of a pair of offset and length in such a map.
const PIECE: usize = 24;
const NUMBER: usize = 12;
/// The most pieces of one sparse file.
const PIECES_MAX: usize = 1 << 21;

/// Refuses streams that are packed by other programs than gzip and zstd, and names the tool that
/// unpacks them.
pub(super) fn not_packed(start: &[u8]) -> Result<()> {
    let known: [(&[u8], &str); 3] =
        [(b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x04\x22\x4d\x18", "lz4")];
    match known.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, tool)) => Err(EntryError::fatal(format!(
            "the stream is compressed; unpack it first, as in `{tool} -dc FILE | nextent ...`"
        ))),
        None => Ok(()),
    }
}

/// Checks the header's checksum: the sum of its bytes, with spaces in the checksum field. Some old
/// writers added the bytes as signed.
pub(super) fn check(header: &Header) -> Result<()> {
    let bytes = header.as_bytes();
    let others = || bytes[..148].iter().chain(&bytes[156..]);
    let blanks = 8 * i64::from(b' ');
    let plain = others().map(|byte| i64::from(*byte)).sum::<i64>() + blanks;
    let signed = others().map(|byte| i64::from(byte.cast_signed())).sum::<i64>() + blanks;
    match header_number::<i64>(&bytes[148..156], "checksum") {
        Ok(stored) if stored == plain || stored == signed => Ok(()),
        _ => Err(EntryError::fatal("this is not a tar stream, or it is damaged")),
    }
}

/// The number of bytes after a header. Without it the next header cannot be found.
pub(super) fn size_of(header: &Header) -> Result<u64> {
    let size = header_number(&header.as_bytes()[124..136], "size").and_then(fits);
    size.map_err(|trouble| EntryError::fatal(trouble.to_string()))
}

/// Checks that a file can have the size or offset `number`.
pub(super) fn fits(number: u64) -> Result<u64> {
    match i64::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err(does_not_fit("size", number)),
    }
}

/// The bytes before the first zero byte.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The path in the header. As in GNU tar, the magic shows whether there is a prefix, and the
/// version after it is ignored: some writers leave it blank.
pub(super) fn path_of(header: &Header) -> Vec<u8> {
    let bytes = header.as_bytes();
    let (name, prefix) = (text(&bytes[..100]), text(&bytes[345..500]));
    match &bytes[257..263] {
        b"ustar\0" if !prefix.is_empty() => [prefix, b"/", name].concat(),
        _ => name.to_vec(),
    }
}

/// The map of a sparse file in the old GNU format: four pieces in the header, and 21 in each
/// further block.
pub(super) struct SparseMap {
    pieces: Vec<u8>,
    size: [u8; NUMBER],
    goes_on: bool,
}

impl SparseMap {
    /// The part of the map in `header`.
    pub(super) fn new(header: &Header) -> Self {
        let bytes = header.as_bytes();
        let mut size = [0; NUMBER];
        size.copy_from_slice(&bytes[483..495]);
        Self { pieces: bytes[386..482].to_vec(), size, goes_on: bytes[482] != 0 }
    }

    /// Whether another block follows.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Adds the next block.
    pub(super) fn add(&mut self, block: &[u8; SPARSE_BLOCK]) -> Result<()> {
        if self.pieces.len() / PIECE > PIECES_MAX {
            return Err(EntryError::fatal("damaged map of a sparse file"));
        }
        self.pieces.extend_from_slice(&block[..504]);
        self.goes_on = block[504] != 0;
        Ok(())
    }

    /// Alternating offsets and lengths, and the length of the file.
    pub(super) fn numbers(&self) -> Result<(Vec<u64>, u64)> {
        let number = |field| header_number(field, "map of a sparse file").and_then(fits);
        let mut numbers = Vec::new();
        let (pieces, _) = self.pieces.as_chunks::<PIECE>();
        for piece in pieces {
            let (offset, len) = piece.split_at(NUMBER);
            if len[0] == 0 {
                break;
            }
            numbers.extend([number(offset)?, number(len)?]);
        }
        Ok((numbers, number(&self.size)?))
    }
}
