//! Listing directories.

use nextent::{Attr, FileType, InodeNo};

use super::{Caller, Server};
use crate::errno::{Result, of_node};
use crate::node::inode;

/// Entries taken from the volume at a time: a directory is locked while they are gathered.
const BATCH: usize = 128;

/// An entry of a directory, for a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The inode.
    pub(crate) ino: InodeNo,
    /// The kind, if the directory says.
    pub(crate) kind: Option<FileType>,
    /// The name.
    pub(crate) name: Vec<u8>,
    /// Where to go on.
    pub(crate) next: u64,
}

impl Listing {
    /// Whether it is the directory itself or the one above.
    pub(crate) fn is_dots(&self) -> bool {
        matches!(&self.name[..], b"." | b"..")
    }
}

impl Server {
    /// Hands the entries after `cookie` to `each` until it returns false or all were handed.
    pub(crate) fn list(
        &self,
        node: u64,
        mut cookie: u64,
        each: &mut dyn FnMut(&Listing) -> bool,
    ) -> Result<()> {
        let ino = inode(node)?;
        if cookie == 0 {
            self.touch(ino)?;
        }
        loop {
            let mut batch: Vec<Listing> = Vec::with_capacity(BATCH);
            let gather = &mut |entry: nextent::DirEntry<'_>| {
                let (ino, kind, next) = (entry.ino, entry.kind, entry.next);
                batch.push(Listing { ino, kind, name: entry.name.to_vec(), next });
                batch.len() < BATCH
            };
            let gathered = self.volume.readdir(ino, cookie, gather).map_err(of_node);
            let more = batch.len() == BATCH;
            for entry in &batch {
                if !each(entry) {
                    return Ok(());
                }
                cookie = entry.next;
            }
            // An error comes after the entries before it, as with Linux.
            gathered?;
            if !more {
                return Ok(());
            }
        }
    }

    /// The kind of what an entry names, where the directory does not say.
    pub(crate) fn kind(&self, entry: &Listing) -> FileType {
        let found = || self.volume.getattr(entry.ino).map(|attr| attr.kind);
        entry.kind.unwrap_or_else(|| found().unwrap_or(FileType::Regular))
    }

    /// The attributes of what an entry names, entered as a lookup would; none if it has gone.
    ///
    /// # Errors
    /// What a lookup says: the name is there, but damaged.
    pub(crate) fn enter_entry(
        &self,
        who: Caller,
        dir: u64,
        entry: &Listing,
    ) -> Result<Option<Attr>> {
        // By name, since the entry may have gone and its number be another file's.
        self.lookup(who, dir, &entry.name)
    }
}
