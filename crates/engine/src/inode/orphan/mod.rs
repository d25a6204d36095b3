//! Orphans: inodes that the next open must complete after a crash. These are files without a name
//! that are still open, and files that are being shortened.
//!
//! A new orphan is recorded in the orphan file, with one block per slot, if the volume has one with
//! free entries; else in the list whose head is in the superblock. The inode's state says where it
//! is recorded.

mod file;
mod list;

use nextent_store::Handle;
use nextent_sync::{Arc, OnceLock};

use super::change::Change;
use super::fs::Fs;
use super::object::{Inode, Orphan};

pub(crate) use file::OrphanFile;
use list::OrphanList;

/// The orphan file and the orphan list.
pub(crate) struct Orphans {
    list: OrphanList,
    file: OnceLock<OrphanFile>,
}

impl Orphans {
    pub(crate) fn new() -> Self {
        Self { list: OrphanList::new(), file: OnceLock::new() }
    }

    /// Sets the orphan file, once, at open.
    pub(crate) fn use_file(&self, file: OrphanFile) {
        let _ = self.file.set(file);
    }

    /// The orphan file.
    pub(crate) fn file(&self) -> Option<&OrphanFile> {
        self.file.get()
    }

    /// Whether there is no orphan.
    pub(crate) fn is_empty(&self) -> bool {
        let filed = |file: &OrphanFile| file.entries().is_empty();
        self.list.is_empty() && self.file.get().is_none_or(filed)
    }

    /// Makes `inode` an orphan unless it is one. The caller holds its `[inode.rw]` exclusively.
    pub(crate) fn add(&self, fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) {
        if inode.with(|state| state.orphan) != Orphan::No {
            return;
        }
        if let Some(place) = self.file.get().and_then(|file| file.add(h, inode.ino)) {
            inode.change(h, Change::Orphan, |state| state.orphan = place);
        } else {
            self.list.add(fs, h, inode);
        }
    }

    /// Makes `inode` no orphan. The caller holds `[inode.rw]` exclusively.
    pub(crate) fn remove(&self, fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) {
        match inode.with(|state| state.orphan) {
            Orphan::No => {}
            Orphan::Listed => self.list.remove(fs, h, inode),
            Orphan::Filed { block, entry } => {
                if let Some(file) = self.file.get() {
                    file.remove(h, block, entry);
                }
                inode.change(h, Change::Orphan, |state| state.orphan = Orphan::No);
            }
        }
    }

    /// Takes over the list found at open, its head first.
    pub(crate) fn adopt(&self, list: Vec<Arc<Inode>>) {
        self.list.adopt(list);
    }
}
