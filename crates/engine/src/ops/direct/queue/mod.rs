//! Direct transfers in flight: submitted now, completed later, by the rules of the calls that wait.
//!
//! - What a call that waits would hold while the data moves is held from `submit` until the
//!   transfer is over: a reference.
//! - What needs the file alone (growth within a block, parts of unwritten blocks, rights that
//!   must be taken away) is done in `submit`, waiting, when nothing of this queue is in flight.
//! - Nobody who may wait for a holder of `inode.rw` has transfers in flight meanwhile: such a
//!   holder may wait for them. So `submit` completes what is in flight before it waits for that
//!   lock.
//! - Conversion inside the file is put off. Past the end, who completes converts: all that have
//!   come together, in one handle, with the size. If somebody else does so in the file the ranges
//!   are left to that one, and the queue looks again later.
//! - What cannot be converted there, not even with the reserved pool, is written again with the
//!   file alone, when nothing is in flight any more.

mod begin;
mod land;

use std::fmt;

#[cfg(feature = "lab")]
pub(super) use begin::{Ask, Start};

use nextent_device::queue::{Completed, Direction, Pieces, Transfer};
use nextent_device::{Buffer, DeviceQueue};
use nextent_num::{to_u64, to_usize};

use super::Wait;
use crate::error::{Error, Result};
use crate::inode::long::{Finished, Hold, Ticket};
use crate::ops::Inodes;
use crate::ops::OpenFile;

/// Direct reads and writes in flight; made by [`Inodes::queue`].
///
/// A queue belongs to one thread at a time. It owns the files that it works on and the memory of
/// what is in flight. Each thread should have its own; any number of them may work on one file.
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
/// While a transfer is in flight nobody can truncate the file, punch holes into it, collapse or
/// insert, take its last name away or change its mode: those who want to wait, also for what is
/// submitted to a queue that nobody completes. A thread must not do such things itself with
/// transfers of that file in its own queue; it completes them first. Dropping a queue waits for
/// all that is in flight.
pub struct Queue<'v> {
    pub(super) volume: &'v Inodes,
    pub(super) files: Vec<Option<OpenFile<'v>>>,
    pub(super) air: Air<'v>,
    /// Written, and left to somebody else to convert.
    left: Vec<Left>,
    /// To be written again with the file alone.
    again: Vec<Landed>,
    /// Over, not handed out yet.
    done: Vec<Done>,
    /// Kept for its memory.
    arrived: Vec<Completed>,
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What the device has.
pub(super) struct Air<'v> {
    device: Box<dyn DeviceQueue + 'v>,
    /// By the tag that the device knows them by.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
}

/// A file of a [`Queue`], which alone understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached(usize);

/// A transfer that is over.
#[derive(Debug)]
pub struct Done {
    /// What the caller named it.
    pub tag: u64,
    /// The memory that it had. After a read it holds what was read, and beyond that anything.
    pub buffer: Buffer,
    /// How much was read or written, as the calls that wait say, or why not.
    pub result: Result<usize>,
}

/// A transfer that was not begun.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// The memory that it would have had.
    pub buffer: Buffer,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

/// What is to be done when a transfer's data has moved.
pub(super) enum After {
    /// So many bytes were read.
    Read(usize),
    /// This was written; the times are not to be set if the caller would not wait.
    Write(Finished, Wait),
}

/// A transfer in flight.
struct Flight {
    tag: u64,
    file: usize,
    offset: u64,
    hold: Hold,
    after: After,
}

/// A write whose data is on the device.
struct Landed {
    tag: u64,
    file: usize,
    offset: u64,
    hold: Hold,
    finished: Finished,
    buffer: Buffer,
}

/// Writes of one file that somebody else converts.
struct Left {
    ticket: Ticket,
    file: usize,
    writes: Vec<Landed>,
}

impl Inodes {
    /// A queue on which about `depth` direct transfers are to be in flight: over io_uring where
    /// the volume lies in a file and the system has it, over threads where it has not.
    #[must_use]
    pub fn queue(&self, depth: usize) -> Queue<'_> {
        Queue {
            volume: self,
            files: Vec::new(),
            air: Air {
                device: self.fs.store.device().queue(depth),
                flights: Vec::with_capacity(depth),
                free: Vec::with_capacity(depth),
            },
            left: Vec::new(),
            again: Vec::new(),
            done: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
        }
    }
}

impl<'v> Queue<'v> {
    /// Takes a file over, to read and write it.
    pub fn attach(&mut self, file: OpenFile<'v>) -> Attached {
        let at = self.files.iter().position(Option::is_none).unwrap_or(self.files.len());
        if at == self.files.len() {
            self.files.push(None);
        }
        self.files[at] = Some(file);
        Attached(at)
    }

    /// Hands the file back, when nothing is in flight any more.
    ///
    /// # Panics
    /// If the file was detached before.
    pub fn detach(&mut self, file: Attached) -> OpenFile<'v> {
        self.clear();
        self.files[file.0].take().expect("a file is detached once")
    }

    /// The file.
    ///
    /// # Panics
    /// If it was detached.
    #[must_use]
    pub fn file(&self, file: Attached) -> &OpenFile<'v> {
        self.of(file.0)
    }

    /// Transfers that were begun and not handed out by [`complete`](Self::complete).
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.under_way() + self.done.len()
    }

    fn of(&self, file: usize) -> &OpenFile<'v> {
        self.files[file].as_ref().expect("a file is attached as long as it is used")
    }

    /// Transfers whose outcome is open.
    fn under_way(&self) -> usize {
        let left: usize = self.left.iter().map(|left| left.writes.len()).sum();
        self.air.flights.len() - self.air.free.len() + left + self.again.len()
    }
}

impl Air<'_> {
    /// Hands a transfer to the device.
    #[inline]
    fn start(&mut self, flight: Flight, direction: Direction, buffer: Buffer, pieces: Pieces) {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.flights.push(None);
                self.flights.len() - 1
            }
        };
        self.flights[at] = Some(flight);
        self.device.submit(Transfer { tag: to_u64(at), direction, buffer, pieces });
    }

    /// What was in flight by this tag.
    #[inline]
    fn land(&mut self, tag: u64) -> Flight {
        let at = to_usize(tag);
        self.free.push(at);
        self.flights[at].take().expect("the device hands back what it was given")
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
