//! The format of a delta file. All numbers are little endian.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..512 | the header |
//! | 4096.. | the bitmap, in pages of 4 KiB: one bit a unit |
//! | `data_at`.. | the data; a unit lies at its offset on the device |
//!
//! The header:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic number |
//! | 8..12 | version: 1 |
//! | 12..16 | bytes of a unit: 4096 |
//! | 16..24 | size of the overlay in bytes |
//! | 24..32 | size of the base in bytes |
//! | 32..36 | state: 0 in use, 1 committing |
//! | 36..40 | count of samples |
//! | 40..48 | CRC-64/NVME of the samples of the base |
//! | 48..56 | `data_at` |
//! | 56..440 | offsets of the samples, 8 bytes each; a sample has 4096 bytes, or ends with the base |
//! | 508..512 | CRC-32C of the bytes before |
//!
//! A sector of the bitmap has 504 bytes of bits, four zeros, and the CRC-32C of the sector's number
//! (8 bytes) and of the bytes before. A sector of zeros has no bits set.

use super::DeltaError;
use crate::SECTOR;
use crc_fast::{CrcAlgorithm, Digest, checksum};
use nextent_num::{must_fit, to_u64, to_usize};

/// Bytes of a unit.
pub(super) const UNIT: u64 = 4096;
/// The offset of the bitmap.
pub(super) const BITMAP_AT: u64 = 4096;
/// Bytes of a page of the bitmap.
pub(super) const PAGE: usize = 4096;
/// Sectors in a page of the bitmap.
pub(super) const PAGE_SECTORS: usize = PAGE / SECTOR;
/// Words of 64 bits in a sector of the bitmap.
pub(super) const SECTOR_WORDS: usize = 63;
/// Words in a page of the bitmap.
pub(super) const PAGE_WORDS: usize = PAGE_SECTORS * SECTOR_WORDS;
/// Units of which a word has the bits.
pub(super) const WORD_UNITS: u64 = 64;
/// Bytes of a sample.
pub(super) const SAMPLE: u64 = 4096;
/// The most samples of a base.
pub(super) const MAX_SAMPLES: usize = 48;

const MAGIC: &[u8; 8] = b"NEXTDLTA";
const VERSION: u32 = 1;
const SAMPLES_AT: usize = 56;
const CHECKSUM_AT: usize = SECTOR - 4;

/// Where the parts of a delta file are, for a size of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) size: u64,
    pub(super) pages: u64,
    pub(super) data_at: u64,
}

impl Layout {
    /// `None` if a file of that size cannot be.
    pub(super) fn new(size: u64) -> Option<Self> {
        let pages = size.div_ceil(UNIT).div_ceil(to_u64(PAGE_WORDS) * WORD_UNITS);
        let data_at = BITMAP_AT + pages * to_u64(PAGE);
        let end = data_at.checked_add(size)?;
        i64::try_from(end).is_ok().then_some(Self { size, pages, data_at })
    }

    /// Units of the device; the last one may be short.
    pub(super) fn units(&self) -> u64 {
        self.size.div_ceil(UNIT)
    }

    /// The length of the file.
    pub(super) fn file_len(&self) -> u64 {
        self.data_at + self.size
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    InUse,
    /// A commit to the base has begun: the base has some of the delta's data.
    Committing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) layout: Layout,
    pub(super) base_size: u64,
    pub(super) state: State,
    /// The checksum of the samples.
    pub(super) identity: u64,
    pub(super) samples: Vec<u64>,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let state: u32 = match self.state {
            State::InUse => 0,
            State::Committing => 1,
        };
        let samples: u32 = must_fit(self.samples.len());
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &must_fit::<u32, u64>(UNIT).to_le_bytes());
        put(16, &self.layout.size.to_le_bytes());
        put(24, &self.base_size.to_le_bytes());
        put(32, &state.to_le_bytes());
        put(36, &samples.to_le_bytes());
        put(40, &self.identity.to_le_bytes());
        put(48, &self.layout.data_at.to_le_bytes());
        for (n, sample) in self.samples.iter().enumerate() {
            put(SAMPLES_AT + n * 8, &sample.to_le_bytes());
        }
        let sum = crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SECTOR]) -> Result<Self, DeltaError> {
        if &bytes[..8] != MAGIC {
            return Err(DeltaError::NotADelta);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(DeltaError::Version(version));
        }
        if u32_at(bytes, CHECKSUM_AT) != crc32c(&bytes[..CHECKSUM_AT]) {
            return Err(DeltaError::Damaged("the checksum of its header is wrong"));
        }
        let wrong = DeltaError::Damaged("its header contradicts itself");
        let layout = Layout::new(u64_at(bytes, 16));
        let count = to_usize(u32_at(bytes, 36));
        let (Some(layout), true) = (layout, count <= MAX_SAMPLES) else { return Err(wrong) };
        if u64::from(u32_at(bytes, 12)) != UNIT || u64_at(bytes, 48) != layout.data_at {
            return Err(wrong);
        }
        let state = match u32_at(bytes, 32) {
            0 => State::InUse,
            1 => State::Committing,
            _ => return Err(wrong),
        };
        let samples = (0..count).map(|n| u64_at(bytes, SAMPLES_AT + n * 8)).collect();
        let (base_size, identity) = (u64_at(bytes, 24), u64_at(bytes, 40));
        Ok(Self { layout, base_size, state, identity, samples })
    }
}

/// The bytes of a sector of the bitmap.
pub(super) fn encode_sector(number: u64, words: &[u64; SECTOR_WORDS]) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if words.iter().all(|word| *word == 0) {
        return bytes;
    }
    for (word, place) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let sum = sector_checksum(number, &bytes);
    bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The words of a sector of the bitmap. `None` if it is damaged.
pub(super) fn decode_sector(number: u64, bytes: &[u8]) -> Option<[u64; SECTOR_WORDS]> {
    let mut words = [0; SECTOR_WORDS];
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(words);
    }
    for (n, word) in words.iter_mut().enumerate() {
        *word = u64_at(bytes, n * 8);
    }
    (u32_at(bytes, CHECKSUM_AT) == sector_checksum(number, bytes)).then_some(words)
}

fn sector_checksum(number: u64, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&number.to_le_bytes());
    digest.update(&bytes[..CHECKSUM_AT]);
    must_fit(digest.finalize())
}

fn crc32c(bytes: &[u8]) -> u32 {
    must_fit(checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// The running checksum of the samples.
pub(super) struct Identity(Digest);

impl Identity {
    pub(super) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(super) fn add(&mut self, sample: &[u8]) {
        self.0.update(sample);
    }

    pub(super) fn end(&self) -> u64 {
        self.0.finalize()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            layout: Layout::new(8 << 30).unwrap(),
            base_size: 7 << 30,
            state: State::Committing,
            identity: 0x1234_5678_9abc_def0,
            samples: vec![0, 1 << 20],
        }
    }

    #[test]
    fn a_header_is_decoded_and_each_changed_byte_is_noticed() {
        let bytes = header().encode();
        assert_eq!(Header::decode(&bytes).unwrap(), header());
        for at in 0..SECTOR {
            let mut wrong = bytes;
            wrong[at] ^= 0x40;
            assert!(Header::decode(&wrong).is_err(), "byte {at}");
        }
        assert!(matches!(Header::decode(&[0; SECTOR]), Err(DeltaError::NotADelta)));
    }

    #[test]
    fn a_sector_of_the_bitmap_belongs_to_its_place() {
        let mut words = [0; SECTOR_WORDS];
        assert_eq!(encode_sector(3, &words), [0; SECTOR]);
        words[62] = 1 << 63;
        let bytes = encode_sector(3, &words);
        assert_eq!(decode_sector(3, &bytes), Some(words));
        assert_eq!(decode_sector(4, &bytes), None);
        for at in (0..504).chain(508..SECTOR) {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(decode_sector(3, &wrong), None, "byte {at}");
        }
    }

    #[test]
    fn the_layout_has_room_for_each_bit() {
        for size in [0, 1, 4096, 126 << 20, (126 << 20) + 1, 8 << 30, 16 << 40] {
            let layout = Layout::new(size).unwrap();
            assert!(layout.pages * to_u64(PAGE_WORDS) * WORD_UNITS >= layout.units());
            assert!(layout.data_at.is_multiple_of(UNIT));
            assert_eq!(layout.file_len(), layout.data_at + size);
        }
        assert_eq!(Layout::new(u64::MAX), None);
        assert_eq!(Layout::new(1 << 63), None);
    }
}
