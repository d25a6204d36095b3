//! Decides for how long the kernel may keep the attributes of a node.
//!
//! Only this server changes the volume. The kernel invalidates what its own requests change. For
//! two of them it does not, so the server sends a notice before the answer: the times of a file
//! whose flags an `ioctl` changes, and the access time of the source of `copy_file_range`. Further
//! exceptions are in this table. The first row that applies decides:
//!
//! | node | attributes are valid | reason |
//! |---|---|---|
//! | any, where the server admits users | for no time | the kernel would show them to every user |
//! | regular file with set-id bits | for no time | a change of contents removes the bits, and no answer tells the kernel; it would still run the file with the rights of its owner |
//! | others | a day | |
//!
//! A file with `security.capability` needs no row: the kernel asks for this extended attribute
//! each time it runs the file.

use nextent::FileType;
use nextent::inodes::Attr;

use super::Server;

/// A time for which the kernel may keep what an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) seconds: u64,
    pub(crate) nanos: u32,
}

impl Validity {
    const NONE: Self = Self { seconds: 0, nanos: 0 };
}

impl Server {
    /// For how long the kernel may keep these attributes.
    pub(crate) fn attr_validity(&self, attr: &Attr) -> Validity {
        let set_id = u32::from(attr.mode) & (libc::S_ISUID | libc::S_ISGID) != 0;
        if attr.kind == FileType::Regular && set_id {
            return Validity::NONE;
        }
        Validity { seconds: self.admission().validity(), nanos: 0 }
    }
}
