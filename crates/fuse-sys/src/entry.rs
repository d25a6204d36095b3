//! An entry: memory that the kernel and this process have in turns.
//!
//! The kernel writes a request, and reads its answer, only between the submission of an entry's
//! command and that command's completion. An entry is made, lent out and freed outside of that.
//! An entry that is dropped while its command may be in flight keeps its memory for ever.

#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use nextent_num::{must_fit, to_u64, to_usize};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of what all requests have, before: and of what all answers have, after.
pub const HEADER: usize = 128;
/// Bytes of what requests of one kind have.
pub const OP: usize = 128;

/// Bytes of what all answers have. The last eight are the request's number, which is at the same
/// place in a request.
const ANSWER: usize = 16;

/// Before the payload, which begins at a page.
const FRONT: usize = 4096;

/// What the kernel says of a request and hears of an answer beside their own bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct About {
    flags: u64,
    /// The request's name when its answer is handed in.
    pub(crate) commit_id: u64,
    /// Bytes of payload, in either direction.
    pub(crate) payload: u32,
    padding: u32,
    reserved: u64,
}

/// The front of an entry's memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Front {
    pub(crate) header: [u8; HEADER],
    pub(crate) op: [u8; OP],
    pub(crate) about: About,
}

const _: () = assert!(size_of::<Front>() == 288 && size_of::<Front>() <= FRONT);

/// A request, and the memory for its answer.
#[derive(Debug)]
pub struct Request<'a> {
    /// What all requests have.
    pub header: &'a [u8; HEADER],
    /// What requests of this kind have.
    pub op: &'a [u8; OP],
    /// The rest of the request in the first `len` bytes; the answer afterwards.
    pub payload: &'a mut [u8],
    /// Bytes of the rest.
    pub len: usize,
}

/// An entry of queue `queue`.
pub(crate) struct Entry {
    memory: NonNull<u8>,
    payload: usize,
    pub(crate) queue: u16,
    /// A command is, or may be, in flight: the memory is the kernel's.
    in_flight: bool,
}

// SAFETY: the memory is this entry's alone, and nothing about it belongs to a thread.
unsafe impl Send for Entry {}

impl Entry {
    /// Takes memory for payloads of `payload` bytes; none of it is real before it is used.
    pub(crate) fn new(queue: u16, payload: usize) -> io::Result<Self> {
        let (how, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping somewhere, which touches no other memory.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), FRONT + payload, how, kind) }?;
        let memory = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, payload, queue, in_flight: false })
    }

    /// Where the kernel shall find front and payload: for a command whose submission follows.
    pub(crate) fn lend(&mut self) -> [[u64; 2]; 2] {
        self.in_flight = true;
        let front = to_u64(self.memory.as_ptr().addr());
        [[front, to_u64(size_of::<Front>())], [front + to_u64(FRONT), to_u64(self.payload)]]
    }

    /// The command has completed.
    pub(crate) fn returned(&mut self) {
        self.in_flight = false;
    }

    /// The request that the kernel has left.
    ///
    /// # Panics
    /// While a command is in flight.
    pub(crate) fn request(&mut self) -> Request<'_> {
        let (front, payload) = self.parts();
        // The kernel keeps to what it was told; a slice would panic otherwise.
        let len = to_usize(front.about.payload).min(payload.len());
        Request { header: &front.header, op: &front.op, payload, len }
    }

    /// Puts the answer's beginning in its place (length, error and the request's number); the name
    /// by which to hand it in.
    ///
    /// # Panics
    /// While a command is in flight.
    pub(crate) fn answer(&mut self, error: i32, len: usize) -> u64 {
        let (front, payload) = self.parts();
        let len = len.min(payload.len());
        let whole: u32 = must_fit(ANSWER + len);
        front.header[..4].copy_from_slice(&whole.to_ne_bytes());
        front.header[4..8].copy_from_slice(&error.to_ne_bytes());
        front.about.payload = must_fit(len);
        front.about.commit_id
    }

    fn parts(&mut self) -> (&mut Front, &mut [u8]) {
        assert!(!self.in_flight, "the memory is the kernel's");
        // SAFETY: the mapping is FRONT + payload bytes long, zeroed at first, aligned to pages,
        // and this entry's alone while no command is in flight; any bytes make a `Front`. The two
        // do not overlap, since a front fits into FRONT.
        unsafe {
            let front = self.memory.cast::<Front>().as_mut();
            let payload = self.memory.add(FRONT).as_ptr();
            (front, std::slice::from_raw_parts_mut(payload, self.payload))
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.in_flight {
            return;
        }
        // SAFETY: the mapping that `new` made, which nobody else has.
        let freed = unsafe { munmap(self.memory.as_ptr().cast(), FRONT + self.payload) };
        debug_assert!(freed.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_replaces_a_request() {
        let mut entry = Entry::new(3, 8192).expect("memory");
        let (front, payload) = entry.parts();
        (front.about.payload, front.about.commit_id) = (3, 77);
        payload[..3].copy_from_slice(b"abc");
        let request = entry.request();
        assert_eq!((&request.payload[..request.len], request.payload.len()), (&b"abc"[..], 8192));
        entry.parts().0.header[8] = 9;
        assert_eq!(entry.answer(-2, 5), 77);
        let front = entry.parts().0;
        assert_eq!(front.about.payload, 5);
        assert_eq!(front.header[..4], 21_u32.to_ne_bytes());
        assert_eq!(front.header[4..8], (-2_i32).to_ne_bytes());
        assert_eq!(front.header[8], 9);
    }

    #[test]
    fn lengths_are_bounded() {
        let mut entry = Entry::new(0, 4096).expect("memory");
        entry.parts().0.about.payload = u32::MAX;
        assert_eq!(entry.request().len, 4096);
    }

    #[test]
    #[should_panic(expected = "the kernel's")]
    fn memory_is_not_used_by_two() {
        let mut entry = Entry::new(0, 4096).expect("memory");
        entry.lend();
        entry.request();
    }
}
