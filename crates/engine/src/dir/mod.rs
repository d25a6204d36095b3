//! Directories: names to inode numbers, in blocks, in an index by hash, or inside the inode.
//!
//! Pure logic over [`DirBlocks`], which the inode layer implements: it knows neither inodes nor
//! locks. The caller of an operation that changes holds the directory exclusively, the caller of
//! one that reads holds it shared. Every change is part of the caller's handle.
//!
//! Invariants:
//! - after any operation, failed or not, the blocks are a directory that Linux and e2fsck accept;
//!   an added name is found, also by the index;
//! - the blocks may hold any bytes: the result is then [`DirError::Corrupt`] with inode and
//!   block, no operation loops or reads outside a block, and the directory's size bounds memory;
//! - a damaged index, or one with an unknown hash, hides no name from `lookup`, `remove` and
//!   `replace`, which then read all blocks; only `insert` refuses;
//! - a scan returns an entry that exists during the whole scan exactly once, see [`Cursor`].

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
        DirBlocks, InsertCost, find_by, init, insert, insert_cost, is_empty, iterate, lookup,
        remove, replace, scan_hasher, set_parent,
    },
    lookup::Found,
    name::{MAX_NAME, Name},
};
