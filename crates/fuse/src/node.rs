//! Node numbers: the kernel's root is 1 and the volume's is 2. All others are inode numbers.

use nextent::inodes::{InodeNo, ROOT_INO};

use crate::errno::{Errno, Result};

/// The kernel's number of the root.
pub(crate) const KERNEL_ROOT: u64 = 1;

/// The inode of a node. The volume's number of the root is not a node: with two nodes for one
/// directory the kernel would have two locks for it.
pub(crate) fn inode(node: u64) -> Result<InodeNo> {
    if node == KERNEL_ROOT {
        return Ok(ROOT_INO);
    }
    let ino = u32::try_from(node).map(InodeNo).ok().filter(|ino| *ino != ROOT_INO);
    ino.ok_or(Errno(libc::ESTALE))
}

/// The node of an inode.
pub(crate) fn node(ino: InodeNo) -> u64 {
    if ino == ROOT_INO { KERNEL_ROOT } else { u64::from(ino.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_inodes_except_the_root() {
        assert_eq!(inode(1), Ok(ROOT_INO));
        assert_eq!(inode(12), Ok(InodeNo(12)));
        assert_eq!(inode(1 << 32), Err(Errno(libc::ESTALE)));
        assert_eq!(inode(2), Err(Errno(libc::ESTALE)));
        assert_eq!([ROOT_INO, InodeNo(12)].map(node), [1, 12]);
    }
}
