//! Listing directories.

use nextent::FileType;
use nextent::inodes::{Attr, InodeNo};

use super::{Caller, Server};
use crate::errno::{Result, of_node};
use crate::node::inode;

/// Entries read from the volume at a time: the directory is locked meanwhile.
const BATCH: usize = 128;

/// An entry of a directory, for a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The inode.
    pub(crate) ino: InodeNo,
    /// The kind, if the directory stores it.
    pub(crate) kind: Option<FileType>,
    /// The name.
    pub(crate) name: Vec<u8>,
    /// The position of the next entry.
    pub(crate) next: u64,
}

impl Listing {
    fn is_dots(&self) -> bool {
        matches!(&self.name[..], b"." | b"..")
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    Added,
    /// The name has gone.
    Skipped,
    /// There is no room for it: the listing ends here.
    Full,
}

impl Handed {
    pub(crate) fn added(added: bool) -> Self {
        if added { Self::Added } else { Self::Full }
    }
}

/// What a listing with attributes says of an entry.
pub(crate) enum Named<'a> {
    /// The node, counted for the kernel.
    Entered(&'a Attr),
    /// `.` or `..`: the kernel shows these and does not count them.
    Dots,
    /// The name exists, but its inode is damaged. A lookup of it reports the error.
    Damaged(FileType),
}

impl Server {
    /// Hands the entries after `cookie` to `each` until it is full or all were handed.
    ///
    /// # Errors
    /// Only before the first added entry: the kernel would drop entries that come with an error,
    /// and never forget the nodes that were counted for it. It asks again from the last entry, and
    /// then gets the error.
    pub(crate) fn list(
        &self,
        node: u64,
        mut cookie: u64,
        each: &mut dyn FnMut(&Listing) -> Handed,
    ) -> Result<()> {
        let ino = inode(node)?;
        if cookie == 0 {
            self.touch(ino);
        }
        let mut some = false;
        loop {
            let mut batch: Vec<Listing> = Vec::with_capacity(BATCH);
            let gather = &mut |entry: nextent::inodes::DirEntry<'_>| {
                let (ino, kind, next) = (entry.ino, entry.kind, entry.next);
                batch.push(Listing { ino, kind, name: entry.name.to_vec(), next });
                batch.len() < BATCH
            };
            let gathered = self.volume.readdir(ino, cookie, gather).map_err(of_node);
            for entry in &batch {
                match each(entry) {
                    Handed::Added => some = true,
                    Handed::Skipped => {}
                    Handed::Full => return Ok(()),
                }
                cookie = entry.next;
            }
            match gathered {
                Err(error) if !some => return Err(error),
                Ok(()) if batch.len() == BATCH => {}
                _ => return Ok(()),
            }
        }
    }

    /// As [`Self::list`], with each entry's attributes. Counts the nodes that `add` adds.
    pub(crate) fn list_entered(
        &self,
        who: Caller,
        dir: u64,
        cookie: u64,
        add: &mut dyn FnMut(&Listing, Named<'_>) -> bool,
    ) -> Result<()> {
        self.list(dir, cookie, &mut |entry| {
            if entry.is_dots() {
                return Handed::added(add(entry, Named::Dots));
            }
            // By name, since the entry may have gone and its number be another file's.
            let attr = match self.lookup(who, dir, &entry.name) {
                Ok(Some(attr)) => attr,
                Ok(None) => return Handed::Skipped,
                Err(_) => return Handed::added(add(entry, Named::Damaged(self.kind(entry)))),
            };
            let added = add(entry, Named::Entered(&attr));
            if !added {
                self.forget(crate::node::node(attr.ino), 1);
            }
            Handed::added(added)
        })
    }

    /// The kind of an entry's file, where the directory does not store it.
    pub(crate) fn kind(&self, entry: &Listing) -> FileType {
        let found = || self.volume.getattr(entry.ino).map(|attr| attr.kind);
        entry.kind.unwrap_or_else(|| found().unwrap_or(FileType::Regular))
    }
}
