//! Kinds of changes of an inode, and which of them a fast commit can make durable.
//!
//! The records of a fast commit carry a file's extents and its inode's bytes, over the state of the
//! last full commit ([`fast`](super::fast)). Everything else is durable only with its transaction.
//! So a change names its kind where the inode becomes dirty, and an inode that was changed by
//! another kind than [`Contents`](Change::Contents) is committed as a whole in that transaction,
//! even if its bytes are the same again afterwards.

use nextent_sync::injected;

/// What a change changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Size, times and version, and blocks that are added to the map or converted in it.
    Contents,
    /// Blocks that are taken out of the map, or moved in it: records only add.
    Layout,
    /// Mode, owner, flags, project. A change of mode, owner or flags that comes with another kind
    /// is noticed, see [`Inode::change`](super::Inode::change).
    Fields,
    /// Extended attributes and access lists: those in a block are not in the inode's bytes.
    Attributes,
    /// Names and their count: the names are in directories, and the count may be as it was.
    Names,
    /// The entries of a directory, and what counts them.
    Entries,
    /// Where recovery finds an inode that it must finish with.
    Orphan,
    /// The inode begins or ends; its number may have been another's in the same transaction.
    Life,
}

impl Change {
    /// Whether the records of a fast commit carry it.
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
