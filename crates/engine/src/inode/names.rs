//! Names that were looked up lately, for each slot: the way along a path without a lock and
//! without a store that another core sees.
//!
//! An entry says what a name meant in a directory while the directory had a certain *edition*.
//! Who changes entries holds `inode.rw` exclusively and raises the edition before the first change;
//! entries are made under `inode.rw` held shared or exclusively, from what the directory then says.
//! So while the edition is an entry's, the entry is true. [`NameCache::find`] compares before and
//! after the caller looked at the file: a file seen as it was after its name went is not
//! believed, since its fields changed later than the edition, under a lock that the caller took.
//!
//! Entries keep the objects of directory and file, so a number that is used again cannot be taken
//! for the one it was: it is the same object, in a directory of another edition. They are few,
//! and the oldest make room; nothing else depends on them.

use std::hash::Hasher;

use nextent_num::to_usize;
use nextent_ondisk::InodeNo;
use nextent_sync::atomic::{Ordering, fence};
use nextent_sync::{Arc, BiasedMutex, PerCore};

use super::cache::Mix;
use super::locks;
use super::object::Inode;

/// Entries of a slot; a name has one place.
const ENTRIES: usize = 512;

/// What a name meant in an edition of a directory.
struct Entry {
    dir: Arc<Inode>,
    edition: u64,
    name: Vec<u8>,
    /// None if there is no such name.
    file: Option<Arc<Inode>>,
}

/// Entries of one slot; empty until it is used. `[names.slot]`
type Table = Vec<Option<Entry>>;

/// The names that slots looked up lately.
pub(crate) struct NameCache {
    slots: PerCore<BiasedMutex<Table>>,
}

impl NameCache {
    pub(crate) fn new() -> Self {
        Self { slots: PerCore::new(|_| BiasedMutex::new(&locks::NAMES, Table::new())) }
    }

    /// Calls `look` with the directory `dir` and what `name` is there, if that is known; its
    /// answer counts if it still is known afterwards and is not `None`.
    ///
    /// Takes `[names.slot]`; `look` must not wait for anything.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        dir: InodeNo,
        name: &[u8],
        look: impl FnOnce(&Inode, Option<&Arc<Inode>>) -> Option<R>,
    ) -> Option<R> {
        let table = self.slots.here().lock();
        let entry = table.get(place(dir, name))?.as_ref()?;
        if entry.dir.ino != dir || entry.name != name || entry.dir.edition() != entry.edition {
            return None;
        }
        let found = look(&entry.dir, entry.file.as_ref())?;
        // What was looked at is read before the edition is read again.
        fence(Ordering::Acquire);
        (entry.dir.edition() == entry.edition).then_some(found)
    }

    /// Forgets all names, and lets go of their inodes. Takes `[names.slot]`, one after another.
    pub(crate) fn clear(&self) {
        for slot in self.slots.used() {
            *slot.lock() = Table::new();
        }
    }

    /// Notes what `name` is in `dir`, whose `[inode.rw]` the caller has held since it looked.
    ///
    /// Takes `[names.slot]`.
    pub(crate) fn note(&self, dir: &Arc<Inode>, name: &[u8], file: Option<&Arc<Inode>>) {
        let mut table = self.slots.here().lock();
        if table.is_empty() {
            table.resize_with(ENTRIES, || None);
        }
        let at = &mut table[place(dir.ino, name)];
        let mut bytes = at.take().map(|entry| entry.name).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(name);
        let (dir, edition) = (Arc::clone(dir), dir.edition());
        *at = Some(Entry { dir, edition, name: bytes, file: file.cloned() });
    }
}

/// Where the entry of a name is. Names that collide take each other's place in the slots of
/// those who look them up, and nobody else's.
fn place(dir: InodeNo, name: &[u8]) -> usize {
    let mut hasher = Mix::default();
    hasher.write_u32(dir.0);
    hasher.write(name);
    to_usize(hasher.finish()) % ENTRIES
}
