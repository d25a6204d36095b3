//! Directories: names to inode numbers, in blocks, in an index by hash, or inside the inode.
//!
//! Pure logic over [`DirBlocks`], which the inode floor implements: it knows neither inodes nor
//! locks. Whoever calls a verb that changes holds the directory exclusively, whoever calls one
//! that reads holds it shared; every change is part of the caller's handle.
//!
//! Promises:
//! - after any verb, whether it fails or not, the blocks are a directory that Linux and e2fsck
//!   take; a name added is found, by the index too;
//! - any bytes may be in the blocks: the answer is then [`DirError::Corrupt`] with inode and
//!   block, no verb loops or reads outside a block, and memory is bounded by the directory's size;
//! - a damaged index, or one with an unknown hash, hides no name from `lookup`, `remove` and
//!   `replace`, which then read all blocks; only `insert` refuses;
//! - a scan returns an entry that is there all the while exactly once, see [`Cursor`].

mod block;
mod cursor;
mod error;
mod grow;
mod hash;
mod index;
mod init;
mod inline;
mod insert;
mod iterate;
mod layout;
mod lookup;
mod name;
mod pages;
mod raw;
mod remove;
mod tree;

#[cfg(test)]
mod tests;

pub(crate) use cursor::Cursor;
pub(crate) use error::DirError;
pub(crate) use inline::InlineDir;
pub(crate) use iterate::Entry;
pub(crate) use layout::{DirInfo, IndexInfo};
pub(crate) use lookup::Found;
pub(crate) use name::{MAX_NAME, Name};
pub(crate) use pages::BlockKind;

/// The file type of a directory in an entry.
const DIR_TYPE: u8 = 2;
