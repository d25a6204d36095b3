//! From a file's blocks to the volume's: extent trees and indirect block maps.
//!
//! One verb per job, for both kinds of map: [`lookup`], [`lookup_near`], [`insert`], [`convert`],
//! [`convert_runs`], [`mark_unwritten`], [`remove`], [`shift_left`], [`shift_right`], and the walks
//! [`next_extent`], [`next_data`], [`next_hole`], [`extents`], [`count_nodes`].
//!
//! # Who holds what
//!
//! The root of a map is 60 bytes of the inode, here a [`MapRoot`]. Whoever calls
//! a verb holds the lock that guards the root (rank 300, the extent map lock),
//! shared for the verbs that take `&MapRoot`, exclusive for those that take
//! `&mut MapRoot`; that lock also guards every node below the root. This module
//! takes no lock of its own. After each changing verb, failed or not, the caller
//! adds [`MapRoot::take_change`] to the inode's block count and marks the inode
//! dirty in the handle's transaction.
//!
//! # What stays true
//!
//! - At every point where a verb returns, also with an error, the tree on disk
//!   is whole: a handle may be stopped or restarted there. A changing verb
//!   that ran out of credits says how far it came ([`Progress`]).
//! - An index entry's key is the first key of its child; keys rise; the last
//!   extent below a key ends before the next key. No node but the root is empty.
//! - A mapping is dropped from the tree before its blocks are freed, so that a
//!   failure in between leaks blocks and never shares them.
//! - Nodes read from disk are checked: magic, depth falling by one per level,
//!   counts, order, bounds given by the parent, block numbers inside the volume
//!   and not the volume's own (`owned`), checksum. What breaks a rule is an error
//!   that names inode and block.

/// Calls a verb of the kind of map that `$root` is.
macro_rules! by_kind {
    ($root:expr, $verb:ident($($argument:expr),*)) => {
        match $root.kind() {
            $crate::map::MapKind::Extents => $crate::map::extents::$verb($($argument),*),
            $crate::map::MapKind::Indirect => $crate::map::indirect::$verb($($argument),*),
        }
    };
}

mod context;
mod credits;
mod extents;
mod freed_runs;
mod indirect;
mod root;
mod space;
mod system_blocks;
mod types;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use context::MapCx;
pub(crate) use credits::{
    append_credits, change_credits, insert_credits, max_insert_len, remove_all_credits,
    remove_credits, shift_credits,
};
pub(crate) use extents::Tail;
pub(crate) use root::{MapKind, MapRoot};
pub(crate) use space::{BlockKind, BlockRequest, BlockRun, Privilege, Space};
pub(crate) use system_blocks::check_root;
pub(crate) use types::{Converted, Extent, ExtentState, Mapping, Progress};
#[cfg(test)]
pub(crate) use walk::visit_nodes;
pub(crate) use walk::{count_nodes, extents, next_data, next_extent, next_hole};

use crate::error::{Error, Result};
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_store::Handle;
use std::ops::Range;

/// The block after the last one that a file can have.
pub(crate) const END_OF_BLOCKS: FileBlock = FileBlock(u32::MAX);

/// What block `at` of the file is mapped to, and for how many blocks (at most
/// `max`) that goes on. A hole's length reaches up to the next extent.
///
/// # Errors
/// A node that cannot be read or breaks a rule of the format.
pub(crate) fn lookup(cx: &MapCx<'_>, root: &MapRoot, at: FileBlock, max: u32) -> Result<Mapping> {
    by_kind!(root, lookup(cx, root, at.get(), max))
}

/// As [`lookup`], and in `near`, in order, extents around `at` that took no further way: the one
/// that covers it, if one does, and some before and after.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn lookup_near(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: FileBlock,
    max: u32,
    near: &mut Vec<Extent>,
) -> Result<Mapping> {
    by_kind!(root, lookup_near(cx, root, at.get(), max, near))
}

/// The end of what is mapped, where that takes no look beyond the root.
pub(crate) fn tail(root: &MapRoot) -> Option<Tail> {
    extents::tail(root)
}

/// Lets the last extent, as [`tail`] told it, take in the `blocks` behind it, in the root and in
/// `copy`, which holds the same bytes. The caller counts them.
pub(crate) fn lengthen_tail(root: &mut MapRoot, copy: &mut [u8], tail: &Tail, blocks: u32) {
    extents::lengthen_tail(root, copy, tail, blocks);
}

/// Maps the hole at `at` to `run`; returns how many blocks were mapped.
///
/// That is less than the run's length only when the disk became too full for
/// another node; the caller frees or keeps the rest. Needs [`insert_credits`].
///
/// # Errors
/// [`Error::NoSpace`] when not one block could be mapped,
/// [`Error::NotSupported`] for an unwritten run in an indirect map (write zeros
/// instead), [`Error::TooBig`] beyond the end of blocks, and corrupt nodes, for
/// which a mapped block in the range also counts.
pub(crate) fn insert(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    at: FileBlock,
    run: BlockRun,
    state: ExtentState,
) -> Result<u32> {
    match at.checked_add(run.len) {
        Some(end) if end <= END_OF_BLOCKS && run.len > 0 => {}
        _ => return Err(Error::TooBig),
    }
    by_kind!(root, insert(cx, h, root, at.get(), run, state))
}

/// Makes the unwritten blocks of `range` written; holes and written blocks stay.
///
/// Needs [`change_credits`] to make progress, and takes more while the
/// transaction has room.
///
/// # Errors
/// As [`insert`].
pub(crate) fn convert(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<FileBlock>,
) -> Result<Progress> {
    by_kind!(root, set_state(cx, h, root, plain(&range), ExtentState::Written))
}

/// Makes the unwritten blocks of `runs`, which rise and do not overlap, written, changing each leaf
/// once. If not all are done, the first of the others begins where it is to be gone on with.
///
/// Needs [`change_credits`] to make progress, and takes more while the
/// transaction has room.
///
/// # Errors
/// As [`insert`]; some of the runs may be done.
pub(crate) fn convert_runs(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    runs: &mut [Range<FileBlock>],
) -> Result<Converted> {
    by_kind!(root, convert_runs(cx, h, root, runs))
}

/// Makes the unwritten blocks of `range` extents of their own, as replacements of direct writes do
/// before they write to them. Needs [`change_credits`].
///
/// # Errors
/// As [`insert`].
#[cfg(feature = "lab")]
pub(crate) fn split(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<FileBlock>,
) -> Result<Progress> {
    by_kind!(root, split(cx, h, root, plain(&range)))
}

/// Makes the written blocks of `range` unwritten, so that they read as zeros;
/// holes stay. Needs [`change_credits`].
///
/// # Errors
/// As [`insert`]; [`Error::NotSupported`] for an indirect map.
pub(crate) fn mark_unwritten(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<FileBlock>,
) -> Result<Progress> {
    by_kind!(root, set_state(cx, h, root, plain(&range), ExtentState::Unwritten))
}

/// Unmaps `range` and frees its blocks and the nodes that become empty, from
/// the right to the left.
///
/// [`Progress::Stopped`] names the end of what is still to be removed: commit
/// or restart the handle and call again with the range cut there. Needs
/// [`remove_credits`] to make progress.
///
/// # Errors
/// Corrupt nodes, and what [`Space::free`] says; blocks that could not be freed
/// are already unmapped.
pub(crate) fn remove(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<FileBlock>,
) -> Result<Progress> {
    by_kind!(root, remove(cx, h, root, plain(&range)))
}

/// Moves every extent from `from` on by `by` blocks towards the file's start.
///
/// The blocks `from - by .. from` must be a hole. [`Progress::Stopped`] names
/// the first block not yet moved, to be passed as `from` in the next call.
/// Needs [`shift_credits`].
///
/// # Errors
/// [`Error::NotSupported`] for an indirect map, [`Error::Invalid`] if the hole is
/// none, corrupt nodes.
pub(crate) fn shift_left(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    from: FileBlock,
    by: u32,
) -> Result<Progress> {
    by_kind!(root, shift_left(cx, h, root, from.get(), by))
}

/// Moves every extent of `range` by `by` blocks towards the file's end, after
/// splitting the one that lies across its start.
///
/// Call first with the range up to [`END_OF_BLOCKS`]. [`Progress::Stopped`]
/// names the end of what is not yet moved, to be passed as the range's end in
/// the next call. Needs [`shift_credits`].
///
/// # Errors
/// [`Error::NotSupported`] for an indirect map, [`Error::TooBig`] if the last
/// extent would pass the end of blocks (nothing is moved then), corrupt nodes.
pub(crate) fn shift_right(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<FileBlock>,
    by: u32,
) -> Result<Progress> {
    by_kind!(root, shift_right(cx, h, root, plain(&range), by))
}

fn plain(range: &Range<FileBlock>) -> Range<u32> {
    range.start.get()..range.end.get()
}

/// `start` and `n` blocks on; callers have checked that it fits the volume.
fn block_after(start: BlockNo, n: u32) -> BlockNo {
    BlockNo(start.get() + u64::from(n))
}
