//! Maps from file blocks to volume blocks: extent trees and indirect block maps.
//!
//! The operations work on both kinds of map.
//!
//! | operations | effect |
//! |---|---|
//! | [`lookup`], [`lookup_near`] | return the mapping of a block |
//! | [`next_extent`], [`next_data`], [`next_hole`], [`extents`], [`count_nodes`] | walk the map |
//! | [`insert`], [`remove`] | map a hole; unmap and free blocks |
//! | [`convert`], [`convert_runs`], [`mark_unwritten`] | change the state of extents |
//! | [`shift_left`], [`shift_right`] | move extents along the file |
//!
//! # Locking
//!
//! The root of a map is 60 bytes of the inode, in memory a [`MapRoot`]. The caller of an operation
//! holds `inode.map` (rank 300) of the inode: shared for operations on `&MapRoot`, exclusive for
//! those on `&mut MapRoot`. The lock also guards all nodes below the root. This module takes no
//! lock.
//!
//! After each operation that may change the map, also after an error, the caller adds
//! [`MapRoot::take_change`] to the inode's block count, and marks the inode dirty in the handle's
//! transaction.
//!
//! # Invariants
//!
//! - Whenever an operation returns, also with an error, the tree is consistent, and the caller may
//!   stop or restart the handle. An operation that runs out of credits returns its [`Progress`].
//! - The key of an index entry is the first key of its child. Keys rise. The last extent under an
//!   entry ends before the next entry's key. No node except the root is empty.
//! - A mapping is removed from the tree before its blocks are freed. A failure in between leaks
//!   blocks, but never shares them.
//! - Nodes read from disk are checked: magic number, depth, counts, order of keys, bounds of the
//!   parent, block numbers (in the volume, outside the system zone), and checksum. A violation is
//!   an error that names inode and block.

/// Calls the function `$verb` for the kind of map that `$root` is.
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

/// The block after the last possible block of a file.
pub(crate) const END_OF_BLOCKS: FileBlock = FileBlock(u32::MAX);

/// The mapping of file block `at`, for at most `max` blocks. A hole ends at the next extent.
///
/// # Errors
/// A node that cannot be read or is corrupt.
pub(crate) fn lookup(cx: &MapCx<'_>, root: &MapRoot, at: FileBlock, max: u32) -> Result<Mapping> {
    by_kind!(root, lookup(cx, root, at.get(), max))
}

/// Like [`lookup`]. Also adds extents of the same leaf to `near`, in order: the one that covers
/// `at`, if any, and some before and after it.
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

/// The last extent of the file, if the root is a leaf of an extent tree.
pub(crate) fn tail(root: &MapRoot) -> Option<Tail> {
    extents::tail(root)
}

/// Extends the last extent, as [`tail`] returned it, by the next `blocks` blocks of the volume.
/// Changes the root and `copy`, which has the same bytes. The caller adds the blocks to the inode's
/// block count.
pub(crate) fn lengthen_tail(root: &mut MapRoot, copy: &mut [u8], tail: &Tail, blocks: u32) {
    extents::lengthen_tail(root, copy, tail, blocks);
}

/// Maps the hole at `at` to `run`. Returns how many blocks were mapped.
///
/// That is less than the run's length only if no block was available for another node. The caller
/// then frees or keeps the rest. Needs [`insert_credits`].
///
/// # Errors
/// - [`Error::NoSpace`] if no block could be mapped.
/// - [`Error::NotSupported`] for an unwritten run in an indirect map. The caller writes zeros
///   instead.
/// - [`Error::TooBig`] beyond [`END_OF_BLOCKS`].
/// - [`Error::Corrupt`] for a corrupt node, or a mapped block in the range.
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

/// Makes the unwritten blocks of `range` written. Holes and written blocks do not change.
///
/// Needs [`change_credits`] to make progress, and takes more credits while the transaction has
/// some.
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

/// Makes the unwritten blocks of `runs` written, with one change of each leaf. The runs must rise
/// and not overlap. If credits run out, the first run that is not done is cut to its remainder.
///
/// Needs [`change_credits`] to make progress, and takes more credits while the transaction has
/// some.
///
/// # Errors
/// As [`insert`]. Some runs may be converted.
pub(crate) fn convert_runs(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    runs: &mut [Range<FileBlock>],
) -> Result<Converted> {
    by_kind!(root, convert_runs(cx, h, root, runs))
}

/// Splits the unwritten extents at both ends of `range`. Replacements of direct writes do this
/// before they write. Needs [`change_credits`].
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

/// Makes the written blocks of `range` unwritten, so that they read as zeros. Holes do not change.
/// Needs [`change_credits`].
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

/// Unmaps `range`, and frees its blocks and the nodes that become empty, from the end to the start.
///
/// [`Progress::Stopped`] returns the end of the remaining range. The caller restarts the handle and
/// calls again with that range. Needs [`remove_credits`] to make progress.
///
/// # Errors
/// Corrupt nodes, and errors of [`Space::free`]. Blocks that could not be freed are unmapped.
pub(crate) fn remove(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<FileBlock>,
) -> Result<Progress> {
    by_kind!(root, remove(cx, h, root, plain(&range)))
}

/// Moves the extents from `from` on by `by` blocks towards the file's start.
///
/// The blocks `from - by .. from` must be a hole. [`Progress::Stopped`] returns the first block
/// that is not moved yet, which the caller passes as `from` in the next call. Needs
/// [`shift_credits`].
///
/// # Errors
/// [`Error::NotSupported`] for an indirect map, [`Error::Invalid`] if the blocks are not a hole,
/// corrupt nodes.
pub(crate) fn shift_left(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    from: FileBlock,
    by: u32,
) -> Result<Progress> {
    by_kind!(root, shift_left(cx, h, root, from.get(), by))
}

/// Moves the extents of `range` by `by` blocks towards the file's end, after splitting the one that
/// crosses its start.
///
/// The first call has a range up to [`END_OF_BLOCKS`]. [`Progress::Stopped`] returns the end of the
/// blocks that are not moved yet, which the caller passes as the range's end in the next call.
/// Needs [`shift_credits`].
///
/// # Errors
/// [`Error::NotSupported`] for an indirect map, [`Error::TooBig`] if the last extent would pass
/// [`END_OF_BLOCKS`] (no extent is moved then), corrupt nodes.
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

/// The block `n` blocks after `start`. Callers have checked that it does not overflow.
fn block_after(start: BlockNo, n: u32) -> BlockNo {
    BlockNo(start.get() + u64::from(n))
}
