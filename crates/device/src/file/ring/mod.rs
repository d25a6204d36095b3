//! A queue over io_uring.
//!
//! Ownership of memory: the kernel reads and writes the memory of transfers in flight.
//!
//! - A transfer and its buffer stay in `flights` from its submission to its last completion, and
//!   the file stays open that long.
//! - A dropped queue waits for all completions. If its ring fails, it leaks the memory instead of
//!   freeing it.
//!
//! Each piece of a transfer is a submission of its own. A partly moved piece is submitted again for
//! the rest.
//!
//! The kernel may take no submissions while its completions have no space. A submission that finds
//! the ring full therefore takes the available completions out of the ring; [`Ring::reap`]
//! processes them later.

#![allow(unsafe_code)]

mod kernel;
#[cfg(test)]
mod tests;

use super::Opened;
use crate::queue::{Completed, DeviceQueue, Direction, Piece, Transfer};
use crate::{BlockDevice, range};
use kernel::{Completion, Kernel, Refusal, Submission, Uring};
use nextent_num::{to_u64, to_usize};
use nextent_sync::{Arc, Duration, thread};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;

/// The most bytes of one submission.
const MOST: u32 = 1 << 30;
/// The most submissions in the kernel at a time.
const ENTRIES: u32 = 4096;
/// Refused entries after which the queue sleeps instead of yielding.
const YIELDS: u32 = 100;

/// A transfer in flight.
struct Flight {
    transfer: Transfer,
    /// Pieces without a completion.
    left: usize,
    result: io::Result<()>,
}

/// One submission in the kernel.
#[derive(Clone, Copy)]
struct InKernel {
    flight: usize,
    /// The piece of its buffer.
    piece: Piece,
}

/// Items by number. A number is reused after its item was taken.
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<usize>,
}

/// Transfers in flight on one file.
pub(super) struct Ring<K: Kernel = Uring> {
    kernel: K,
    opened: Arc<Opened>,
    /// Dropped only when it is empty, because the kernel owns the memory of its transfers.
    flights: ManuallyDrop<Slab<Flight>>,
    in_kernel: Slab<InKernel>,
    /// Completions out of the ring, not yet processed.
    completions: VecDeque<Completion>,
    /// Transfers that are complete, or that never went to the kernel.
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
    /// A queue for `depth` transfers.
    ///
    /// # Errors
    ///
    /// If there is no io_uring, or one that can drop completions.
    pub(super) fn new(opened: Arc<Opened>, depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth).map_or(ENTRIES, |depth| depth.clamp(1, ENTRIES));
        let (file, may_change) = (opened.file.as_fd(), opened.is_read_only());
        let kernel = Uring::new(file, may_change, entries.next_power_of_two())?;
        Ok(Self::with(kernel, opened, depth))
    }
}

impl<K: Kernel> Ring<K> {
    fn with(kernel: K, opened: Arc<Opened>, depth: usize) -> Self {
        let flights = ManuallyDrop::new(Slab::new(depth));
        let (in_kernel, done) = (Slab::new(depth), Vec::with_capacity(depth));
        Self { kernel, opened, flights, in_kernel, completions: VecDeque::new(), done }
    }

    fn begin(&mut self, transfer: Transfer) {
        let pieces = transfer.pieces.clone();
        let left = pieces.as_slice().len();
        let flight = self.flights.put(Flight { transfer, left, result: Ok(()) });
        for piece in pieces.as_slice() {
            self.submit_piece(flight, *piece);
        }
    }

    fn submit_piece(&mut self, flight: usize, piece: Piece) {
        let number = self.in_kernel.put(InKernel { flight, piece });
        let submission = self.submission(flight, piece, number);
        loop {
            // SAFETY: the memory belongs to a transfer in `flights`, which stays there, with the
            // file open, until the submission's completion.
            if unsafe { self.kernel.offer(&submission) } {
                return;
            }
            self.enter(0);
            // The kernel may have no space for more completions, and take no submissions until it
            // has.
            while let Some(completion) = self.kernel.next() {
                self.completions.push_back(completion);
            }
        }
    }

    fn submission(&mut self, flight: usize, piece: Piece, number: usize) -> Submission {
        let offset = self.opened.offset + piece.offset;
        let transfer = &mut self.flights.get_mut(flight).transfer;
        let direction = transfer.direction;
        let memory = &mut transfer.buffer[piece.of_buffer()];
        let len = u32::try_from(memory.len()).map_or(MOST, |len| len.min(MOST));
        Submission { number: to_u64(number), direction, offset, memory: memory.as_mut_ptr(), len }
    }

    /// Hands the queued submissions to the kernel, and waits for `least` completions. If the kernel
    /// refuses, it returns as soon as there are completions, which the caller must take before it
    /// enters again.
    ///
    /// # Panics
    ///
    /// If the kernel reports the ring itself as unusable, which only a bug here causes.
    fn enter(&mut self, least: usize) {
        let mut refused = 0_u32;
        loop {
            let Err(error) = self.kernel.enter(least) else { return };
            match Refusal::of(&error) {
                Refusal::Again => {}
                Refusal::Later => {
                    if self.kernel.has_completions() {
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

    /// Processes the available completions.
    fn reap(&mut self) {
        loop {
            let completion = self.completions.pop_front().or_else(|| self.kernel.next());
            let Some(completion) = completion else { return };
            let in_kernel = self.in_kernel.take(to_usize(completion.number));
            self.completed(in_kernel, completion.result);
        }
    }

    fn completed(&mut self, in_kernel: InKernel, moved: i32) {
        let mut rest = in_kernel.piece;
        let flight = self.flights.get_mut(in_kernel.flight);
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
            return self.submit_piece(in_kernel.flight, rest);
        }
        if let Some(error) = failed {
            flight.result = Err(error);
        }
        flight.left -= 1;
        if flight.left == 0 {
            let Flight { transfer, result, .. } = self.flights.take(in_kernel.flight);
            self.done.push(Completed { transfer, result });
        }
    }
}

impl<K: Kernel + Send> DeviceQueue for Ring<K> {
    fn submit(&mut self, mut transfer: Transfer) {
        let now = match self.opened.fits_the_ring(&transfer) {
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
            // A completion may be that of one piece of several.
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
            // First, because the last completions may already be out of the ring.
            self.reap();
            if self.flights.len() == 0 {
                break;
            }
            self.enter(1);
        }
        // SAFETY: dropped only here and not used afterwards. No transfer is in flight. If the loop
        // above panics, the memory is leaked and stays with the kernel.
        unsafe { ManuallyDrop::drop(&mut self.flights) }
    }
}
