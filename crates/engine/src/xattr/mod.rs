//! Extended attributes: in the inode's spare bytes, and in one block that files may share.
//!
//! The inode floor hands in copies of an inode's spare bytes and of its block number, see
//! [`Home`], and stores them back after a change. Whoever changes holds the inode exclusively,
//! whoever reads holds it shared.
//!
//! Promises:
//! - an attribute goes into the inode if it fits there, else into the block; it is never in both;
//! - a block whose attributes equal those of a block known from earlier changes is not written
//!   again but shared, up to 1024 times; one that is shared is never changed in place. Who may
//!   share, change or free a block is decided under `[xattr.share]` only, see [`ShareCache`];
//! - a verb that fails has changed nothing, unless the device or the journal failed;
//! - any bytes may be found: the answer is then an error that names inode and block.
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
    cx::{Home, ValueReader, XattrCx},
    name::XattrName,
    read::{get, list},
    share::ShareCache,
};
