//! Copies contents: batches of small files in one write, and parts of large files.

use super::super::host_dirs::{HostDirRef, OPEN};
use super::super::host_source::read_at;
use super::super::tree::parts;
use super::super::{BUFFER, EntryError, PART, Result};
use super::Works;
use super::pool::Buffer;
use nextent::inodes::FillRun;
use nextent_num::{to_u64, to_usize};
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicBool, Ordering};
use rustix::fs::{Mode, openat};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The largest file that goes into a batch.
pub(super) const SMALL: u64 = 128 << 10;

/// The most bytes of one write, so that recently read data is still in the processor's cache.
const BATCH: usize = 256 << 10;

/// Contents to copy.
pub(super) enum Job {
    Batch(Batch),
    /// Metadata blocks, rendered for a directory.
    Rendered(Arc<HostDirRef>, Vec<(u64, Vec<u8>)>),
    Part(Arc<Large>, Range<u64>),
}

impl Job {
    /// Whether the job only writes.
    pub(super) fn only_writes(&self) -> bool {
        match self {
            Self::Batch(batch) => {
                batch.segments.iter().all(|segment| matches!(segment, Segment::Read(..)))
            }
            Self::Rendered(..) => true,
            Self::Part(..) => false,
        }
    }
}

/// A part of a batch, in whole blocks: files that were read, or a file to read.
enum Segment {
    Read(Arc<Buffer>, Range<usize>),
    File(BatchPiece),
}

/// A file of the host.
pub(super) struct Name {
    dir: Arc<HostDirRef>,
    name: Box<[u8]>,
}

impl Name {
    /// `name` in `dir`.
    pub(super) fn new(dir: &Arc<HostDirRef>, name: &[u8]) -> Self {
        Self { dir: Arc::clone(dir), name: name.into() }
    }

    /// Its path, for messages.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(OsStr::from_bytes(&self.name))
    }

    fn open(&self) -> Result<OwnedFd> {
        let name = OsStr::from_bytes(&self.name);
        Ok(openat(&*self.dir.held()?, name, OPEN, Mode::empty())?)
    }
}

/// A file of a batch.
struct BatchPiece {
    name: Name,
    size: usize,
}

/// Small files with consecutive blocks.
#[derive(Default)]
pub(super) struct Batch {
    device: u64,
    /// The first file, for messages.
    first: Option<Name>,
    len: usize,
    segments: Vec<Segment>,
}

/// Gathers batches.
pub(super) struct Batcher {
    block_size: u64,
    batch: Batch,
}

impl Batcher {
    pub(super) fn new(block_size: u32) -> Self {
        Self { block_size: u64::from(block_size), batch: Batch::default() }
    }

    /// Whether a file of `size` bytes with these data ranges fits a batch.
    pub(super) fn takes(&self, size: u64, data: &[Range<u64>]) -> bool {
        size <= SMALL && matches!(data, [all] if *all == (0..size))
    }

    /// Prepares the batch for a file at `run`; returns the old batch if the file does not follow
    /// it.
    pub(super) fn make_room(
        &mut self,
        run: FillRun,
        dir: &Arc<HostDirRef>,
        name: &[u8],
    ) -> Option<Job> {
        let batch = &self.batch;
        let goes_on = batch.device + to_u64(batch.len) == run.device
            && batch.len + to_usize(run.len) <= BATCH;
        let full = if goes_on { None } else { self.take() };
        if self.batch.len == 0 {
            (self.batch.device, self.batch.first) = (run.device, Some(Name::new(dir, name)));
        }
        full
    }

    /// Adds a file to read.
    pub(super) fn add(&mut self, name: Name, size: u64) {
        let piece = BatchPiece { name, size: to_usize(size) };
        self.batch.len += to_usize(size.next_multiple_of(self.block_size));
        self.batch.segments.push(Segment::File(piece));
    }

    /// Adds a file that was read.
    pub(super) fn add_read(&mut self, buffer: &Arc<Buffer>, range: Range<usize>) {
        self.batch.len += range.len();
        match self.batch.segments.last_mut() {
            Some(Segment::Read(last, before))
                if Arc::ptr_eq(last, buffer) && before.end == range.start =>
            {
                before.end = range.end;
            }
            _ => self.batch.segments.push(Segment::Read(Arc::clone(buffer), range)),
        }
    }

    /// The batch so far, unless it is empty.
    pub(super) fn take(&mut self) -> Option<Job> {
        let batch = std::mem::take(&mut self.batch);
        (batch.len > 0).then_some(Job::Batch(batch))
    }
}

/// A file that is copied in parts.
pub(super) struct Large {
    name: Name,
    size: u64,
    runs: Vec<FillRun>,
    /// Whether an error was printed: one line per file is enough. Relaxed: it orders nothing.
    reported: AtomicBool,
}

impl Large {
    /// The parts of a file with the blocks `runs`.
    pub(super) fn jobs(
        name: Name,
        size: u64,
        data: Vec<Range<u64>>,
        runs: Vec<FillRun>,
    ) -> impl Iterator<Item = Job> {
        let file = Arc::new(Self { name, size, runs, reported: AtomicBool::new(false) });
        let all = data.into_iter().flat_map(|range| parts(range, PART));
        all.map(move |part| Job::Part(Arc::clone(&file), part))
    }
}

impl Works<'_> {
    /// Does a job; `buf` is the thread's buffer, allocated at its first use.
    pub(super) fn move_one(&self, job: &Job, buf: &mut Vec<u8>) {
        if !job.only_writes() {
            buf.resize(BUFFER, 0);
        }
        match job {
            // Metadata is written also after an error, so that the volume is consistent.
            Job::Rendered(dir, blocks) => self.rendered(dir, blocks),
            _ if self.report.stopped() => {}
            Job::Batch(batch) => self.batch(batch, buf),
            Job::Part(file, part) => self.part(file, part.clone(), buf),
        }
    }

    /// Reads the remaining files of a batch and writes the batch. A file that cannot be read
    /// becomes zeros, since its blocks are allocated.
    fn batch(&self, batch: &Batch, buf: &mut [u8]) {
        let block_size = to_usize(self.bytes.block_size());
        let mut rest = buf;
        let mut parts: Vec<&[u8]> = Vec::with_capacity(batch.segments.len());
        for segment in &batch.segments {
            let piece = match segment {
                Segment::Read(buffer, range) => {
                    parts.push(&buffer[range.clone()]);
                    continue;
                }
                Segment::File(piece) => piece,
            };
            let (slot, after) = rest.split_at_mut(piece.size.next_multiple_of(block_size));
            rest = after;
            self.small(piece, slot);
            parts.push(slot);
        }
        if let Err(error) = self.exclusively(|| self.bytes.write_blocks(batch.device, &parts)) {
            // A failed write ends the copy.
            let trouble = EntryError::fatal(error.to_string());
            let first = batch.first.as_ref().map(Name::path).unwrap_or_default();
            self.fail(&first, &trouble);
        }
    }

    fn rendered(&self, dir: &HostDirRef, blocks: &[(u64, Vec<u8>)]) {
        let write = |(device, bytes): &(u64, Vec<u8>)| self.bytes.write_blocks(*device, &[bytes]);
        if let Err(error) = self.exclusively(|| blocks.iter().try_for_each(write)) {
            self.fail(&dir.path(), &EntryError::fatal(error.to_string()));
        }
    }

    /// Runs `write`, one thread at a time if the host allows no more.
    fn exclusively<R>(&self, write: impl FnOnce() -> R) -> R {
        let _guard = self.writing.as_ref().map(|lock| lock.lock());
        write()
    }

    fn small(&self, piece: &BatchPiece, slot: &mut [u8]) {
        let file = piece.name.open();
        let got = file.and_then(|file| read_at(file, 0, &mut slot[..piece.size]));
        slot[*got.as_ref().unwrap_or(&0)..].fill(0);
        if let Err(trouble) = got {
            self.fail(&piece.name.path(), &trouble.mild());
        }
    }

    fn part(&self, file: &Large, part: Range<u64>, buf: &mut [u8]) {
        let from = file.name.open();
        let mut at = part.start;
        while at < part.end && !self.report.stopped() {
            let want = to_usize((part.end - at).min(to_u64(buf.len())));
            let piece = &mut buf[..want];
            let got = from.as_ref().map_err(Clone::clone);
            let got = got.and_then(|from| read_at(from, at, piece));
            piece[*got.as_ref().unwrap_or(&0)..].fill(0);
            if let Err(trouble) = got
                && !file.reported.swap(true, Ordering::Relaxed)
            {
                self.fail(&file.name.path(), &trouble.mild());
            }
            let write = || self.bytes.write(&file.runs, file.size, at, piece);
            if let Err(error) = self.exclusively(write) {
                self.fail(&file.name.path(), &EntryError::fatal(error.to_string()));
                return;
            }
            self.report.bytes(to_u64(want));
            at += to_u64(want);
        }
    }
}
