//! The interface to io_uring, and the reaction to a refused entry.

#![allow(unsafe_code)]

use crate::queue::Direction;
use io_uring::{IoUring, opcode, squeue, types};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// One submission: a read or a write of memory that the queue owns.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct Submission {
    /// Returned with the completion.
    pub(super) number: u64,
    pub(super) direction: Direction,
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    pub(super) memory: *mut u8,
    pub(super) len: u32,
}

/// A completion: the submission's number, and the bytes moved or a negative errno.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct Completion {
    pub(super) number: u64,
    pub(super) result: i32,
}

/// A ring. Tests have one with scripted completions and refusals.
pub(in crate::file) trait Kernel {
    /// Queues a submission; `false` if there is no space before the next [`Self::enter`].
    ///
    /// # Safety
    ///
    /// The memory must stay in place and belong exclusively to the kernel until [`Self::next`] has
    /// returned the completion. The file must stay open that long.
    /// by [`Self::next`]. The file stays open as long.
    unsafe fn offer(&mut self, submission: &Submission) -> bool;

    /// Whether the kernel has taken all queued submissions.
    fn is_idle(&mut self) -> bool;

    /// Hands over the queued submissions, and waits for `least` completions.
    fn enter(&mut self, least: usize) -> io::Result<()>;

    /// Whether a completion is available.
    fn has_completions(&mut self) -> bool;

    /// Takes a completion.
    fn next(&mut self) -> Option<Completion>;
}

/// The reaction to an entry that the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing happened: enter again.
    Again,
    /// The kernel lacks memory or space for completions: take the completions, or wait, first.
    Later,
    /// The ring is unusable.
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
    /// Whether the file is registered with the ring, which makes submissions cheaper.
    registered: bool,
}

impl Uring {
    /// A ring for `entries` submissions, a power of two. A file that `may_change` under its
    /// descriptor is not registered.
    ///
    /// # Errors
    ///
    /// If there is no io_uring, or one that can drop completions.
    pub(super) fn new(file: BorrowedFd<'_>, may_change: bool, entries: u32) -> io::Result<Self> {
        let built = IoUring::builder().setup_coop_taskrun().build(entries);
        let ring = built.or_else(|_| IoUring::new(entries))?;
        if !ring.params().is_feature_nodrop() {
            return Err(ErrorKind::Unsupported.into());
        }
        let file = file.as_raw_fd();
        let registered = !may_change && ring.submitter().register_files(&[file]).is_ok();
        Ok(Self { ring, file, registered })
    }

    fn entry(&self, submission: &Submission) -> squeue::Entry {
        let (fd, numbered) = (types::Fd(self.file), types::Fixed(0));
        let Submission { direction, offset, memory, len, number } = *submission;
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
    unsafe fn offer(&mut self, submission: &Submission) -> bool {
        let entry = self.entry(submission);
        // SAFETY: the caller keeps the memory and the file until the completion is taken.
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
    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        let completion = self.ring.completion().next()?;
        Some(Completion { number: completion.user_data(), result: completion.result() })
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.registered {
            // Without this, the file and its lock stay until the kernel has torn down the closed
            // ring, some time later. An error leaves nothing to do.
            let _ = self.ring.submitter().unregister_files();
        }
    }
}
