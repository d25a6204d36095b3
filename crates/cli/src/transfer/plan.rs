//! A new image filled from a tree, the same each time.
//!
//! The calling thread makes names, attributes and places in sorted order, a directory's entries
//! before those below it. Workers run ahead of it, reading directories and attributes in the order
//! in which it will ask for them, and behind it, moving contents to the places it chose.

use super::entry::Meta;
use super::queue::{Queue, Slot};
use super::tree::parts;
use super::{BUFFER, FileId, Kind, PART, Report, Result, Sink, Source, Trouble};
use nextent_sync::{Arc, thread};
use std::collections::HashMap;
use std::ops::Range;

/// Directories that are read ahead.
const AHEAD: usize = 64;
/// Files whose contents may wait for a worker.
const WAITING: usize = 1024;

/// An entry of a directory, and what is known of it before it is made.
struct Found<S: Source> {
    name: Vec<u8>,
    node: S::Node,
    meta: Result<Meta>,
    /// Of files that have holes; others have data everywhere.
    holes: Option<Result<Vec<Range<u64>>>>,
}

type Listing<S> = Result<Vec<Found<S>>>;

/// A directory to be read.
struct List<S: Source> {
    node: S::Node,
    slot: Arc<Slot<Listing<S>>>,
}

/// Contents to be moved.
struct Move<S: Source, T: Sink> {
    node: S::Node,
    to: T::File,
    data: Vec<Range<u64>>,
    meta: Meta,
}

/// A directory that was made and is not filled.
struct Waiting<S: Source, T: Sink> {
    node: S::Node,
    place: T::Dir,
    meta: Meta,
    /// Where its listing will be, once asked for.
    slot: Option<Arc<Slot<Listing<S>>>>,
}

/// Both ends, and two queues: what the planner waits for is not behind what waits for it.
struct Works<'a, S: Source, T: Sink> {
    source: &'a S,
    sink: &'a T,
    report: &'a Report,
    lists: Queue<List<S>>,
    moves: Queue<Move<S, T>>,
}

/// Fills `top` with what is in the directory `node`; `adjust` changes attributes before use.
pub(crate) fn plan<S: Source, T: Sink>(
    (source, node): (&S, S::Node),
    (sink, top): (&T, T::Dir),
    report: &Report,
    workers: usize,
    adjust: &dyn Fn(&mut Meta),
) {
    let works = Works { source, sink, report, lists: Queue::new(), moves: Queue::new() };
    thread::scope(|scope| {
        for _ in 0..workers.div_ceil(2) {
            scope.spawn(|| works.run_lists());
        }
        for _ in 0..workers.max(1) {
            scope.spawn(|| works.run_moves());
        }
        let links = HashMap::new();
        Planner { works: &works, adjust, links, waiting: Vec::new() }.run(node, top);
        works.lists.done();
        works.moves.done();
    });
}

impl<S: Source, T: Sink> Works<'_, S, T> {
    fn fail(&self, node: &S::Node, trouble: &Trouble) {
        self.report.fail(&self.source.show(node), trouble);
    }

    fn run_lists(&self) {
        while let Some(List { node, slot }) = self.lists.oldest() {
            slot.set(self.list(&node));
            self.lists.done();
        }
    }

    fn list(&self, dir: &S::Node) -> Listing<S> {
        let mut found = Vec::new();
        self.source.list(dir, &mut |name, node| found.push((name, node)))?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let look = |(name, node)| {
            let meta = self.source.meta(&node);
            let holes = match &meta {
                Ok(meta) if meta.kind == Kind::File && meta.allocated < meta.size => {
                    let open = self.source.open(&node);
                    Some(open.and_then(|file| self.source.data(&file, meta)))
                }
                _ => None,
            };
            Found { name, node, meta, holes }
        };
        Ok(found.into_iter().map(look).collect())
    }

    fn run_moves(&self) {
        let mut buf = vec![0; BUFFER];
        while let Some(job) = self.moves.oldest() {
            if !self.report.stopped()
                && let Err(trouble) = self.contents(&job, &mut buf)
            {
                self.fail(&job.node, &trouble);
            }
            self.moves.done();
        }
    }

    /// Moves the contents of a file. What cannot be read is written as zeros: it has its place.
    fn contents(&self, job: &Move<S, T>, buf: &mut [u8]) -> Result<()> {
        let from = self.source.open(&job.node);
        let mut told = Ok(());
        for part in job.data.iter().cloned().flat_map(|range| parts(range, PART)) {
            let mut at = part.start;
            while at < part.end && !self.report.stopped() {
                let want = (part.end - at).min(buf.len() as u64) as usize;
                let piece = &mut buf[..want];
                let got = from.as_ref().map_err(Clone::clone);
                let got = got.and_then(|from| self.source.read(from, at, piece));
                let len = *got.as_ref().unwrap_or(&0);
                piece[len..].fill(0);
                told = told.and(got.map(drop));
                self.sink.write(&job.to, at, piece)?;
                self.report.bytes(want as u64);
                at += want as u64;
            }
        }
        self.sink.finish(&job.to, &job.meta)?;
        told
    }
}

struct Planner<'a, 'w, S: Source, T: Sink> {
    works: &'w Works<'a, S, T>,
    adjust: &'w dyn Fn(&mut Meta),
    links: HashMap<FileId, T::Node>,
    /// The next directory last.
    waiting: Vec<Waiting<S, T>>,
}

impl<S: Source, T: Sink> Planner<'_, '_, S, T> {
    fn run(&mut self, node: S::Node, top: T::Dir) {
        match self.works.source.meta(&node) {
            Ok(mut meta) => {
                (self.adjust)(&mut meta);
                self.waiting.push(Waiting { node, place: top, meta, slot: None });
            }
            Err(trouble) => self.works.fail(&node, &trouble),
        }
        while !self.works.report.stopped() {
            self.ask();
            let Some(dir) = self.waiting.pop() else { break };
            self.fill(dir);
        }
    }

    /// Asks for the listings of the directories that come next.
    fn ask(&mut self) {
        let unasked = |dir: &&mut Waiting<S, T>| dir.slot.is_none();
        for dir in self.waiting.iter_mut().rev().take(AHEAD).filter(unasked) {
            let slot = Slot::new();
            dir.slot = Some(Arc::clone(&slot));
            self.works.lists.push(List { node: dir.node.clone(), slot });
        }
    }

    fn fill(&mut self, dir: Waiting<S, T>) {
        let listing = dir.slot.as_ref().map_or_else(|| self.works.list(&dir.node), |s| s.take());
        let first = self.waiting.len();
        match listing {
            Ok(found) => {
                for found in found {
                    if self.works.report.stopped() {
                        return;
                    }
                    self.works.report.file();
                    let node = found.node.clone();
                    if let Err(trouble) = self.one(&dir.place, found) {
                        self.works.fail(&node, &trouble);
                    }
                }
            }
            Err(trouble) => self.works.fail(&dir.node, &trouble),
        }
        self.waiting[first..].reverse();
        if let Err(trouble) = self.works.sink.finish_dir(&dir.place, &dir.meta) {
            self.works.fail(&dir.node, &trouble);
        }
    }

    fn one(&mut self, dir: &T::Dir, found: Found<S>) -> Result<()> {
        let Found { name, node, meta, holes } = found;
        let mut meta = meta?;
        (self.adjust)(&mut meta);
        let sink = self.works.sink;
        if meta.kind == Kind::Dir {
            let place = sink.make_dir(dir, &name, &meta)?;
            self.waiting.push(Waiting { node, place, meta, slot: None });
            return Ok(());
        }
        if meta.links > 1
            && let Some(target) = self.links.get(&meta.id)
        {
            return sink.link(target, dir, &name);
        }
        let (id, shared) = (meta.id, meta.links > 1);
        let target = if meta.kind == Kind::File {
            let data = holes.unwrap_or_else(|| Ok(meta.whole()))?;
            let (to, target) = sink.create(dir, &name, &meta, &data)?;
            if data.is_empty() {
                sink.finish(&to, &meta)?;
            } else {
                self.works.moves.push_within(Move { node, to, data, meta }, WAITING);
            }
            target
        } else {
            sink.special(dir, &name, &meta)?
        };
        if shared {
            self.links.insert(id, target);
        }
        Ok(())
    }
}
