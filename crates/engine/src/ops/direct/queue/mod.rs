//! Direct transfers in flight: submitted now, completed later, by the rules of the synchronous
//! calls.
//!
//! - From submission until it is over, a transfer is counted in flight (`rw_lock`).
//! - A write that needs the file exclusively (growth within a block, parts of unwritten blocks,
//!   rights that must be dropped) is done synchronously at submission, with no transfer of this
//!   queue in flight.
//! - A queue completes its transfers before it waits for `inode.rw`, because the holder of that
//!   lock may wait for those transfers.
//! - Conversion inside the file is deferred. Past the end, the completing thread converts all
//!   writes that have arrived together, in one handle, with the size. If another thread is
//!   converting in the same file, the writes are delegated to it and the queue polls later.
//! - Writes that cannot be converted even with the reserved pool are written again exclusively,
//!   when no transfer is in flight.

mod complete;
mod submit;

use std::fmt;

#[cfg(feature = "lab")]
pub(super) use submit::{Request, Submission};

use nextent_device::queue::{Completed, Direction, Pieces, Transfer};
use nextent_device::{Buffer, DeviceQueue};
use nextent_num::{to_u64, to_usize};

use super::Wait;
use crate::error::{Error, Result};
use crate::inode::rw_lock::{InFlightCount, PendingConversion, Ticket};
use crate::ops::Inodes;
use crate::ops::OpenFile;

/// Direct reads and writes in flight; made by [`Inodes::queue`].
///
/// A queue belongs to one thread at a time. It owns the files that it works on and the memory of
/// transfers in flight. Each thread should have its own; any number of queues may work on one file.
///
/// ```
/// # use nextent::inodes::{Buffer, ROOT_INO, Inodes, Wait};
/// # use nextent::{Cred, Error};
/// # fn example(volume: &Inodes) -> nextent::Result<()> {
/// let file = volume.create_file(&Cred::root(), ROOT_INO, b"table", 0o644)?;
/// let mut queue = volume.queue(8);
/// let table = queue.attach(file);
/// for n in 0..8 {
///     let page = Buffer::from_bytes(&[n as u8; 4096]);
///     queue.write(table, n * 4096, page, n, Wait::Allowed)?;
/// }
/// let mut done = Vec::new();
/// while queue.in_flight() > 0 {
///     queue.complete(1, &mut done);
///     for page in done.drain(..) {
///         assert_eq!(page.result?, page.buffer.len());
///     }
/// }
/// queue.detach(table).sync()
/// # }
/// ```
///
/// # Locks
///
/// While a transfer is in flight, a call that truncates the file, punches a hole, collapses or
/// inserts a range, removes the last name or changes the mode waits for it. That includes transfers
/// of a queue that no thread completes. A thread must not make such a call itself while transfers
/// of that file are in its own queue; it completes them first. Dropping a queue waits for all
/// transfers in flight.
pub struct Queue<'v> {
    pub(super) volume: &'v Inodes,
    pub(super) files: Vec<Option<OpenFile<'v>>>,
    pub(super) transfers: DeviceTransfers<'v>,
    /// On the device, with the conversion delegated to another thread.
    delegated: Vec<DelegatedWrites>,
    /// To be written again under the exclusive lock.
    rewrites: Vec<WrittenTransfer>,
    /// Completed, not returned yet.
    done: Vec<Done>,
    /// A buffer that is reused.
    arrived: Vec<Completed>,
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The transfers that the device has.
pub(super) struct DeviceTransfers<'v> {
    device: Box<dyn DeviceQueue + 'v>,
    /// By the tag that the device knows them by.
    by_tag: Vec<Option<DeviceTransfer>>,
    free: Vec<usize>,
}

/// A file of a [`Queue`]; valid only in that queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached(usize);

/// A transfer that is over.
#[derive(Debug)]
pub struct Done {
    /// The caller's tag.
    pub tag: u64,
    /// The transfer's memory. After a read, bytes beyond those that were read are unspecified.
    pub buffer: Buffer,
    /// The number of bytes, as the synchronous calls return it, or the error.
    pub result: Result<usize>,
}

/// A transfer that was not begun.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub error: Error,
    /// The memory that was to be used.
    pub buffer: Buffer,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

/// What to do once the data of a transfer has moved.
pub(super) enum Completion {
    /// Nothing: so many bytes were read.
    Read(usize),
    /// Convert. The times are not set if the caller does not wait.
    Write(PendingConversion, Wait),
}

struct DeviceTransfer {
    tag: u64,
    file: usize,
    offset: u64,
    count: InFlightCount,
    completion: Completion,
}

/// A write whose data is on the device.
struct WrittenTransfer {
    tag: u64,
    file: usize,
    offset: u64,
    count: InFlightCount,
    conversion: PendingConversion,
    buffer: Buffer,
}

/// Writes of one file that another thread converts.
struct DelegatedWrites {
    ticket: Ticket,
    file: usize,
    writes: Vec<WrittenTransfer>,
}

impl Inodes {
    /// A queue for about `depth` direct transfers in flight. It uses io_uring where the volume lies
    /// in a file and the system has it, else threads.
    #[must_use]
    pub fn queue(&self, depth: usize) -> Queue<'_> {
        Queue {
            volume: self,
            files: Vec::new(),
            transfers: DeviceTransfers {
                device: self.fs.store.device().queue(depth),
                by_tag: Vec::with_capacity(depth),
                free: Vec::with_capacity(depth),
            },
            delegated: Vec::new(),
            rewrites: Vec::new(),
            done: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
        }
    }
}

impl<'v> Queue<'v> {
    /// Takes ownership of a file, to read and write it.
    pub fn attach(&mut self, file: OpenFile<'v>) -> Attached {
        let at = self.files.iter().position(Option::is_none).unwrap_or(self.files.len());
        if at == self.files.len() {
            self.files.push(None);
        }
        self.files[at] = Some(file);
        Attached(at)
    }

    /// Returns the file, when none of the queue's transfers is in flight.
    ///
    /// # Panics
    /// If the file was detached before.
    pub fn detach(&mut self, file: Attached) -> OpenFile<'v> {
        self.complete_all();
        self.files[file.0].take().expect("a file is detached once")
    }

    /// The file.
    ///
    /// # Panics
    /// If it was detached.
    #[must_use]
    pub fn file(&self, file: Attached) -> &OpenFile<'v> {
        self.file_at(file.0)
    }

    /// Transfers that [`complete`](Self::complete) has not returned yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.unfinished() + self.done.len()
    }

    fn file_at(&self, file: usize) -> &OpenFile<'v> {
        attached(&self.files, file)
    }

    /// Transfers that are not over.
    fn unfinished(&self) -> usize {
        let left: usize = self.delegated.iter().map(|delegated| delegated.writes.len()).sum();
        self.transfers.by_tag.len() - self.transfers.free.len() + left + self.rewrites.len()
    }
}

/// A file of a queue, whose other fields the caller may change meanwhile.
pub(super) fn attached<'f, 'v>(files: &'f [Option<OpenFile<'v>>], at: usize) -> &'f OpenFile<'v> {
    files[at].as_ref().expect("a file is attached as long as it is used")
}

impl DeviceTransfers<'_> {
    /// Hands a transfer to the device.
    #[inline]
    fn submit(
        &mut self,
        transfer: DeviceTransfer,
        direction: Direction,
        buffer: Buffer,
        pieces: Pieces,
    ) {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.by_tag.push(None);
                self.by_tag.len() - 1
            }
        };
        self.by_tag[at] = Some(transfer);
        self.device.submit(Transfer { tag: to_u64(at), direction, buffer, pieces });
    }

    /// Removes the transfer with this tag.
    #[inline]
    fn take(&mut self, tag: u64) -> DeviceTransfer {
        let at = to_usize(tag);
        self.free.push(at);
        self.by_tag[at].take().expect("the device hands back what it was given")
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.complete_all();
    }
}
