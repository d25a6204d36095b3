//! Device numbers in the block area: 16 bits in the first word, or 32 bits in the second.
//!
//! Source: ext4 disk layout documentation, "The Contents of inode.i_block".

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::BLOCK_AREA;

/// The device (major, minor) in the block area of a device inode.
#[must_use]
pub fn decode(block: &[u8; BLOCK_AREA]) -> (u32, u32) {
    let ([old, new], _) = <[U32; 2]>::ref_from_prefix(block).expect("60 bytes hold two words");
    match (old.get(), new.get()) {
        (0, new) => ((new >> 8) & 0xfff, (new & 0xff) | (new >> 12 & 0xf_ff00)),
        (old, _) => ((old >> 8) & 0xff, old & 0xff),
    }
}

/// The block area for a device: the old form if the numbers fit, else the new form (12 bits of
/// major, 20 bits of minor number).
#[must_use]
pub fn encode(major: u32, minor: u32) -> [u8; BLOCK_AREA] {
    let mut block = [0; BLOCK_AREA];
    let ([old, new], _) = <[U32; 2]>::mut_from_prefix(&mut block).expect("60 bytes hold two words");
    if major < 256 && minor < 256 {
        old.set(major << 8 | minor);
    } else {
        new.set((major & 0xfff) << 8 | (minor & 0xff) | (minor & 0xf_ff00) << 12);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_round_trip() {
        for device in [(1, 3), (8, 1), (255, 255), (259, 70000), (4095, 0xfffff), (0, 256)] {
            assert_eq!(decode(&encode(device.0, device.1)), device);
        }
    }
}
