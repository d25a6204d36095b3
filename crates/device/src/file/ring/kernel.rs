//! The kernel's side of a queue: the ring itself, and what to do when it cannot be entered.

#![allow(unsafe_code)]

use crate::queue::Direction;
use io_uring::{IoUring, opcode, squeue, types};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// One question to the kernel: a read or a write of memory that the queue keeps.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct Question {
    /// Returned with the answer.
    pub(super) number: u64,
    pub(super) direction: Direction,
    /// Where in the file.
    pub(super) offset: u64,
    pub(super) memory: *mut u8,
    pub(super) len: u32,
}

/// What the kernel says to a question: its number, and bytes or a negative error number.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct Answer {
    pub(super) number: u64,
    pub(super) result: i32,
}

/// A ring. Tests have one whose answers and refusals are scripted.
pub(in crate::file) trait Kernel {
    /// Offers a question; false if there is no room for it before the next [`Self::enter`].
    ///
    /// # Safety
    /// The memory stays where it is, and belongs to the kernel alone, until the answer was taken
    /// by [`Self::next`]. The file stays open as long.
    unsafe fn offer(&mut self, question: &Question) -> bool;

    /// Whether the kernel has taken all that was offered.
    fn is_idle(&mut self) -> bool;

    /// Hands over what was offered, and waits for so many answers.
    fn enter(&mut self, least: usize) -> io::Result<()>;

    /// Whether an answer can be taken.
    fn has_answers(&mut self) -> bool;

    /// Takes an answer.
    fn next(&mut self) -> Option<Answer>;
}

/// What to do after the kernel refused an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing happened: enter again.
    Again,
    /// The kernel lacks memory, or room for answers: take the answers first, or wait a while.
    Later,
    /// The ring is of no use.
    Fatal,
}

impl Refusal {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EINTR) => Self::Again,
            Some(libc::EBUSY | libc::EAGAIN) => Self::Later,
            _ => Self::Fatal,
        }
    }
}

/// io_uring, on one file.
pub(in crate::file) struct Uring {
    ring: IoUring,
    file: RawFd,
    /// The file is known to the ring by number, which is cheaper.
    registered: bool,
}

impl Uring {
    /// A ring for `entries` questions, a power of two.
    ///
    /// # Errors
    /// Where there is no io_uring, or none that keeps all answers.
    pub(super) fn new(file: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let built = IoUring::builder().setup_coop_taskrun().build(entries);
        let ring = built.or_else(|_| IoUring::new(entries))?;
        if !ring.params().is_feature_nodrop() {
            return Err(ErrorKind::Unsupported.into());
        }
        let file = file.as_raw_fd();
        let registered = ring.submitter().register_files(&[file]).is_ok();
        Ok(Self { ring, file, registered })
    }

    fn entry(&self, question: &Question) -> squeue::Entry {
        let (fd, numbered) = (types::Fd(self.file), types::Fixed(0));
        let Question { direction, offset, memory, len, number } = *question;
        let entry = match (direction, self.registered) {
            (Direction::Read, true) => {
                opcode::Read::new(numbered, memory, len).offset(offset).build()
            }
            (Direction::Read, false) => opcode::Read::new(fd, memory, len).offset(offset).build(),
            (Direction::Write, true) => {
                opcode::Write::new(numbered, memory, len).offset(offset).build()
            }
            (Direction::Write, false) => opcode::Write::new(fd, memory, len).offset(offset).build(),
        };
        entry.user_data(number)
    }
}

impl Kernel for Uring {
    #[inline]
    unsafe fn offer(&mut self, question: &Question) -> bool {
        let entry = self.entry(question);
        // SAFETY: the caller keeps the memory and the file until the answer was taken.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    #[inline]
    fn enter(&mut self, least: usize) -> io::Result<()> {
        self.ring.submit_and_wait(least).map(drop)
    }

    #[inline]
    fn has_answers(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    #[inline]
    fn next(&mut self) -> Option<Answer> {
        let answer = self.ring.completion().next()?;
        Some(Answer { number: answer.user_data(), result: answer.result() })
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.registered {
            // Else the file, and the lock on it, would be held until the kernel has taken the ring
            // apart, some time after it was closed. There is nothing to do about a refusal.
            let _ = self.ring.submitter().unregister_files();
        }
    }
}
