//! A checksum that stays the same when the first sector changes.
//!
//! Problem: the checksum lies in the second sector of the superblock, almost all fields that change
//! lie in the first. A power cut can tear a write between the two. Linux and e2fsck then refuse the
//! volume, even if its log has the whole superblock.
//!
//! Solution: one word of the first sector has no meaning to any system. Its value is chosen such
//! that the checksum stays the same. Such a value always exists: crc32c is linear, so flipping a
//! bit of the word flips a fixed set of bits of the sum, and no two values of the word flip the
//! same set.

use super::Superblock;

/// Bytes that a device writes atomically.
pub const SECTOR: usize = 512;

impl Superblock {
    /// Stores a checksum such that all bytes from the second [`SECTOR`] on equal those of `old`.
    /// Returns `false`, and changes nothing, if that is impossible: one of the two has no checksum,
    /// or they differ there in another field.
    ///
    /// Sets `s_snapshot_id`, which has a meaning only with an `s_snapshot_inum`.
    #[must_use]
    pub fn seal_like(&mut self, old: &Self) -> bool {
        let summed = self.features().metadata_csum() && old.verify_checksum().is_ok();
        let kind = self.checksum_type == old.checksum_type;
        let end = self.bytes().len() - size_of_val(&self.checksum);
        let alike = self.bytes()[SECTOR..end] == old.bytes()[SECTOR..end];
        if !(summed && old.features().metadata_csum() && kind && alike && self.snapshot_inum == 0) {
            return false;
        }
        self.checksum = old.checksum;
        self.choose_word();
        debug_assert!(self.verify_checksum().is_ok(), "some word has the wanted sum");
        true
    }

    /// Keeps the stored checksum valid if possible; else stores another one.
    ///
    /// A checkpoint writes the superblock while the log holds it, but Linux and e2fsck verify the
    /// superblock before they read the log. Versions with the same checksum differ only in the
    /// first [`SECTOR`], so a torn write leaves one of them.
    ///
    /// Sets `s_snapshot_id`, which has a meaning only with an `s_snapshot_inum`.
    pub fn seal_again(&mut self) {
        if self.features().metadata_csum() && self.snapshot_inum == 0 {
            self.checksum_type = super::CHECKSUM_CRC32C;
            self.choose_word();
            debug_assert!(self.verify_checksum().is_ok(), "some word has the wanted sum");
        } else {
            self.seal();
        }
    }

    /// Sets the free word such that the checksum is right, by elimination over the 32 sets of bits.
    fn choose_word(&mut self) {
        let mut sum_with = |word: u32| {
            self.snapshot_id.set(word);
            self.compute_checksum()
        };
        let zero = sum_with(0);
        // For each highest bit of the sum: a set with that highest bit, and the word that flips it.
        let mut basis = [(0, 0); 32];
        for bit in 0..32 {
            let (mut flips, mut word) = (sum_with(1 << bit) ^ zero, 1 << bit);
            while flips != 0 && basis[flips.ilog2() as usize].0 != 0 {
                let (other, with) = basis[flips.ilog2() as usize];
                (flips, word) = (flips ^ other, word ^ with);
            }
            assert!(flips != 0, "no two words have the same sum");
            basis[flips.ilog2() as usize] = (flips, word);
        }
        let (mut left, mut word) = (self.checksum.get() ^ zero, 0);
        while left != 0 {
            let (flips, with) = basis[left.ilog2() as usize];
            (left, word) = (left ^ flips, word ^ with);
        }
        self.snapshot_id.set(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RoCompat;

    fn sealed() -> Superblock {
        let mut sb = Superblock::empty();
        let mut features = sb.features();
        features.set(RoCompat::METADATA_CSUM, true);
        sb.set_features(features);
        sb.seal();
        sb
    }

    #[test]
    fn the_second_sector_stays_equal() {
        let mut old = sealed();
        for step in 1..200_u32 {
            let mut new = old.clone();
            new.wtime.set(step.wrapping_mul(0x9e37_79b9));
            new.set_free_blocks_count(u64::from(step) << 7);
            new.mnt_count.set(step as u16);
            assert!(new.seal_like(&old));
            new.verify_checksum().unwrap();
            assert_eq!(new.bytes()[SECTOR..], old.bytes()[SECTOR..]);
            old = new;
        }
    }

    #[test]
    fn a_checksum_is_kept() {
        let old = sealed();
        let mut new = old.clone();
        new.set_free_blocks_count(77);
        new.seal_again();
        new.verify_checksum().unwrap();
        assert_eq!(new.bytes()[SECTOR..], old.bytes()[SECTOR..]);
        new.wtime_hi = 1;
        new.seal_again();
        new.verify_checksum().unwrap();
        new.snapshot_inum.set(9);
        new.seal_again();
        new.verify_checksum().unwrap();
        assert_ne!(new.checksum, old.checksum);
    }

    #[test]
    fn the_checksum_changes_where_it_cannot_stay() {
        let old = sealed();
        let mut other_end = old.clone();
        other_end.wtime_hi = 1;
        assert!(!other_end.clone().seal_like(&old));
        let mut unsealed = old.clone();
        unsealed.wtime.set(1);
        assert!(!old.clone().seal_like(&unsealed));
        let mut snapshot = old.clone();
        snapshot.snapshot_inum.set(9);
        assert!(!snapshot.seal_like(&old));
        let none = Superblock::empty();
        assert!(!none.clone().seal_like(&none));
    }
}
