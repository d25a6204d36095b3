//! Extended attributes: in the inode's spare bytes, and in one block that files may share.
//!
//! The inode layer passes copies of an inode's spare bytes and of its block number, see
//! [`AttrStorage`], and stores them back after a change. A caller that changes attributes holds the
//! inode exclusively; a caller that reads them holds it shared.
//!
//! Invariants:
//! - an attribute goes into the inode if it fits there, else into the block; it is never in both;
//! - a block whose attributes equal those of a block known from earlier changes is not written
//!   again but shared, up to 1024 times; a shared block is never changed in place. Only the holder
//!   of `[xattr.share]` decides whether a block is shared, changed or freed, see [`ShareCache`];
//! - a verb that fails has changed nothing, unless the device or the journal failed;
//! - a block may hold any bytes: the result is then an error that names inode and block.
//!
//! Values in inodes of their own (feature `ea_inode`) are read, not written.

pub(crate) mod acl;
mod bulk;
mod change;
mod cx;
mod locks;
mod name;
mod read;
mod share;
mod state;

#[cfg(test)]
mod tests;

#[allow(unused_imports)] // the whole interface, used or not
pub(crate) use self::{
    bulk::{Laid, lay_out},
    change::{CREDITS, create, drop_all, put, remove, replace},
    cx::{AttrStorage, ValueReader, XattrCx},
    name::XattrName,
    read::{get, list},
    share::ShareCache,
};
