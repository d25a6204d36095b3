//! A ring entry: memory that the kernel and this process own in turns.
//!
//! The kernel accesses the memory only between the submission of the entry's command and that
//! command's completion. `RingEntry` creates, lends and frees the memory outside that interval. An
//! entry that is dropped while its command may be in flight leaks its memory.

#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use nextent_num::{must_fit, to_u64, to_usize};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the header field. A request has the header common to all requests there, a reply the
/// header common to all replies.
pub const HEADER: usize = 128;
/// Bytes of the field for the arguments of a request's operation.
pub const OP: usize = 128;

/// Bytes of a reply's header. Its last eight bytes are the request's unique number, which is at the
/// same offset in a request header.
const ANSWER: usize = 16;

/// Offset of the payload, in bytes: one page, so that the payload is page aligned.
const FRONT: usize = 4096;

/// What kernel and server say of a request and its reply, apart from their own bytes. The layout is
/// the kernel's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct About {
    flags: u64,
    /// The number by which a reply is handed in.
    pub(crate) commit_id: u64,
    /// Payload bytes, of the request or of the reply.
    pub(crate) payload: u32,
    padding: u32,
    reserved: u64,
}

/// The first bytes of an entry's memory. The layout is the kernel's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Front {
    pub(crate) header: [u8; HEADER],
    pub(crate) op: [u8; OP],
    pub(crate) about: About,
}

const _: () = assert!(size_of::<Front>() == 288 && size_of::<Front>() <= FRONT);

/// A request, and the memory for its reply.
#[derive(Debug)]
pub struct Request<'a> {
    /// The header common to all requests.
    pub header: &'a [u8; HEADER],
    /// The arguments of the request's operation.
    pub op: &'a [u8; OP],
    /// The data after the arguments, in the first `len` bytes. The reply's data overwrites it.
    pub payload: &'a mut [u8],
    /// Data bytes in the request.
    pub len: usize,
}

/// An entry of the kernel's queue `queue`.
pub(crate) struct RingEntry {
    memory: NonNull<u8>,
    payload: usize,
    pub(crate) queue: u16,
    /// Whether a command may be in flight. The kernel owns the memory then.
    in_flight: bool,
}

// SAFETY: the entry exclusively owns its mapping, which has no thread affinity.
unsafe impl Send for RingEntry {}

impl RingEntry {
    /// Maps memory for payloads of `payload` bytes. The kernel allocates a page at its first use.
    pub(crate) fn new(queue: u16, payload: usize) -> io::Result<Self> {
        let (how, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), FRONT + payload, how, kind) }?;
        let memory = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, payload, queue, in_flight: false })
    }

    /// Address and length of the header part and of the payload, for a command that the caller
    /// submits next.
    pub(crate) fn lend(&mut self) -> [[u64; 2]; 2] {
        self.in_flight = true;
        let front = to_u64(self.memory.as_ptr().addr());
        [[front, to_u64(size_of::<Front>())], [front + to_u64(FRONT), to_u64(self.payload)]]
    }

    /// Records that the command has completed.
    pub(crate) fn returned(&mut self) {
        self.in_flight = false;
    }

    /// Whether a command may be in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// The request that the kernel has written.
    ///
    /// # Panics
    ///
    /// If a command is in flight.
    pub(crate) fn request(&mut self) -> Request<'_> {
        let (front, payload) = self.parts();
        // The kernel stays within the payload; a larger length would make the slice panic.
        let len = to_usize(front.about.payload).min(payload.len());
        Request { header: &front.header, op: &front.op, payload, len }
    }

    /// Writes the reply's header (length, error and the request's number). Returns the number by
    /// which to hand the reply in.
    ///
    /// # Panics
    ///
    /// If a command is in flight.
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
        assert!(!self.in_flight, "the kernel owns the entry's memory");
        // SAFETY: the mapping is `FRONT + payload` bytes long, zeroed at first, page aligned, and
        // exclusive to this entry while no command is in flight. Any bytes make a `Front`. The two
        // references do not overlap, since a `Front` fits into `FRONT`.
        unsafe {
            let front = self.memory.cast::<Front>().as_mut();
            let payload = self.memory.add(FRONT).as_ptr();
            (front, std::slice::from_raw_parts_mut(payload, self.payload))
        }
    }
}

impl Drop for RingEntry {
    fn drop(&mut self) {
        if self.in_flight {
            return;
        }
        // SAFETY: `new` made the mapping and nothing else refers to it.
        let freed = unsafe { munmap(self.memory.as_ptr().cast(), FRONT + self.payload) };
        debug_assert!(freed.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_replaces_a_request() {
        let mut entry = RingEntry::new(3, 8192).expect("memory");
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
    fn a_request_length_is_bounded_by_the_payload() {
        let mut entry = RingEntry::new(0, 4096).expect("memory");
        entry.parts().0.about.payload = u32::MAX;
        assert_eq!(entry.request().len, 4096);
    }

    #[test]
    #[should_panic(expected = "kernel owns")]
    fn memory_in_flight_is_not_readable() {
        let mut entry = RingEntry::new(0, 4096).expect("memory");
        entry.lend();
        entry.request();
    }
}
