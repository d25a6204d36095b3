//! Attributes of a copied file, given to an inode of an image: in one place, in one order.
//!
//! | step | why then |
//! |---|---|
//! | length | the data is written |
//! | owner, group | a change of owner takes set-id bits and `security.capability` away |
//! | mode | an access list changes what the group's bits mean |
//! | access lists | an inherited list, or one of a file that is overwritten, goes where the source has none: it could let others in |
//! | other attributes | after the owner, for the reason above |
//! | times | each step before sets the time of change |

use super::entry::{Kind, Meta, Xattr};
use super::{Result, Trouble};
use nextent::inodes::{InodeNo, Inodes, SetAttr, SetTime, XattrMode};
use nextent::{Cred, Error};

/// Attributes that hold access lists.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Gives `ino` what `meta` says, and the length `size`.
///
/// # Errors
/// The worst of what the steps met; all are tried, but after a fatal trouble.
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
    let told = set_xattrs(volume, cred, ino, meta);
    volume.setattr(cred, ino, &times(meta))?;
    told
}

/// The times of `meta`.
fn times(meta: &Meta) -> SetAttr {
    SetAttr {
        atime: Some(SetTime::At(meta.atime)),
        mtime: Some(SetTime::At(meta.mtime)),
        ..SetAttr::default()
    }
}

/// Everything that `meta` says and one call can set, for a file that is made with it: it has no
/// attributes yet that a change of owner could take away.
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

/// Sets the extended attributes of `meta`, lists first, and removes lists that it has not. One that
/// does not fit is the file's own trouble; one that ext4 has no place for is left out.
pub(super) fn set_xattrs(volume: &Inodes, cred: &Cred, ino: InodeNo, meta: &Meta) -> Result<()> {
    let mut told = remove_lists(volume, cred, ino, meta);
    let is_list = |name: &[u8]| LISTS.contains(&name);
    let (lists, others): (Vec<_>, Vec<_>) = meta.xattrs.iter().partition(|(name, _)| is_list(name));
    for (name, value) in lists.into_iter().chain(others) {
        let done = match volume.setxattr(cred, ino, name, value, XattrMode::Either) {
            Err(Error::NotSupported) => {
                let shown = name.escape_ascii();
                Err(Trouble::note(format!("ext4 has no place for the attribute {shown}; left out")))
            }
            done => done.map_err(|error| {
                Trouble::from(error).mild().at(&format!("setxattr {}", name.escape_ascii()))
            }),
        };
        told = Trouble::worse(told, done);
    }
    told
}

/// Takes the access lists from a directory that was made with `mode`: it has the bits of that mode
/// then, and set-group-id if it inherited that.
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

/// Removes access lists of the target that the source has not.
fn remove_lists(volume: &Inodes, cred: &Cred, ino: InodeNo, meta: &Meta) -> Result<()> {
    if matches!(meta.kind, Kind::Symlink(_)) {
        return Ok(());
    }
    remove_other_lists(volume, cred, ino, &meta.xattrs)
}

/// Removes access lists but those in `keep`.
fn remove_other_lists(volume: &Inodes, cred: &Cred, ino: InodeNo, keep: &[Xattr]) -> Result<()> {
    for name in volume.listxattr(cred, ino)? {
        let theirs = keep.iter().any(|(other, _)| *other == name);
        if !theirs && LISTS.contains(&name.as_slice()) {
            match volume.removexattr(cred, ino, &name) {
                Ok(()) | Err(Error::NoData) => {}
                Err(error) => return Err(Trouble::from(error).at("removal of an access list")),
            }
        }
    }
    Ok(())
}
