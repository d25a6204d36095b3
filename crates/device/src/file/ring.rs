//! A queue over io_uring.
//!
//! The kernel reads and writes the memory of transfers while they are in flight. So a transfer and
//! its buffer stay in `flights` from the moment it is offered to the kernel until its last answer
//! has come, the file stays open as long, and a queue that is dropped first waits for all answers;
//! one whose ring no longer answers gives its memory up instead of freeing it.
//!
//! Of a transfer of several pieces each is asked for by itself; what was moved in part is asked for
//! again from there on.

#![allow(unsafe_code)]

use super::Opened;
use crate::queue::{Completed, DeviceQueue, Direction, Piece, Transfer};
use io_uring::{IoUring, opcode, squeue, types};
use nextent_sync::{Arc, thread};
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

/// Most bytes asked for at once.
const MOST: usize = 1 << 30;

/// A transfer that the kernel works on.
struct Flight {
    transfer: Transfer,
    /// Pieces that are not answered.
    left: usize,
    result: io::Result<()>,
}

/// One question to the kernel.
#[derive(Clone, Copy)]
struct Asked {
    flight: usize,
    /// What was asked for.
    piece: Piece,
}

/// Things by number, a number being used again when its thing is gone.
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<usize>,
}

/// Transfers in flight in one file.
pub(super) struct Ring {
    ring: IoUring,
    opened: Arc<Opened>,
    /// The file is known to the ring by number, which is cheaper.
    registered: bool,
    /// Dropped when none is left only: the kernel has their memory.
    flights: ManuallyDrop<Slab<Flight>>,
    asked: Slab<Asked>,
    /// What never went to the kernel, and what it has answered.
    done: Vec<Completed>,
}

impl<T> Slab<T> {
    fn new(depth: usize) -> Self {
        Self { items: Vec::with_capacity(depth), free: Vec::with_capacity(depth) }
    }

    fn put(&mut self, item: T) -> usize {
        if let Some(at) = self.free.pop() {
            self.items[at] = Some(item);
            return at;
        }
        self.items.push(Some(item));
        self.items.len() - 1
    }

    fn take(&mut self, at: usize) -> T {
        self.free.push(at);
        self.items[at].take().expect("a number is in use until its thing is taken")
    }

    fn get_mut(&mut self, at: usize) -> &mut T {
        self.items[at].as_mut().expect("a number is in use until its thing is taken")
    }

    fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl Ring {
    /// A queue of `depth` transfers.
    ///
    /// # Errors
    /// Where there is no io_uring, or none that keeps all answers.
    pub(super) fn new(opened: Arc<Opened>, depth: usize) -> io::Result<Self> {
        let entries = depth.clamp(1, 4096).next_power_of_two() as u32;
        let built = IoUring::builder().setup_coop_taskrun().build(entries);
        let ring = built.or_else(|_| IoUring::new(entries))?;
        if !ring.params().is_feature_nodrop() {
            return Err(ErrorKind::Unsupported.into());
        }
        let registered = ring.submitter().register_files(&[opened.file.as_raw_fd()]).is_ok();
        let flights = ManuallyDrop::new(Slab::new(depth));
        let (asked, done) = (Slab::new(depth), Vec::with_capacity(depth));
        Ok(Self { ring, opened, registered, flights, asked, done })
    }

    fn begin(&mut self, transfer: Transfer) {
        let pieces = transfer.pieces.clone();
        let left = pieces.as_slice().len();
        let flight = self.flights.put(Flight { transfer, left, result: Ok(()) });
        for piece in pieces.as_slice() {
            self.ask(flight, *piece);
        }
    }

    fn ask(&mut self, flight: usize, piece: Piece) {
        let number = self.asked.put(Asked { flight, piece }) as u64;
        let entry = self.entry(flight, piece).user_data(number);
        loop {
            // SAFETY: the memory that the entry points to belongs to a transfer in `flights`,
            // which stays there until the entry is answered, and the file is open as long.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.enter(0);
        }
    }

    fn entry(&mut self, flight: usize, piece: Piece) -> squeue::Entry {
        let (fd, registered) = (types::Fd(self.opened.file.as_raw_fd()), self.registered);
        let at = self.opened.offset + piece.offset;
        let transfer = &mut self.flights.get_mut(flight).transfer;
        let direction = transfer.direction;
        let memory = &mut transfer.buffer[piece.of_buffer()];
        let (start, len) = (memory.as_mut_ptr(), memory.len().min(MOST) as u32);
        match (direction, registered) {
            (Direction::Read, true) => {
                opcode::Read::new(types::Fixed(0), start, len).offset(at).build()
            }
            (Direction::Read, false) => opcode::Read::new(fd, start, len).offset(at).build(),
            (Direction::Write, true) => {
                opcode::Write::new(types::Fixed(0), start, len).offset(at).build()
            }
            (Direction::Write, false) => opcode::Write::new(fd, start, len).offset(at).build(),
        }
    }

    /// Hands to the kernel what was offered, and waits for so many answers.
    ///
    /// # Panics
    /// If the kernel refuses the ring itself, which it does for errors of ours only.
    fn enter(&mut self, least: usize) {
        loop {
            match self.ring.submit_and_wait(least) {
                Ok(_) => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Answers are to be taken first, or memory is short for a while.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                    if !self.ring.completion().is_empty() {
                        return;
                    }
                    thread::yield_now();
                }
                Err(error) => panic!("the kernel refuses to work on a ring: {error}"),
            }
        }
    }

    /// Takes the answers that are there.
    fn reap(&mut self) {
        loop {
            let Some(answer) = self.ring.completion().next() else { return };
            let asked = self.asked.take(answer.user_data() as usize);
            let moved = answer.result();
            self.answered(asked, moved);
        }
    }

    fn answered(&mut self, asked: Asked, moved: i32) {
        let mut rest = asked.piece;
        let flight = self.flights.get_mut(asked.flight);
        let failed = match moved {
            n if n < 0 => match -n {
                libc::EINTR | libc::EAGAIN => None,
                errno => Some(io::Error::from_raw_os_error(errno)),
            },
            0 => Some(match flight.transfer.direction {
                Direction::Read => ErrorKind::UnexpectedEof.into(),
                Direction::Write => ErrorKind::WriteZero.into(),
            }),
            n => {
                let n = (n as usize).min(rest.len);
                rest = Piece { offset: rest.offset + n as u64, start: rest.start + n, ..rest };
                rest.len -= n;
                None
            }
        };
        if failed.is_none() && rest.len > 0 {
            return self.ask(asked.flight, rest);
        }
        if let Some(error) = failed {
            flight.result = Err(error);
        }
        flight.left -= 1;
        if flight.left == 0 {
            let Flight { transfer, result, .. } = self.flights.take(asked.flight);
            self.done.push(Completed { transfer, result });
        }
    }
}

impl DeviceQueue for Ring {
    fn submit(&mut self, mut transfer: Transfer) {
        let now = match self.opened.may_be_asked(&transfer) {
            Err(error) => Err(error),
            Ok(false) => transfer.perform(&*self.opened),
            Ok(true) => return self.begin(transfer),
        };
        self.done.push(Completed { transfer, result: now });
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let least = least.min(self.in_flight());
        loop {
            self.reap();
            if self.done.len() >= least && self.ring.submission().is_empty() {
                break;
            }
            // One answer may be of a piece only.
            self.enter(usize::from(self.done.len() < least));
        }
        self.reap();
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.flights.len() > 0 {
            self.enter(1);
            self.reap();
        }
        if self.registered {
            // Else the file, and the lock on it, would be held until the kernel has taken the ring
            // apart, some time after it was closed. There is nothing to do about a refusal.
            let _ = self.ring.submitter().unregister_files();
        }
        // SAFETY: dropped here only, and used no more. No transfer is in flight: if the loop above
        // ends in a panic the memory stays, with the kernel.
        unsafe { ManuallyDrop::drop(&mut self.flights) }
    }
}
