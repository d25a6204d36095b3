//! Copies trees by workers.
//!
//! Workers take directories, batches of files and parts of large files from one stack. They take
//! the newest first, so the stack is at most as high as the tree is deep. The worker that reads a
//! directory also copies its files, since two workers that make files in one directory wait for
//! each other. It passes on batches of files only while another worker is idle.
//!
//! A directory counts its unfinished entries. The worker that finishes the last one sets the
//! directory's attributes and counts down its parent. The first worker that meets a file with
//! several names makes it. Other workers leave it their names if the file is not made yet.

use super::entered::Entered;
use super::queue::Queue;
use super::sink::{Created, Order};
use super::{BUFFER, FileId, Kind, Meta, PART, Report, Result, Sink, Source, locks, name};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{Arc, Mutex, thread};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// Entries that one worker takes at once.
const BATCH: usize = 32;
/// The approximate most parts of a file.
const PARTS: u64 = 4096;

/// A directory that is being copied.
struct Dir<S: Source, T: Sink> {
    node: S::Node,
    place: T::Dir,
    meta: Meta,
    /// Unfinished entries. Release and acquire: the last worker sees the effects of all.
    pending: AtomicUsize,
    up: Option<Arc<Self>>,
}

impl<S: Source, T: Sink> Drop for Dir<S, T> {
    /// Iterative, since a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some(dir) = up {
            up = Arc::into_inner(dir).and_then(|mut dir| dir.up.take());
        }
    }
}

/// A large file that several workers copy.
struct Large<S: Source, T: Sink> {
    dir: Arc<Dir<S, T>>,
    node: S::Node,
    from: S::File,
    to: T::File,
    meta: Meta,
    /// Parts that are not written. Release and acquire, as in `Dir`.
    pending: AtomicUsize,
    /// A part failed and was reported. Relaxed.
    failed: AtomicBool,
}

enum Job<S: Source, T: Sink> {
    Scan(Arc<Dir<S, T>>),
    Batch(Arc<Dir<S, T>>, Vec<(Vec<u8>, S::Node)>),
    Part(Arc<Large<S, T>>, Range<u64>),
}

/// A name to be linked to a file.
struct Named<S: Source, T: Sink> {
    dir: Arc<Dir<S, T>>,
    name: Vec<u8>,
    node: S::Node,
}

/// A file with several names.
enum Shared<S: Source, T: Sink> {
    /// A worker is making it; these are further names of it.
    Making(Vec<Named<S, T>>),
    Made(T::Node),
}

/// One copy.
pub struct Tree<'a, S: Source, T: Sink> {
    source: &'a S,
    sink: &'a T,
    report: &'a Report<'a>,
    queue: Queue<Job<S, T>>,
    /// None if each name becomes a file.
    links: Option<&'a Links<S, T>>,
    entered: Entered,
}

/// Files with several names that copies of one source to one target have met.
pub struct Links<S: Source, T: Sink>(Mutex<HashMap<FileId, Shared<S, T>>>);

impl<S: Source, T: Sink> Default for Links<S, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Source, T: Sink> Links<S, T> {
    /// An empty set.
    pub fn new() -> Self {
        Self(Mutex::new(&locks::LINKS, HashMap::new()))
    }
}

impl<'a, S: Source, T: Sink> Tree<'a, S, T> {
    /// A copy that has not begun.
    pub fn new(
        source: &'a S,
        sink: &'a T,
        report: &'a Report<'a>,
        links: Option<&'a Links<S, T>>,
    ) -> Self {
        let (queue, entered) = (Queue::new(), Entered::new(S::DIRS_HAVE_ONE_NAME));
        Self { source, sink, report, queue, links, entered }
    }

    /// Adds a copy of the file or tree `node` at `name` in `dir`, for [`run`](Self::run).
    pub fn add(&self, node: S::Node, dir: &T::Dir, name: &[u8], top: Meta) {
        let up = Dir::<S, T> {
            node: node.clone(),
            place: dir.clone(),
            meta: top,
            // One more than is ever finished: the target directory keeps its attributes.
            pending: AtomicUsize::new(2),
            up: None,
        };
        self.queue.push(Job::Batch(Arc::new(up), vec![(name.to_vec(), node)]));
    }

    /// Adds a copy of the entries of the directory `node` to `dir`, which exists.
    pub fn add_contents(&self, node: S::Node, dir: T::Dir, meta: Meta) {
        // The first directory cannot fail.
        let _ = self.entered.enter(&meta);
        let pending = AtomicUsize::new(1);
        self.queue.push(Job::Scan(Arc::new(Dir { node, place: dir, meta, pending, up: None })));
    }

    /// Copies everything that was added, on `workers` threads.
    pub fn run(&self, workers: usize) {
        self.queue.done();
        thread::scope(|scope| {
            for _ in 1..workers.max(1) {
                scope.spawn(|| self.work());
            }
            self.work();
        });
    }

    fn work(&self) {
        let mut buf = vec![0; BUFFER];
        while let Some(job) = self.queue.newest() {
            let _ending = self.queue.ending();
            if !self.report.stopped() {
                self.perform(job, &mut buf);
            }
        }
    }

    fn perform(&self, job: Job<S, T>, buf: &mut [u8]) {
        match job {
            Job::Scan(dir) => {
                self.scan(&dir, buf);
                self.leave(dir);
            }
            Job::Batch(dir, entries) => {
                self.batch(&dir, entries, buf);
                self.leave(dir);
            }
            Job::Part(file, range) => {
                if let Err(trouble) = self.move_bytes(&file.from, &file.to, range, buf)
                    && !file.failed.swap(true, Ordering::Relaxed)
                {
                    self.fail(&file.node, &trouble);
                }
                if file.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.finish(&file.node, &file.to, &file.meta);
                    self.leave(Arc::clone(&file.dir));
                }
            }
        }
    }

    /// Counts an entry of `dir` as finished.
    fn leave(&self, mut dir: Arc<Dir<S, T>>) {
        while dir.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            if !self.report.stopped()
                && let Err(trouble) = self.sink.finish_dir(&dir.place, &dir.meta)
            {
                self.fail(&dir.node, &trouble);
            }
            match &dir.up {
                Some(up) => dir = Arc::clone(up),
                None => break,
            }
        }
    }

    fn enter(dir: &Arc<Dir<S, T>>) -> Arc<Dir<S, T>> {
        dir.pending.fetch_add(1, Ordering::Relaxed);
        Arc::clone(dir)
    }

    fn fail(&self, node: &S::Node, trouble: &super::EntryError) {
        self.report.fail(&self.source.show(node), trouble);
    }

    fn scan(&self, dir: &Arc<Dir<S, T>>, buf: &mut [u8]) {
        let mut batch = Vec::with_capacity(BATCH);
        let listed = self.source.list(&dir.node, &mut |name, node| {
            batch.push((name, node));
            if batch.len() == BATCH {
                let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
                let job = Job::Batch(Self::enter(dir), full);
                if let Some(job) = self.queue.offer(job) {
                    self.perform(job, buf);
                }
            }
        });
        if let Err(trouble) = listed {
            self.fail(&dir.node, &trouble);
        }
        self.batch(dir, batch, buf);
    }

    fn batch(&self, dir: &Arc<Dir<S, T>>, entries: Vec<(Vec<u8>, S::Node)>, buf: &mut [u8]) {
        for (name, node) in entries {
            if self.report.stopped() {
                return;
            }
            let meta = name::check(&name).and_then(|()| self.source.meta(&node));
            let done = meta.and_then(|meta| {
                self.report.file();
                self.one(dir, &name, &node, meta, buf)
            });
            if let Err(trouble) = done {
                self.fail(&node, &trouble);
            }
        }
    }

    fn one(
        &self,
        dir: &Arc<Dir<S, T>>,
        name: &[u8],
        node: &S::Node,
        meta: Meta,
        buf: &mut [u8],
    ) -> Result<()> {
        if meta.kind == Kind::Dir {
            self.entered.enter(&meta)?;
            let place = self.sink.make_dir(&dir.place, name, &meta)?;
            let (node, pending) = (node.clone(), AtomicUsize::new(1));
            let child = Dir { node, place, meta, pending, up: Some(Self::enter(dir)) };
            self.queue.push(Job::Scan(Arc::new(child)));
            return Ok(());
        }
        let Some(links) = self.links.filter(|_| meta.links > 1) else {
            return self.make(dir, name, node, meta, buf, &|_| ());
        };
        let id = meta.id;
        let found = match links.0.lock().entry(id) {
            Entry::Occupied(mut known) => match known.get_mut() {
                Shared::Making(waiting) => {
                    let (name, node) = (name.to_vec(), node.clone());
                    waiting.push(Named { dir: Self::enter(dir), name, node });
                    return Ok(());
                }
                Shared::Made(made) => Some(made.clone()),
            },
            Entry::Vacant(new) => {
                new.insert(Shared::Making(Vec::new()));
                None
            }
        };
        match found {
            Some(made) => self.sink.link(&made, &dir.place, name),
            None => self.make_shared(links, dir, (name, node, meta), buf),
        }
    }

    /// Makes a file with several names, then the names that were added meanwhile. If it cannot be
    /// made, these fail with the same error.
    fn make_shared(
        &self,
        links: &Links<S, T>,
        dir: &Arc<Dir<S, T>>,
        (name, node, meta): (&[u8], &S::Node, Meta),
        buf: &mut [u8],
    ) -> Result<()> {
        let id = meta.id;
        let made = AtomicBool::new(false);
        let done = self.make(dir, name, node, meta, buf, &|target| {
            made.store(true, Ordering::Relaxed);
            let old = links.0.lock().insert(id, Shared::Made(target.clone()));
            self.name_others(old, |place, name| self.sink.link(target, place, name));
        });
        if !made.load(Ordering::Relaxed) {
            let old = links.0.lock().remove(&id);
            if let Err(trouble) = &done {
                self.name_others(old, |_, _| Err(trouble.clone()));
            }
        }
        done
    }

    fn name_others(
        &self,
        shared: Option<Shared<S, T>>,
        link: impl Fn(&T::Dir, &[u8]) -> Result<()>,
    ) {
        let Some(Shared::Making(waiting)) = shared else { return };
        for Named { dir, name, node } in waiting {
            if let Err(trouble) = link(&dir.place, &name) {
                self.fail(&node, &trouble);
            }
            self.leave(dir);
        }
    }

    /// Makes anything but a directory; calls `made` as soon as it can be linked.
    fn make(
        &self,
        dir: &Arc<Dir<S, T>>,
        name: &[u8],
        node: &S::Node,
        meta: Meta,
        buf: &mut [u8],
        made: &dyn Fn(&T::Node),
    ) -> Result<()> {
        if meta.kind != Kind::File {
            let (target, attributes) = self.sink.special(&dir.place, name, &meta)?;
            made(&target);
            return attributes;
        }
        if meta.stream {
            return self.stream(dir, name, node, meta, buf, made);
        }
        // Opening a regular file does not wait. So the target is checked only if that fails, where
        // its error comes first, as from cp(1).
        let opened = self.source.open(node, &meta);
        if opened.is_err() {
            self.sink.check_create(&dir.place, name, &meta)?;
        }
        let from = opened?;
        let data = self.source.data(&from, &meta)?;
        let Created { file: to, node: target, order } =
            self.sink.create(&dir.place, name, &meta, &data)?;
        made(&target);
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        if bytes <= PART || order != Order::Any {
            // A stream has no holes.
            let data = if order == Order::Stream { meta.whole() } else { data };
            for range in data {
                self.move_bytes(&from, &to, range, buf)?;
            }
            return self.sink.finish(&to, &meta);
        }
        let (node, failed) = (node.clone(), AtomicBool::new(false));
        // A bounded number of parts, since each is a job in the queue.
        let size = PART.max((bytes / PARTS).next_multiple_of(PART));
        let parts = data.into_iter().flat_map(|range| parts(range, size));
        let parts: Vec<Range<u64>> = parts.collect();
        let pending = AtomicUsize::new(parts.len());
        let dir = Self::enter(dir);
        let file = Arc::new(Large { dir, node, from, to, meta, pending, failed });
        // Workers take the newest job first.
        for part in parts.into_iter().rev() {
            self.queue.push(Job::Part(Arc::clone(&file), part));
        }
        Ok(())
    }

    /// Makes a file from the stream `node`.
    fn stream(
        &self,
        dir: &Arc<Dir<S, T>>,
        name: &[u8],
        node: &S::Node,
        mut meta: Meta,
        buf: &mut [u8],
        made: &dyn Fn(&T::Node),
    ) -> Result<()> {
        self.sink.check_create(&dir.place, name, &meta)?;
        let from = self.source.open(node, &meta)?;
        let created = self.sink.create(&dir.place, name, &meta, &[])?;
        made(&created.node);
        while !self.report.stopped() {
            let got = self.source.read(&from, meta.size, buf)?;
            if got == 0 {
                break;
            }
            self.sink.write(&created.file, meta.size, &buf[..got])?;
            self.report.bytes(to_u64(got));
            meta.size += to_u64(got);
        }
        self.sink.finish(&created.file, &meta)
    }

    fn finish(&self, node: &S::Node, to: &T::File, meta: &Meta) {
        if !self.report.stopped()
            && let Err(trouble) = self.sink.finish(to, meta)
        {
            self.fail(node, &trouble);
        }
    }

    fn move_bytes(
        &self,
        from: &S::File,
        to: &T::File,
        range: Range<u64>,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end && !self.report.stopped() {
            let want = to_usize((range.end - at).min(to_u64(buf.len())));
            let got = self.source.read(from, at, &mut buf[..want])?;
            if got == 0 {
                break;
            }
            self.sink.write(to, at, &buf[..got])?;
            self.report.bytes(to_u64(got));
            at += to_u64(got);
        }
        Ok(())
    }
}

/// Splits `range` into parts of at most `size` bytes that end at multiples of `size`.
pub(super) fn parts(range: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = ((at / size + 1) * size).min(range.end);
        let part = at..end;
        at = end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryError;
    use crate::transfer::{HostDir, HostSink};
    use nextent::DiskTime;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A file that cannot be opened.
    struct Unreadable;

    impl Source for Unreadable {
        type Node = ();
        type File = ();

        fn show(&self, _: &()) -> String {
            "source".to_owned()
        }

        fn meta(&self, _: &()) -> Result<Meta> {
            unreachable!("the test gives attributes")
        }

        fn list(&self, _: &(), _: &mut dyn FnMut(Vec<u8>, ())) -> Result<()> {
            unreachable!("it is no directory")
        }

        fn open(&self, _: &(), _: &Meta) -> Result<()> {
            Err(EntryError::new("opened"))
        }

        fn data(&self, _: &(), _: &Meta) -> Result<Vec<Range<u64>>> {
            unreachable!("it is not open")
        }

        fn read(&self, _: &(), _: u64, _: &mut [u8]) -> Result<usize> {
            unreachable!("it is not open")
        }
    }

    fn meta(stream: bool) -> Meta {
        let time = DiskTime { seconds: 0, nanos: 0 };
        Meta {
            id: FileId::default(),
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            allocated: 0,
            atime: time,
            mtime: time,
            xattrs: Vec::new(),
            stream,
        }
    }

    /// The error of copying an unreadable file to `name` in `top`.
    fn error(sink: &HostSink, top: &Path, name: &str, stream: bool) -> String {
        let report = Report::new(&());
        let tree = Tree::new(&Unreadable, sink, &report, None);
        let (place, pending, up) = (HostSink::dir(top), AtomicUsize::new(1), None);
        let dir = Arc::new(Dir { node: (), place, meta: meta(false), pending, up });
        let copied = tree.one(&dir, name.as_bytes(), &(), meta(stream), &mut []);
        copied.expect_err("the source cannot be opened").to_string()
    }

    #[test]
    fn an_error_of_the_target_comes_before_one_of_the_source() {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let top = dir.path();
        let made = fs::create_dir(top.join("dir"))
            .and_then(|()| fs::write(top.join("file"), "old"))
            .and_then(|()| symlink("none", top.join("link")))
            .and_then(|()| fs::write(top.join("in-use"), "old"))
            .and_then(|()| fs::write(top.join("named"), "old"))
            .and_then(|()| fs::hard_link(top.join("named"), top.join("also")));
        made.expect("the temporary directory can be written");
        let place: HostDir = HostSink::dir(top);
        let plain = HostSink::new(false, Vec::new());
        let in_use = plain.identity(&place, b"in-use").expect("it was made");
        let named = plain.identity(&place, b"named").expect("it was made");
        for sink in [
            HostSink::new(false, vec![in_use, named]),
            HostSink::new(true, vec![in_use, named]).parting_names(true),
        ] {
            for stream in [false, true] {
                let error = |name: &str| error(&sink, top, name, stream);
                assert!(error("dir").contains("cannot overwrite a directory"));
                assert!(error("in-use").contains("not overwritten"));
                assert!(error("also").contains("not overwritten"));
                assert!(error("a/b").contains("name"), "{}", error("a/b"));
                for name in ["file", "link", "new"] {
                    assert_eq!(error(name), "opened");
                }
            }
        }
        // The target is as before.
        assert!(fs::symlink_metadata(top.join("link")).is_ok_and(|link| link.is_symlink()));
        assert_eq!(fs::read(top.join("file")).expect("it was made"), b"old");
        assert!(!top.join("new").exists());
    }
}
