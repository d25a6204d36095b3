//! Which inode numbers may be a file's, and lookups of numbers that come from disk.
//!
//! Numbers come from directory entries, the orphan list and file, records of fast commits,
//! attributes, and callers. Each may be wrong. None may lead to an inode that the format reserves,
//! or that the superblock uses for the volume itself: an operation would change the journal or the
//! orphan file of the running volume.
//!
//! | source | a wrong number is |
//! |---|---|
//! | an entry ([`Fs::named`], [`Fs::named_parent`]) | damage of the directory |
//! | the orphan list | damage of the list |
//! | the orphan file | an ignored entry |
//! | a record of a fast commit ([`Fs::recorded`]) | damage of the record |
//! | an attribute ([`Fs::value_inode`]) | damage of the attributes |
//! | a caller ([`Fs::inode`], [`Fs::any_inode`]) | [`Error::NotFound`] |

use nextent_ondisk::inode::flags;
use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{Compat, Corrupt, Geometry, InodeNo, RoCompat, Structure, Superblock};
use nextent_sync::Arc;

use super::fs::Fs;
use super::object::Inode;
use crate::FileType;
use crate::error::{Error, Result};

/// The inodes that the superblock names for the volume's own use; 0 for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnInodes {
    pub(crate) journal: InodeNo,
    orphan_file: InodeNo,
    /// The quota files of users, groups and projects.
    quota: [InodeNo; 3],
}

impl OwnInodes {
    /// The inodes that `sb` names, as far as its features make the fields valid.
    pub(crate) fn of(sb: &Superblock) -> Self {
        let features = sb.features();
        let named = |there: bool, number: u32| InodeNo(if there { number } else { 0 });
        let quota = features.has(RoCompat::QUOTA);
        Self {
            journal: named(features.has(Compat::HAS_JOURNAL), sb.journal_inum.get()),
            orphan_file: named(features.has(Compat::ORPHAN_FILE), sb.orphan_file_inum.get()),
            quota: [
                named(quota, sb.usr_quota_inum.get()),
                named(quota, sb.grp_quota_inum.get()),
                named(quota, sb.prj_quota_inum.get()),
            ],
        }
    }

    fn has(&self, ino: InodeNo) -> bool {
        ino == self.journal || ino == self.orphan_file || self.is_quota(ino)
    }

    fn is_quota(&self, ino: InodeNo) -> bool {
        ino.0 != 0 && self.quota.contains(&ino)
    }
}

/// Whether `ino` is the root or an unreserved number of the volume.
fn in_range(geometry: &Geometry, ino: InodeNo) -> bool {
    ino == ROOT_INO || (!geometry.is_reserved_inode(ino) && ino.0 <= geometry.inodes_count)
}

fn bad_entry(dir: InodeNo, name: &'static str, ino: InodeNo) -> Error {
    Corrupt::field(Structure::Directory, name, ino.0).at_inode(dir).into()
}

impl Fs {
    /// Whether `ino` may be a file's.
    pub(crate) fn may_be_file(&self, ino: InodeNo) -> bool {
        in_range(&self.geometry, ino) && !self.fixed.own.has(ino)
    }

    /// The inode that an entry of the directory `dir` refers to; the entry is neither `.` nor `..`.
    /// The caller holds the directory's lock, so the inode is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a free inode or a number that no entry may have; as
    /// [`inode`](Self::inode).
    pub(crate) fn named(&self, dir: InodeNo, ino: InodeNo) -> Result<Arc<Inode>> {
        self.check_named(dir, ino)?;
        match self.inode(ino) {
            Err(Error::NotFound) => Err(bad_entry(dir, "entry of a free inode", ino)),
            Ok(inode) if inode.snapshot().has_any(flags::EA_INODE) => {
                Err(bad_entry(dir, "entry of an attribute's value", ino))
            }
            found => found,
        }
    }

    /// Checks that an entry of the directory `dir`, neither `.` nor `..`, may have the number
    /// `ino`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if not.
    pub(crate) fn check_named(&self, dir: InodeNo, ino: InodeNo) -> Result<()> {
        if !self.may_be_file(ino) {
            return Err(bad_entry(dir, "entry of a reserved inode", ino));
        }
        if ino == ROOT_INO || ino == dir {
            return Err(bad_entry(dir, "entry of the root or the directory itself", ino));
        }
        Ok(())
    }

    /// Checks the number that `..` of the directory `dir` has.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an invalid one.
    pub(crate) fn named_parent(&self, dir: InodeNo, ino: InodeNo) -> Result<InodeNo> {
        // Only the root is its own parent.
        if self.may_be_file(ino) && (ino == dir) == (dir == ROOT_INO) {
            return Ok(ino);
        }
        Err(Corrupt::field(Structure::Directory, "inode of `..`", ino.0).at_inode(dir).into())
    }

    /// The inode of a record of a fast commit, in any state.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a number that no record may have; errors of reading the inode.
    pub(crate) fn recorded(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        if self.fixed.own.is_quota(ino) {
            return self.cached(ino);
        }
        self.check_recorded(ino)?;
        self.any_inode(ino)
    }

    /// Checks that a record of a fast commit may have the number `ino`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if not.
    pub(crate) fn check_recorded(&self, ino: InodeNo) -> Result<()> {
        match self.may_be_file(ino) || self.fixed.own.is_quota(ino) {
            true => Ok(()),
            false => Err(Corrupt::field(Structure::FastCommit, "inode number", ino.0).into()),
        }
    }

    /// The inode `ino` that stores an attribute's value of `size` bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it does not.
    pub(super) fn value_inode(&self, ino: InodeNo, size: u32) -> Result<Arc<Inode>> {
        let bad = |name| Corrupt::field(Structure::Xattr, name, ino.0);
        let inode = match self.inode(ino) {
            Err(Error::NotFound) => return Err(bad("e_value_inum").into()),
            found => found?,
        };
        let regular = inode.file_type() == Some(FileType::Regular);
        if !regular || !inode.snapshot().has_any(flags::EA_INODE) {
            return Err(bad("value inode without the flag EA_INODE").at_inode(ino).into());
        }
        let has = inode.with(|state| state.disk.size);
        if has != u64::from(size) {
            let error = Corrupt::field(Structure::Xattr, "e_value_size", size);
            return Err(error.at_inode(ino).into());
        }
        Ok(inode)
    }

    /// An inode of the volume's own use, not cached; a caller's number never leads to it.
    ///
    /// # Errors
    /// Errors of reading it.
    pub(crate) fn own_inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        Ok(Arc::new(self.load(ino)?))
    }
}
