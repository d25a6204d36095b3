//! The entries of a directory of an image, read a batch at a time.
//!
//! What is held does not grow with the directory, unless the caller asks for all of it in order.

use nextent::inodes::{InodeNo, Inodes};
use nextent::{Error, Result};

/// Entries that are read at once.
const BATCH: usize = 1024;

/// An entry of a directory.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: InodeNo,
    /// The place after it.
    next: u64,
}

/// A reader of one directory, which passes over `.` and `..`. Other entries may be added or
/// removed meanwhile: an entry that stays comes exactly once.
pub(crate) struct Listing {
    dir: InodeNo,
    /// What was read and not handed out.
    batch: std::vec::IntoIter<Entry>,
    /// The place after the last entry that was handed out.
    given: u64,
    /// The place after the last entry that was read.
    read: u64,
    /// What reading met behind the batch.
    error: Option<Error>,
    /// Nothing comes after the batch.
    done: bool,
}

impl Listing {
    /// A reader of the directory `dir`, at its start.
    pub(crate) fn of(dir: InodeNo) -> Self {
        let batch = Vec::new().into_iter();
        Self { dir, batch, given: 0, read: 0, error: None, done: false }
    }

    /// The next entry, none at the end. An error comes after all entries before it, once.
    pub(crate) fn next(&mut self, volume: &Inodes) -> Option<Result<Entry>> {
        if self.batch.as_slice().is_empty() && !self.done {
            self.fill(volume);
        }
        match self.batch.next() {
            Some(entry) => {
                self.given = entry.next;
                Some(Ok(entry))
            }
            None => self.error.take().map(Err),
        }
    }

    fn fill(&mut self, volume: &Inodes) {
        let (mut batch, mut read) = (Vec::new(), self.read);
        let listed = volume.readdir(self.dir, self.read, &mut |entry| {
            // Two names of one place would be parted: the next batch begins behind the place.
            if batch.len() >= BATCH && entry.next != read {
                return false;
            }
            read = entry.next;
            if !matches!(entry.name, b"." | b"..") {
                let (name, ino, next) = (entry.name.to_vec(), entry.ino, entry.next);
                batch.push(Entry { name, ino, next });
            }
            true
        });
        self.done = batch.len() < BATCH || listed.is_err();
        (self.read, self.error) = (read, listed.err());
        self.batch = batch.into_iter();
    }

    /// Bytes that are held, about.
    pub(crate) fn held(&self) -> usize {
        self.batch.len() * (size_of::<Entry>() + 16)
    }

    /// Lets go of what is held, which is read again when it is asked for.
    pub(crate) fn let_go(&mut self) {
        // As above.
        let parted = self.batch.as_slice().first().is_some_and(|entry| entry.next == self.given);
        if !parted && self.error.is_none() {
            (self.read, self.done) = (self.given, false);
            self.batch = Vec::new().into_iter();
        }
    }
}

/// All entries but `.` and `..`, sorted by name.
pub(crate) fn sorted(volume: &Inodes, dir: InodeNo) -> Result<Vec<Entry>> {
    let (mut all, mut listing) = (Vec::new(), Listing::of(dir));
    while let Some(entry) = listing.next(volume) {
        all.push(entry?);
    }
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}
