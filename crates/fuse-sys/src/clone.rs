//! Clones of an open `/dev/fuse`: descriptors of the same connection with lists of their own.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`. The number says that the kernel writes the argument, but it reads it.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Opens `/dev/fuse` again for the connection of `device`.
///
/// All descriptors of a connection read from one queue. The kernel keeps the requests that were
/// read, until they are answered, in a list of the descriptor. So threads with a descriptor each
/// share no lock for that list, and a request must be answered where it was read.
///
/// # Errors
///
/// The kernel's error: `/dev/fuse` may not be opened, or `device` has no connection.
pub fn clone_device(device: BorrowedFd<'_>) -> io::Result<File> {
    let clone = File::options().read(true).write(true).open("/dev/fuse")?;
    let number = device.as_raw_fd().cast_unsigned();
    // SAFETY: the call's argument is a pointer to a descriptor's number of 32 bits, which the
    // kernel only reads. It changes nothing but the kernel's state of `clone`.
    unsafe { ioctl(&clone, Setter::<CLONE, u32>::new(number)) }?;
    Ok(clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_number_is_that_of_the_kernel() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(CLONE, 0x8004_e500);
        }
    }

    #[test]
    fn a_device_without_a_connection_is_refused() {
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else { return };
        // EINVAL, or EPERM in newer kernels.
        let refused = clone_device(device.as_fd()).expect_err("there is no mount").raw_os_error();
        assert!([libc::EINVAL, libc::EPERM].map(Some).contains(&refused), "{refused:?}");
    }
}
