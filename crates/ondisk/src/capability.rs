//! The value of the attribute `security.capability`, in Linux's second revision.

/// The length of the value.
pub const CAPABILITY_SIZE: usize = 20;

/// `VFS_CAP_REVISION_2`.
const REVISION: u32 = 0x0200_0000;
/// `VFS_CAP_FLAGS_EFFECTIVE`: the permitted capabilities are effective at once.
const EFFECTIVE: u32 = 1;

/// The value that permits the capabilities with the bits `permitted`, effective at once, and lets
/// none be inherited.
#[must_use]
pub fn capability(permitted: u64) -> [u8; CAPABILITY_SIZE] {
    let mut value = [0; CAPABILITY_SIZE];
    let bits = permitted.to_le_bytes();
    // Each half of the permitted bits is followed by that of the inheritable bits.
    value[..4].copy_from_slice(&(REVISION | EFFECTIVE).to_le_bytes());
    value[4..8].copy_from_slice(&bits[..4]);
    value[12..16].copy_from_slice(&bits[4..]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that setcap(8) writes.
    #[test]
    fn the_halves_are_in_their_places() {
        let want = [1, 0, 0, 2, 0xc0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(capability(0x4_0000_00c0), want);
    }
}
