//! Where a copy reads from.

use super::{Meta, Result};
use std::ops::Range;

/// A tree to read, from all threads at once.
pub(crate) trait Source: Sync {
    /// Names a file.
    type Node: Clone + Send + Sync;
    /// A file open for reading.
    type File: Send + Sync;

    /// Whether a directory that is found twice is damage. On a host it may be mounted twice, and
    /// the host sees to it that nothing contains itself.
    const DIRS_HAVE_ONE_NAME: bool = false;

    /// The path of `node` as messages show it.
    fn show(&self, node: &Self::Node) -> String;

    /// The attributes of `node` itself, never of what a link points to.
    fn meta(&self, node: &Self::Node) -> Result<Meta>;

    /// Calls `each` with every name in a directory but `.` and `..`, in any order. Those of an
    /// image are to be [checked](super::name::check).
    fn list(&self, dir: &Self::Node, each: &mut dyn FnMut(Vec<u8>, Self::Node)) -> Result<()>;

    /// Opens a regular file, or one that `meta` says is read as a stream.
    fn open(&self, node: &Self::Node, meta: &Meta) -> Result<Self::File>;

    /// Where `file` has data, in order, up to `meta.size`.
    fn data(&self, file: &Self::File, meta: &Meta) -> Result<Vec<Range<u64>>>;

    /// Reads from `offset`; fewer bytes only at the end. A stream is read where the last read
    /// ended; no bytes are its end.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;
}
