//! The name cache: names that each slot looked up recently. It resolves a path without a shared
//! lock and without a shared store.
//!
//! An entry says what a name referred to in a directory while the *sequence number* of the
//! directory's entries had a certain value. Invariants:
//!
//! - A thread that changes entries holds `inode.rw` exclusively and raises the sequence number
//!   before the first change.
//! - A thread adds to the cache under `inode.rw`, held shared or exclusively, what the directory
//!   contains then.
//!
//! So an entry is true while the sequence number is its own. [`NameCache::find`] compares the
//! numbers before and after the caller reads the file. A file that changed after its name was
//! removed is not returned, because its fields changed later than the sequence number, under a lock
//! that the reader took.
//!
//! Entries reference the objects of directory and file. So a reused number is not taken for the old
//! file: it is the same object, in a directory whose sequence number has changed. The cache is
//! small, newer entries replace older ones, and nothing else depends on it.

use std::hash::Hasher;

use nextent_num::to_usize;
use nextent_ondisk::InodeNo;
use nextent_sync::atomic::{Ordering, fence};
use nextent_sync::{Arc, BiasedMutex, PerCore};

use super::cache::NumberHasher;
use super::locks;
use super::object::Inode;

/// Entries of a slot's table; each name has one index.
const ENTRIES: usize = 512;

/// What a name referred to at a sequence number of a directory's entries.
struct CachedName {
    dir: Arc<Inode>,
    seq: u64,
    name: Vec<u8>,
    /// `None` if there was no such name.
    file: Option<Arc<Inode>>,
}

/// The entries of one slot; empty until it is used. `[names.slot]`
type Table = Vec<Option<CachedName>>;

/// The name cache.
pub(crate) struct NameCache {
    slots: PerCore<BiasedMutex<Table>>,
}

impl NameCache {
    pub(crate) fn new() -> Self {
        Self { slots: PerCore::new(|_| BiasedMutex::new(&locks::NAMES, Table::new())) }
    }

    /// Calls `look` with the directory `dir` and the file that `name` refers to, if that is cached.
    /// Returns its result unless the entry is out of date afterwards.
    ///
    /// Takes `[names.slot]`; `look` must not wait.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        dir: InodeNo,
        name: &[u8],
        look: impl FnOnce(&Inode, Option<&Arc<Inode>>) -> Option<R>,
    ) -> Option<R> {
        let table = self.slots.here().lock();
        let entry = table.get(index_of(dir, name))?.as_ref()?;
        if entry.dir.ino != dir || entry.name != name || entry.dir.entries_seq() != entry.seq {
            return None;
        }
        let found = look(&entry.dir, entry.file.as_ref())?;
        // Reads of the file come before the second read of the sequence number.
        fence(Ordering::Acquire);
        (entry.dir.entries_seq() == entry.seq).then_some(found)
    }

    /// Drops all entries, which releases their inodes. Takes `[names.slot]`, one after another.
    pub(crate) fn clear(&self) {
        for slot in self.slots.used() {
            *slot.lock() = Table::new();
        }
    }

    /// Caches what `name` refers to in `dir`. The caller has held `[inode.rw]` of `dir` since the
    /// lookup.
    ///
    /// Takes `[names.slot]`.
    pub(crate) fn note(&self, dir: &Arc<Inode>, name: &[u8], file: Option<&Arc<Inode>>) {
        let mut table = self.slots.here().lock();
        if table.is_empty() {
            table.resize_with(ENTRIES, || None);
        }
        let at = &mut table[index_of(dir.ino, name)];
        let mut bytes = at.take().map(|entry| entry.name).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(name);
        let (dir, seq) = (Arc::clone(dir), dir.entries_seq());
        *at = Some(CachedName { dir, seq, name: bytes, file: file.cloned() });
    }
}

/// The index of a name's entry. Names that collide replace each other only in the tables of slots
/// that look up both.
fn index_of(dir: InodeNo, name: &[u8]) -> usize {
    let mut hasher = NumberHasher::default();
    hasher.write_u32(dir.0);
    hasher.write(name);
    to_usize(hasher.finish()) % ENTRIES
}
