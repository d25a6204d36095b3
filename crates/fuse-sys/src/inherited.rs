//! Descriptors that a caller left open for this process.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A duplicate of the descriptor `number` of this process. The original stays open.
///
/// # Errors
///
/// There is no such descriptor.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call makes a new descriptor, or fails if there is none to duplicate. It accesses
    // no memory of this process.
    let made = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_duplicate_lives_as_long_as_its_owner() {
        let file = File::open("/proc/self/comm").unwrap();
        let mut copy = File::from(duplicate(file.as_raw_fd()).unwrap());
        drop(file);
        let mut text = String::new();
        assert!(copy.read_to_string(&mut text).unwrap() > 0);
        assert!(duplicate(-1).is_err());
    }
}
