//! The interface of the target of a copy.

use super::{FileId, Meta, Result};
use std::ops::Range;

/// How the contents of a file must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By any workers, in any order.
    Any,
    /// By the worker that created the file: it has other names in the target, so it is
    /// claimed until it is dropped.
    OneWorker,
    /// By that worker, from the first byte to the last, with holes as zeros: the target is a pipe
    /// or a device.
    Stream,
}

/// A file that was created or is being overwritten.
pub struct Created<F, N> {
    /// It, open for writing.
    pub file: F,
    /// It, for further names.
    pub node: N,
    /// How its contents must be written.
    pub order: Order,
}

/// A special file that was made, and the result of setting its attributes.
pub type Made<N> = (N, Result<()>);

/// A target tree, which all threads write at once.
///
/// | in the target | source | effect |
/// |---|---|---|
/// | a directory | a directory | receives the entries |
/// | a file | a file | is overwritten in place, by one worker at a time |
/// | a symbolic link | no directory | is replaced: a link must not redirect the copy |
/// | a pipe, device, socket | a file | is opened and written, as by cp(1); an image refuses |
/// | no directory | a link, pipe, device, socket | is replaced |
pub trait Sink: Sync {
    /// A directory of the target.
    type Dir: Clone + Send + Sync;
    /// A file of the target, for further names.
    type Node: Clone + Send + Sync;
    /// A file that is being written.
    type File: Send + Sync;

    /// The identity of the file with that name, as a source on the same volume has it.
    fn identity(&self, parent: &Self::Dir, name: &[u8]) -> Option<FileId>;

    /// Makes the directory `name`, or returns the existing one.
    fn make_dir(&self, parent: &Self::Dir, name: &[u8], meta: &Meta) -> Result<Self::Dir>;

    /// Sets the attributes of a directory, after everything below it.
    fn finish_dir(&self, dir: &Self::Dir, meta: &Meta) -> Result<()>;

    /// Whether [`create`](Self::create) may succeed; changes nothing. A pipe is opened only then,
    /// since its writer may not come.
    ///
    /// # Errors
    /// The same as those of `create` that depend on the target alone.
    fn check_create(&self, parent: &Self::Dir, name: &[u8], meta: &Meta) -> Result<()>;

    /// Makes an empty file for data in the ranges `data`.
    fn create(
        &self,
        parent: &Self::Dir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<Created<Self::File, Self::Node>>;

    /// Writes within the ranges that were given to [`create`](Self::create).
    fn write(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the length and attributes of a file, after its data.
    fn finish(&self, file: &Self::File, meta: &Meta) -> Result<()>;

    /// Makes a symbolic link, a device, a fifo or a socket.
    fn special(&self, parent: &Self::Dir, name: &[u8], meta: &Meta) -> Result<Made<Self::Node>>;

    /// Makes a hard link to `node`.
    fn link(&self, node: &Self::Node, parent: &Self::Dir, name: &[u8]) -> Result<()>;
}
