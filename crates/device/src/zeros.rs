//! Zeros for devices that have no better way to write them.

use crate::BlockDevice;
use nextent_num::{to_u64, to_usize};
use std::io;

/// The most bytes of one write.
const STEP: u64 = 1 << 20;

/// Writes zeros over a range by [`BlockDevice::write_at`].
///
/// # Errors
/// Those of the device.
pub fn write_zero_bytes(
    device: &(impl BlockDevice + ?Sized),
    offset: u64,
    len: u64,
) -> io::Result<()> {
    let zeros = vec![0; to_usize(len.min(STEP))];
    let mut done = 0;
    while done < len {
        let step = to_u64(zeros.len()).min(len - done);
        device.write_at(offset + done, &zeros[..to_usize(step)])?;
        done += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn only_the_range_becomes_zeros() {
        let device = MemoryDevice::new(4 << 20);
        device.write_at(0, &vec![7; 4 << 20]).unwrap();
        write_zero_bytes(&device, 1000, (2 << 20) + 5).unwrap();
        let mut bytes = vec![0; 4 << 20];
        device.read_at(0, &mut bytes).unwrap();
        let zeros = 1000..1000 + (2 << 20) + 5;
        assert!(bytes.iter().enumerate().all(|(at, byte)| (*byte == 0) == zeros.contains(&at)));
        assert!(write_zero_bytes(&device, 4 << 20, 1).is_err());
    }
}
