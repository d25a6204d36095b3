//! Major and minor numbers of devices, as sysfs and procfs print them.
//!
//! Other systems than Linux have neither, so the encoding there does not matter.

#[cfg(target_os = "linux")]
pub(super) use libc::{major, makedev, minor};

#[cfg(not(target_os = "linux"))]
pub(super) use other::{major, makedev, minor};

#[cfg(not(target_os = "linux"))]
mod other {
    use nextent_num::{low_half, to_u64, usize_of_u32};

    pub(in super::super) const fn major(device: u64) -> u32 {
        low_half(device >> 32)
    }

    pub(in super::super) const fn minor(device: u64) -> u32 {
        low_half(device)
    }

    pub(in super::super) const fn makedev(major: u32, minor: u32) -> u64 {
        (to_u64(usize_of_u32(major)) << 32) | to_u64(usize_of_u32(minor))
    }
}
