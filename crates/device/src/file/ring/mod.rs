//! A queue over io_uring.
//!
//! The kernel reads and writes the memory of transfers while they are in flight. So a transfer and
//! its buffer stay in `flights` from the moment it is offered to the kernel until its last answer
//! has come, the file stays open as long, and a queue that is dropped first waits for all answers;
//! one whose ring no longer answers gives its memory up instead of freeing it.
//!
//! Of a transfer of several pieces each is asked for by itself; what was moved in part is asked for
//! again from there on.
//!
//! The kernel may refuse to take questions while its answers have no room. So a question that finds
//! the ring full takes the answers that are there out of it, to be looked at in [`Ring::reap`].

#![allow(unsafe_code)]

mod kernel;
#[cfg(test)]
mod tests;

use super::Opened;
use crate::queue::{Completed, DeviceQueue, Direction, Piece, Transfer};
use crate::range;
use kernel::{Answer, Kernel, Question, Refusal, Uring};
use nextent_num::{to_u64, to_usize};
use nextent_sync::{Arc, Duration, thread};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;

/// Most bytes asked for at once.
const MOST: u32 = 1 << 30;
/// Most questions that the kernel takes at once.
const ENTRIES: u32 = 4096;
/// Refusals after which the queue sleeps before it enters the ring again.
const YIELDS: u32 = 100;

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
pub(super) struct Ring<K: Kernel = Uring> {
    kernel: K,
    opened: Arc<Opened>,
    /// Dropped when none is left only: the kernel has their memory.
    flights: ManuallyDrop<Slab<Flight>>,
    asked: Slab<Asked>,
    /// Taken out of the ring, not looked at.
    answers: VecDeque<Answer>,
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
        let entries = u32::try_from(depth).map_or(ENTRIES, |depth| depth.clamp(1, ENTRIES));
        let kernel = Uring::new(opened.file.as_fd(), entries.next_power_of_two())?;
        Ok(Self::with(kernel, opened, depth))
    }
}

impl<K: Kernel> Ring<K> {
    fn with(kernel: K, opened: Arc<Opened>, depth: usize) -> Self {
        let flights = ManuallyDrop::new(Slab::new(depth));
        let (asked, done) = (Slab::new(depth), Vec::with_capacity(depth));
        Self { kernel, opened, flights, asked, answers: VecDeque::new(), done }
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
        let number = self.asked.put(Asked { flight, piece });
        let question = self.question(flight, piece, number);
        loop {
            // SAFETY: the memory belongs to a transfer in `flights`, which stays there until the
            // question is answered, and the file is open as long.
            if unsafe { self.kernel.offer(&question) } {
                return;
            }
            self.enter(0);
            // The kernel may have no room for more answers, and take nothing until it has.
            while let Some(answer) = self.kernel.next() {
                self.answers.push_back(answer);
            }
        }
    }

    fn question(&mut self, flight: usize, piece: Piece, number: usize) -> Question {
        let offset = self.opened.offset + piece.offset;
        let transfer = &mut self.flights.get_mut(flight).transfer;
        let direction = transfer.direction;
        let memory = &mut transfer.buffer[piece.of_buffer()];
        let len = u32::try_from(memory.len()).map_or(MOST, |len| len.min(MOST));
        Question { number: to_u64(number), direction, offset, memory: memory.as_mut_ptr(), len }
    }

    /// Hands to the kernel what was offered, and waits for so many answers. If the kernel refuses
    /// it returns as soon as there are answers, which the caller must take before it enters again.
    ///
    /// # Panics
    /// If the kernel refuses the ring itself, which it does for errors of ours only.
    fn enter(&mut self, least: usize) {
        let mut refused = 0_u32;
        loop {
            let Err(error) = self.kernel.enter(least) else { return };
            match Refusal::of(&error) {
                Refusal::Again => {}
                Refusal::Later => {
                    if self.kernel.has_answers() {
                        return;
                    }
                    refused = refused.saturating_add(1);
                    match refused < YIELDS {
                        true => thread::yield_now(),
                        false => thread::sleep(Duration::from_millis(1)),
                    }
                }
                Refusal::Fatal => panic!("the kernel refuses to work on a ring: {error}"),
            }
        }
    }

    /// Takes the answers that are there.
    fn reap(&mut self) {
        loop {
            let answer = self.answers.pop_front().or_else(|| self.kernel.next());
            let Some(answer) = answer else { return };
            let asked = self.asked.take(to_usize(answer.number));
            self.answered(asked, answer.result);
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
                Direction::Read => range::cut_short(rest.offset, to_u64(rest.len)),
                Direction::Write => ErrorKind::WriteZero.into(),
            }),
            n => {
                let n = to_usize(n.unsigned_abs()).min(rest.len);
                rest = Piece { offset: rest.offset + to_u64(n), start: rest.start + n, ..rest };
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

impl<K: Kernel + Send> DeviceQueue for Ring<K> {
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
            if self.done.len() >= least && self.kernel.is_idle() {
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

impl<K: Kernel> Drop for Ring<K> {
    fn drop(&mut self) {
        loop {
            // First: the last answers may have been taken out of the ring already.
            self.reap();
            if self.flights.len() == 0 {
                break;
            }
            self.enter(1);
        }
        // SAFETY: dropped here only, and used no more. No transfer is in flight: if the loop above
        // ends in a panic the memory stays, with the kernel.
        unsafe { ManuallyDrop::drop(&mut self.flights) }
    }
}
