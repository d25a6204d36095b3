//! Entries of streams that have no effect in the end: later entries and whiteouts remove what they
//! make.
//!
//! An image whose size follows from its contents has no space for them. The pass that measures the
//! contents logs the entries and finds those whose inode is gone at the end. The pass that copies
//! leaves them out.
//!
//! | an entry whose inode is gone | the second pass |
//! |---|---|
//! | with a name that was free | leaves it out |
//! | that took the place of another one | removes the other one, and makes nothing |
//! | a symbolic link | makes it: paths of later entries may lead through it |
//!
//! Parents of later entries are made as those without an entry are. An entry is known by its number
//! in the stream and by its path: a directory of the host may have changed in between.

use nextent::inodes::{InodeNo, Inodes};
use nextent_num::{must_fit, to_usize};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What to do with an entry whose inode is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// It is made nevertheless.
    Nothing,
    /// Its place is cleared, and it is not made.
    File,
    /// It has no effect.
    Entry,
}

/// The inode that an entry made, or of which it made a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedEntry {
    /// The number of the entry in its stream; none for a directory without an entry.
    pub(super) number: Option<u32>,
    pub(super) ino: InodeNo,
    /// The inode is new.
    pub(super) is_new: bool,
    pub(super) without: Without,
}

/// The entries of all streams.
#[derive(Default)]
pub(super) struct EntryLog {
    entries: Vec<(u32, u64, LoggedEntry)>,
    streams: u32,
    removed: bool,
}

impl EntryLog {
    /// The next entries are of another stream.
    pub(super) fn next_stream(&mut self) {
        self.streams += 1;
    }

    pub(super) fn add(&mut self, path: &[u8], entry: LoggedEntry) {
        self.entries.push((self.streams - 1, hash(path), entry));
    }

    /// A name was removed.
    pub(super) fn removes(&mut self) {
        self.removed = true;
    }

    /// The entries whose inodes are gone from `volume`.
    pub(super) fn finish(self, volume: &Inodes) -> Superseded {
        let mut found = Superseded::default();
        if !self.removed {
            return found;
        }
        found.0.resize_with(to_usize(self.streams), HashMap::new);
        // Numbers of inodes are reused: before the entry that made an inode, its number was another
        // inode's.
        let (mut reused, mut present) = (HashSet::new(), HashMap::new());
        for (stream, path, entry) in self.entries.into_iter().rev() {
            let ino = entry.ino;
            let has_names = || volume.getattr(ino).is_ok_and(|attr| attr.links > 0);
            let is_gone = reused.contains(&ino) || !*present.entry(ino).or_insert_with(has_names);
            if let Some(number) = entry.number
                && is_gone
                && entry.without != Without::Nothing
            {
                found.0[to_usize(stream)].insert(number, (path, entry.without));
            }
            if entry.is_new {
                reused.insert(ino);
            }
        }
        found
    }
}

/// Entries whose inodes are gone at the end, by stream and number.
#[derive(Default)]
pub(super) struct Superseded(Vec<HashMap<u32, (u64, Without)>>);

impl Superseded {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(HashMap::is_empty)
    }

    /// What to leave out of the entry `number` of a stream.
    fn without(&self, stream: usize, number: u32, path: &[u8]) -> Without {
        let found = self.0.get(stream).and_then(|stream| stream.get(&number));
        match found {
            Some((of, without)) if *of == hash(path) => *without,
            _ => Without::Nothing,
        }
    }
}

fn hash(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// What the reader of a stream does about superseded entries.
pub(super) enum Track<'t> {
    /// Nothing.
    None,
    /// It logs entries.
    Log(&'t mut EntryLog),
    /// It leaves out superseded entries of the stream with this number.
    Skip(&'t Superseded, usize),
}

impl Track<'_> {
    pub(super) fn without(&self, number: u64, path: &[u8]) -> Without {
        match self {
            Self::Skip(superseded, stream) => match u32::try_from(number) {
                Ok(number) => superseded.without(*stream, number, path),
                Err(_) => Without::Nothing,
            },
            _ => Without::Nothing,
        }
    }

    pub(super) fn add(&mut self, number: Option<u64>, path: &[u8], entry: LoggedEntry) {
        if let Self::Log(log) = self {
            // Entries with larger numbers are made.
            let number = number.filter(|number| *number <= u64::from(u32::MAX)).map(must_fit);
            log.add(path, LoggedEntry { number, ..entry });
        }
    }

    pub(super) fn removes(&mut self) {
        if let Self::Log(log) = self {
            log.removes();
        }
    }
}
