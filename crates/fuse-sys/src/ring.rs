//! A thread's ring: hands in replies and waits for requests.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use nextent_num::{must_fit, to_u64, to_usize};

use crate::entry::{Request, RingEntry};

/// io_uring commands of `/dev/fuse`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Flags of `io_uring_enter`: wait for completions, and do not count the wait as I/O wait.
const GET_EVENTS: u32 = 1;
const NO_IO_WAIT: u32 = 1 << 7;

/// Byte offsets of a command's address and length in a submission queue entry.
const ADDRESS_AT: usize = 16;
const LENGTH_AT: usize = 24;

/// The outcome of a request whose reply data is in the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Zero, or a negative errno.
    pub error: i32,
    /// Bytes of reply data in the payload.
    pub len: usize,
}

/// Refused entries after which a thread sleeps instead of yielding.
const YIELDS: u32 = 100;

type FuseRing = IoUring<Entry128, cqueue::Entry>;

/// The entries of one thread and the io_uring that carries them. Only its creator may use it.
pub struct Ring {
    ring: FuseRing,
    entries: Vec<RingEntry>,
    enter: u32,
    not_send: std::marker::PhantomData<*mut ()>,
}

/// Checks that this process can create a ring.
///
/// # Errors
///
/// The kernel's error: io_uring is missing, too old, or not permitted for this user.
pub fn usable() -> io::Result<()> {
    make(1).map(|_| ())
}

fn make(entries: usize) -> io::Result<FuseRing> {
    let entries = u32::try_from(entries).map_err(|_| io::ErrorKind::InvalidInput)?;
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)
}

impl Ring {
    /// Creates a ring with one entry for each of `queues`, with payloads of `payload` bytes, on the
    /// FUSE connection `fuse`.
    ///
    /// # Errors
    ///
    /// The kernel's error if it refuses the memory or the ring.
    pub fn new(fuse: BorrowedFd<'_>, queues: &[u16], payload: usize) -> io::Result<Self> {
        let ring = make(queues.len().max(1))?;
        // A file registered with the ring: a request then updates no reference count that threads
        // share.
        ring.submitter().register_files(&[fuse.as_raw_fd()])?;
        let entries = queues.iter().map(|queue| RingEntry::new(*queue, payload));
        let entries = entries.collect::<io::Result<_>>()?;
        let enter = if can_wait_idly(&ring) { GET_EVENTS | NO_IO_WAIT } else { GET_EVENTS };
        Ok(Self { ring, entries, enter, not_send: std::marker::PhantomData })
    }

    /// Hands all entries to the kernel. It may send requests to them from here on; they wait until
    /// [`Self::serve`].
    ///
    /// # Errors
    ///
    /// The kernel's error if the ring fails. If it refuses an entry, `serve` says so.
    pub fn register(&mut self) -> io::Result<()> {
        (0..self.entries.len()).try_for_each(|n| self.register_entry(n))
    }

    /// Calls `answer` for each request to the registered entries until the connection ends.
    ///
    /// # Errors
    ///
    /// The kernel's error if it refused an entry or if the ring fails.
    pub fn serve(&mut self, mut answer: impl FnMut(Request<'_>) -> Reply) -> io::Result<()> {
        let mut left = self.entries.iter().filter(|entry| entry.is_in_flight()).count();
        while left > 0 {
            self.enter()?;
            loop {
                let done = self.ring.completion().next();
                let Some(done) = done else { break };
                let n = to_usize(done.user_data());
                self.entries[n].returned();
                if done.result() < 0 {
                    left -= 1;
                    ended(done.result())?;
                    continue;
                }
                self.turn(n, &mut answer)?;
            }
        }
        Ok(())
    }

    /// Answers the request in entry `n`. The next [`Self::enter`] hands the reply to the kernel.
    fn turn(&mut self, n: usize, answer: &mut impl FnMut(Request<'_>) -> Reply) -> io::Result<()> {
        let entry = &mut self.entries[n];
        let reply = answer(entry.request());
        let name = entry.answer(reply.error, reply.len);
        let queue = entry.queue;
        entry.lend();
        self.push(&submission(COMMIT_AND_FETCH, command(name, queue), n))
    }

    fn register_entry(&mut self, n: usize) -> io::Result<()> {
        let entry = &mut self.entries[n];
        let (queue, places) = (entry.queue, entry.lend());
        let mut submission = submission(REGISTER, command(0, queue), n);
        let at = (&raw mut submission).cast::<u8>();
        // SAFETY: a submission is 128 bytes whose layout is the kernel's interface. This command
        // has a 64-bit address at byte 16 and a 32-bit length at byte 24, which name its two memory
        // areas.
        unsafe {
            at.add(ADDRESS_AT).cast::<u64>().write_unaligned(to_u64(places.as_ptr().addr()));
            at.add(LENGTH_AT).cast::<u32>().write_unaligned(must_fit(places.len()));
        }
        self.push(&submission)?;
        // The kernel reads `places` at submission, so it must live until then.
        while !self.ring.submission().is_empty() {
            // Requests that arrive now wait in the completion queue, which has room for all
            // entries.
            enter_with(|| self.ring.submit().map(drop), || false, pause)?;
        }
        Ok(())
    }

    fn push(&mut self, submission: &Entry128) -> io::Result<()> {
        // SAFETY: the command's memory belongs to an entry that is marked as lent until the command
        // completes and that outlives it. The descriptor is registered with the ring.
        let pushed = unsafe { self.ring.submission().push(submission) };
        pushed.map_err(|_| io::Error::other("more commands than entries"))
    }

    /// Submits the pushed commands and waits for a completion. It also returns if the kernel
    /// refuses to continue before the completions are taken.
    fn enter(&mut self) -> io::Result<()> {
        let flags = self.enter;
        let (submitter, mut queue, mut completions) = self.ring.split();
        let enter = || {
            queue.sync();
            let waiting = u32::try_from(queue.len()).expect("a queue is short");
            // SAFETY: the call has no argument besides the flags, and all queued commands are
            // valid.
            unsafe { submitter.enter::<()>(waiting, 1, flags, None) }.map(drop)
        };
        let has_completions = || {
            completions.sync();
            !completions.is_empty()
        };
        enter_with(enter, has_completions, pause)
    }
}

/// Calls `enter` until it succeeds, or until it refuses because completions wait to be taken.
/// `pause` gets the number of refusals for lack of memory or queue space.
///
/// # Errors
///
/// Any other error of `enter`.
fn enter_with(
    mut enter: impl FnMut() -> io::Result<()>,
    mut has_completions: impl FnMut() -> bool,
    mut pause: impl FnMut(u32),
) -> io::Result<()> {
    let mut refused = 0_u32;
    loop {
        let Err(error) = enter() else { return Ok(()) };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EBUSY) if has_completions() => return Ok(()),
            Some(libc::EAGAIN | libc::EBUSY) => {
                refused = refused.saturating_add(1);
                pause(refused);
            }
            _ => return Err(error),
        }
    }
}

/// Yields the core after a refusal, and sleeps for 1 ms after many.
fn pause(refused: u32) {
    if refused < YIELDS {
        rustix::thread::sched_yield();
        return;
    }
    let time = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // An interrupted sleep only retries earlier.
    let _ = rustix::thread::nanosleep(&time);
}

const _: () = assert!(size_of::<Entry128>() == 128);

/// The meaning of a completion without a request: the connection's end, or an error.
fn ended(result: i32) -> io::Result<()> {
    let error = io::Error::from_raw_os_error(-result);
    match error.kind() {
        io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted => Ok(()),
        _ if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::CANCELED) => {
            Ok(())
        }
        _ => Err(error),
    }
}

/// Whether the kernel can keep waits for requests out of the I/O wait statistics (Linux 6.15).
fn can_wait_idly(ring: &FuseRing) -> bool {
    // SAFETY: the call submits nothing and waits for nothing.
    unsafe { ring.submitter().enter::<()>(0, 0, GET_EVENTS | NO_IO_WAIT, None) }.is_ok()
}

/// The payload of a command: flags, the reply's number, the queue.
fn command(name: u64, queue: u16) -> [u8; 80] {
    let mut command = [0; 80];
    command[8..16].copy_from_slice(&name.to_ne_bytes());
    command[16..18].copy_from_slice(&queue.to_ne_bytes());
    command
}

fn submission(kind: u32, command: [u8; 80], n: usize) -> Entry128 {
    let built = opcode::UringCmd80::new(types::Fixed(0), kind).cmd(command).build();
    built.user_data(to_u64(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_number_and_queue() {
        let bytes = command(0x0102, 3);
        assert_eq!(bytes[8..16], 0x0102_u64.to_ne_bytes());
        assert_eq!(bytes[16..18], 3_u16.to_ne_bytes());
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 3);
    }

    #[test]
    fn the_end_of_a_connection_is_not_an_error() {
        assert!(ended(-107).is_ok() && ended(-103).is_ok() && ended(-125).is_ok());
        assert_eq!(ended(-22).expect_err("invalid").raw_os_error(), Some(22));
    }

    /// Enters against a list of errors. Returns the entries, the pauses and the outcome.
    fn scripted(errors: &[i32], completions_after: usize) -> (usize, Vec<u32>, io::Result<()>) {
        let (mut entries, mut pauses) = (0, Vec::new());
        let count = std::cell::Cell::new(0);
        let enter = || {
            let error = errors.get(entries);
            entries += 1;
            count.set(entries);
            error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(*errno)))
        };
        let done = enter_with(enter, || count.get() > completions_after, |n| pauses.push(n));
        (entries, pauses, done)
    }

    #[test]
    fn refusals_are_retried() {
        let (entries, pauses, done) = scripted(&[libc::EINTR; 3], usize::MAX);
        assert!(entries == 4 && pauses.is_empty() && done.is_ok());
        for errno in [libc::EAGAIN, libc::EBUSY] {
            let (entries, pauses, done) = scripted(&[errno; 3], usize::MAX);
            assert!(entries == 4 && pauses == [1, 2, 3] && done.is_ok());
            // Completions are taken before the ring is entered again.
            let (entries, pauses, done) = scripted(&[errno; 9], 2);
            assert!(entries == 3 && pauses == [1, 2] && done.is_ok());
        }
        let (entries, _, done) = scripted(&[libc::EINTR, libc::EBADF], usize::MAX);
        assert_eq!((entries, done.expect_err("fatal").raw_os_error()), (2, Some(libc::EBADF)));
    }
}
