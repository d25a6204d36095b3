//! A queue on a scripted kernel that refuses entries.

use super::*;
use crate::file::FileDevice;
use crate::queue::{Buffer, Pieces};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The entries after which a test fails for lack of progress.
const MOST_ENTRIES: u32 = 20_000;

/// A kernel with little space that performs its submissions at each entry.
///
/// Completions without space wait outside the ring. While there are any, it takes no submission,
/// like Linux 5.6 to 5.12.
struct Scripted {
    file: File,
    room: usize,
    offered: VecDeque<Submission>,
    completions: VecDeque<Completion>,
    outside: VecDeque<Completion>,
    /// Errnos of the next entries.
    refusals: VecDeque<i32>,
    /// Results of the next submissions, if not complete: fewer bytes, or a negative errno.
    results: VecDeque<i32>,
    entries: u32,
}

// SAFETY: only its submissions have pointers, and their memory is the kernel's until the
// completion.
unsafe impl Send for Scripted {}

impl Scripted {
    fn new(file: &File, room: usize) -> Self {
        let (offered, completions, outside) = Default::default();
        let (refusals, results) = Default::default();
        let file = file.try_clone().expect("a descriptor");
        Self { file, room, offered, completions, outside, refusals, results, entries: 0 }
    }

    fn perform(&mut self, submission: &Submission) -> i32 {
        let script = self.results.pop_front();
        let len = script.unwrap_or(i32::MAX).min(i32::try_from(submission.len).expect("small"));
        let Ok(len) = usize::try_from(len) else { return len };
        // SAFETY: the queue keeps the memory until the completion is taken.
        let memory = unsafe { std::slice::from_raw_parts_mut(submission.memory, len) };
        match submission.direction {
            Direction::Read => self.file.read_exact_at(memory, submission.offset).expect("read"),
            Direction::Write => self.file.write_all_at(memory, submission.offset).expect("written"),
        }
        i32::try_from(len).expect("small")
    }

    /// Moves completions into the ring as far as there is space.
    fn move_completions(&mut self) {
        while self.completions.len() < self.room {
            let Some(completion) = self.outside.pop_front() else { return };
            self.completions.push_back(completion);
        }
    }
}

impl Kernel for Scripted {
    unsafe fn offer(&mut self, submission: &Submission) -> bool {
        let room = self.offered.len() < self.room;
        if room {
            self.offered.push_back(*submission);
        }
        room
    }

    fn is_idle(&mut self) -> bool {
        self.offered.is_empty()
    }

    fn enter(&mut self, least: usize) -> io::Result<()> {
        self.entries += 1;
        assert!(self.entries < MOST_ENTRIES, "no progress");
        if let Some(errno) = self.refusals.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.move_completions();
        if !self.outside.is_empty() && !self.offered.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        while let Some(submission) = self.offered.pop_front() {
            let result = self.perform(&submission);
            self.outside.push_back(Completion { number: submission.number, result });
        }
        self.move_completions();
        assert!(self.completions.len() >= least.min(1), "waits for ever");
        Ok(())
    }

    fn has_completions(&mut self) -> bool {
        !self.completions.is_empty()
    }

    fn next(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }
}

/// A file of 64 KiB with a different value in each 512 bytes.
fn file() -> (File, Arc<Opened>) {
    let file = tempfile::tempfile().expect("a file");
    for n in 0..128_u8 {
        file.write_all_at(&[n; 512], u64::from(n) * 512).expect("written");
    }
    let device = FileDevice::from_open(file.try_clone().expect("a descriptor")).expect("a device");
    (file, device.opened)
}

/// A transfer of the 512 bytes at each of `places`.
fn transfer(direction: Direction, tag: u64, places: &[u8]) -> Transfer {
    let mut pieces = Pieces::default();
    for (n, place) in places.iter().enumerate() {
        pieces.push(Piece { offset: u64::from(*place) * 512, start: n * 512, len: 512 });
    }
    let mut buffer = Buffer::new(places.len() * 512);
    if direction == Direction::Write {
        buffer.fill(0xee);
    }
    Transfer { tag, direction, buffer, pieces }
}

/// Submits a transfer for each place, completes all of them, and checks the bytes read.
fn read_all(ring: &mut Ring<Scripted>, places: std::ops::Range<u8>) {
    for place in places.clone() {
        // Two places that are not adjacent make two submissions.
        ring.submit(transfer(Direction::Read, place.into(), &[place, 127 - place]));
    }
    let mut done = Vec::new();
    while ring.in_flight() > 0 {
        ring.complete(1, &mut done);
    }
    assert_eq!(done.len(), places.len());
    for Completed { transfer, result } in done {
        result.expect("read");
        let place = u8::try_from(transfer.tag).expect("a place");
        assert!(transfer.buffer[..512].iter().all(|byte| *byte == place));
        assert!(transfer.buffer[512..].iter().all(|byte| *byte == 127 - place));
    }
}

#[test]
fn a_full_ring_takes_its_completions_first() {
    for room in [1, 2, 4] {
        let (file, opened) = file();
        let mut ring = Ring::with(Scripted::new(&file, room), opened, 32);
        read_all(&mut ring, 0..32);
    }
}

#[test]
fn a_full_ring_waits_for_all_when_dropped() {
    let (file, opened) = file();
    let mut ring = Ring::with(Scripted::new(&file, 2), opened, 32);
    for place in 0..21 {
        ring.submit(transfer(Direction::Write, 0, &[place]));
    }
    drop(ring);
    let mut back = [0; 22 * 512];
    file.read_exact_at(&mut back, 0).expect("read");
    assert!(back[..21 * 512].iter().all(|byte| *byte == 0xee) && back[21 * 512] == 21);
}

#[test]
fn refusals_are_retried_at_every_entry() {
    for errno in [libc::EBUSY, libc::EAGAIN, libc::EINTR] {
        for before in 0..40 {
            for times in [1, 3] {
                let (file, opened) = file();
                let mut kernel = Scripted::new(&file, 4);
                // Partial results, which are submitted again while completions are processed.
                kernel.results = (0..before).map(|n| [512, 100, -libc::EAGAIN][n % 3]).collect();
                let mut ring = Ring::with(kernel, opened, 16);
                read_all(&mut ring, 0..8);
                ring.kernel.refusals = vec![errno; times].into();
                ring.kernel.results = vec![1, 2, -libc::EINTR, 511].into();
                read_all(&mut ring, 8..24);
                assert!(ring.kernel.refusals.is_empty() && ring.completions.is_empty());
            }
        }
    }
}

#[test]
fn errnos_map_to_reactions() {
    let of = |errno| Refusal::of(&io::Error::from_raw_os_error(errno));
    assert_eq!(of(libc::EINTR), Refusal::Again);
    assert_eq!([of(libc::EBUSY), of(libc::EAGAIN)], [Refusal::Later; 2]);
    assert_eq!([of(libc::EBADF), of(libc::EINVAL), of(libc::ENXIO)], [Refusal::Fatal; 3]);
}
