//! The interface of the source of a copy.

use super::{Meta, Result};
use std::ops::Range;

/// A source tree, which all threads read at once.
pub trait Source: Sync {
    /// Identifies a file.
    type Node: Clone + Send + Sync;
    /// A file open for reading.
    type File: Send + Sync;

    /// Whether a directory with two names is damage. On a host a directory may be mounted twice,
    /// and the host prevents cycles.
    const DIRS_HAVE_ONE_NAME: bool = false;

    /// The path of `node` for messages.
    fn show(&self, node: &Self::Node) -> String;

    /// The attributes of `node` itself, not of a link's target.
    fn meta(&self, node: &Self::Node) -> Result<Meta>;

    /// Calls `each` with every name in a directory except `.` and `..`, in any order. The caller
    /// must check names of images.
    fn list(&self, dir: &Self::Node, each: &mut dyn FnMut(Vec<u8>, Self::Node)) -> Result<()>;

    /// Opens a regular file, or one that `meta` says is read as a stream.
    fn open(&self, node: &Self::Node, meta: &Meta) -> Result<Self::File>;

    /// The data ranges of `file`, in order, up to `meta.size`.
    fn data(&self, file: &Self::File, meta: &Meta) -> Result<Vec<Range<u64>>>;

    /// Reads at `offset`; returns fewer bytes only at the end. A stream ignores `offset`, goes on
    /// where the last read ended, and returns 0 bytes at its end.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;
}
