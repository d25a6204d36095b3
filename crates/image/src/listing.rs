//! Reads the entries of a directory of an image in batches.
//!
//! Memory does not grow with the directory, unless the caller asks for all entries in order.

use nextent::inodes::{InodeNo, Inodes};
use nextent::{Error, Result};

/// Entries of a batch.
const BATCH: usize = 1024;

/// An entry of a directory.
pub struct ListedEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode.
    pub ino: InodeNo,
    /// The position after it.
    next: u64,
}

/// A reader of one directory, which skips `.` and `..`. Entries may be added or removed meanwhile:
/// an entry that stays is returned exactly once.
pub struct Listing {
    dir: InodeNo,
    /// Entries that were read and not returned.
    batch: std::vec::IntoIter<ListedEntry>,
    /// The position after the last entry that was returned.
    given: u64,
    /// The position after the last entry that was read.
    read: u64,
    /// The error of reading after the batch.
    error: Option<Error>,
    /// The batch is the last.
    done: bool,
}

impl Listing {
    /// A reader of the directory `dir`, at its start.
    pub fn of(dir: InodeNo) -> Self {
        let batch = Vec::new().into_iter();
        Self { dir, batch, given: 0, read: 0, error: None, done: false }
    }

    /// The next entry, none at the end. An error is returned once, after all entries before it.
    pub fn next(&mut self, volume: &Inodes) -> Option<Result<ListedEntry>> {
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
            // Entries with the same position stay in one batch, since the next begins after it.
            if batch.len() >= BATCH && entry.next != read {
                return false;
            }
            read = entry.next;
            if !matches!(entry.name, b"." | b"..") {
                let (name, ino, next) = (entry.name.to_vec(), entry.ino, entry.next);
                batch.push(ListedEntry { name, ino, next });
            }
            true
        });
        self.done = batch.len() < BATCH || listed.is_err();
        (self.read, self.error) = (read, listed.err());
        self.batch = batch.into_iter();
    }

    /// The approximate bytes of the batch.
    pub fn held(&self) -> usize {
        self.batch.len() * (size_of::<ListedEntry>() + 16)
    }

    /// Frees the batch, which is read again when it is needed.
    pub fn let_go(&mut self) {
        // Not if entries of one position were partly returned.
        let parted = self.batch.as_slice().first().is_some_and(|entry| entry.next == self.given);
        if !parted && self.error.is_none() {
            (self.read, self.done) = (self.given, false);
            self.batch = Vec::new().into_iter();
        }
    }
}

/// All entries but `.` and `..`, sorted by name.
pub fn sorted(volume: &Inodes, dir: InodeNo) -> Result<Vec<ListedEntry>> {
    let (mut all, mut listing) = (Vec::new(), Listing::of(dir));
    while let Some(entry) = listing.next(volume) {
        all.push(entry?);
    }
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}
