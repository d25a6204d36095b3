//! Where a copy writes to.

use super::{FileId, Meta, Result};
use std::ops::Range;

/// How the contents of a file must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By any workers, in any order.
    Any,
    /// All by the worker that created the file: other names of the target may lead to it, so it is
    /// [claimed](super::writers) until it is dropped.
    OneWorker,
    /// All by that worker, from the first byte to the last, holes as zeros: the target is a pipe or
    /// a device.
    Stream,
}

/// A file that was created, or is overwritten.
pub(crate) struct Created<F, N> {
    pub(crate) file: F,
    pub(crate) node: N,
    pub(crate) order: Order,
}

/// Something without contents that was made, and what giving it its attributes met.
pub(crate) type Made<N> = (N, Result<()>);

/// A tree to be made, from all threads at once.
///
/// | in the target | to be made | effect |
/// |---|---|---|
/// | a directory | a directory | it is filled |
/// | a file | a file | it is overwritten in place, by one worker at a time |
/// | a link | no directory | it is replaced: a planted link must not redirect the copy |
/// | a pipe, device, socket | a file | it is opened and written, as by cp(1); an image refuses |
/// | no directory | a link, pipe, device, socket | it is replaced |
pub(crate) trait Sink: Sync {
    /// A directory of the target.
    type Dir: Clone + Send + Sync;
    /// A file of the target that may get more names.
    type Node: Clone + Send + Sync;
    /// A file that is being written.
    type File: Send + Sync;

    /// The identity of what has that name, as a source of the same origin tells it.
    fn identity(&self, parent: &Self::Dir, name: &[u8]) -> Option<FileId>;

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
    ) -> Result<Created<Self::File, Self::Node>>;

    /// Writes within the ranges that were announced.
    fn write(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Gives a file its length and attributes; its data is written.
    fn finish(&self, file: &Self::File, meta: &Meta) -> Result<()>;

    /// Makes a link, a device, a fifo or a socket.
    fn special(&self, parent: &Self::Dir, name: &[u8], meta: &Meta) -> Result<Made<Self::Node>>;

    /// Gives `node` another name.
    fn link(&self, node: &Self::Node, parent: &Self::Dir, name: &[u8]) -> Result<()>;
}
