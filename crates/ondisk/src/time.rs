//! Inode times: 34 bits of seconds (1901 to 2446) and nanoseconds, in two 32-bit words.
//!
//! The first word has the low 32 bits of the seconds, read as signed. The second word has two more
//! bits of seconds and, above them, 30 bits of nanoseconds. It exists only if the inode is large
//! enough.
//!
//! Source: ext4 disk layout documentation, "Inode Timestamps".

/// A time as an inode stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskTime {
    /// Seconds since 1970, negative for earlier times.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

/// The earliest second an inode can store: 1901-12-13T20:45:52Z.
pub const MIN_SECONDS: i64 = i32::MIN as i64;
/// The latest second a two-word time can store: 2446-05-10T22:38:55Z.
pub const MAX_SECONDS: i64 = i32::MAX as i64 + (3 << 32);

impl DiskTime {
    /// The time `seconds` and `nanos` after the start of 1970.
    #[must_use]
    pub const fn new(seconds: i64, nanos: u32) -> Self {
        Self { seconds, nanos }
    }

    /// The time in one word: whole seconds, until 2038.
    #[must_use]
    pub const fn from_word(low: u32) -> Self {
        Self { seconds: low as i32 as i64, nanos: 0 }
    }

    /// The time in two words. Nanoseconds past the second, which only damage or a bug of early
    /// kernels stores, become 999,999,999.
    #[must_use]
    pub const fn from_words(low: u32, extra: u32) -> Self {
        let seconds = low as i32 as i64 + (((extra & 3) as i64) << 32);
        let nanos = extra >> 2;
        Self { seconds, nanos: if nanos > 999_999_999 { 999_999_999 } else { nanos } }
    }

    /// The nearest time that one word can store.
    #[must_use]
    pub fn to_word(self) -> u32 {
        self.seconds.clamp(MIN_SECONDS, i64::from(i32::MAX)) as i32 as u32
    }

    /// The nearest time that two words can store: low word, extra word.
    #[must_use]
    pub fn to_words(self) -> (u32, u32) {
        let Self { seconds, nanos } = self.clamped(true);
        let epoch = (seconds - i64::from(seconds as i32)) >> 32;
        (seconds as i32 as u32, (epoch as u32 & 3) | nanos << 2)
    }

    /// The time that an inode with (`extra`) or without a second word returns after a write. Memory
    /// keeps this value so that it agrees with the disk.
    #[must_use]
    pub fn clamped(self, extra: bool) -> Self {
        let max = if extra { MAX_SECONDS } else { i64::from(i32::MAX) };
        let seconds = self.seconds.clamp(MIN_SECONDS, max);
        let nanos = if extra && seconds == self.seconds { self.nanos.min(999_999_999) } else { 0 };
        Self { seconds, nanos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_bits_cover_the_documented_ranges() {
        // Epoch bits, low word, and the seconds that they mean.
        let table = [
            (0u32, 0x8000_0000u32, MIN_SECONDS),
            (0, 0xffff_ffff, -1),
            (0, 0, 0),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0xffff_ffff, 0xffff_ffff),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (3, 0x7fff_ffff, MAX_SECONDS),
        ];
        for (epoch, low, seconds) in table {
            let time = DiskTime::from_words(low, epoch | 5 << 2);
            assert_eq!(time, DiskTime::new(seconds, 5));
            assert_eq!(time.to_words(), (low, epoch | 5 << 2));
        }
    }

    #[test]
    fn a_time_out_of_range_is_clamped() {
        assert_eq!(DiskTime::new(i64::MAX, 7).clamped(true), DiskTime::new(MAX_SECONDS, 0));
        assert_eq!(DiskTime::new(1 << 33, 7).to_word(), 0x7fff_ffff);
        assert_eq!(DiskTime::from_words(0, !0).nanos, 999_999_999);
    }
}
