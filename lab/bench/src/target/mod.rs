//! Where a workload runs: the library on an image, or system calls in a directory.
//!
//! A workload is written once, against [`Session`]; each target implements it by the shortest way
//! that it has, and the workload is compiled for each, so that nothing but the operation is
//! measured. Names are C strings because system calls want them and the library takes their bytes.

mod directory;
mod engine;
mod image;

pub(crate) use directory::Directory;
pub(crate) use engine::Engine;
pub(crate) use image::{Image, Medium, Sizes, Wanted, sizes_of_device};

use nextent::Buffer;
use std::ffi::CStr;
use thiserror::Error;

/// Why an operation failed, as far as workloads tell failures apart.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum OpError {
    /// No block or inode is left.
    #[error("the file system is full")]
    Full,
    /// A name that is not there, or a path that leads nowhere.
    #[error("no such file or directory")]
    NotFound,
    /// A name that is taken.
    #[error("file exists")]
    Exists,
    /// Anything else, in the target's words.
    #[error("{0}")]
    Other(Box<str>),
}

/// Result of an operation.
pub(crate) type Done<T> = Result<T, OpError>;

/// What is known about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Bytes.
    pub(crate) size: u64,
    /// Whether it is a directory.
    pub(crate) is_dir: bool,
}

/// How much is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes of the whole file system.
    pub(crate) bytes: u64,
    /// Bytes that the caller may still use.
    pub(crate) free_bytes: u64,
    /// Inodes left.
    pub(crate) free_inodes: u64,
}

/// The file operations, as one thread sees them.
pub(crate) trait Session {
    /// A directory that names are looked up in.
    type Dir;
    /// An open file.
    type File;
    /// What a handle of the journal can be started for.
    type Probe;
    /// Direct writes in flight.
    type Queue: Flights;

    /// The directory that everything happens in.
    fn root(&self) -> &Self::Dir;
    /// Makes a directory, or opens it if it is there.
    fn ensure_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<Self::Dir>;
    /// A directory that is there.
    fn open_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<Self::Dir>;
    /// Makes a directory.
    fn make_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, parent: &Self::Dir, name: &CStr) -> Done<()>;
    /// Makes a file that must not exist and opens it.
    fn create(&self, dir: &Self::Dir, name: &CStr) -> Done<Self::File>;
    /// Opens a file or directory that exists.
    fn open(&self, dir: &Self::Dir, name: &CStr) -> Done<Self::File>;
    /// Ends an open.
    fn close(&self, file: Self::File) -> Done<()>;
    /// Removes a file's name.
    fn unlink(&self, dir: &Self::Dir, name: &CStr) -> Done<()>;
    /// Gives a file another name, replacing what has it.
    fn rename(&self, from: (&Self::Dir, &CStr), to: (&Self::Dir, &CStr)) -> Done<()>;
    /// What is known about a name.
    fn stat(&self, dir: &Self::Dir, name: &CStr) -> Done<Stat>;
    /// What is known about an open file.
    fn stat_open(&self, file: &Self::File) -> Done<Stat>;
    /// Sets an open file's times to now.
    fn touch(&self, file: &Self::File) -> Done<()>;
    /// Allocates a range; the file grows.
    fn fallocate(&self, file: &Self::File, offset: u64, len: u64) -> Done<()>;
    /// Sets the length.
    fn truncate(&self, file: &Self::File, len: u64) -> Done<()>;
    /// Writes all of `data` at `offset`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Done<()>;
    /// Opens a file that exists for direct transfers.
    fn open_direct(&self, dir: &Self::Dir, name: &CStr) -> Done<Self::File>;
    /// Writes all of `data`, whose memory begins at a multiple of 4096, directly at `offset`.
    fn write_direct(&self, file: &Self::File, offset: u64, data: &[u8]) -> Done<()>;
    /// A queue for `depth` direct transfers in a file opened for them.
    fn queue(&self, file: Self::File, depth: usize) -> Done<Self::Queue>;
    /// Fills `buf` as far as the file reaches.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Done<usize>;
    /// Makes the file durable.
    fn fsync(&self, file: &Self::File) -> Done<()>;
    /// Locks the file against other processes, or lets go. Where locks are no business of the file
    /// system's (the library), nothing.
    fn lock(&self, file: &Self::File, on: bool) -> Done<()>;
    /// How large and how full the file system is.
    fn space(&self) -> Done<Space>;
    /// Calls `each` with the names in a directory just opened, `.` and `..` left out, until it
    /// returns false.
    fn list(&self, dir: &Self::Dir, each: &mut dyn FnMut(&[u8]) -> bool) -> Done<()>;
    /// Calls `then` with the directory in which the last name of a path is to be looked up, and
    /// what is to be looked up there: a kernel walks the path itself, the library by lookups. The
    /// path begins at the root of the session.
    fn locate<R>(&self, path: &CStr, then: impl FnOnce(&Self::Dir, &CStr) -> Done<R>) -> Done<R>;
    /// A private block of metadata: the first of a directory in which nothing happens.
    fn probe(&self, dir: &Self::Dir) -> Done<Self::Probe>;
    /// Starts and stops a handle of the journal that may touch the block.
    fn handle(&self, probe: &Self::Probe, credits: u32, touches: bool) -> Done<()>;
    /// How many extents the file has, if that can be found out.
    fn extents(&self, file: &Self::File) -> Option<u64>;
}

/// Direct writes of one file in flight.
pub(crate) trait Flights {
    /// Begins to write `buffer` at `offset`.
    fn write(&mut self, offset: u64, buffer: Buffer) -> Done<()>;
    /// Waits for at least `least` writes, or all if they are fewer, and hands back the memory of
    /// all that are over.
    fn complete(&mut self, least: usize, spare: &mut Vec<Buffer>) -> Done<()>;
    /// Ends, when all are over; the file is closed.
    fn end(self) -> Done<()>;
}

/// Something that threads open sessions on.
pub(crate) trait Target: Sync {
    /// What one thread works with.
    type Session<'t>: Session
    where
        Self: 't;

    /// A session of the calling thread.
    fn session(&self) -> Done<Self::Session<'_>>;
}

/// Removes a tree; a name that is not there is no error.
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
