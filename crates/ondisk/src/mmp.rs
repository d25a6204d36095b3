//! The multi-mount protection block: a mount that writes changes its sequence number periodically.
//!
//! Source: ext4 disk layout documentation, "Multiple Mount Protection".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Geometry;
use crate::checksum::csum;
use crate::error::{Corrupt, Structure};

/// The magic number.
pub const MAGIC: u32 = 0x004D_4D50;
/// The sequence of a volume that no mount or check has open.
pub const SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// The sequence during a check.
pub const SEQ_FSCK: u32 = 0xE24D_4D50;
/// The largest sequence that a mount uses.
pub const SEQ_MAX: u32 = 0xE24D_4D4F;
/// The shortest interval between heartbeats, in seconds.
pub const MIN_CHECK_INTERVAL: u16 = 5;
/// The longest interval between heartbeats, in seconds.
pub const MAX_CHECK_INTERVAL: u16 = 300;

const SIZE: usize = 1024;

/// The block's fields; any value is possible.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MmpBlock {
    /// [`MAGIC`].
    pub magic: U32,
    /// A number that changes with each heartbeat.
    pub sequence: U32,
    /// Time of the last change, in seconds since 1970.
    pub time: U64,
    /// Host name of the last writer, for messages.
    pub node_name: [u8; 64],
    /// Device name at the last writer, for messages.
    pub device_name: [u8; 32],
    /// Seconds after which a heartbeat counts as missing.
    pub check_interval: U16,
    /// Zero.
    pub padding1: U16,
    /// Zero.
    pub padding2: [U32; 226],
    /// crc32c of all earlier bytes, seeded with the volume's seed.
    pub checksum: U32,
}

const _: () = assert!(size_of::<MmpBlock>() == SIZE);

impl MmpBlock {
    /// Parses the block.
    ///
    /// # Errors
    ///
    /// Fewer than 1024 bytes, a wrong magic number, or (with `metadata_csum`) a wrong checksum.
    pub fn read(geometry: &Geometry, block: &[u8]) -> Result<Self, Corrupt> {
        let (mmp, _) = Self::read_from_prefix(block)
            .map_err(|_| Corrupt::too_short(Structure::MultiMount, SIZE, block.len()))?;
        if mmp.magic.get() != MAGIC {
            return Err(Corrupt::magic(Structure::MultiMount, mmp.magic.get()));
        }
        let (found, expected) = (mmp.checksum.get(), mmp.compute_checksum(geometry));
        if geometry.features.metadata_csum() && found != expected {
            return Err(Corrupt::checksum(Structure::MultiMount, found, expected));
        }
        Ok(mmp)
    }

    /// The host name of the last writer, without the zeros that follow it.
    #[must_use]
    pub fn node(&self) -> &[u8] {
        until_zero(&self.node_name)
    }

    /// The device name at the last writer, without the zeros that follow it.
    #[must_use]
    pub fn device(&self) -> &[u8] {
        until_zero(&self.device_name)
    }

    /// A block for a volume that is not open.
    #[must_use]
    pub fn clean() -> Self {
        let mut mmp = Self::read_from_bytes(&[0; SIZE]).expect("the struct has 1024 bytes");
        mmp.magic.set(MAGIC);
        mmp.sequence.set(SEQ_CLEAN);
        mmp
    }

    fn compute_checksum(&self, geometry: &Geometry) -> u32 {
        csum(geometry.csum_seed, &self.as_bytes()[..SIZE - 4])
    }

    /// Stores the checksum if the features require one.
    pub fn seal(&mut self, geometry: &Geometry) {
        if geometry.features.metadata_csum() {
            let sum = self.compute_checksum(geometry);
            self.checksum.set(sum);
        }
    }

    /// The 1024 bytes to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockNo;
    use crate::testing::Image;

    #[test]
    fn the_block_of_mke2fs_verifies() {
        for (name, args) in
            [("mmp", "-t ext4 -O mmp"), ("mmp-without-csum", "-t ext4 -O mmp,^metadata_csum")]
        {
            let image = Image::make(name, args, "16m");
            let geometry = image.geometry();
            let no = BlockNo(image.superblock().mmp_block.get());
            let mut mmp = MmpBlock::read(&geometry, image.block(no)).unwrap();
            assert_eq!(mmp.sequence.get(), SEQ_CLEAN);
            mmp.sequence.set(5);
            assert_eq!(
                MmpBlock::read(&geometry, mmp.bytes()).is_err(),
                geometry.features.metadata_csum()
            );
            mmp.seal(&geometry);
            MmpBlock::read(&geometry, mmp.bytes()).unwrap();
            assert!(MmpBlock::read(&geometry, &[0; 1024]).is_err());
            assert!(MmpBlock::read(&geometry, &[0; 1023]).is_err());
        }
    }
}
