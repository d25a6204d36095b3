//! What the requests share: the volume, and how answers are made.

use fuser::{FileAttr, INodeNo, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry};
use fuser::{FileHandle, FopenFlags};
use nextent::{Attr, Error, Result, Volume};
use nextent_sync::Arc;

use crate::convert::{self, LIFETIME};
use crate::errno::errno;

/// Serves one volume. All methods are called from all threads of the session at once.
pub(crate) struct Server {
    pub(crate) volume: Arc<Volume>,
    /// Whether the kernel checks access lists.
    pub(crate) lists: bool,
    block_size: u32,
}

impl Server {
    pub(crate) fn new(volume: Arc<Volume>, lists: bool) -> Self {
        let block_size = volume.geometry().block_size;
        Self { volume, lists, block_size }
    }

    /// What `stat` shows of a file.
    pub(crate) fn shown(&self, attr: &Attr) -> FileAttr {
        convert::attributes(attr, self.block_size)
    }

    /// The same with the node's number, as replies that name a file need it.
    pub(crate) fn named(&self, attr: &Attr) -> FileAttr {
        FileAttr { ino: convert::node(attr.ino), ..self.shown(attr) }
    }

    pub(crate) fn entry(&self, reply: ReplyEntry, found: Result<Attr>) {
        match found {
            Ok(attr) => reply.entry(&LIFETIME, &self.named(&attr), convert::generation(&attr)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// As [`entry`](Self::entry); the kernel also keeps that there is no such name.
    pub(crate) fn entry_or_none(&self, reply: ReplyEntry, found: Result<Attr>) {
        match found {
            Err(Error::NotFound) => reply.entry(&LIFETIME, &nobody(), fuser::Generation(0)),
            found => self.entry(reply, found),
        }
    }

    pub(crate) fn attributes(&self, reply: ReplyAttr, found: Result<Attr>) {
        match found {
            Ok(attr) => reply.attr(&LIFETIME, &self.shown(&attr)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) fn created(&self, reply: ReplyCreate, made: Result<Attr>) {
        match made {
            Ok(attr) => reply.created(
                &LIFETIME,
                &self.named(&attr),
                convert::generation(&attr),
                FileHandle(0),
                open_flags(),
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Answers a request that returns nothing.
pub(crate) fn done(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// The kernel's pages stay true from one open to the next, and direct writers need not wait for
/// each other.
pub(crate) fn open_flags() -> FopenFlags {
    FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

/// The node 0, which says that a name means nothing.
fn nobody() -> FileAttr {
    let never = std::time::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        crtime: never,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
