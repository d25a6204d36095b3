//! Numbers of nodes: the kernel's root is 1, the image's is 2; all others are the image's.

use nextent::{InodeNo, ROOT_INO};

use crate::errno::{Errno, Result};

/// What the kernel calls the root.
pub(crate) const KERNEL_ROOT: u64 = 1;

/// The inode of the node that the kernel calls `node`.
pub(crate) fn inode(node: u64) -> Result<InodeNo> {
    if node == KERNEL_ROOT {
        return Ok(ROOT_INO);
    }
    u32::try_from(node).map(InodeNo).map_err(|_| Errno(libc::ESTALE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_others() {
        assert_eq!(inode(1), Ok(ROOT_INO));
        assert_eq!(inode(12), Ok(InodeNo(12)));
        assert_eq!(inode(1 << 32), Err(Errno(libc::ESTALE)));
    }
}
