//! What is to be changed.

use super::item::Differs;
use crate::host_source::HostNode;
use crate::trail::Trail;
use crate::transfer::FileId;
use nextent::inodes::InodeNo;
use nextent::{DiskTime, FileType};
use nextent_sync::Arc;

/// A directory that both trees have.
pub(super) struct Pair {
    pub(super) node: HostNode,
    pub(super) ino: InodeNo,
    pub(super) trail: Arc<Trail>,
    /// The time that the directory of the image gets after its last change.
    pub(super) mtime: DiskTime,
}

/// An entry of the source that the image lacks or has otherwise.
pub(super) struct Change {
    pub(super) trail: Arc<Trail>,
    pub(super) node: HostNode,
    pub(super) what: What,
}

pub(super) enum What {
    /// Make the entry in this directory, which has an entry of the type `old` with its name.
    Make { dir: Arc<Pair>, old: Option<FileType>, differs: Differs },
    /// Set attributes of this inode.
    Set { ino: InodeNo, differs: Differs },
}

/// An entry that the source lacks.
pub(super) struct Removal {
    pub(super) dir: Arc<Pair>,
    pub(super) name: Vec<u8>,
    pub(super) ino: InodeNo,
}

/// A name that both trees have, of files of one type, where either file has several names.
pub(super) struct LinkedName {
    pub(super) trail: Arc<Trail>,
    pub(super) node: HostNode,
    pub(super) dir: Arc<Pair>,
    /// The file of the source.
    pub(super) id: FileId,
    /// The file of the image.
    pub(super) ino: InodeNo,
    pub(super) kind: FileType,
    pub(super) differs: Differs,
}

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) removals: Vec<Removal>,
    pub(super) names: Vec<LinkedName>,
}

impl Plan {
    pub(super) fn append(&mut self, mut other: Self) {
        self.changes.append(&mut other.changes);
        self.removals.append(&mut other.removals);
        self.names.append(&mut other.names);
    }

    /// Puts all into the order of paths, so that directories come before their entries.
    pub(super) fn sort(&mut self) {
        self.changes.sort_by_cached_key(|change| change.trail.path());
        self.names.sort_by_cached_key(|name| name.trail.path());
        let key = |removal: &Removal| (removal.dir.trail.path(), removal.name.clone());
        self.removals.sort_by_cached_key(key);
    }
}
