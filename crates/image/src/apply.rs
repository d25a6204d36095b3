//! Sets the attributes of a copied file on an inode of an image. No other module does, and the
//! order matters:
//!
//! | step | why then |
//! |---|---|
//! | length | the data is written |
//! | owner, group | a change of owner removes set-id bits and `security.capability` |
//! | mode | an access list changes the meaning of the group's bits |
//! | access lists | an inherited list, or one of an overwritten file, is removed if the source has none: it could admit other users |
//! | other attributes | after the owner, which would remove `security.capability` |
//! | times | each earlier step sets the time of change |

use super::entry::{Kind, Meta, Xattr};
use super::{EntryError, Result};
use nextent::inodes::{InodeNo, Inodes, SetAttr, SetTime, XattrMode};
use nextent::{Cred, Error};

/// Attributes that hold access lists.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Sets the attributes `meta` and the length `size` on `ino`.
///
/// # Errors
/// The worst error of the steps. All are tried, except after a fatal error.
pub(super) fn apply(
    volume: &Inodes,
    cred: &Cred,
    ino: InodeNo,
    meta: &Meta,
    size: Option<u64>,
) -> Result<()> {
    let link = matches!(meta.kind, Kind::Symlink(_));
    let mode = (!link).then_some(meta.mode);
    let owner =
        SetAttr { size, mode, uid: Some(meta.uid), gid: Some(meta.gid), ..SetAttr::default() };
    volume.setattr(cred, ino, &owner)?;
    let result = set_xattrs(volume, cred, ino, meta);
    volume.setattr(cred, ino, &times(meta))?;
    result
}

/// Sets the attributes `meta` on `ino`, a new file, except its times.
///
/// # Errors
/// As [`apply`].
pub(super) fn apply_without_times(
    volume: &Inodes,
    cred: &Cred,
    ino: InodeNo,
    meta: &Meta,
) -> Result<()> {
    let (uid, gid, mode) = (Some(meta.uid), Some(meta.gid), Some(meta.mode));
    volume.setattr(cred, ino, &SetAttr { uid, gid, mode, ..SetAttr::default() })?;
    set_xattrs(volume, cred, ino, meta)
}

/// The times of `meta`.
fn times(meta: &Meta) -> SetAttr {
    SetAttr {
        atime: Some(SetTime::At(meta.atime)),
        mtime: Some(SetTime::At(meta.mtime)),
        ..SetAttr::default()
    }
}

/// All attributes of `meta` that one call can set on a new file, which has no extended attributes
/// yet that a change of owner could remove.
pub(super) fn at_birth(meta: &Meta) -> SetAttr {
    let link = matches!(meta.kind, Kind::Symlink(_));
    SetAttr {
        size: Some(meta.size),
        mode: (!link).then_some(meta.mode),
        uid: Some(meta.uid),
        gid: Some(meta.gid),
        ..times(meta)
    }
}

/// Sets the extended attributes of `meta`, access lists first, and removes access lists that `meta`
/// does not have. An attribute that does not fit fails this file; one that ext4 cannot store is
/// left out.
pub(super) fn set_xattrs(volume: &Inodes, cred: &Cred, ino: InodeNo, meta: &Meta) -> Result<()> {
    let mut result = remove_lists(volume, cred, ino, meta);
    let is_list = |name: &[u8]| LISTS.contains(&name);
    let (lists, others): (Vec<_>, Vec<_>) = meta.xattrs.iter().partition(|(name, _)| is_list(name));
    for (name, value) in lists.into_iter().chain(others) {
        let done = match volume.setxattr(cred, ino, name, value, XattrMode::Either) {
            Err(Error::NotSupported) => {
                let shown = name.escape_ascii();
                Err(EntryError::note(format!("ext4 cannot store the attribute {shown}; left out")))
            }
            done => done.map_err(|error| {
                EntryError::from(error).mild().at(&format!("setxattr {}", name.escape_ascii()))
            }),
        };
        result = EntryError::worse(result, done);
    }
    result
}

/// Removes the access lists from a directory that was made with `mode`. It then has the bits of
/// that mode, and an inherited set-group-id bit.
pub(super) fn without_lists(volume: &Inodes, cred: &Cred, ino: InodeNo, mode: u16) -> Result<()> {
    remove_other_lists(volume, cred, ino, &[])?;
    let now = volume.getattr(ino)?.mode & 0o7777;
    let mode = mode | now & 0o2000;
    if now != mode {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        volume.setattr(cred, ino, &set)?;
    }
    Ok(())
}

/// Removes access lists of the target that the source does not have.
fn remove_lists(volume: &Inodes, cred: &Cred, ino: InodeNo, meta: &Meta) -> Result<()> {
    if matches!(meta.kind, Kind::Symlink(_)) {
        return Ok(());
    }
    remove_other_lists(volume, cred, ino, &meta.xattrs)
}

/// Removes access lists except those in `keep`.
fn remove_other_lists(volume: &Inodes, cred: &Cred, ino: InodeNo, keep: &[Xattr]) -> Result<()> {
    for name in volume.listxattr(cred, ino)? {
        let theirs = keep.iter().any(|(other, _)| *other == name);
        if !theirs && LISTS.contains(&name.as_slice()) {
            match volume.removexattr(cred, ino, &name) {
                Ok(()) | Err(Error::NoData) => {}
                Err(error) => return Err(EntryError::from(error).at("removing an access list")),
            }
        }
    }
    Ok(())
}
