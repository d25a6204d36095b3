//! What a synchronisation reports to the program.

use crate::Observer;
use nextent::FileType;

/// What is done to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// It is made: there was no such name.
    Create,
    /// It is replaced by a new file.
    Replace,
    /// It becomes another name of a file.
    Link,
    /// Its attributes are set.
    SetAttributes,
    /// It is removed.
    Remove,
}

/// In what an entry of the image differs from that of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is an attribute
pub struct Differs {
    /// The type. Nothing else is compared then.
    pub kind: bool,
    /// The contents of a file, the target of a link, or the number of a device.
    pub contents: bool,
    /// The length of a regular file.
    pub size: bool,
    /// The permission bits.
    pub mode: bool,
    /// The owner.
    pub owner: bool,
    /// The group.
    pub group: bool,
    /// The time of the last change of contents.
    pub time: bool,
    /// The access lists.
    pub lists: bool,
    /// Other extended attributes.
    pub xattrs: bool,
}

impl Differs {
    /// Whether a new file must take its place.
    pub(super) fn is_other_file(self) -> bool {
        self.kind || self.contents || self.size
    }

    pub(super) fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The path below the two directories, without a slash at its start; empty for these.
    pub path: &'a [u8],
    /// The type; of a replaced file, the new one.
    pub kind: FileType,
    /// What is done.
    pub action: Action,
    /// Why; nothing if the entry is created, removed or linked.
    pub differs: Differs,
}

/// Receives the events of a synchronisation. `()` ignores all.
pub trait SyncObserver: Observer {
    /// The entry has been changed, or would be in a dry run.
    fn item(&self, item: &Item<'_>) {
        let _ = item;
    }
}

impl SyncObserver for () {}
