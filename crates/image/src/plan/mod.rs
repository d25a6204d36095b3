//! Fills a new image from a tree of the host, with the same result each time.
//!
//! The calling thread, the planner, assigns names, inode numbers and blocks in sorted order, a
//! directory's entries before their descendants ([`Filling`] makes the metadata). Workers run ahead
//! of it: they read directories, attributes and small files in the order in which the planner needs
//! them ([`list`]). Workers also follow it: they copy contents to the assigned blocks
//! ([`contents`]), small files with consecutive blocks in one write, large files in parts. The
//! [`tasks`] module chooses the next task of each thread.
//!
//! If the source changes meanwhile, its files have old or new contents, or zeros after removal.
//! Their blocks and length are those of the time when their directory was read. For an image whose
//! size follows from the tree, that is when it was measured ([`kept`]), unless the directory has
//! changed since.

mod contents;
mod kept;
mod list;
mod pool;
mod tasks;

use self::contents::{Batcher, Job, Large, Name};
use self::kept::KeptListing;
use self::list::{Found, Lister, Listing};
use self::pool::{Buffer, Pool};
use self::tasks::{ListingSlot, Task, TaskQueue};
use super::host_dirs::HostDirRef;
use super::locks;
use super::{Adjust, EntryError, FileId, HostNode, HostSource, Kind, Meta, Report, Result, Source};
use crate::escape;
use crate::trail::Trail;
use nextent::Error;
use nextent::inodes::{InodeNo, NewNode};
use nextent::mkfs::{Added, Contents, FillBytes, Filling, Needs, NewAttrs, OpenDir, Plan};
use nextent_num::to_usize;
use nextent_sync::{Arc, Mutex, thread};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories that are read ahead for each thread: enough to keep threads busy, and few enough
/// that read data is still in the processor's cache when it is written.
const AHEAD: usize = 2;

pub use self::kept::KeptListings;

/// A directory to list.
struct List {
    dir: Arc<HostDirRef>,
    /// Its listing when it was measured.
    kept: Option<KeptListing>,
    slot: Arc<ListingSlot>,
}

/// A directory that was made and whose entries were not.
struct Waiting {
    dir: Arc<HostDirRef>,
    id: FileId,
    ino: InodeNo,
    /// Its path in the image, if attributes depend on paths.
    inside: Option<Arc<Trail>>,
    /// The slot of its listing, once that is requested.
    slot: Option<Arc<ListingSlot>>,
}

/// The state that all threads share.
struct Works<'a> {
    lister: Lister<'a>,
    report: &'a Report<'a>,
    bytes: FillBytes<'a>,
    tasks: TaskQueue,
    /// Held to write, where the host lets one thread write at a time.
    writing: Option<Mutex<()>>,
}

/// Fills a new image with the contents of the directory `top`, and finishes it. `adjust` changes
/// attributes before use. Failures go to `report`. With `one_writer` no two threads write to the
/// image at once. With `skip`, entries that this process may not read are left out. `kept` is the
/// result of [`measure`] for the same tree, or empty.
///
/// # Errors
/// The image could not be finished.
pub fn plan(
    from: (&HostSource, PathBuf, KeptListings),
    filling: Filling<'_>,
    report: &Report<'_>,
    (workers, one_writer, skip): (usize, bool, bool),
    adjust: &dyn Adjust,
) -> std::result::Result<Plan, Error> {
    let how = How { workers, one_writer, skip, copies: true };
    add_tree(from, filling, report, how, adjust).0.finish()
}

/// The blocks and inodes that [`plan`] would fill, and listings for it. No contents of files are
/// read, and nothing is written to the device of `filling` that matters.
pub fn measure(
    (source, top): (&HostSource, PathBuf),
    filling: Filling<'_>,
    report: &Report<'_>,
    (workers, skip): (usize, bool),
    adjust: &dyn Adjust,
) -> (Needs, KeptListings) {
    let how = How { workers, one_writer: false, skip, copies: false };
    let from = (source, top, KeptListings::default());
    let (filling, kept) = add_tree(from, filling, report, how, adjust);
    (filling.needs(), kept)
}

/// How a tree is added.
struct How {
    workers: usize,
    /// No two threads write to the image at once.
    one_writer: bool,
    /// Entries that this process may not read are left out.
    skip: bool,
    /// The contents of files are copied.
    copies: bool,
}

/// Adds a tree to `filling`.
fn add_tree<'d>(
    (source, top, kept): (&HostSource, PathBuf, KeptListings),
    filling: Filling<'d>,
    report: &Report<'_>,
    how: How,
    adjust: &dyn Adjust,
) -> (Filling<'d>, KeptListings) {
    let How { workers, one_writer, skip, copies } = how;
    let bytes = filling.bytes();
    let (pool, block_size) = (Pool::new(), to_usize(bytes.block_size()));
    let lister = Lister { source, pool: copies.then_some(&pool), block_size };
    let writing = one_writer.then(|| Mutex::new(&locks::WRITE, ()));
    let tasks = TaskQueue::new(one_writer);
    let works = &Works { lister, report, bytes, tasks, writing };
    let plan = || {
        let batcher = Batcher::new(works.bytes.block_size());
        let (links, waiting, buf) = (HashMap::new(), Vec::new(), Vec::new());
        let ahead = workers * AHEAD;
        let mut planner = Planner {
            works,
            adjust,
            filling,
            copies,
            batcher,
            links,
            waiting,
            buf,
            ahead,
            skip,
            kept,
        };
        planner.run(&top);
        works.tasks.end();
        works.run();
        (planner.filling, planner.kept)
    };
    // Other threads of the program may use the working directory of this thread, and a path that
    // the user gave may be relative.
    let moves = !copies && top.is_absolute();
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|| {
                super::host_sys::own_descriptors();
                if moves {
                    super::host_sys::own_directory();
                }
                works.run();
            });
        }
        if !moves {
            return plan();
        }
        let planner = scope.spawn(|| {
            super::host_sys::own_directory();
            plan()
        });
        planner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Works<'_> {
    fn fail(&self, path: &Path, trouble: &EntryError) {
        self.report.fail(&escape::path(path), trouble);
    }

    /// Does tasks until none is left.
    fn run(&self) {
        let mut buf = Vec::new();
        self.tasks.work(|task| self.one(task, &mut buf));
    }

    fn one(&self, task: Task, buf: &mut Vec<u8>) {
        match task {
            Task::List(List { dir, kept, slot }) => {
                self.tasks.listed(&slot, self.lister.list(&dir, kept.as_ref()));
            }
            Task::Move(job, alone) => {
                self.move_one(&job, buf);
                self.tasks.moved(alone);
            }
        }
    }
}

struct Planner<'a, 'd> {
    works: &'a Works<'a>,
    adjust: &'a dyn Adjust,
    filling: Filling<'d>,
    /// Contents are copied.
    copies: bool,
    batcher: Batcher,
    /// Files with names to come, and the number of these.
    links: HashMap<FileId, (InodeNo, u64)>,
    /// The next directory last.
    waiting: Vec<Waiting>,
    /// The buffer for tasks that the planner does instead of waiting.
    buf: Vec<u8>,
    /// Directories that are read ahead.
    ahead: usize,
    /// Entries that this process may not read are left out.
    skip: bool,
    /// Listings to use, if contents are copied; else those that were made.
    kept: KeptListings,
}

fn attrs(meta: &Meta) -> NewAttrs<'_> {
    let mode = if matches!(meta.kind, Kind::Symlink(_)) { 0o777 } else { meta.mode };
    NewAttrs {
        mode,
        uid: meta.uid,
        gid: meta.gid,
        atime: meta.atime,
        mtime: meta.mtime,
        names: meta.links,
        xattrs: &meta.xattrs,
    }
}

/// The contents of a file that is no directory, with data in the ranges `data`.
fn contents<'a>(meta: &'a Meta, data: &'a [Range<u64>]) -> Contents<'a> {
    match &meta.kind {
        Kind::File => Contents::File { size: meta.size, data },
        Kind::Symlink(target) => Contents::Symlink(target),
        Kind::Char(device) => Contents::Node(NewNode::CharDevice(*device)),
        Kind::Block(device) => Contents::Node(NewNode::BlockDevice(*device)),
        Kind::Fifo => Contents::Node(NewNode::Fifo),
        Kind::Socket | Kind::Dir => Contents::Node(NewNode::Socket),
    }
}

/// The path of `name` in the directory at `dir`.
fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

impl Planner<'_, '_> {
    fn run(&mut self, top: &Path) {
        let (ino, dir) = (self.filling.root(), HostDirRef::top(top));
        let adjusted = |mut meta: Meta| self.adjust.adjust(b"/", &mut meta).map(|()| meta);
        match self.works.lister.source.meta(&HostNode::top(top, true)).and_then(adjusted) {
            Ok(meta) => {
                let inside = self.adjust.needs_path().then(|| Trail::top(b"/"));
                self.waiting.push(Waiting { dir, id: meta.id, ino, inside, slot: None });
                let refused = self.filling.set_attrs(ino, &attrs(&meta));
                self.report_refused(top, &meta, refused.map_err(EntryError::from));
            }
            Err(trouble) => self.works.fail(top, &trouble),
        }
        while !self.works.report.stopped() {
            self.ask();
            let Some(dir) = self.waiting.pop() else { break };
            if let Err(trouble) = self.fill(&dir) {
                match dir.ino == ino {
                    // Without its names, nothing of the source would be in the image.
                    true => self.works.fail(&dir.dir.path(), &trouble),
                    false => self.failed(&dir.dir.path(), &trouble),
                }
            }
        }
        let last = self.batcher.take();
        self.hand_out(last);
    }

    /// Requests the listings of the next directories.
    fn ask(&mut self) {
        let unasked = |dir: &&mut Waiting| dir.slot.is_none();
        for dir in self.waiting.iter_mut().rev().take(self.ahead).filter(unasked) {
            let slot = ListingSlot::new();
            dir.slot = Some(Arc::clone(&slot));
            let kept = if self.copies { self.kept.take(dir.id) } else { None };
            self.works.tasks.list(List { dir: Arc::clone(&dir.dir), kept, slot });
        }
    }

    fn fill(&mut self, dir: &Waiting) -> Result<()> {
        let (works, buf) = (self.works, &mut self.buf);
        let run = |task| works.one(task, buf);
        let listing = match &dir.slot {
            Some(slot) => works.tasks.listing(slot, run),
            None => works.lister.list(&dir.dir, None),
        };
        let Listing { names, found, buffers, kept } = listing?;
        if let Some(kept) = kept {
            self.kept.keep(dir.id, kept);
        }
        let mut open = self.filling.open_dir(dir.ino, names)?;
        let inside = dir.inside.as_ref().map(|inside| inside.path());
        let first = self.waiting.len();
        for (at, found) in found.into_iter().enumerate() {
            if self.works.report.stopped() {
                break;
            }
            self.works.report.file();
            if let Err(trouble) =
                self.one((dir, inside.as_deref()), &mut open, at, (found, &buffers))
            {
                self.failed(&Name::new(&dir.dir, &open.names()[at]).path(), &trouble);
            }
        }
        self.waiting[first..].reverse();
        let closed = self.filling.close_dir(open);
        let rendered = self.filling.take_rendered();
        if !rendered.is_empty() && self.copies {
            self.hand_out(Some(Job::Rendered(Arc::clone(&dir.dir), rendered)));
        }
        Ok(closed?)
    }

    /// Adds the entry `at` of `dir`; `inside` is the path of `dir`, if attributes depend on paths.
    fn one(
        &mut self,
        (dir, inside): (&Waiting, Option<&[u8]>),
        open: &mut OpenDir,
        at: usize,
        (found, buffers): (Found, &[Arc<Buffer>]),
    ) -> Result<()> {
        let mut meta = found.meta?;
        if let Some(denied) = found.denied {
            return Err(*denied);
        }
        let path = inside.map(|inside| below(inside, &open.names()[at])).unwrap_or_default();
        self.adjust.adjust(&path, &mut meta)?;
        if meta.kind == Kind::Dir {
            let added = self.filling.add_dir(open, at, &attrs(&meta))?;
            let below = HostDirRef::below(&dir.dir, OsStr::from_bytes(&open.names()[at]));
            if !added.refused.is_empty() {
                self.report_refused(&below.path(), &meta, Ok(added.refused));
            }
            let inside = dir.inside.as_ref().map(|up| Trail::below(up, &open.names()[at]));
            let (id, ino) = (meta.id, added.ino);
            self.waiting.push(Waiting { dir: below, id, ino, inside, slot: None });
            return Ok(());
        }
        if let Some((ino, left)) = self.links.get_mut(&meta.id) {
            self.filling.link(open, at, *ino)?;
            *left -= 1;
            if *left == 0 {
                self.links.remove(&meta.id);
            }
            return Ok(());
        }
        let data = found.holes.map_or_else(|| Ok(meta.whole()), |holes| *holes);
        let data = if meta.kind == Kind::File { data? } else { Vec::new() };
        let contents = contents(&meta, &data);
        let Added { ino, runs, refused } = self.filling.add(open, at, &attrs(&meta), contents)?;
        if meta.links > 1 {
            self.links.insert(meta.id, (ino, meta.links - 1));
        }
        if !refused.is_empty() {
            self.report_refused(&Name::new(&dir.dir, &open.names()[at]).path(), &meta, Ok(refused));
        }
        if runs.is_empty() || !self.copies {
            return Ok(());
        }
        if let [run] = runs[..]
            && self.batcher.takes(meta.size, &data)
        {
            let name = &open.names()[at];
            let full = self.batcher.make_room(run, &dir.dir, name);
            self.hand_out(full);
            self.works.report.bytes(meta.size);
            match found.early {
                Some(early) => {
                    let (buffer, range) = early.place(buffers);
                    self.batcher.add_read(buffer, range);
                }
                None => self.batcher.add(Name::new(&dir.dir, name), meta.size),
            }
            return Ok(());
        }
        let name = Name::new(&dir.dir, &open.names()[at]);
        for job in Large::jobs(name, meta.size, data, runs) {
            self.hand_out(Some(job));
        }
        Ok(())
    }

    /// Reports that the entry at `path`, or a directory's list, cannot be read or made.
    fn failed(&self, path: &Path, trouble: &EntryError) {
        match self.skip && trouble.denied {
            true => self.works.report.skip(&escape::path(path), trouble),
            false => self.works.fail(path, trouble),
        }
    }

    /// Passes a job to the workers.
    fn hand_out(&mut self, job: Option<Job>) {
        let (works, buf) = (self.works, &mut self.buf);
        if let Some(job) = job {
            works.tasks.post(job, |task| works.one(task, buf));
        }
    }

    /// Reports attributes that were left out.
    fn report_refused(&self, path: &Path, meta: &Meta, refused: Result<Vec<(usize, Error)>>) {
        match refused {
            Ok(refused) => {
                for (at, error) in refused {
                    let name = meta.xattrs[at].0.escape_ascii();
                    let trouble = EntryError::from(error).mild().at(&format!("setxattr {name}"));
                    self.works.fail(path, &trouble);
                }
            }
            Err(trouble) => self.works.fail(path, &trouble),
        }
    }
}
