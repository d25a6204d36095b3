//! Unpacks a tar stream into an image.
//!
//! The calling thread reads the stream and makes the names in its order; workers write contents.
//! Names are split into components here and never passed to a host: `..` is refused, and a leading
//! slash is dropped.

use super::apply::{apply_without_times, without_lists};
use super::entry::{Kind, Meta};
use super::image_sink::ImageDir;
use super::layer::{MadeNames, Mark};
use super::listing::sorted;
use super::packed::Unpacked;
use super::queue::Queue;
use super::sink::Created;
use super::superseded::{LoggedEntry, Track, Without};
use super::tar_entries::{Entries, TarEntry, plain_dir};
use super::tar_path::{after_dots, clean, leads_out, split};
use super::tarball::padding;
use super::tree::parts;
use super::{Adjust, BUFFER, EntryError, PART, Report, Result, Sink, locks, names};
use nextent::inodes::{Attr, InodeNo, Inodes};
use nextent::{Cred, FileType};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{Arc, Mutex, thread};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::ops::Range;

/// The most batches of contents that wait for a worker, which bounds memory to as many buffers.
const WAITING: usize = 16;
/// Bytes from which on a batch is passed to a worker: waking a worker costs more than writing a
/// small file.
const BATCH: usize = 256 << 10;
/// The most pieces of a batch, which bounds the number of open files.
const PIECES: usize = 128;
/// The most bytes of cached paths.
const KNOWN_MAX: usize = 16 << 20;
/// The longest prefix of a path that is cached.
const PREFIX_MAX: usize = 4096;
/// The longest part of a directory's path that is kept for messages.
const SHOWN_MAX: usize = 256;

/// A sink that writes to an image, in which names can be looked up and removed: a stream may have a
/// name twice.
pub trait Extractable: Sink<Node = InodeNo, Dir = ImageDir> {
    /// The volume, and the user who changes it.
    fn volume(&self) -> (&Inodes, &Cred);

    /// Whether contents are dropped, so that they need not be read.
    fn drops_contents(&self) -> bool {
        false
    }

    /// Creates a file as [`create`](Sink::create) does. None if its name exists, or must be looked
    /// up before. Looking up each new name would take as long as finding a place for it.
    fn create_new(
        &self,
        _parent: &ImageDir,
        _name: &[u8],
        _meta: &Meta,
        _data: &[Range<u64>],
    ) -> Result<Option<Created<Self::File, InodeNo>>> {
        Ok(None)
    }

    /// Names were removed; their blocks are to be used again.
    fn removed(&self) -> Result<()> {
        Ok(())
    }
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
    /// Whether the stream is a layer of a container image, as containerd unpacks it: whiteouts
    /// remove names, and a file replaces a directory with all that is in it.
    pub layer: bool,
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

/// Contents of a file at `offset` that lie in the bytes of a batch.
struct UnpackPiece<T: Sink> {
    file: Arc<File<T>>,
    offset: u64,
    range: Range<usize>,
}

/// Contents of several files, in the order of the stream; at most [`BUFFER`] bytes.
///
/// The reader allocates it and frees it, after a worker has written it: freed by the worker, each
/// file would cost the two threads a fight for the lock of the allocator.
struct UnpackBatch<T: Sink> {
    pieces: Vec<UnpackPiece<T>>,
    bytes: Vec<u8>,
}

impl<T: Sink> Default for UnpackBatch<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), bytes: Vec::new() }
    }
}

/// The attributes of a directory, to be set at the end.
struct Due {
    /// The number of its entry among those of directories.
    order: usize,
    /// The path of its last entry, for messages.
    shown: String,
    meta: Meta,
}

/// Batches that were written, to be freed or used again by the reader. `[copy.pool]`
type WrittenBatches<T> = Mutex<Vec<UnpackBatch<T>>>;

struct Reader<'a, T: Extractable> {
    unpacking: &'a Unpacking<'a, T>,
    queue: &'a Queue<UnpackBatch<T>>,
    written: &'a WrittenBatches<T>,
    /// Contents that were not passed to a worker yet.
    batch: UnpackBatch<T>,
    stream: Entries<'a>,
    /// A cache of paths, also through links; emptied when a directory or a link is removed.
    dirs: HashMap<Vec<u8>, ImageDir>,
    /// Bytes of the paths in `dirs`.
    known: usize,
    /// Directories whose attributes are set at the end. By inode, since a directory may have
    /// several paths through links.
    due: HashMap<InodeNo, Due>,
    /// The number of directory entries so far.
    entries: usize,
    /// The number of the present entry.
    number: u64,
    track: Track<'a>,
    /// Symbolic links that lead out of the tree.
    outward: HashSet<InodeNo>,
    /// The names that were made, of a layer.
    made: Option<MadeNames>,
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
    unpack_tracked(unpacking, top, input, Track::None)
}

/// The same as one of several streams, of which `track` knows entries without effect.
pub(super) fn unpack_tracked<T: Extractable>(
    unpacking: &Unpacking<'_, T>,
    top: ImageDir,
    input: &mut dyn Read,
    track: Track<'_>,
) -> Result<()> {
    let mut input = Unpacked::new(input)?;
    let (queue, written) = (Queue::new(), Mutex::new(&locks::POOL, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..unpacking.workers.max(1) {
            scope.spawn(|| write_all(unpacking, &queue, &written));
        }
        let _ending = queue.ending();
        let mut reader = Reader {
            unpacking,
            queue: &queue,
            written: &written,
            batch: UnpackBatch::default(),
            stream: Entries::new(&mut input),
            dirs: HashMap::new(),
            known: 0,
            due: HashMap::new(),
            entries: 0,
            number: 0,
            track,
            outward: HashSet::new(),
            made: unpacking.layer.then(MadeNames::default),
            top,
        };
        let done = reader.run();
        reader.drain();
        let root = reader.finish_root();
        reader.finish_dirs();
        done.and(root)
    })
}

fn write_all<T: Extractable>(
    unpacking: &Unpacking<'_, T>,
    queue: &Queue<UnpackBatch<T>>,
    written: &WrittenBatches<T>,
) {
    while let Some(batch) = queue.oldest() {
        let _ending = queue.ending();
        for UnpackPiece { file, offset, range } in &batch.pieces {
            if !unpacking.report.stopped() {
                let bytes = &batch.bytes[range.clone()];
                let done = unpacking.sink.write(&file.to, *offset, bytes);
                report_result(unpacking, file, done);
                unpacking.report.bytes(to_u64(bytes.len()));
            }
            finish(unpacking, file);
        }
        written.lock().push(batch);
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
        while !self.unpacking.report.stopped() {
            let Some(mut entry) = self.stream.next()? else { break };
            self.unpacking.report.file();
            let (path, end) = (entry.path.clone(), padding(entry.stored));
            let mut left = entry.stored;
            let lost = std::mem::take(&mut entry.lost);
            let done = self.entry(entry, &mut left);
            // Skip the rest of the entry's contents.
            self.stream.skip(left + to_u64(end))?;
            self.number += 1;
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

    /// Makes one entry; `left` counts its bytes that are still in the stream.
    fn entry(&mut self, entry: TarEntry, left: &mut u64) -> Result<()> {
        let path = clean(&entry.path)?;
        let without = self.track.without(self.number, &path);
        if without == Without::Entry {
            return Ok(());
        }
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
        if self.made.is_some()
            && let Some(mark) = Mark::of(name)?
        {
            return self.apply_mark(dir, &mark);
        }
        if without == Without::File {
            return self.make_room(&mut dir, &path, None, is_dir).map(drop);
        }
        if is_dir {
            let room = self.make_room(&mut dir, &path, None, true)?;
            let is_new = room != Room::Same;
            let made = match self.dirs.get(&path) {
                Some(made) => *made,
                None => sink.make_dir(&dir, name, &meta)?,
            };
            self.log(&path, made.0, is_new, room.without());
            self.note(dir, name, is_new.then_some(made));
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
            let room = self.make_room(&mut dir, &path, Some(target), false)?;
            self.note(dir, name, None);
            self.log(&path, target, false, room.without());
            return match room {
                Room::Same => Ok(()),
                Room::Free | Room::Cleared => sink.link(&target, &dir, name),
            };
        }
        let leads_out = matches!(&meta.kind, Kind::Symlink(target) if leads_out(target));
        if leads_out && self.is_outward(dir, name)? {
            return Ok(());
        }
        if meta.kind == Kind::File {
            return self.file(dir, &path, (entry, meta), left);
        }
        let room = self.make_room(&mut dir, &path, None, false)?;
        self.note(dir, name, None);
        let (node, done) = sink.special(&dir, name, &meta)?;
        self.log_special(&path, node, &meta, room);
        if leads_out && self.made.is_none() {
            self.outward.insert(node);
        }
        done
    }

    /// Whether `name` is a link out of the tree that this stream has made. GNU tar makes these at
    /// the end, and leaves out later ones of the same name.
    fn is_outward(&self, dir: T::Dir, name: &[u8]) -> Result<bool> {
        let found = if self.outward.is_empty() { None } else { self.find(dir, name)? };
        Ok(found.is_some_and(|attr| self.outward.contains(&attr.ino)))
    }

    /// The file `name` in `dir`, if there is one.
    fn find(&self, dir: T::Dir, name: &[u8]) -> Result<Option<Attr>> {
        let (volume, cred) = self.unpacking.sink.volume();
        names::find(volume, cred, dir, name)
    }

    /// The directory that the link `link` in `dir` leads to.
    fn follow(&self, dir: T::Dir, link: InodeNo) -> Result<T::Dir> {
        let (volume, cred) = self.unpacking.sink.volume();
        names::follow(volume, cred, dir, &volume.readlink(link)?)
    }

    /// Records that a layer has made a name; `new` is its inode if that is a new directory.
    fn note(&mut self, dir: T::Dir, name: &[u8], new: Option<T::Dir>) {
        if let Some(made) = &mut self.made {
            made.add(dir.0, name);
            new.into_iter().for_each(|new| made.add_dir(new.0));
        }
    }

    /// Logs an entry that made an inode, or a name of it.
    fn log(&mut self, path: &[u8], ino: InodeNo, is_new: bool, without: Without) {
        let entry = LoggedEntry { number: None, ino, is_new, without };
        self.track.add(Some(self.number), path, entry);
    }

    /// Logs a file that is not regular.
    fn log_special(&mut self, path: &[u8], ino: InodeNo, meta: &Meta, room: Room) {
        let is_link = matches!(meta.kind, Kind::Symlink(_));
        self.log(path, ino, true, if is_link { Without::Nothing } else { room.without() });
    }

    /// Removes what a mark of a layer in `dir` stands for. The directory lost+found stays.
    fn apply_mark(&mut self, dir: T::Dir, mark: &Mark<'_>) -> Result<()> {
        let gone = match mark {
            Mark::Ignored => return Ok(()),
            Mark::Removed(name) => vec![name.to_vec()],
            Mark::Opaque => {
                let (volume, _) = self.unpacking.sink.volume();
                sorted(volume, dir.0)?.into_iter().map(|entry| entry.name).collect()
            }
        };
        self.drain();
        let mut removed = false;
        for name in gone {
            let made = self.made.as_ref().is_some_and(|made| made.has(dir.0, &name));
            let keeps = *mark == Mark::Opaque && made;
            let is_lost_found = dir == self.top && name == b"lost+found";
            if !keeps && !is_lost_found && self.find(dir, &name)?.is_some() {
                self.remove_tree(dir, &name)?;
                removed = true;
            }
        }
        if !removed {
            return Ok(());
        }
        self.track.removes();
        self.unpacking.sink.removed()
    }

    /// Removes a name and all that is below it.
    fn remove_tree(&mut self, dir: T::Dir, name: &[u8]) -> Result<()> {
        let (volume, cred) = self.unpacking.sink.volume();
        let mut dirs = Vec::new();
        let done = names::remove_tree(volume, cred, (dir, name), &mut |dir| dirs.push(dir));
        for dir in dirs {
            self.is_gone(dir);
        }
        // A link may be gone, too.
        self.forget();
        done
    }

    /// The inode number of a removed directory may be reused by a file that must not get its
    /// attributes.
    fn is_gone(&mut self, dir: InodeNo) {
        self.due.remove(&dir);
        self.made.iter_mut().for_each(|made| made.remove_dir(dir));
        self.forget();
    }

    /// Removes an existing file at `path` in `dir`, unless it may stay: a directory for a
    /// directory, or the file itself for a link to it. As with GNU tar, only an empty directory is
    /// removed, but a layer replaces any.
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
        let Some(old) = self.find(*dir, name)? else { return Ok(Room::Free) };
        if link_to == Some(old.ino) || for_dir && old.kind == FileType::Directory {
            return Ok(Room::Same);
        }
        self.drain();
        if self.made.is_some() && old.kind == FileType::Directory {
            self.remove_tree(*dir, name)?;
        } else {
            let (volume, cred) = self.unpacking.sink.volume();
            names::remove(volume, cred, *dir, name, old.kind)?;
        }
        self.track.removes();
        self.unpacking.sink.removed()?;
        match old.kind {
            FileType::Directory => self.is_gone(old.ino),
            // Cached paths may lead through it.
            FileType::Symlink => {
                self.outward.remove(&old.ino);
                self.forget();
                *dir = self.dir(above)?;
            }
            _ => {}
        }
        Ok(Room::Cleared)
    }

    /// Makes the file at `place` in `dir`, and passes its contents to the workers.
    fn file(
        &mut self,
        mut dir: T::Dir,
        place: &[u8],
        (entry, meta): (TarEntry, Meta),
        left: &mut u64,
    ) -> Result<()> {
        let (sink, (_, name)) = (self.unpacking.sink, split(place));
        let TarEntry { path, sparse, .. } = entry;
        let data = sparse.unwrap_or_else(|| meta.whole());
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        if bytes != *left {
            return Err(EntryError::new("its map and its length do not agree"));
        }
        let (created, room) = match sink.create_new(&dir, name, &meta, &data)? {
            Some(created) => (created, Room::Free),
            None => {
                let room = self.make_room(&mut dir, place, None, false)?;
                (sink.create(&dir, name, &meta, &data)?, room)
            }
        };
        let to = created.file;
        self.log(place, created.node, true, room.without());
        self.note(dir, name, None);
        let (pending, failed) = (AtomicUsize::new(1), AtomicBool::new(false));
        let file = Arc::new(File { to, meta, path, pending, failed });
        if sink.drops_contents() {
            finish(self.unpacking, &file);
            return Ok(());
        }
        let pieces = data.into_iter().flat_map(|range| parts(range, PART)).flat_map(|part| {
            let starts = (part.start..part.end).step_by(BUFFER);
            starts.map(move |start| start..(start + to_u64(BUFFER)).min(part.end))
        });
        for piece in pieces {
            let len = to_usize(piece.end - piece.start);
            if self.batch.bytes.len() + len > BUFFER {
                self.pass_on();
            }
            let batch = &mut self.batch;
            let start = batch.bytes.len();
            batch.bytes.resize(start + len, 0);
            if let Err(trouble) = self.stream.exactly(&mut batch.bytes[start..]) {
                batch.bytes.truncate(start);
                *left = 0;
                return Err(trouble);
            }
            *left -= to_u64(len);
            file.pending.fetch_add(1, Ordering::Relaxed);
            let (file, range) = (Arc::clone(&file), start..start + len);
            batch.pieces.push(UnpackPiece { file, offset: piece.start, range });
            if batch.bytes.len() >= BATCH || batch.pieces.len() >= PIECES {
                self.pass_on();
            }
        }
        finish(self.unpacking, &file);
        Ok(())
    }

    /// Passes the batch to a worker.
    fn pass_on(&mut self) {
        if self.batch.pieces.is_empty() {
            return;
        }
        let mut written = std::mem::take(&mut *self.written.lock());
        let mut next = written.pop().unwrap_or_default();
        next.pieces.clear();
        next.bytes.clear();
        self.queue.push_within(std::mem::replace(&mut self.batch, next), WAITING);
    }

    /// Waits until all contents so far are written, and closes their files.
    fn drain(&mut self) {
        self.pass_on();
        self.queue.drain();
        // Closing files takes other locks.
        let written = std::mem::take(&mut *self.written.lock());
        drop(written);
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
                    let found = self.enter(dir, (&path[..end], &path[at..end]))?;
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
    fn enter(&mut self, dir: T::Dir, (path, name): (&[u8], &[u8])) -> Result<T::Dir> {
        let sink = self.unpacking.sink;
        let mut meta = Meta { mode: self.unpacking.implied, ..plain_dir() };
        match self.find(dir, name)? {
            Some(old) if old.kind == FileType::Symlink => self.follow(dir, old.ino),
            Some(_) => sink.make_dir(&dir, name, &meta),
            None => {
                self.adjust(path, &mut meta)?;
                let made = sink.make_dir(&dir, name, &meta)?;
                let without = Without::Nothing;
                let entry = LoggedEntry { number: None, ino: made.0, is_new: true, without };
                self.track.add(None, path, entry);
                self.note(dir, name, Some(made));
                let (volume, cred) = sink.volume();
                without_lists(volume, cred, made.0, meta.mode)?;
                if self.unpacking.adjust.is_active() {
                    apply_without_times(volume, cred, made.0, &meta)?;
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
        let (volume, cred) = self.unpacking.sink.volume();
        apply_without_times(volume, cred, self.top.0, &meta)
    }

    /// The file at `path`, from an earlier entry. Unlike [`dir`](Self::dir) this makes no parents,
    /// which would block later entries.
    fn node(&self, path: &[u8]) -> Result<InodeNo> {
        let missing = || {
            let shown = path.escape_ascii();
            EntryError::new(format!("the target of the hard link, {shown}, is missing"))
        };
        let (above, name) = split(path);
        let mut dir = self.top;
        for part in above.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            dir = match self.find(dir, part)? {
                Some(found) if found.kind == FileType::Directory => ImageDir(found.ino),
                Some(found) if found.kind == FileType::Symlink => self.follow(dir, found.ino)?,
                _ => return Err(missing()),
            };
        }
        self.find(dir, name)?.map(|attr| attr.ino).ok_or_else(missing)
    }
}

/// The result of making room for an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    /// Another file was removed.
    Cleared,
    /// The entry's file is there already.
    Same,
}

impl Room {
    /// What to leave out of the entry if its inode is gone at the end.
    fn without(self) -> Without {
        match self {
            Self::Free | Self::Same => Without::Entry,
            Self::Cleared => Without::File,
        }
    }
}
