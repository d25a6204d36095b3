//! Lists a directory of the host: names, attributes, and the contents of small files.
//!
//! | purpose | how the attributes of a file are read |
//! |---|---|
//! | to copy it | it is opened once, by its name in the open directory, and its attributes are read from the descriptor; by name if it cannot be opened |
//! | to measure it | by name, if all may read it, so that it need not be opened; else as above |
//! | to copy it after it was measured | from the listing that was kept, see [`kept`](super::kept) |

use super::super::host_dirs::{Held, HostDirRef, OPEN};
use super::super::host_source::{At, HostSource, attributes, data, list, read_at};
use super::super::host_sys;
use super::super::{EntryError, Kind, Meta, Result};
use super::contents::SMALL;
use super::kept::{KeptEntry, KeptListing, Packer};
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
    /// The same for a later copy, if no contents are read and there was no error.
    pub(super) kept: Option<KeptListing>,
}

/// Permission to read for all users.
const READABLE: u32 = 0o444;
/// The attribute that may refuse what the permission bits allow.
const LIST: &[u8] = b"system.posix_acl_access";

/// Lists directories.
#[derive(Clone, Copy)]
pub(super) struct Lister<'a> {
    pub(super) source: &'a HostSource,
    /// Buffers for small files; without it no contents are read, and listings are kept.
    pub(super) pool: Option<&'a Arc<Pool>>,
    pub(super) block_size: usize,
}

/// Where names are looked up.
struct Place<'a> {
    dir: BorrowedFd<'a>,
    /// It is the thread's working directory.
    is_here: bool,
}

impl Found {
    /// Adds it to `packer`; none after an error.
    fn pack(&self, mut packer: Packer, name: &[u8]) -> Option<Packer> {
        let (Ok(meta), None) = (&self.meta, &self.denied) else { return None };
        let holes = match self.holes.as_deref() {
            Some(Err(_)) => return None,
            Some(Ok(holes)) => Some(&holes[..]),
            None => None,
        };
        packer.add(name, meta, holes);
        Some(packer)
    }
}

/// The buffers of one listing; the last one is being filled.
struct Reading<'a> {
    lister: Lister<'a>,
    full: Vec<Arc<Buffer>>,
    last: Option<(Buffer, usize)>,
}

impl Lister<'_> {
    /// The entries of `dir` by name; `kept` are those that it had before.
    pub(super) fn list(
        &self,
        dir: &Arc<HostDirRef>,
        kept: Option<&KeptListing>,
    ) -> Result<Listing> {
        let held = dir.held()?;
        if let Some(kept) = kept
            && kept.is_of(&fstat(&*held)?)
        {
            return Ok(self.list_again(&held, kept));
        }
        let mut packer = match self.pool {
            None => Packer::new(&fstat(&*held)?),
            Some(_) => None,
        };
        let mut names: Vec<(Vec<u8>, FileType)> = Vec::new();
        list(dir, |name, kind| names.push((name.to_vec(), kind)))?;
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        // A directory that changes while it is read may return a name twice.
        names.dedup_by(|a, b| a.0 == b.0);
        let is_here = self.pool.is_none() && host_sys::work_in(held.as_fd());
        let place = Place { dir: held.as_fd(), is_here };
        let mut reading = Reading { lister: *self, full: Vec::new(), last: None };
        let mut found = Vec::with_capacity(names.len());
        for (name, kind) in &names {
            let entry = self.look(&place, OsStr::from_bytes(name), *kind, &mut reading);
            packer = packer.and_then(|packer| entry.pack(packer, name));
            found.push(entry);
        }
        let names = names.into_iter().map(|(name, _)| name).collect();
        let kept = packer.map(Packer::finish);
        Ok(Listing { names, found, buffers: reading.finish(), kept })
    }

    /// The entries of `dir` from `kept`, and the contents of small files.
    fn list_again(&self, dir: &Held, kept: &KeptListing) -> Listing {
        let place = Place { dir: dir.as_fd(), is_here: false };
        let mut reading = Reading { lister: *self, full: Vec::new(), last: None };
        let mut names = Vec::with_capacity(kept.len());
        let mut found = Vec::with_capacity(kept.len());
        for KeptEntry { name, meta, holes } in kept.entries() {
            let shown = OsStr::from_bytes(&name);
            let is_read = meta.kind == Kind::File && meta.links == 1 && holes.is_none();
            let file = (is_read && reading.make_room(meta.size))
                .then(|| openat(place.dir, shown, OPEN, Mode::empty()));
            let holes = holes.map(|holes| Box::new(Ok(holes)));
            found.push(match file {
                Some(Err(_)) => self.look(&place, shown, FileType::RegularFile, &mut reading),
                file => {
                    let file = file.and_then(|file| file.ok());
                    let early = file.and_then(|file| reading.read(file, meta.size));
                    Found { meta: Ok(meta), denied: None, holes, early }
                }
            });
            names.push(name);
        }
        Listing { names, found, buffers: reading.finish(), kept: None }
    }

    /// The attributes of a file to measure, read by its name in the working directory. None if it
    /// must be opened: it has holes, or this process may not be able to read it.
    fn look_by_name(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Option<Found> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_mode & READABLE != READABLE {
            return None;
        }
        let meta = attributes(self.source, At::Path(name, false), &stat).ok()?;
        let has_list = meta.xattrs.iter().any(|(name, _)| name == LIST);
        let found = Found { meta: Ok(meta), denied: None, holes: None, early: None };
        let has_holes = found.meta.as_ref().is_ok_and(|meta| meta.allocated < meta.size);
        (!has_list && !has_holes).then_some(found)
    }

    fn look(
        &self,
        place: &Place<'_>,
        name: &OsStr,
        kind: FileType,
        reading: &mut Reading<'_>,
    ) -> Found {
        let dir = place.dir;
        if place.is_here
            && kind == FileType::RegularFile
            && let Some(found) = self.look_by_name(dir, name)
        {
            return found;
        }
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
                let at = if place.is_here { At::Path(name, false) } else { At::Name(dir, name) };
                stat.and_then(|stat| attributes(self.source, at, &stat))
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
    /// Whether a file of `size` bytes is small and there is a buffer for it.
    fn make_room(&mut self, size: u64) -> bool {
        if !(1..=SMALL).contains(&size) {
            return false;
        }
        let len = to_usize(size).next_multiple_of(self.lister.block_size);
        if self.last.as_ref().is_none_or(|(buffer, used)| used + len > buffer.len()) {
            let Some(new) = self.lister.pool.and_then(Pool::take) else { return false };
            let old = self.last.replace((new, 0));
            self.full.extend(old.map(|(buffer, _)| Arc::new(buffer)));
        }
        true
    }

    /// Reads a small file if there is a buffer. A file that fails is read again later.
    fn read(&mut self, file: impl AsFd, size: u64) -> Option<Early> {
        if !self.make_room(size) {
            return None;
        }
        let (size, len) = (to_usize(size), to_usize(size).next_multiple_of(self.lister.block_size));
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

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_num::to_u64;
    use std::fs;
    use std::path::Path;

    const BLOCK: usize = 4096;

    /// Small files, one that is too large to be read early, one with several names, one with a
    /// hole, a link and a directory.
    fn tree(at: &Path) {
        fs::create_dir(at.join("dir")).unwrap();
        fs::write(at.join("empty"), "").unwrap();
        fs::write(at.join("large"), vec![1; to_usize(SMALL) + 1]).unwrap();
        fs::write(at.join("named"), "two names").unwrap();
        fs::hard_link(at.join("named"), at.join("other name")).unwrap();
        fs::write(at.join("small"), [7; 5000]).unwrap();
        fs::File::create(at.join("sparse")).unwrap().set_len(1 << 20).unwrap();
        std::os::unix::fs::symlink("small", at.join("link")).unwrap();
    }

    /// What a copy uses of an entry. The time of the last access changes meanwhile.
    fn shown(found: &Found, listing: &Listing) -> String {
        let mut meta = found.meta.clone().unwrap();
        meta.atime = meta.mtime;
        let holes = found.holes.as_ref().map(|holes| holes.as_ref().as_ref().unwrap());
        let bytes = found.early.map(|early| {
            let (buffer, range) = early.place(&listing.buffers);
            buffer[range].to_vec()
        });
        format!("{meta:?} {holes:?} {bytes:?} {}", found.denied.is_some())
    }

    #[test]
    fn a_kept_listing_is_used_while_the_directory_is_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        tree(scratch.path());
        let (source, pool) = (HostSource::new(true, Vec::new()), Pool::new());
        let lister = Lister { source: &source, pool: Some(&pool), block_size: BLOCK };
        let dir = HostDirRef::top(scratch.path());
        let fresh = lister.list(&dir, None).unwrap();
        assert!(fresh.kept.is_none(), "contents are copied, not measured");
        let stat = fstat(&*dir.held().unwrap()).unwrap();
        let mut packer = Packer::unchecked(&stat);
        for (name, found) in fresh.names.iter().zip(&fresh.found) {
            packer = found.pack(packer, name).unwrap();
        }
        let kept = packer.finish();
        let again = lister.list(&dir, Some(&kept)).unwrap();
        assert_eq!(again.names, fresh.names);
        for (one, other) in fresh.found.iter().zip(&again.found) {
            assert_eq!(shown(one, &fresh), shown(other, &again));
        }
        let small = fresh.names.iter().position(|name| name == b"small").unwrap();
        assert!(again.found[small].early.is_some(), "it was read");

        // Without entries, so that it shows whether it is used.
        let empty = Packer::unchecked(&stat).finish();
        assert_eq!(lister.list(&dir, Some(&empty)).unwrap().names.len(), 0);
        let mut changed = stat;
        changed.st_ctime -= 1;
        let old = Packer::unchecked(&changed).finish();
        assert_eq!(lister.list(&dir, Some(&old)).unwrap().names, fresh.names);
    }

    /// By name and by descriptor, the attributes are the same.
    #[test]
    fn measuring_finds_what_copying_finds() {
        let scratch = tempfile::tempdir().unwrap();
        tree(scratch.path());
        let secret = scratch.path().join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let source = HostSource::new(true, Vec::new());
        let lister = Lister { source: &source, pool: None, block_size: BLOCK };
        let list = |own: bool| {
            if own {
                host_sys::own_directory();
            }
            lister.list(&HostDirRef::top(scratch.path()), None).unwrap()
        };
        let opened = list(false);
        let by_name = nextent_sync::thread::scope(|scope| scope.spawn(|| list(true)).join());
        let by_name = by_name.expect("it has no reason to panic");
        assert_eq!(opened.names, by_name.names);
        assert_eq!(to_u64(opened.found.len()), 9);
        for (one, other) in opened.found.iter().zip(&by_name.found) {
            assert_eq!(shown(one, &opened), shown(other, &by_name));
        }
        assert!(opened.kept.is_none(), "its directory changed just now");
    }
}
