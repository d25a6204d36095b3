//! The superblock: 1024 bytes at byte 1024 of the volume, and at the start of each group with a
//! backup.
//!
//! [`Superblock`] is the stored fields, any value allowed; callers change and write it.
//! [`Superblock::check`] turns the numbers that never change while a volume is open into a
//! [`Geometry`](crate::Geometry), whose numbers are all possible. Callers refuse unknown features
//! first, so that a newer format is an unsupported one and not damage.
//!
//! Source: ext4 disk layout documentation, "The Super Block".

mod raw;
mod stable_checksum;

pub use raw::Superblock;
pub use stable_checksum::SECTOR;

use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};

use crate::checksum::{START, csum};
use crate::error::{Corrupt, Structure};
use crate::inode::BLOCK_AREA;
use crate::{Compat, Features, Incompat, InodeNo, RoCompat};

/// The magic number.
pub const SUPER_MAGIC: u16 = 0xEF53;
/// The bytes of a superblock.
pub const SUPER_SIZE: usize = 1024;
/// The most bytes of a label.
pub const MAX_LABEL: usize = 16;
/// Offset of the first superblock from the volume's start, in bytes.
pub const SUPER_OFFSET: u64 = 1024;
/// The only checksum algorithm there is: crc32c.
pub const CHECKSUM_CRC32C: u8 = 1;

/// The first revision: fixed inode size and first inode.
pub const REV_GOOD_OLD: u32 = 0;
/// The revision with variable inode size and with features.
pub const REV_DYNAMIC: u32 = 1;
/// The inode size of the first revision.
pub const GOOD_OLD_INODE_SIZE: u16 = 128;
/// The first inode of the first revision that is not reserved.
pub const GOOD_OLD_FIRST_INO: u32 = 11;

/// Bits of `state`.
pub mod state {
    /// Unmounted cleanly.
    pub const VALID: u16 = 1;
    /// An error was found.
    pub const ERROR: u16 = 2;
    /// Orphan recovery is in progress.
    pub const ORPHAN: u16 = 4;
    /// Fast-commit replay is in progress.
    pub const FC_REPLAY: u16 = 0x20;
}

/// Values of `creator_os`.
pub mod creator {
    /// Linux.
    pub const LINUX: u32 = 0;
    /// GNU Hurd, which gives a few inode fields another layout.
    pub const HURD: u32 = 1;
    /// Masix.
    pub const MASIX: u32 = 2;
    /// FreeBSD.
    pub const FREEBSD: u32 = 3;
    /// Lites, or another 4.4BSD system.
    pub const LITES: u32 = 4;
}

/// Values of `errors`: the reaction to an error.
pub mod on_error {
    /// Continue.
    pub const CONTINUE: u16 = 1;
    /// Remount read only.
    pub const READ_ONLY: u16 = 2;
    /// Stop the machine.
    pub const PANIC: u16 = 3;
}

/// Bits of `flags`.
pub mod flags {
    /// Directory hashes treat name bytes as signed.
    pub const SIGNED_HASH: u32 = 1;
    /// Directory hashes treat name bytes as unsigned.
    pub const UNSIGNED_HASH: u32 = 2;
    /// The file system is a test file system of developers.
    pub const TEST_FILESYS: u32 = 4;
}

/// Bits of `default_mount_opts`.
pub mod mount_opts {
    /// Print debugging information on (re)mount.
    pub const DEBUG: u32 = 0x1;
    /// New files take the group of their directory.
    pub const BSDGROUPS: u32 = 0x2;
    /// User extended attributes.
    pub const XATTR_USER: u32 = 0x4;
    /// Access control lists.
    pub const ACL: u32 = 0x8;
    /// Only 16-bit user and group numbers.
    pub const UID16: u32 = 0x10;
    /// The bits of the journal mode.
    pub const JOURNAL_MODE: u32 = 0x60;
    /// Data goes through the journal.
    pub const JOURNAL_DATA: u32 = 0x20;
    /// Data is written before the commit that refers to it.
    pub const JOURNAL_ORDERED: u32 = 0x40;
    /// Data is written at any time.
    pub const JOURNAL_WRITEBACK: u32 = 0x60;
    /// No write barriers.
    pub const NO_BARRIER: u32 = 0x100;
    /// Check that data blocks are not metadata blocks.
    pub const BLOCK_VALIDITY: u32 = 0x200;
    /// Discard blocks when they are freed.
    pub const DISCARD: u32 = 0x400;
    /// No delayed allocation.
    pub const NO_DELALLOC: u32 = 0x800;
}

impl Superblock {
    /// Parses the superblock in the first 1024 bytes of `bytes`.
    ///
    /// # Errors
    ///
    /// Fewer bytes, or another magic number.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (sb, _) = Self::read_from_prefix(bytes)
            .map_err(|_| Corrupt::too_short(Structure::Superblock, SUPER_SIZE, bytes.len()))?;
        if sb.magic.get() != SUPER_MAGIC {
            return Err(Corrupt::magic(Structure::Superblock, sb.magic.get()));
        }
        Ok(sb)
    }

    /// A superblock with only magic number and current revision.
    #[must_use]
    pub fn empty() -> Self {
        let mut sb = Self::read_from_bytes(&[0; SUPER_SIZE]).expect("the struct has 1024 bytes");
        sb.magic.set(SUPER_MAGIC);
        sb.rev_level.set(REV_DYNAMIC);
        sb
    }

    /// The 1024 bytes to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The feature words. Volumes of the first revision should have none, but Linux and e2fsprogs
    /// use those that are set.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            compat: Compat::from_bits(self.feature_compat.get()),
            incompat: Incompat::from_bits(self.feature_incompat.get()),
            ro_compat: RoCompat::from_bits(self.feature_ro_compat.get()),
        }
    }

    /// Raises the first revision to the second and changes nothing else.
    pub fn become_dynamic(&mut self) {
        if self.rev_level.get() == REV_GOOD_OLD {
            self.first_ino.set(GOOD_OLD_FIRST_INO);
            self.inode_size.set(GOOD_OLD_INODE_SIZE);
            self.rev_level.set(REV_DYNAMIC);
        }
    }

    /// Stores the feature words.
    pub fn set_features(&mut self, features: Features) {
        self.feature_compat.set(features.compat.bits());
        self.feature_incompat.set(features.incompat.bits());
        self.feature_ro_compat.set(features.ro_compat.bits());
    }

    /// The crc32c of all bytes before the checksum field.
    #[must_use]
    pub fn compute_checksum(&self) -> u32 {
        csum(START, &self.as_bytes()[..SUPER_SIZE - 4])
    }

    /// Stores the checksum if the features require one.
    pub fn seal(&mut self) {
        if self.features().metadata_csum() {
            self.checksum_type = CHECKSUM_CRC32C;
            let sum = self.compute_checksum();
            self.checksum.set(sum);
        }
    }

    /// Compares the checksum if the features require one.
    ///
    /// # Errors
    ///
    /// A wrong checksum, or an unknown algorithm.
    pub fn verify_checksum(&self) -> Result<(), Corrupt> {
        if !self.features().metadata_csum() {
            return Ok(());
        }
        if self.checksum_type != CHECKSUM_CRC32C {
            let kind = u64::from(self.checksum_type);
            return Err(Corrupt::field(Structure::Superblock, "s_checksum_type", kind));
        }
        let (found, expected) = (self.checksum.get(), self.compute_checksum());
        if found != expected {
            return Err(Corrupt::checksum(Structure::Superblock, found, expected));
        }
        Ok(())
    }

    /// The seed of all other checksums: the stored one with `metadata_csum_seed`, else the crc32c
    /// of the UUID.
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        if self.features().has(Incompat::CSUM_SEED) {
            self.checksum_seed.get()
        } else {
            csum(START, &self.uuid)
        }
    }

    /// The volume's UUID.
    #[must_use]
    pub fn volume_uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }

    fn is_64bit(&self) -> bool {
        self.features().has(Incompat::BIT64)
    }

    fn wide(&self, low: u32, high: u32) -> u64 {
        u64::from(low) | if self.is_64bit() { u64::from(high) << 32 } else { 0 }
    }

    /// Blocks of the volume.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.blocks_count_lo.get(), self.blocks_count_hi.get())
    }

    /// Stores [`Self::blocks_count`].
    pub fn set_blocks_count(&mut self, count: u64) {
        self.blocks_count_lo.set(count as u32);
        self.blocks_count_hi.set((count >> 32) as u32);
    }

    /// Blocks that only the reserved user or group may allocate.
    #[must_use]
    pub fn reserved_blocks_count(&self) -> u64 {
        self.wide(self.r_blocks_count_lo.get(), self.r_blocks_count_hi.get())
    }

    /// Stores [`Self::reserved_blocks_count`].
    pub fn set_reserved_blocks_count(&mut self, count: u64) {
        self.r_blocks_count_lo.set(count as u32);
        self.r_blocks_count_hi.set((count >> 32) as u32);
    }

    /// Free blocks at the last write of the superblock. A free cluster counts with all its blocks.
    #[must_use]
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.free_blocks_count_lo.get(), self.free_blocks_count_hi.get())
    }

    /// Stores [`Self::free_blocks_count`].
    pub fn set_free_blocks_count(&mut self, count: u64) {
        self.free_blocks_count_lo.set(count as u32);
        self.free_blocks_count_hi.set((count >> 32) as u32);
    }

    /// The bytes of an inode on disk.
    #[must_use]
    pub fn inode_size_bytes(&self) -> u16 {
        match self.rev_level.get() {
            REV_GOOD_OLD => GOOD_OLD_INODE_SIZE,
            _ => self.inode_size.get(),
        }
    }

    /// The first inode that is not reserved.
    #[must_use]
    pub fn first_inode(&self) -> InodeNo {
        InodeNo(match self.rev_level.get() {
            REV_GOOD_OLD => GOOD_OLD_FIRST_INO,
            _ => self.first_ino.get(),
        })
    }

    /// The numbers of the user and of the group that may allocate reserved blocks.
    #[must_use]
    pub fn reserved_owner(&self) -> (u32, u32) {
        let uid = u32::from(self.def_resuid.get()) | u32::from(self.def_resuid_hi.get()) << 16;
        let gid = u32::from(self.def_resgid.get()) | u32::from(self.def_resgid_hi.get()) << 16;
        (uid, gid)
    }

    /// The seed of directory hashes. All zeros select the functions' own seeds.
    #[must_use]
    pub fn hash_seed_words(&self) -> [u32; 4] {
        self.hash_seed.map(|word| word.get())
    }

    /// The seed of directory hashes as a UUID, its form in the texts of e2fsprogs.
    #[must_use]
    pub fn hash_seed_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(self.hash_seed.as_bytes());
        Uuid::from_bytes(bytes)
    }

    /// The label, up to its first zero byte. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn label(&self) -> String {
        text(&self.volume_name)
    }

    /// The bytes of the label, up to its first zero byte.
    #[must_use]
    pub fn label_bytes(&self) -> &[u8] {
        let end = self.volume_name.iter().position(|byte| *byte == 0);
        &self.volume_name[..end.unwrap_or(self.volume_name.len())]
    }

    /// Stores the label, cut to 16 bytes.
    pub fn set_label(&mut self, label: &str) {
        self.set_label_bytes(label.as_bytes());
    }

    /// Stores the label, cut to 16 bytes. It need not be UTF-8.
    pub fn set_label_bytes(&mut self, label: &[u8]) {
        self.volume_name = [0; MAX_LABEL];
        for (to, from) in self.volume_name.iter_mut().zip(label) {
            *to = *from;
        }
    }

    /// The directory of the last mount.
    #[must_use]
    pub fn last_mounted_on(&self) -> String {
        text(&self.last_mounted)
    }
}

macro_rules! long_time {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $low:ident, $high:ident;)*) => {
        impl Superblock {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $get(&self) -> u64 {
                    u64::from(self.$low.get()) | u64::from(self.$high) << 32
                }

                /// Stores the time of the same name: 40 bits of seconds since 1970.
                pub fn $set(&mut self, seconds: u64) {
                    let seconds = seconds.min((1 << 40) - 1);
                    self.$low.set(seconds as u32);
                    self.$high = (seconds >> 32) as u8;
                }
            )*
        }
    };
}

long_time! {
    /// When the volume was made, in seconds since 1970.
    made_at, set_made_at: mkfs_time, mkfs_time_hi;
    /// When it was last mounted.
    mounted_at, set_mounted_at: mtime, mtime_hi;
    /// When the superblock was last written.
    written_at, set_written_at: wtime, wtime_hi;
    /// When it was last checked.
    checked_at, set_checked_at: lastcheck, lastcheck_hi;
    /// When the first error since the last check was found; 0 for none.
    first_error_at, set_first_error_at: first_error_time, first_error_time_hi;
    /// When the last error was found.
    last_error_at, set_last_error_at: last_error_time, last_error_time_hi;
}

/// An error for [`Superblock::record_error`].
#[derive(Clone, Copy, Debug)]
pub struct ErrorRecord<'a> {
    /// Seconds since 1970.
    pub at: u64,
    /// The affected inode, or 0.
    pub ino: u32,
    /// The affected block, or 0.
    pub block: u64,
    /// The function in the program; cut to 32 bytes.
    pub function: &'a str,
    /// The line in the program.
    pub line: u32,
    /// The error's code, see [`error_code`].
    pub code: u8,
}

/// Values of the error code fields.
#[allow(missing_docs)]
pub mod error_code {
    pub const UNKNOWN: u8 = 1;
    pub const EIO: u8 = 2;
    pub const ENOMEM: u8 = 3;
    pub const EFSBADCRC: u8 = 4;
    pub const EFSCORRUPTED: u8 = 5;
    pub const ENOSPC: u8 = 6;
    pub const ENOKEY: u8 = 7;
    pub const EROFS: u8 = 8;
    pub const EFBIG: u8 = 9;
    pub const EEXIST: u8 = 10;
    pub const ERANGE: u8 = 11;
    pub const EOVERFLOW: u8 = 12;
    pub const EBUSY: u8 = 13;
    pub const ENOTDIR: u8 = 14;
    pub const ENOTEMPTY: u8 = 15;
    pub const ESHUTDOWN: u8 = 16;
    pub const EFAULT: u8 = 17;
}

impl Superblock {
    /// Records an error. The first error since the last check stays, the last error is replaced,
    /// the count increases, and `state` gets its error bit.
    pub fn record_error(&mut self, error: &ErrorRecord<'_>) {
        let mut name = [0; 32];
        for (to, from) in name.iter_mut().zip(error.function.bytes()) {
            *to = from;
        }
        if self.first_error_at() == 0 {
            self.set_first_error_at(error.at);
            self.first_error_ino.set(error.ino);
            self.first_error_block.set(error.block);
            self.first_error_func = name;
            self.first_error_line.set(error.line);
            self.first_error_errcode = error.code;
        }
        self.set_last_error_at(error.at);
        self.last_error_ino.set(error.ino);
        self.last_error_block.set(error.block);
        self.last_error_func = name;
        self.last_error_line.set(error.line);
        self.last_error_errcode = error.code;
        self.error_count.set(self.error_count.get().saturating_add(1));
        self.state.set(self.state.get() | state::ERROR);
    }
}

impl Superblock {
    /// Copies the error fields of `other`, another image of this superblock, if it has recorded
    /// more errors. A replayed log may hold an image older than the one that it overwrites.
    pub fn keep_errors(&mut self, other: &Self) {
        self.state.set(self.state.get() | other.state.get() & state::ERROR);
        if other.error_count.get() <= self.error_count.get() {
            return;
        }
        self.error_count = other.error_count;
        self.set_first_error_at(other.first_error_at());
        self.first_error_ino = other.first_error_ino;
        self.first_error_block = other.first_error_block;
        self.first_error_func = other.first_error_func;
        self.first_error_line = other.first_error_line;
        self.first_error_errcode = other.first_error_errcode;
        self.set_last_error_at(other.last_error_at());
        self.last_error_ino = other.last_error_ino;
        self.last_error_block = other.last_error_block;
        self.last_error_func = other.last_error_func;
        self.last_error_line = other.last_error_line;
        self.last_error_errcode = other.last_error_errcode;
    }

    /// Forgets the errors that were recorded since the last check.
    pub fn clear_errors(&mut self) {
        self.error_count.set(0);
        self.set_first_error_at(0);
        self.first_error_ino.set(0);
        self.first_error_block.set(0);
        self.first_error_func = [0; 32];
        self.first_error_line.set(0);
        self.first_error_errcode = 0;
        self.set_last_error_at(0);
        self.last_error_ino.set(0);
        self.last_error_block.set(0);
        self.last_error_func = [0; 32];
        self.last_error_line.set(0);
        self.last_error_errcode = 0;
    }

    /// The copy of the journal inode's block map and size, for a volume whose journal inode is
    /// damaged.
    #[must_use]
    pub fn journal_backup(&self) -> Option<([u8; BLOCK_AREA], u64)> {
        if self.jnl_backup_type != 1 {
            return None;
        }
        let [map @ .., high, low] = &self.jnl_blocks;
        let mut block = [0; BLOCK_AREA];
        block.copy_from_slice(map.as_bytes());
        Some((block, u64::from(high.get()) << 32 | u64::from(low.get())))
    }

    /// Stores [`Self::journal_backup`].
    pub fn set_journal_backup(&mut self, block: &[u8; BLOCK_AREA], size: u64) {
        self.jnl_backup_type = 1;
        let [map @ .., high, low] = &mut self.jnl_blocks;
        map.as_mut_bytes().copy_from_slice(block);
        high.set((size >> 32) as u32);
        low.set(size as u32);
    }
}

/// A field's text up to its first zero byte. Invalid UTF-8 is replaced.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
