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
mod bulk;
mod cursor;
mod error;
mod grow;
mod init;
mod inline;
mod insert;
mod iterate;
mod layout;
mod live;
mod lookup;
mod name;
mod pages;
mod remove;
mod tree;

#[cfg(test)]
mod tests;

#[allow(unused_imports)] // the whole interface, used or not
pub(crate) use self::{
    block::{check_block, seal_of},
    bulk::Shape,
    cursor::Cursor,
    error::DirError,
    inline::InlineDir,
    iterate::Entry,
    layout::{DirInfo, IndexInfo},
    live::{
        DirBlocks, InsertCost, init, insert, insert_cost, is_empty, iterate, lookup, remove,
        replace, set_parent,
    },
    lookup::Found,
    name::{MAX_NAME, Name},
};
