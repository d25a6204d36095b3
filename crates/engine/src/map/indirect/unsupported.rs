//! Operations that indirect maps do not support. They have no unwritten blocks, and their pointers
//! cannot move along the file.

use super::super::{Converted, ExtentState, MapCx, MapRoot, Progress};
use crate::error::{Error, Result};
use nextent_ondisk::FileBlock;
use nextent_store::Handle;
use std::ops::Range;

/// All blocks are written, so there is nothing to convert.
pub(in super::super) fn set_state(
    _: &MapCx<'_>,
    _: &Handle<'_>,
    _: &mut MapRoot,
    _: Range<u32>,
    to: ExtentState,
) -> Result<Progress> {
    match to {
        ExtentState::Written => Ok(Progress::Done),
        ExtentState::Unwritten => Err(Error::NotSupported),
    }
}

/// All blocks are written, so there is nothing to convert.
pub(in super::super) fn convert_runs(
    _: &MapCx<'_>,
    _: &Handle<'_>,
    _: &mut MapRoot,
    runs: &mut [Range<FileBlock>],
) -> Result<Converted> {
    Ok(Converted { done: runs.len(), changes: 0 })
}

/// There are no unwritten extents to split.
#[cfg(feature = "lab")]
pub(in super::super) fn split(
    _: &MapCx<'_>,
    _: &Handle<'_>,
    _: &mut MapRoot,
    _: Range<u32>,
) -> Result<Progress> {
    Ok(Progress::Done)
}

pub(in super::super) fn shift_left(
    _: &MapCx<'_>,
    _: &Handle<'_>,
    _: &mut MapRoot,
    _from: u32,
    _by: u32,
) -> Result<Progress> {
    Err(Error::NotSupported)
}

pub(in super::super) fn shift_right(
    _: &MapCx<'_>,
    _: &Handle<'_>,
    _: &mut MapRoot,
    _: Range<u32>,
    _by: u32,
) -> Result<Progress> {
    Err(Error::NotSupported)
}
