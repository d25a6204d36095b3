//! Moving contents: batches of small files in one write, parts of large files.

use super::super::host_dirs::{HostDirRef, OPEN};
use super::super::host_source::read_at;
use super::super::tree::parts;
use super::super::{BUFFER, PART, Result, Trouble};
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

/// The most that goes out in one write: what was read not long ago is in a processor's cache still.
const BATCH: usize = 256 << 10;

/// Something to move.
pub(super) enum Job {
    Batch(Batch),
    /// Blocks of the volume itself, rendered for a directory.
    Rendered(Arc<HostDirRef>, Vec<(u64, Vec<u8>)>),
    Part(Arc<Large>, Range<u64>),
}

impl Job {
    /// Whether nothing is to be read first.
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

/// A part of a batch: files that were read, or one that is still to be read. Whole blocks.
enum Segment {
    Read(Arc<Buffer>, Range<usize>),
    File(Piece),
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
struct Piece {
    name: Name,
    size: usize,
}

/// Small files that lie one after the other.
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

    /// Whether a file of `size` bytes with these ranges of data is for a batch.
    pub(super) fn takes(&self, size: u64, data: &[Range<u64>]) -> bool {
        size <= SMALL && matches!(data, [all] if *all == (0..size))
    }

    /// Makes the batch one that goes on with `run`; returns the one before if it does not.
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

    /// Adds a file that will be read.
    pub(super) fn add(&mut self, name: Name, size: u64) {
        let piece = Piece { name, size: to_usize(size) };
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

    /// The batch so far, if there is anything in it.
    pub(super) fn take(&mut self) -> Option<Job> {
        let batch = std::mem::take(&mut self.batch);
        (batch.len > 0).then_some(Job::Batch(batch))
    }
}

/// A file that is moved in parts.
pub(super) struct Large {
    name: Name,
    size: u64,
    runs: Vec<FillRun>,
    /// One line is enough. Relaxed: nothing else depends on it.
    told: AtomicBool,
}

impl Large {
    /// The parts of a file that lies in `runs`.
    pub(super) fn jobs(
        name: Name,
        size: u64,
        data: Vec<Range<u64>>,
        runs: Vec<FillRun>,
    ) -> impl Iterator<Item = Job> {
        let file = Arc::new(Self { name, size, runs, told: AtomicBool::new(false) });
        let all = data.into_iter().flat_map(|range| parts(range, PART));
        all.map(move |part| Job::Part(Arc::clone(&file), part))
    }
}

impl Works<'_> {
    /// Does a move; `buf` is the thread's own, made when it is first needed.
    pub(super) fn move_one(&self, job: &Job, buf: &mut Vec<u8>) {
        if !job.only_writes() {
            buf.resize(BUFFER, 0);
        }
        match job {
            // However it ends, the volume is to be whole.
            Job::Rendered(dir, blocks) => self.rendered(dir, blocks),
            _ if self.report.stopped() => {}
            Job::Batch(batch) => self.batch(batch, buf),
            Job::Part(file, part) => self.part(file, part.clone(), buf),
        }
    }

    /// Reads the files of a batch that were not, and writes all. What cannot be read is zeros: it
    /// has its place.
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
        if let Err(error) = self.alone(|| self.bytes.write_blocks(batch.device, &parts)) {
            // Nothing that comes after it makes sense.
            let trouble = Trouble::fatal(error.to_string());
            let first = batch.first.as_ref().map(Name::path).unwrap_or_default();
            self.fail(&first, &trouble);
        }
    }

    fn rendered(&self, dir: &HostDirRef, blocks: &[(u64, Vec<u8>)]) {
        let write = |(device, bytes): &(u64, Vec<u8>)| self.bytes.write_blocks(*device, &[bytes]);
        if let Err(error) = self.alone(|| blocks.iter().try_for_each(write)) {
            self.fail(&dir.path(), &Trouble::fatal(error.to_string()));
        }
    }

    /// Writes; if that is better done one at a time, without another who writes.
    fn alone<R>(&self, write: impl FnOnce() -> R) -> R {
        let _guard = self.writing.as_ref().map(|lock| lock.lock());
        write()
    }

    fn small(&self, piece: &Piece, slot: &mut [u8]) {
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
                && !file.told.swap(true, Ordering::Relaxed)
            {
                self.fail(&file.name.path(), &trouble.mild());
            }
            let write = || self.bytes.write(&file.runs, file.size, at, piece);
            if let Err(error) = self.alone(write) {
                self.fail(&file.name.path(), &Trouble::fatal(error.to_string()));
                return;
            }
            self.report.bytes(to_u64(want));
            at += to_u64(want);
        }
    }
}
