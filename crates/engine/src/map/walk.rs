//! Walks over a map: extents in order, data, holes, and nodes.

use super::{Extent, ExtentState, MapCx, MapRoot};
use crate::error::Result;
use nextent_ondisk::{BlockNo, FileBlock};

/// The extent that covers `at`, else the first one after it.
///
/// In an extent tree this is the whole extent, with its part before `at`. In an indirect map it
/// begins at `at` or later, and ends at the end of its table.
///
/// # Errors
/// A node that cannot be read or is corrupt.
pub(crate) fn next_extent(cx: &MapCx<'_>, root: &MapRoot, at: FileBlock) -> Result<Option<Extent>> {
    by_kind!(root, next_extent(cx, root, at.get()))
}

/// All extents that end after `from`, in order. Ends after an error.
pub(crate) fn extents<'a>(cx: &'a MapCx<'a>, root: &'a MapRoot, from: FileBlock) -> Extents<'a> {
    Extents { cx, root, at: Some(from) }
}

/// See [`extents`].
pub(crate) struct Extents<'a> {
    cx: &'a MapCx<'a>,
    root: &'a MapRoot,
    at: Option<FileBlock>,
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = next_extent(self.cx, self.root, self.at?).transpose();
        self.at = match &found {
            Some(Ok(e)) => Some(e.end()),
            _ => None,
        };
        found
    }
}

/// The first block of `at..end` that holds data. Unwritten blocks count as a hole.
///
/// # Errors
/// As [`next_extent`].
pub(crate) fn next_data(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: FileBlock,
    end: FileBlock,
) -> Result<Option<FileBlock>> {
    for e in extents(cx, root, at) {
        let e = e?;
        if e.at >= end {
            break;
        }
        if e.state == ExtentState::Written {
            return Ok(Some(e.at.max(at)).filter(|&at| at < end));
        }
    }
    Ok(None)
}

/// The first block from `at` on that holds no data; `end` if it is not before `end`.
///
/// # Errors
/// As [`next_extent`].
pub(crate) fn next_hole(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: FileBlock,
    end: FileBlock,
) -> Result<FileBlock> {
    let mut at = at;
    for e in extents(cx, root, at) {
        let e = e?;
        if at >= end || e.at > at || e.state == ExtentState::Unwritten {
            break;
        }
        at = e.end();
    }
    Ok(at.min(end))
}

/// Calls `f` with each node below the root, and its height above the leaves.
///
/// # Errors
/// A node that cannot be read or is corrupt.
pub(crate) fn visit_nodes(
    cx: &MapCx<'_>,
    root: &MapRoot,
    f: &mut dyn FnMut(BlockNo, u32),
) -> Result<()> {
    by_kind!(root, visit_nodes(cx, root, f))
}

/// The number of nodes below the root.
///
/// # Errors
/// As [`visit_nodes`].
pub(crate) fn count_nodes(cx: &MapCx<'_>, root: &MapRoot) -> Result<u64> {
    let mut nodes = 0;
    visit_nodes(cx, root, &mut |_, _| nodes += 1)?;
    Ok(nodes)
}
