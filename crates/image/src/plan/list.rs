//! Lists a directory of the host: names, attributes, and the contents of small files.
//!
//! A file is opened once, by its name in the open directory, and its attributes are read from the
//! descriptor. So the host looks up each name once. A file that cannot be opened is read by name.

use super::super::host_dirs::{HostDirRef, OPEN};
use super::super::host_source::{At, HostSource, attributes, data, list, read_at};
use super::super::{EntryError, Kind, Meta, Result};
use super::contents::SMALL;
use super::pool::{Buffer, Pool};
use nextent_num::{must_fit, to_usize};
use nextent_sync::Arc;
use rustix::fs::{AtFlags, FileType, Mode, fstat, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

/// Contents that were read, padded with zeros to whole blocks.
#[derive(Clone, Copy)]
pub(super) struct Early {
    /// The number of the buffer, and the range in it.
    buffer: u32,
    start: u32,
    end: u32,
}

impl Early {
    /// The buffer and the range in it.
    pub(super) fn place(self, buffers: &[Arc<Buffer>]) -> (&Arc<Buffer>, Range<usize>) {
        (&buffers[to_usize(self.buffer)], to_usize(self.start)..to_usize(self.end))
    }
}

/// The data ranges of a file with holes.
pub(super) type Holes = Box<Result<Vec<Range<u64>>>>;

/// A directory entry and its attributes. Small, since it is passed between threads.
pub(super) struct Found {
    pub(super) meta: Result<Meta>,
    /// Why a file cannot be opened for reading, if the system does not allow it.
    pub(super) denied: Option<Box<EntryError>>,
    /// None for a file without holes.
    pub(super) holes: Option<Holes>,
    pub(super) early: Option<Early>,
}

/// A directory.
pub(super) struct Listing {
    pub(super) names: Vec<Vec<u8>>,
    /// In order of names.
    pub(super) found: Vec<Found>,
    pub(super) buffers: Vec<Arc<Buffer>>,
}

/// Lists directories.
#[derive(Clone, Copy)]
pub(super) struct Lister<'a> {
    pub(super) source: &'a HostSource,
    /// Buffers for small files; without it no contents are read.
    pub(super) pool: Option<&'a Arc<Pool>>,
    pub(super) block_size: usize,
}

/// The buffers of one listing; the last one is being filled.
struct Reading<'a> {
    lister: Lister<'a>,
    full: Vec<Arc<Buffer>>,
    last: Option<(Buffer, usize)>,
}

impl Lister<'_> {
    /// The entries of `dir` by name.
    pub(super) fn list(&self, dir: &Arc<HostDirRef>) -> Result<Listing> {
        let mut names: Vec<(Vec<u8>, FileType)> = Vec::new();
        list(dir, |name, kind| names.push((name.to_vec(), kind)))?;
        let held = dir.held()?;
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        // A directory that changes while it is read may return a name twice.
        names.dedup_by(|a, b| a.0 == b.0);
        let mut reading = Reading { lister: *self, full: Vec::new(), last: None };
        let mut found = Vec::with_capacity(names.len());
        for (name, kind) in &names {
            found.push(self.look(held.as_fd(), OsStr::from_bytes(name), *kind, &mut reading));
        }
        let names = names.into_iter().map(|(name, _)| name).collect();
        Ok(Listing { names, found, buffers: reading.finish() })
    }

    fn look(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        kind: FileType,
        reading: &mut Reading<'_>,
    ) -> Found {
        // Opening a pipe or a device has side effects.
        let file =
            matches!(kind, FileType::RegularFile).then(|| openat(dir, name, OPEN, Mode::empty()));
        let (file, denied) = match file {
            Some(Err(error @ (Errno::ACCESS | Errno::PERM))) => {
                (None, Some(Box::new(EntryError::from(error))))
            }
            file => (file.and_then(|file| file.ok()), None),
        };
        let meta = match &file {
            Some(file) => {
                let stat = fstat(file).map_err(EntryError::from);
                stat.and_then(|stat| attributes(self.source, At::File(file.as_fd()), &stat))
            }
            None => {
                let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(EntryError::from);
                stat.and_then(|stat| attributes(self.source, At::Name(dir, name), &stat))
            }
        };
        let mut found = Found { meta, denied, holes: None, early: None };
        match (&found.meta, &file) {
            (Ok(meta), _) if meta.kind != Kind::File || meta.size == 0 => {}
            (Ok(meta), file) if meta.allocated < meta.size => {
                let holes = match file {
                    Some(file) => data(file, meta),
                    None => {
                        let open = openat(dir, name, OPEN, Mode::empty()).map_err(EntryError::from);
                        open.and_then(|file| data(&file, meta))
                    }
                };
                found.holes = Some(Box::new(holes));
            }
            (Ok(meta), Some(file)) if meta.links == 1 => {
                found.early = reading.read(file, meta.size);
            }
            _ => {}
        }
        found
    }
}

impl Reading<'_> {
    /// Reads a small file if there is a buffer. A file that fails is read again later.
    fn read(&mut self, file: impl AsFd, size: u64) -> Option<Early> {
        if size > SMALL {
            return None;
        }
        let (size, len) = (to_usize(size), to_usize(size).next_multiple_of(self.lister.block_size));
        if self.last.as_ref().is_none_or(|(buffer, used)| used + len > buffer.len()) {
            let new = self.lister.pool?.take()?;
            let old = self.last.replace((new, 0));
            self.full.extend(old.map(|(buffer, _)| Arc::new(buffer)));
        }
        let (buffer, used) = self.last.as_mut()?;
        let slot = buffer.bytes.get_mut(*used..*used + len)?;
        let got = read_at(file, 0, &mut slot[..size]).ok()?;
        slot[got..].fill(0);
        let (start, end) = (*used, *used + len);
        *used = end;
        Some(Early {
            buffer: must_fit(self.full.len()),
            start: must_fit(start),
            end: must_fit(end),
        })
    }

    fn finish(self) -> Vec<Arc<Buffer>> {
        let mut all = self.full;
        all.extend(self.last.map(|(buffer, _)| Arc::new(buffer)));
        all
    }
}
