//! Unpacks a tar stream: ustar, GNU and pax, and all kinds of sparse files that GNU tar writes.
//!
//! The calling thread reads the stream and makes the names in its order; workers write contents.
//! Names are split into components here and never passed to a host: `..` is refused, and a leading
//! slash is dropped.

use super::entry::{Kind, Meta};
use super::image_sink::ImageDir;
use super::packed::Unpacked;
use super::queue::Queue;
use super::tar_header::{SPARSE_BLOCK, SparseMap, check, not_packed, path_of, size_of, text};
use super::tar_number::{does_not_fit, header_number};
use super::tar_path::{after_dots, clean, leads_out, split};
use super::tarball::{BLOCK, Extended, map, number, padding, records};
use super::tree::parts;
use super::{Adjust, BUFFER, EntryError, FileId, PART, Report, Result, Sink};
use nextent::inodes::{Attr, InodeNo};
use nextent::{DeviceNo, DiskTime, FileType};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{Arc, thread};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::ops::Range;
use tar::{EntryType, Header};

/// The most pieces of contents that wait for a worker, which bounds memory to as many buffers.
const WAITING: usize = 48;
/// The longest extended header, as a guard against hostile streams.
const EXTENDED_MAX: u64 = 16 << 20;
/// The most bytes of cached paths.
const KNOWN_MAX: usize = 16 << 20;
/// The longest prefix of a path that is cached.
const PREFIX_MAX: usize = 4096;
/// The longest part of a directory's path that is kept for messages.
const SHOWN_MAX: usize = 256;
/// The most pieces of one sparse file.
const MAP_MAX: usize = 1 << 22;

/// A sink that can look up and remove names: a stream may have a name twice.
pub trait Extractable: Sink<Node = InodeNo, Dir = ImageDir> {
    /// The file `name` in `parent`, if there is one.
    fn find(&self, parent: &Self::Dir, name: &[u8]) -> Result<Option<Attr>>;

    /// The directory that the path `target` leads to from `parent`, through links.
    fn follow(&self, parent: &Self::Dir, target: &[u8]) -> Result<Self::Dir>;

    /// Removes a name, that of a directory only if it is empty, and makes its blocks reusable.
    fn remove(&self, parent: &Self::Dir, name: &[u8], kind: FileType) -> Result<()>;

    /// Removes inherited access lists from a directory that was made with `mode`, as GNU tar does
    /// for directories without an entry.
    fn without_lists(&self, dir: &Self::Dir, mode: u16) -> Result<()>;

    /// Sets the attributes, except times, of a directory without an entry.
    fn set_implied(&self, dir: &Self::Dir, meta: &Meta) -> Result<()>;

    /// The target of the symbolic link `node`.
    fn target(&self, node: InodeNo) -> Result<Vec<u8>>;
}

/// The parameters of [`unpack`].
pub struct Unpacking<'a, T: Extractable> {
    /// What is written.
    pub sink: &'a T,
    /// Receives failures of entries.
    pub report: &'a Report<'a>,
    /// Threads that write contents.
    pub workers: usize,
    /// The mode of parent directories without an entry.
    pub implied: u16,
    /// Changes the attributes of entries before use.
    pub adjust: &'a dyn Adjust,
}

struct File<T: Sink> {
    to: T::File,
    meta: Meta,
    path: Vec<u8>,
    /// Pieces that are not written, and the reader. Release and acquire: the last sees the effects
    /// of all.
    pending: AtomicUsize,
    /// An error was reported. Relaxed.
    failed: AtomicBool,
}

struct UnpackPiece<T: Sink> {
    file: Arc<File<T>>,
    offset: u64,
    bytes: Vec<u8>,
}

/// One entry with all its headers.
struct TarEntry {
    path: Vec<u8>,
    /// Its attributes, or why an inode cannot hold them.
    meta: Result<Meta>,
    /// Attributes that cannot be kept.
    lost: Vec<EntryError>,
    link: Option<Vec<u8>>,
    /// Bytes in the stream.
    stored: u64,
    sparse: Option<Vec<Range<u64>>>,
}

/// The attributes of a directory, to be set at the end.
struct Due {
    /// The number of its entry among those of directories.
    order: usize,
    /// The path of its last entry, for messages.
    shown: String,
    meta: Meta,
}

struct Reader<'a, T: Extractable> {
    unpacking: &'a Unpacking<'a, T>,
    queue: &'a Queue<UnpackPiece<T>>,
    input: &'a mut dyn Read,
    global: Extended,
    /// A cache of paths, also through links; emptied when a directory or a link is removed.
    dirs: HashMap<Vec<u8>, ImageDir>,
    /// Bytes of the paths in `dirs`.
    known: usize,
    /// Directories whose attributes are set at the end. By inode, since a directory may have
    /// several paths through links.
    due: HashMap<InodeNo, Due>,
    /// The number of directory entries so far.
    entries: usize,
    /// Symbolic links that lead out of the tree.
    outward: HashSet<InodeNo>,
    top: ImageDir,
}

/// Reads the stream `input`, which may be packed by gzip or zstd, into the directory `top`.
///
/// # Errors
/// The stream cannot be read or is damaged. Failures of single entries go to the report.
pub fn unpack<T: Extractable>(
    unpacking: &Unpacking<'_, T>,
    top: ImageDir,
    input: &mut dyn Read,
) -> Result<()> {
    let mut input = Unpacked::new(input)?;
    let queue = Queue::new();
    thread::scope(|scope| {
        for _ in 0..unpacking.workers.max(1) {
            scope.spawn(|| write_all(unpacking, &queue));
        }
        let _ending = queue.ending();
        let mut reader = Reader {
            unpacking,
            queue: &queue,
            input: &mut input,
            global: Extended::default(),
            dirs: HashMap::new(),
            known: 0,
            due: HashMap::new(),
            entries: 0,
            outward: HashSet::new(),
            top,
        };
        let done = reader.run();
        queue.drain();
        let root = reader.finish_root();
        reader.finish_dirs();
        done.and(root)
    })
}

fn write_all<T: Extractable>(unpacking: &Unpacking<'_, T>, queue: &Queue<UnpackPiece<T>>) {
    while let Some(UnpackPiece { file, offset, bytes }) = queue.oldest() {
        let _ending = queue.ending();
        if !unpacking.report.stopped() {
            let done = unpacking.sink.write(&file.to, offset, &bytes);
            report_result(unpacking, &file, done);
            unpacking.report.bytes(to_u64(bytes.len()));
        }
        finish(unpacking, &file);
    }
}

fn report_result<T: Extractable>(unpacking: &Unpacking<'_, T>, file: &File<T>, done: Result<()>) {
    if let Err(trouble) = done
        && !file.failed.swap(true, Ordering::Relaxed)
    {
        unpacking.report.fail(&file.path.escape_ascii().to_string(), &trouble);
    }
}

/// A piece is written, or the reader has passed on all pieces.
fn finish<T: Extractable>(unpacking: &Unpacking<'_, T>, file: &File<T>) {
    if file.pending.fetch_sub(1, Ordering::AcqRel) == 1 && !unpacking.report.stopped() {
        let done = unpacking.sink.finish(&file.to, &file.meta);
        report_result(unpacking, file, done);
    }
}

impl<T: Extractable> Reader<'_, T> {
    fn run(&mut self) -> Result<()> {
        let mut first = true;
        while !self.unpacking.report.stopped() {
            let Some(mut entry) = self.next(&mut first)? else { break };
            self.unpacking.report.file();
            let (path, end) = (entry.path.clone(), padding(entry.stored));
            let mut left = entry.stored;
            let lost = std::mem::take(&mut entry.lost);
            let done = self.entry(entry, &mut left);
            // Skip the rest of the entry's contents.
            self.skip(left + to_u64(end))?;
            for trouble in done.err().into_iter().chain(lost) {
                self.unpacking.report.fail(&path.escape_ascii().to_string(), &trouble);
            }
        }
        Ok(())
    }

    fn finish_dirs(&mut self) {
        if self.unpacking.report.stopped() {
            return;
        }
        let mut due: Vec<_> = self.due.drain().collect();
        // A fixed order, so that equal streams make equal images.
        due.sort_by_key(|(_, due)| std::cmp::Reverse(due.order));
        for (ino, Due { shown, meta, .. }) in due {
            if let Err(trouble) = self.unpacking.sink.finish_dir(&ImageDir(ino), &meta) {
                self.unpacking.report.fail(&shown, &trouble);
            }
        }
    }

    /// Records the attributes that the directory `dir` gets at the end.
    fn later(&mut self, dir: ImageDir, path: &[u8], meta: Meta) {
        self.entries += 1;
        let shown = match path.get(path.len().saturating_sub(SHOWN_MAX)..) {
            Some(end) if end.len() < path.len() => format!("...{}", end.escape_ascii()),
            _ => path.escape_ascii().to_string(),
        };
        self.due.insert(dir.0, Due { order: self.entries, shown, meta });
    }

    /// Caches that `path` leads to `dir`. Empties a full cache first.
    fn remember(&mut self, path: &[u8], dir: ImageDir) {
        if self.known > KNOWN_MAX {
            self.forget();
        }
        self.known += path.len();
        self.dirs.insert(path.to_vec(), dir);
    }

    fn forget(&mut self) {
        self.dirs.clear();
        self.known = 0;
    }

    /// The next entry, with its extended headers; none at the end.
    fn next(&mut self, first: &mut bool) -> Result<Option<TarEntry>> {
        let mut more = self.global.clone();
        loop {
            let mut block = [0; BLOCK];
            let got = fill(self.input, &mut block)?;
            if std::mem::take(first) {
                if got == 0 {
                    return Err(EntryError::fatal("the tar stream is empty"));
                }
                not_packed(&block[..got])?;
            }
            if got == 0 || (got == BLOCK && block == [0; BLOCK]) {
                // Read the rest of the input, so that its writer does not get a broken pipe.
                std::io::copy(&mut self.input, &mut std::io::sink())?;
                return Ok(None);
            }
            if got < BLOCK {
                return Err(cut_short());
            }
            let header = Header::from_byte_slice(&block);
            check(header)?;
            match header.entry_type() {
                // Solaris has the type `X` for the same.
                kind if matches!(kind.as_byte(), b'x' | b'X') => {
                    let bytes = self.extension(header)?;
                    take_all(&mut more, &bytes)?;
                }
                EntryType::XGlobalHeader => {
                    let bytes = self.extension(header)?;
                    take_all(&mut self.global, &bytes)?;
                    take_all(&mut more, &bytes)?;
                }
                // The label of a volume.
                kind if kind.as_byte() == b'V' => {
                    let size = size_of(header)?;
                    self.skip(size + to_u64(padding(size)))?;
                }
                EntryType::GNULongName => more.long_path = Some(self.long(header)?),
                EntryType::GNULongLink => more.long_target = Some(self.long(header)?),
                _ => return self.finished(header, more).map(Some),
            }
        }
    }

    /// The contents of an extended header.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        let len = size_of(header)?;
        if len > EXTENDED_MAX {
            return Err(EntryError::fatal("an extended header is too long"));
        }
        let mut bytes = vec![0; to_usize(len)];
        self.exactly(&mut bytes)?;
        self.skip(to_u64(padding(len)))?;
        Ok(bytes)
    }

    fn long(&mut self, header: &Header) -> Result<Vec<u8>> {
        // It ends at the first zero byte, as in GNU tar.
        Ok(text(&self.extension(header)?).to_vec())
    }

    /// The entry of `header` and of the extended headers before it.
    fn finished(&mut self, header: &Header, mut more: Extended) -> Result<TarEntry> {
        let mut stored = match more.size {
            Some(size) => size,
            None => size_of(header)?,
        };
        let kind = header.entry_type();
        let has_data =
            matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse)
                || !matches!(kind.as_byte(), b'0'..=b'7' | 0);
        if !has_data {
            stored = 0;
        }
        let mut size = more.sparse.size.unwrap_or(stored);
        let mapped = if kind == EntryType::GNUSparse && header.as_gnu().is_some() {
            self.old_map(header).map(|(ranges, real)| {
                size = real;
                Some(ranges)
            })
        } else if more.sparse.map_first {
            let mut used = 0;
            let ranges = self.first_map(size, stored, &mut used);
            stored -= used;
            ranges.map(Some)
        } else if !more.sparse.numbers.is_empty() {
            map(&more.sparse.numbers, size).map(Some)
        } else {
            Ok(None)
        };
        // The length of the data is known, so a damaged map fails only this entry.
        let sparse = match mapped {
            Err(trouble) if trouble.fatal => return Err(trouble),
            Err(trouble) => {
                more.refused.get_or_insert(trouble);
                None
            }
            Ok(sparse) => sparse,
        };
        // As in GNU tar: a pax record wins, in any order.
        let name = more.sparse.name.take().or(more.path.take()).or(more.long_path.take());
        let path = name.unwrap_or_else(|| path_of(header));
        let target = more.target.take().or(more.long_target.take());
        let target = target.or_else(|| header.link_name_bytes().map(Into::into));
        let mut lost = std::mem::take(&mut more.lost);
        if !KNOWN.contains(&kind.as_byte()) {
            let shown = [kind.as_byte()].escape_ascii().to_string();
            lost.push(EntryError::note(format!("its type '{shown}' is unknown; made a file")));
        }
        let meta = meta(header, more, size, target.clone().unwrap_or_default(), &path);
        let link = (kind == EntryType::Link).then(|| target.unwrap_or_default());
        Ok(TarEntry { path, meta, lost, link, stored, sparse })
    }

    /// The map of the old GNU format, in the header and in further blocks.
    fn old_map(&mut self, header: &Header) -> Result<(Vec<Range<u64>>, u64)> {
        let mut pieces = SparseMap::new(header);
        while pieces.goes_on() {
            let mut block = [0; SPARSE_BLOCK];
            self.exactly(&mut block)?;
            pieces.add(&block)?;
        }
        let (numbers, size) = pieces.numbers()?;
        Ok((map(&numbers, size)?, size))
    }

    /// Reads the map before the data: in whole blocks, lines of numbers, the first their count.
    ///
    /// `used` counts the bytes that were read, also after an error.
    fn first_map(&mut self, size: u64, stored: u64, used: &mut u64) -> Result<Vec<Range<u64>>> {
        let bad = || EntryError::new("damaged map of a sparse file");
        let (mut text, mut lines) = (Vec::new(), 0usize);
        let mut want = None;
        loop {
            if want.is_some_and(|want| lines > want) {
                break;
            }
            if *used + to_u64(BLOCK) > stored || text.len() > to_usize(EXTENDED_MAX) * 4 {
                return Err(bad());
            }
            let mut block = [0; BLOCK];
            self.exactly(&mut block)?;
            *used += to_u64(BLOCK);
            lines += block.iter().filter(|byte| **byte == b'\n').count();
            text.extend_from_slice(&block);
            if want.is_none() {
                let Some(line) = text.iter().position(|byte| *byte == b'\n') else { continue };
                let count: usize = number(&text[..line]).ok_or_else(bad)?;
                want = Some(count.checked_mul(2).filter(|w| *w <= MAP_MAX).ok_or_else(bad)?);
            }
        }
        let numbers = text.split(|byte| *byte == b'\n').skip(1).take(want.unwrap_or(0));
        let numbers: Vec<u64> = numbers.map(number).collect::<Option<_>>().ok_or_else(bad)?;
        map(&numbers, size)
    }

    /// Makes one entry; `left` counts its bytes that are still in the stream.
    fn entry(&mut self, entry: TarEntry, left: &mut u64) -> Result<()> {
        let path = clean(&entry.path)?;
        let mut meta = entry.meta.clone()?;
        self.adjust(&path, &mut meta)?;
        let is_dir = meta.kind == Kind::Dir && entry.link.is_none();
        if is_dir && path.is_empty() {
            self.later(self.top, &path, meta);
            return Ok(());
        }
        let (above, name) = split(&path);
        if name.is_empty() {
            return Err(EntryError::new("an entry without a name"));
        }
        let sink = self.unpacking.sink;
        let mut dir = self.dir(above)?;
        if is_dir {
            self.make_room(&mut dir, &path, None, true)?;
            let made = match self.dirs.get(&path) {
                Some(made) => *made,
                None => sink.make_dir(&dir, name, &meta)?,
            };
            self.remember(&path, made);
            self.later(made, &path, meta);
            return Ok(());
        }
        if let Some(target) = &entry.link {
            let target = clean(after_dots(target))?;
            if target.is_empty() {
                return Err(EntryError::new("is a hard link to a directory; left out"));
            }
            let target = self.node(&target)?;
            return match self.make_room(&mut dir, &path, Some(target), false)? {
                Room::Same => Ok(()),
                Room::Free => sink.link(&target, &dir, name),
            };
        }
        let leads_out = matches!(&meta.kind, Kind::Symlink(target) if leads_out(target));
        if leads_out && self.is_outward(&dir, name)? {
            return Ok(());
        }
        self.make_room(&mut dir, &path, None, false)?;
        if meta.kind != Kind::File {
            let (node, done) = sink.special(&dir, name, &meta)?;
            if leads_out {
                self.outward.insert(node);
            }
            return done;
        }
        self.file(&dir, name, (entry, meta), left)
    }

    /// Whether `name` is a link out of the tree that this stream has made. GNU tar makes these at
    /// the end, and leaves out later ones of the same name.
    fn is_outward(&self, dir: &T::Dir, name: &[u8]) -> Result<bool> {
        let found =
            if self.outward.is_empty() { None } else { self.unpacking.sink.find(dir, name)? };
        Ok(found.is_some_and(|attr| self.outward.contains(&attr.ino)))
    }

    /// Removes an existing file at `path` in `dir`, unless it may stay: a directory for a
    /// directory, or the file itself for a link to it. As with GNU tar, only an empty directory is
    /// removed.
    ///
    /// A removed link may be part of the path of `dir`, which is then looked up again and made if
    /// necessary.
    ///
    /// A worker may still write the file that loses its name, so this first waits for all workers.
    fn make_room(
        &mut self,
        dir: &mut T::Dir,
        path: &[u8],
        link_to: Option<InodeNo>,
        for_dir: bool,
    ) -> Result<Room> {
        let (above, name) = split(path);
        let Some(old) = self.unpacking.sink.find(dir, name)? else { return Ok(Room::Free) };
        if link_to == Some(old.ino) || for_dir && old.kind == FileType::Directory {
            return Ok(Room::Same);
        }
        self.queue.drain();
        self.unpacking.sink.remove(dir, name, old.kind)?;
        match old.kind {
            FileType::Directory => {
                // Its inode number may be reused by a file that must not get these attributes.
                self.due.remove(&old.ino);
                self.forget();
            }
            // Cached paths may lead through it.
            FileType::Symlink => {
                self.outward.remove(&old.ino);
                self.forget();
                *dir = self.dir(above)?;
            }
            _ => {}
        }
        Ok(Room::Free)
    }

    /// Passes the contents of a file to the workers.
    fn file(
        &mut self,
        dir: &T::Dir,
        name: &[u8],
        (entry, meta): (TarEntry, Meta),
        left: &mut u64,
    ) -> Result<()> {
        let TarEntry { path, sparse, .. } = entry;
        let data = sparse.unwrap_or_else(|| meta.whole());
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        if bytes != *left {
            return Err(EntryError::new("its map and its length do not agree"));
        }
        let to = self.unpacking.sink.create(dir, name, &meta, &data)?.file;
        let (pending, failed) = (AtomicUsize::new(1), AtomicBool::new(false));
        let file = Arc::new(File { to, meta, path, pending, failed });
        let pieces = data.into_iter().flat_map(|range| parts(range, PART)).flat_map(|part| {
            let starts = (part.start..part.end).step_by(BUFFER);
            starts.map(move |start| start..(start + to_u64(BUFFER)).min(part.end))
        });
        for piece in pieces {
            let mut bytes = vec![0; to_usize(piece.end - piece.start)];
            if let Err(trouble) = self.exactly(&mut bytes) {
                *left = 0;
                return Err(trouble);
            }
            *left -= to_u64(bytes.len());
            file.pending.fetch_add(1, Ordering::Relaxed);
            let job = UnpackPiece { file: Arc::clone(&file), offset: piece.start, bytes };
            self.queue.push_within(job, WAITING);
        }
        finish(self.unpacking, &file);
        Ok(())
    }

    /// The directory at `path`, made with its parents if necessary. Links to directories are
    /// followed within the image.
    fn dir(&mut self, path: &[u8]) -> Result<T::Dir> {
        if let Some(dir) = self.dirs.get(path) {
            return Ok(*dir);
        }
        let mut at = 0;
        let mut dir = self.top;
        while at < path.len() {
            let end = path[at..].iter().position(|b| *b == b'/').map_or(path.len(), |n| at + n);
            // Caching all prefixes of a long path would take quadratic time.
            let short = end <= PREFIX_MAX;
            let known = short.then(|| self.dirs.get(&path[..end])).flatten();
            dir = match known {
                Some(dir) => *dir,
                None => {
                    let found = self.enter(&dir, (&path[..end], &path[at..end]))?;
                    if short || end == path.len() {
                        self.remember(&path[..end], found);
                    }
                    found
                }
            };
            at = end + 1;
        }
        Ok(dir)
    }

    /// The directory `name` in `dir`, made if it does not exist; `path` is its path.
    fn enter(&self, dir: &T::Dir, (path, name): (&[u8], &[u8])) -> Result<T::Dir> {
        let sink = self.unpacking.sink;
        let mut meta = Meta { mode: self.unpacking.implied, ..plain_dir() };
        match sink.find(dir, name)? {
            Some(old) if old.kind == FileType::Symlink => sink.follow(dir, &sink.target(old.ino)?),
            Some(_) => sink.make_dir(dir, name, &meta),
            None => {
                self.adjust(path, &mut meta)?;
                let made = sink.make_dir(dir, name, &meta)?;
                sink.without_lists(&made, meta.mode)?;
                if self.unpacking.adjust.is_active() {
                    sink.set_implied(&made, &meta)?;
                }
                Ok(made)
            }
        }
    }

    /// Changes the attributes of the entry at `path`.
    fn adjust(&self, path: &[u8], meta: &mut Meta) -> Result<()> {
        let adjust = self.unpacking.adjust;
        match path {
            b"" => adjust.adjust(b"/", meta),
            _ if adjust.needs_path() => adjust.adjust(&[b"/", path].concat(), meta),
            _ => adjust.adjust(b"", meta),
        }
    }

    /// Gives a new image's root, if the stream has no entry for it, the attributes of a directory
    /// without an entry.
    fn finish_root(&mut self) -> Result<()> {
        if !self.unpacking.adjust.is_active() || self.due.contains_key(&self.top.0) {
            return Ok(());
        }
        let mut meta = Meta { mode: self.unpacking.implied, ..plain_dir() };
        self.adjust(b"", &mut meta)?;
        self.unpacking.sink.set_implied(&self.top, &meta)
    }

    /// The file at `path`, from an earlier entry. Unlike [`dir`](Self::dir) this makes no parents,
    /// which would block later entries.
    fn node(&self, path: &[u8]) -> Result<InodeNo> {
        let sink = self.unpacking.sink;
        let missing = || {
            let shown = path.escape_ascii();
            EntryError::new(format!("the target of the hard link, {shown}, is missing"))
        };
        let (above, name) = split(path);
        let mut dir = self.top;
        for part in above.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            dir = match sink.find(&dir, part)? {
                Some(found) if found.kind == FileType::Directory => ImageDir(found.ino),
                Some(found) if found.kind == FileType::Symlink => {
                    sink.follow(&dir, &sink.target(found.ino)?)?
                }
                _ => return Err(missing()),
            };
        }
        sink.find(&dir, name)?.map(|attr| attr.ino).ok_or_else(missing)
    }

    fn exactly(&mut self, buf: &mut [u8]) -> Result<()> {
        if fill(self.input, buf)? < buf.len() { Err(cut_short()) } else { Ok(()) }
    }

    fn skip(&mut self, len: u64) -> Result<()> {
        let skipped = std::io::copy(&mut self.input.take(len), &mut std::io::sink())?;
        if skipped < len { Err(cut_short()) } else { Ok(()) }
    }
}

/// The result of making room for an entry.
#[derive(PartialEq, Eq)]
enum Room {
    Free,
    /// The entry's file is there already.
    Same,
}

fn cut_short() -> EntryError {
    EntryError::fatal("the tar stream ends in the middle of an entry")
}

fn take_all(more: &mut Extended, bytes: &[u8]) -> Result<()> {
    records(bytes)?.into_iter().try_for_each(|(key, value)| more.take(key, value))
}

/// Reads until `buf` is full or the stream ends; returns the number of bytes.
fn fill(input: &mut dyn Read, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match input.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(EntryError::fatal(error.to_string())),
        }
    }
    Ok(done)
}

fn plain_dir() -> Meta {
    let zero = DiskTime::default();
    Meta {
        id: FileId::default(),
        kind: Kind::Dir,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        size: 0,
        allocated: 0,
        atime: zero,
        mtime: zero,
        xattrs: Vec::new(),
        stream: false,
    }
}

/// The supported types of entries.
const KNOWN: &[u8] = b"\x0001234567DSM";
/// The largest device numbers that an inode holds.
const DEVICE_MAX: (u32, u32) = (0xfff, 0xf_ffff);
/// The times that an inode holds, in seconds since 1970.
const SECONDS: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7fff_ffff;

fn meta(header: &Header, more: Extended, size: u64, target: Vec<u8>, path: &[u8]) -> Result<Meta> {
    if let Some(refused) = more.refused {
        return Err(refused);
    }
    let field = |range: Range<usize>| &header.as_bytes()[range];
    let device = || -> Result<DeviceNo> {
        let major = header_number(field(329..337), "device number")?;
        let minor = header_number(field(337..345), "device number")?;
        if major > DEVICE_MAX.0 || minor > DEVICE_MAX.1 {
            return Err(does_not_fit("device number", format!("{major}:{minor}")));
        }
        Ok(DeviceNo { major, minor })
    };
    let kind = match header.entry_type() {
        EntryType::Symlink => {
            super::name::check_target(&target)?;
            Kind::Symlink(target)
        }
        EntryType::Directory => Kind::Dir,
        // A directory with a list of its names, in GNU tar's incremental archives.
        kind if kind.as_byte() == b'D' => Kind::Dir,
        kind if kind.as_byte() == b'M' => {
            return Err(EntryError::new("is continued from another volume; left out"));
        }
        // Before ustar a directory was a file with a slash, and some writers still write that.
        EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Dir,
        EntryType::Char => Kind::Char(device()?),
        EntryType::Block => Kind::Block(device()?),
        EntryType::Fifo => Kind::Fifo,
        _ => Kind::File,
    };
    let header_time =
        || -> Result<DiskTime> { Ok(DiskTime::new(header_number(field(136..148), "time")?, 0)) };
    let mtime = more.mtime.map_or_else(header_time, Ok)?;
    let atime = more.atime.unwrap_or(mtime);
    for time in [mtime, atime] {
        if !SECONDS.contains(&time.seconds) {
            return Err(does_not_fit("time", time.seconds));
        }
    }
    let mode: u32 = header_number(field(100..108), "mode")?;
    let owner = |name, range| header_number(field(range), name);
    Ok(Meta {
        kind,
        mode: must_fit(mode & 0o7777),
        uid: more.uid.map_or_else(|| owner("owner", 108..116), Ok)?,
        gid: more.gid.map_or_else(|| owner("group", 116..124), Ok)?,
        size,
        allocated: size,
        atime,
        mtime,
        xattrs: more.xattrs,
        ..plain_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_beyond_32_bits_are_refused() {
        let meta = |uid: u64, gid: u64| {
            let mut header = Header::new_gnu();
            header.set_uid(uid);
            header.set_gid(gid);
            header.set_mode(0o644);
            header.set_mtime(0);
            meta(&header, Extended::default(), 0, Vec::new(), b"f")
        };
        let most = meta(u64::from(u32::MAX), 7).expect("it fits");
        assert_eq!((most.uid, most.gid), (u32::MAX, 7));
        for (uid, gid) in [(1 << 32, 0), (0, (1 << 32) + 7), (u64::MAX >> 2, 0)] {
            let refused = meta(uid, gid).expect_err("an inode has no room for it");
            assert!(refused.to_string().contains("does not fit"), "{refused}");
            assert!(!refused.fatal, "the stream goes on");
        }
    }
}
