//! Kinds of changes of an inode, and which of them a fast commit can make durable.
//!
//! The records of a fast commit contain a file's extents and its inode's bytes, relative to the
//! last full commit ([`fast`](super::fast)). All other changes become durable only with their
//! transaction. So each change states its kind when the inode becomes dirty. After a change of
//! another kind than [`Contents`](Change::Contents) the inode needs a full commit of that
//! transaction, even if its bytes are the same again afterwards.

use nextent_sync::injected;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Size, times and version; blocks that are added to the map or converted in it.
    Contents,
    /// Blocks that are unmapped or moved: records only add blocks.
    Layout,
    /// Mode, owner, flags, project. [`Inode::change`](super::Inode::change) also detects changes of
    /// mode, owner or flags that come with another kind.
    Fields,
    /// Extended attributes and access lists: those in a block are not in the inode's bytes.
    Attributes,
    /// Names and link count: names are in directories, and the count may be the same again.
    Names,
    /// The entries of a directory, and the counts derived from them.
    Entries,
    /// The place where recovery finds an orphan.
    Orphan,
    /// Allocation or freeing of the inode; its number may have been another file's in the same
    /// transaction.
    Life,
}

impl Change {
    /// Whether the records of a fast commit contain it.
    #[inline(always)]
    pub(super) fn is_in_records(self) -> bool {
        match self {
            Self::Contents => true,
            Self::Layout => injected("lost-blocks-stay-fast"),
            Self::Attributes => injected("attributes-stay-fast"),
            Self::Names => injected("names-stay-fast"),
            Self::Fields | Self::Entries | Self::Orphan | Self::Life => false,
        }
    }
}
