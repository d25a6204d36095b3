//! The journal's superblock: the first 1024 bytes of its first block.

use super::{be32, put32};
use crate::checksum::{START, csum_without};
use crate::{Corrupt, Structure, Tid};

/// Bytes of the superblock.
pub(super) const SIZE: usize = 1024;

const AT_BLOCK_SIZE: usize = 0x0c;
const AT_LENGTH: usize = 0x10;
const AT_FIRST: usize = 0x14;
const AT_SEQUENCE: usize = 0x18;
const AT_START: usize = 0x1c;
const AT_ERRNO: usize = 0x20;
const AT_COMPAT: usize = 0x24;
const AT_INCOMPAT: usize = 0x28;
const AT_RO_COMPAT: usize = 0x2c;
const AT_UUID: usize = 0x30;
const AT_USERS: usize = 0x40;
const AT_CHECKSUM_TYPE: usize = 0x50;
const AT_FC_BLOCKS: usize = 0x54;
const AT_HEAD: usize = 0x58;
const AT_CHECKSUM: usize = 0xfc;
const AT_USER_LIST: usize = 0x100;

/// File systems that fit into the list of users.
const MOST_USERS: usize = 48;

/// The feature words of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalFeatures {
    /// `compat`: [`Self::CHECKSUM_V1`] is the only bit.
    pub compat: u32,
    /// `incompat`: the other constants.
    pub incompat: u32,
    /// `ro_compat`: no bit is defined.
    pub ro_compat: u32,
}

impl JournalFeatures {
    /// `compat`: commit blocks have a crc32 of the transaction (version 1).
    pub const CHECKSUM_V1: u32 = 0x1;
    /// `incompat`: revoke blocks may occur.
    pub const REVOKE: u32 = 0x1;
    /// `incompat`: block numbers have 64 bits.
    pub const WIDE: u32 = 0x2;
    /// `incompat`: the commit block may reach the disk before the rest.
    pub const ASYNC_COMMIT: u32 = 0x4;
    /// `incompat`: checksums in 16 bits of each tag.
    pub const CSUM_V2: u32 = 0x8;
    /// `incompat`: tags with 32-bit checksums.
    pub const CSUM_V3: u32 = 0x10;
    /// `incompat`: the last blocks are a fast-commit area.
    pub const FAST_COMMIT: u32 = 0x20;
    /// All known bits.
    pub const INCOMPAT_KNOWN: u32 = 0x3f;

    /// Whether an `incompat` bit is set.
    #[must_use]
    pub fn has(self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    /// Whether blocks have crc32c checksums.
    #[must_use]
    pub fn has_checksums(self) -> bool {
        self.has(Self::CSUM_V2 | Self::CSUM_V3)
    }

    /// The names of the features in e2fsprogs, and `fast_commit`.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let sums = self.compat & Self::CHECKSUM_V1 != 0;
        let incompat = [
            (Self::REVOKE, "journal_incompat_revoke"),
            (Self::WIDE, "journal_64bit"),
            (Self::ASYNC_COMMIT, "journal_async_commit"),
            (Self::CSUM_V2, "journal_checksum_v2"),
            (Self::CSUM_V3, "journal_checksum_v3"),
            (Self::FAST_COMMIT, "fast_commit"),
        ];
        let incompat = incompat.into_iter().filter(|(bit, _)| self.has(*bit));
        let compat = sums.then_some("journal_checksum");
        compat.into_iter().chain(incompat.map(|(_, name)| name)).collect()
    }
}

/// A checked journal superblock.
#[derive(Clone)]
pub struct JournalSuperblock {
    raw: [u8; SIZE],
}

impl JournalSuperblock {
    /// A version 2 superblock of an empty journal of `blocks` blocks without features, as mke2fs
    /// writes it. The first mount adds the features that it uses.
    #[must_use]
    pub fn new(block_size: u32, blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = [0; SIZE];
        put32(&mut raw, 0, super::MAGIC);
        put32(&mut raw, 4, 4);
        put32(&mut raw, AT_BLOCK_SIZE, block_size);
        put32(&mut raw, AT_LENGTH, blocks);
        put32(&mut raw, AT_FIRST, 1);
        put32(&mut raw, AT_SEQUENCE, 1);
        put32(&mut raw, AT_USERS, 1);
        raw[AT_UUID..AT_UUID + 16].copy_from_slice(&uuid);
        Self { raw }
    }

    /// The superblock of an empty journal without users on a device of `blocks` blocks of
    /// `block_size` bytes, whose log begins at block `first`.
    #[must_use]
    pub fn external((block_size, blocks): (u32, u32), first: u32, uuid: [u8; 16]) -> Self {
        let mut sb = Self::new(block_size, blocks, uuid);
        put32(&mut sb.raw, AT_FIRST, first);
        put32(&mut sb.raw, AT_USERS, 0);
        sb
    }

    /// Parses the first block of a journal of `blocks` blocks of `block_size` bytes.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the name of an impossible field.
    pub fn parse(bytes: &[u8], block_size: u32, blocks: u64) -> Result<Self, Corrupt> {
        let bad = |name, value: u32| Corrupt::field(Structure::JournalSuperblock, name, value);
        let raw: [u8; SIZE] = bytes
            .get(..SIZE)
            .and_then(|b| b.try_into().ok())
            .ok_or_else(|| Corrupt::too_short(Structure::JournalSuperblock, SIZE, bytes.len()))?;
        let sb = Self { raw };
        if sb.get(0) != super::MAGIC {
            return Err(Corrupt::magic(Structure::JournalSuperblock, sb.get(0)));
        }
        if !matches!(sb.get(4), 3 | 4) {
            return Err(bad("block type", sb.get(4)));
        }
        if sb.get(AT_BLOCK_SIZE) != block_size {
            return Err(bad("block size", sb.get(AT_BLOCK_SIZE)));
        }
        if u64::from(sb.length()) > blocks || sb.length() < 4 {
            return Err(bad("length in blocks", sb.length()));
        }
        if sb.first() == 0 || sb.first() >= sb.length() {
            return Err(bad("first block", sb.first()));
        }
        let end = sb.log_end().filter(|&end| end > sb.first() + 1);
        let Some(end) = end else {
            return Err(bad("fast-commit blocks", sb.get(AT_FC_BLOCKS)));
        };
        if sb.start() != 0 && (sb.start() < sb.first() || sb.start() >= end) {
            return Err(bad("start of the log", sb.start()));
        }
        sb.check_checksum()?;
        Ok(sb)
    }

    fn check_checksum(&self) -> Result<(), Corrupt> {
        let features = self.features();
        if !features.has_checksums() {
            return Ok(());
        }
        if features.has(JournalFeatures::CSUM_V2) && features.has(JournalFeatures::CSUM_V3) {
            let word = features.incompat;
            return Err(Corrupt::field(
                Structure::JournalSuperblock,
                "incompatible features (both csum_v2 and csum_v3)",
                word,
            ));
        }
        if self.raw[AT_CHECKSUM_TYPE] != 4 {
            return Err(Corrupt::field(
                Structure::JournalSuperblock,
                "checksum type",
                self.raw[AT_CHECKSUM_TYPE],
            ));
        }
        let (found, expected) = (self.get(AT_CHECKSUM), self.sum());
        if found == expected {
            Ok(())
        } else {
            Err(Corrupt::checksum(Structure::JournalSuperblock, found, expected))
        }
    }

    fn sum(&self) -> u32 {
        csum_without(START, &self.raw, AT_CHECKSUM, 4)
    }

    fn get(&self, at: usize) -> u32 {
        be32(&self.raw, at).expect("all offsets are inside 1024 bytes")
    }

    /// Blocks of the whole journal.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.get(AT_LENGTH)
    }

    /// First block of the log.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.get(AT_FIRST)
    }

    /// The block after the last of the log. A fast-commit area follows it. `None` if that area
    /// leaves no log.
    #[must_use]
    pub fn log_end(&self) -> Option<u32> {
        if !self.features().has(JournalFeatures::FAST_COMMIT) || self.version() < 2 {
            return Some(self.length());
        }
        self.length().checked_sub(self.fc_blocks())
    }

    /// Blocks of the fast-commit area, if the journal has that feature.
    #[must_use]
    pub fn fc_blocks(&self) -> u32 {
        match self.get(AT_FC_BLOCKS) {
            0 => 256,
            n => n,
        }
    }

    /// The field with the blocks of the fast-commit area, whatever the features say; 0 if it is not
    /// set.
    #[must_use]
    pub fn stored_fc_blocks(&self) -> u32 {
        self.get(AT_FC_BLOCKS)
    }

    /// The field with the checksum.
    #[must_use]
    pub fn stored_checksum(&self) -> u32 {
        self.get(AT_CHECKSUM)
    }

    /// 1 or 2. Version 1 has no features and no UUID.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.get(4) - 2
    }

    /// Sequence of the first transaction in the log, or of the next one if the log is empty.
    #[must_use]
    pub fn sequence(&self) -> Tid {
        Tid(self.get(AT_SEQUENCE))
    }

    /// The block of the log's first transaction; 0 if the log is empty.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.get(AT_START)
    }

    /// The kernel's errno of the error that stopped the journal; 0 for none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.get(AT_ERRNO) as i32
    }

    /// The feature words; all 0 in version 1.
    #[must_use]
    pub fn features(&self) -> JournalFeatures {
        if self.version() < 2 {
            return JournalFeatures::default();
        }
        JournalFeatures {
            compat: self.get(AT_COMPAT),
            incompat: self.get(AT_INCOMPAT),
            ro_compat: self.get(AT_RO_COMPAT),
        }
    }

    /// The journal's UUID, from which the seed of its checksums is computed.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.raw[AT_UUID..AT_UUID + 16].try_into().expect("sixteen bytes")
    }

    /// The number of file systems that use this journal.
    #[must_use]
    pub fn users(&self) -> u32 {
        self.get(AT_USERS)
    }

    /// Whether the file system with this UUID uses the journal, which is on its own device.
    #[must_use]
    pub fn has_user(&self, uuid: &[u8; 16]) -> bool {
        self.user_list().contains(uuid)
    }

    /// The UUIDs of the file systems that use this journal. A journal inside a volume has one that
    /// is zero.
    #[must_use]
    pub fn user_list(&self) -> Vec<[u8; 16]> {
        let count = usize::try_from(self.users()).unwrap_or(MOST_USERS).min(MOST_USERS);
        let (all, _) = self.raw[AT_USER_LIST..].as_chunks::<16>();
        all[..count].to_vec()
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.get(AT_BLOCK_SIZE)
    }

    /// Sets the start and the sequence of the log. Start 0 empties it.
    pub fn set_tail(&mut self, start: u32, sequence: Tid) {
        put32(&mut self.raw, AT_START, start);
        put32(&mut self.raw, AT_SEQUENCE, sequence.0);
    }

    /// Sets the block for the next transaction while the log is empty.
    pub fn set_head(&mut self, head: u32) {
        put32(&mut self.raw, AT_HEAD, head);
    }

    /// Sets the error that stopped the journal.
    pub fn set_errno(&mut self, errno: i32) {
        put32(&mut self.raw, AT_ERRNO, errno as u32);
    }

    /// Sets the feature words. A version 1 superblock becomes version 2.
    pub fn set_features(&mut self, features: JournalFeatures) {
        if self.version() < 2 {
            put32(&mut self.raw, 4, 4);
            self.raw[AT_COMPAT..].fill(0);
            put32(&mut self.raw, AT_USERS, 1);
        }
        put32(&mut self.raw, AT_COMPAT, features.compat);
        put32(&mut self.raw, AT_INCOMPAT, features.incompat);
        put32(&mut self.raw, AT_RO_COMPAT, features.ro_compat);
        self.raw[AT_CHECKSUM_TYPE] = if features.has_checksums() { 4 } else { 0 };
    }

    /// Sets the number of blocks of the fast-commit area.
    pub fn set_fc_blocks(&mut self, blocks: u32) {
        put32(&mut self.raw, AT_FC_BLOCKS, blocks);
    }

    /// The bytes to write, with checksum.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut sealed = self.clone();
        let sum = if self.features().has_checksums() { self.sum() } else { 0 };
        put32(&mut sealed.raw, AT_CHECKSUM, sum);
        sealed.raw
    }
}
