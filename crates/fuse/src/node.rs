//! Numbers of nodes: the kernel's root is 1, the image's is 2; all others are the image's.

use nextent::{InodeNo, ROOT_INO};

use crate::errno::{Errno, Result};

/// What the kernel calls the root.
pub(crate) const KERNEL_ROOT: u64 = 1;

/// The inode of the node that the kernel calls `node`. The image's number of the root is none: two
/// nodes of one directory would be two directories for the kernel, each with a lock of its own.
pub(crate) fn inode(node: u64) -> Result<InodeNo> {
    if node == KERNEL_ROOT {
        return Ok(ROOT_INO);
    }
    let ino = u32::try_from(node).map(InodeNo).ok().filter(|ino| *ino != ROOT_INO);
    ino.ok_or(Errno(libc::ESTALE))
}

/// What the kernel calls the inode `ino`.
pub(crate) fn node(ino: InodeNo) -> u64 {
    if ino == ROOT_INO { KERNEL_ROOT } else { u64::from(ino.0) }
}

/// A number for the kernel to show beside a name that cannot be looked up: of no node, so that
/// requests about it and its being forgotten reach no file.
pub(crate) fn damaged_node(ino: InodeNo) -> u64 {
    1 << 32 | u64::from(ino.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_others() {
        assert_eq!(inode(1), Ok(ROOT_INO));
        assert_eq!(inode(12), Ok(InodeNo(12)));
        assert_eq!(inode(1 << 32), Err(Errno(libc::ESTALE)));
        assert_eq!(inode(damaged_node(InodeNo(12))), Err(Errno(libc::ESTALE)));
        assert_eq!(inode(2), Err(Errno(libc::ESTALE)));
        assert_eq!([ROOT_INO, InodeNo(12)].map(node), [1, 12]);
    }
}
