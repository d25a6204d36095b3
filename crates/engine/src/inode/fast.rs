//! A file's contents as records of a fast commit.
//!
//! Restrictions, so that the records need only the last full commit:
//!
//! - Only regular files of which the transaction changed nothing but contents, as the kinds of all
//!   changes say ([`change`](super::change)).
//! - All extents are recorded, since replay skips those that are already in place. They must fit
//!   into the inode: a replay that needs a tree node allocates a block for it, and e2fsck 1.47
//!   allocates one that a later record uses.
//! - All extents are written: Linux 6.18 marks an unwritten extent as written when it replays the
//!   record again.
//! - The file has no attribute block: e2fsck 1.47 does not count it in the file's blocks when it
//!   replays the inode.

use nextent_ondisk::extent::{Extent as DiskExtent, ROOT_ENTRIES};
use nextent_ondisk::{BlockNo, FileBlock, Tid, fast_commit, inode as format};
use nextent_sync::{Arc, injected};

use super::fs::Fs;
use super::object::{Inode, Orphan};
use crate::FileType;
use crate::alloc::Privilege;
use crate::error::Result;
use crate::map::{self, Extent, ExtentState, MapKind};

/// The records for one file.
pub(crate) struct Records {
    pub(crate) list: Vec<Vec<u8>>,
    /// The number of the last change of the inode that they contain.
    pub(crate) change: u64,
}

/// The records of `inode` as it is in `tid`, the running transaction; all earlier transactions are
/// rendered. `None` if the inode needs a full commit. The caller holds `[inode.rw]`.
pub(crate) fn records(fs: &Fs, inode: &Arc<Inode>, tid: Tid) -> Result<Option<Records>> {
    let root = inode.map.read();
    if inode.file_type() != Some(FileType::Regular) || root.kind() != MapKind::Extents {
        return Ok(None);
    }
    let Some((bytes, change)) = inode.contents_in(tid) else { return Ok(None) };
    let mut list = Vec::new();
    let cx = fs.map_cx(inode, Privilege::User);
    for extent in map::extents(&cx, &root, FileBlock(0)) {
        let extent = extent?;
        if extent.state == ExtentState::Unwritten {
            return Ok(None);
        }
        list.extend(parts(extent).map(|part| fast_commit::add_range(inode.ino, part)));
        if list.len() > usize::from(ROOT_ENTRIES) {
            return Ok(None);
        }
    }
    list.push(fast_commit::inode(inode.ino, &bytes));
    let fits = list.iter().all(|record| record.len() <= fs.store.longest_record());
    Ok(fits.then_some(Records { list, change }))
}

/// A written extent, in parts that fit into an entry of a node.
fn parts(extent: Extent) -> impl Iterator<Item = DiskExtent> {
    let most = DiskExtent::max_len(false);
    (0..extent.len.div_ceil(most)).map(move |n| {
        let skip = n * most;
        DiskExtent {
            block: FileBlock(extent.at.get() + skip),
            len: (extent.len - skip).min(most),
            start: BlockNo(extent.start.0 + u64::from(skip)),
            unwritten: false,
        }
    })
}

impl Inode {
    /// Whether records can contain all changes that `tid` has made so far, by their kinds.
    pub(crate) fn has_only_contents_changed(&self, tid: Tid) -> bool {
        self.with(|state| state.unrecorded != Some(tid))
    }

    /// The current bytes and the number of the last change, if `tid` changed only contents relative
    /// to the table block. The kinds of the changes say so; the bytes are compared as well.
    fn contents_in(&self, tid: Tid) -> Option<(Box<[u8]>, u64)> {
        self.with_bytes(|state, bytes, committed| {
            let whole = state.orphan == Orphan::No
                && state.disk.links > 0
                && (state.disk.file_acl == BlockNo(0) || injected("attributes-stay-fast"))
                && state.unrecorded != Some(tid)
                && format::differ_in_contents(committed, &bytes);
            whole.then_some((bytes, state.change))
        })
    }
}
