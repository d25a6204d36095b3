//! Where a copy writes to.

use super::{Meta, Result};
use std::ops::Range;

/// A tree to be made, from all threads at once.
///
/// What exists is handled as cp(1) does: directories are filled, files are
/// overwritten in place, other things replaced. Links in the target are never
/// followed.
pub(crate) trait Sink: Sync {
    /// A directory of the target.
    type Dir: Clone + Send + Sync;
    /// A file of the target that may get more names.
    type Node: Clone + Send + Sync;
    /// A file that is being written.
    type File: Send + Sync;

    /// Makes `name` a directory, or finds it is one.
    fn make_dir(&self, parent: &Self::Dir, name: &[u8], meta: &Meta) -> Result<Self::Dir>;

    /// Gives a directory its attributes; everything below it is done.
    fn finish_dir(&self, dir: &Self::Dir, meta: &Meta) -> Result<()>;

    /// Makes an empty file that will get data in the ranges `data`.
    fn create(
        &self,
        parent: &Self::Dir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<(Self::File, Self::Node)>;

    /// Writes within the ranges that were announced.
    fn write(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Gives a file its length and attributes; its data is written.
    fn finish(&self, file: &Self::File, meta: &Meta) -> Result<()>;

    /// Makes a link, a device, a fifo or a socket.
    fn special(&self, parent: &Self::Dir, name: &[u8], meta: &Meta) -> Result<Self::Node>;

    /// Gives `node` another name.
    fn link(&self, node: &Self::Node, parent: &Self::Dir, name: &[u8]) -> Result<()>;
}
