//! The targets of workloads: the library on an image, and system calls in a directory.
//!
//! A workload is written once, against [`Session`], and compiled for each target, so that no
//! dynamic dispatch is measured. Names are C strings, as system calls need them.

mod directory;
mod engine;
mod image;

pub(crate) use directory::Directory;
pub(crate) use engine::Engine;
pub(crate) use image::{Image, ImageSpec, Medium, Sizes, sizes_of_device};

use nextent::inodes::Buffer;
use std::ffi::CStr;
use thiserror::Error;

/// The error of an operation, as far as workloads distinguish errors.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum OpError {
    /// No block or inode is free.
    #[error("the file system is full")]
    Full,
    /// A name or a directory of the path does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists.
    #[error("file exists")]
    Exists,
    /// Any other error, with the target's text.
    #[error("{0}")]
    Other(Box<str>),
}

/// Result of an operation.
pub(crate) type Done<T> = Result<T, OpError>;

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Length in bytes.
    pub(crate) size: u64,
    /// Whether it is a directory.
    pub(crate) is_dir: bool,
}

/// The size and the free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes of the whole file system.
    pub(crate) bytes: u64,
    /// Free bytes available to the caller.
    pub(crate) free_bytes: u64,
    /// Free inodes.
    pub(crate) free_inodes: u64,
}

/// The file operations for one thread.
pub(crate) trait Session {
    /// An open directory.
    type Dir;
    /// An open file.
    type File;
    /// A metadata block that journal handles can touch.
    type Probe;
    /// Direct writes in flight.
    type Queue: WriteQueue;

    /// The directory in which the workload runs.
    fn root(&self) -> &Self::Dir;
    /// Creates a directory, or opens it if it exists.
    fn ensure_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<Self::Dir>;
    /// Opens an existing directory.
    fn open_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<Self::Dir>;
    /// Creates a directory.
    fn make_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<()>;
    /// Creates a file that must not exist, and opens it.
    fn create(&self, dir: &Self::Dir, name: &CStr) -> Done<Self::File>;
    /// Opens a file or directory that exists.
    fn open(&self, dir: &Self::Dir, name: &CStr) -> Done<Self::File>;
    /// Closes a file.
    fn close(&self, file: Self::File) -> Done<()>;
    /// Removes a file's name.
    fn unlink(&self, dir: &Self::Dir, name: &CStr) -> Done<()>;
    /// Renames a file and replaces a file of the new name.
    fn rename(&self, from: (&Self::Dir, &CStr), to: (&Self::Dir, &CStr)) -> Done<()>;
    /// Attributes of a name.
    fn stat(&self, dir: &Self::Dir, name: &CStr) -> Done<Stat>;
    /// Attributes of an open file.
    fn stat_open(&self, file: &Self::File) -> Done<Stat>;
    /// Sets an open file's times to now.
    fn touch(&self, file: &Self::File) -> Done<()>;
    /// Allocates a range; the file grows to its end.
    fn fallocate(&self, file: &Self::File, offset: u64, len: u64) -> Done<()>;
    /// Sets the length.
    fn truncate(&self, file: &Self::File, len: u64) -> Done<()>;
    /// Writes all of `data` at `offset`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Done<()>;
    /// Opens an existing file for direct I/O.
    fn open_direct(&self, dir: &Self::Dir, name: &CStr) -> Done<Self::File>;
    /// Writes all of `data`, which is aligned to 4096 bytes, directly at `offset`.
    fn write_direct(&self, file: &Self::File, offset: u64, data: &[u8]) -> Done<()>;
    /// A queue of `depth` direct writes in a file opened for direct I/O.
    fn queue(&self, file: Self::File, depth: usize) -> Done<Self::Queue>;
    /// Reads into `buf` up to the end of the file; the number of bytes read.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Done<usize>;
    /// Makes the file durable.
    fn fsync(&self, file: &Self::File) -> Done<()>;
    /// Locks the file against other processes, or unlocks it. The library has no such locks and
    /// does nothing.
    fn lock(&self, file: &Self::File, on: bool) -> Done<()>;
    /// The size and free space of the file system.
    fn space(&self) -> Done<Space>;
    /// Calls `each` with the names of a directory, except `.` and `..`, until it returns false. The
    /// directory must have been opened for this call.
    fn list(&self, dir: &Self::Dir, each: &mut dyn FnMut(&[u8]) -> bool) -> Done<()>;
    /// Calls `then` with a directory and the name or path to look up in it. The library resolves
    /// the directory part of the path first; the kernel takes the whole path. The path begins at
    /// the root of the session.
    fn locate<R>(&self, path: &CStr, then: impl FnOnce(&Self::Dir, &CStr) -> Done<R>) -> Done<R>;
    /// A private metadata block: the first block of a directory that nothing else changes.
    fn probe(&self, dir: &Self::Dir) -> Done<Self::Probe>;
    /// Starts and stops a journal handle, which touches the block if `touches`.
    fn handle(&self, probe: &Self::Probe, credits: u32, touches: bool) -> Done<()>;
    /// The number of extents of the file, if the target can tell.
    fn extents(&self, file: &Self::File) -> Option<u64>;
}

/// A queue of direct writes into one file.
pub(crate) trait WriteQueue {
    /// Starts to write `buffer` at `offset`.
    fn write(&mut self, offset: u64, buffer: Buffer) -> Done<()>;
    /// Waits for at least `least` writes, or for all if there are fewer, and returns the buffers of
    /// all completed writes in `spare`.
    fn complete(&mut self, least: usize, spare: &mut Vec<Buffer>) -> Done<()>;
    /// Waits for all writes and closes the file.
    fn end(self) -> Done<()>;
}

/// A file system on which threads open sessions.
pub(crate) trait Target: Sync {
    /// One thread's view of it.
    type Session<'t>: Session
    where
        Self: 't;

    /// Opens a session for the calling thread.
    fn session(&self) -> Done<Self::Session<'_>>;
}

/// Removes a tree. A missing name is not an error.
pub(crate) fn remove_tree<S: Session>(session: &S, parent: &S::Dir, name: &CStr) -> Done<()> {
    match session.stat(parent, name) {
        Err(OpError::NotFound) => return Ok(()),
        Err(error) => return Err(error),
        Ok(stat) if !stat.is_dir => return session.unlink(parent, name),
        Ok(_) => {}
    }
    loop {
        let dir = session.open_dir(parent, name)?;
        let mut names = Vec::new();
        session.list(&dir, &mut |name| {
            names.push(std::ffi::CString::new(name).expect("names of files hold no zero byte"));
            names.len() < 1024
        })?;
        if names.is_empty() {
            break;
        }
        names.iter().try_for_each(|name| remove_tree(session, &dir, name))?;
    }
    session.remove_dir(parent, name)
}
