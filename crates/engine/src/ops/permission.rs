//! Permissions: mode bits, access lists, inode flags.

use nextent_ondisk::inode::{Inode as Fields, flags, mode};

use crate::error::{Error, Result};
use crate::inode::{Fs, Inode, Snapshot, attributes};
use crate::{Access, Cred, FileType};

/// Whether `cred` has the access `want` to `inode`.
///
/// # Errors
/// [`Error::Access`]; for writing also [`Error::ReadOnly`] and, for an immutable file,
/// [`Error::Perm`].
pub(crate) fn may(fs: &Fs, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
    let snapshot = inode.snapshot();
    let (bits, kind) = (snapshot.mode(), snapshot.file_type());
    if want.write {
        let on_volume =
            matches!(kind, Some(FileType::Regular | FileType::Directory | FileType::Symlink));
        if on_volume {
            fs.check_writable()?;
        }
        if snapshot.has_any(flags::IMMUTABLE) {
            return Err(Error::Perm);
        }
    }
    if cred.privileged {
        let runnable = kind == Some(FileType::Directory) || bits & 0o111 != 0;
        return if want.execute && !runnable { Err(Error::Access) } else { Ok(()) };
    }
    if granted(fs, cred, inode, snapshot, want)? { Ok(()) } else { Err(Error::Access) }
}

/// Whether `inode` is a directory that `cred` may search, as far as that is known without a lock.
/// It does not read access lists: if it returns false, [`may`] decides.
#[inline]
pub(crate) fn may_pass(cred: &Cred, inode: &Inode) -> bool {
    let snapshot = inode.snapshot();
    if snapshot.file_type() != Some(FileType::Directory) {
        return false;
    }
    if cred.privileged {
        return true;
    }
    let (uid, gid) = inode.owner();
    let shift = if cred.uid == uid {
        6
    } else if snapshot.may_have_acl() {
        return false;
    } else if cred.in_group(gid) {
        3
    } else {
        0
    };
    snapshot.mode() >> shift & 1 != 0
}

/// Whether mode bits or access list grant what `cred` wants.
fn granted(fs: &Fs, cred: &Cred, inode: &Inode, snapshot: Snapshot, want: Access) -> Result<bool> {
    let (mode, owner) = (snapshot.mode(), inode.owner());
    let grants = |digit: u16| want.bits() & !digit == 0;
    if !decides_list(cred, mode, owner) || !snapshot.may_have_acl() {
        return Ok(grants(digit_of(cred, mode, owner)));
    }
    // Mode and owner are read again, consistent with the list.
    let rights = attributes::rights(fs, inode)?;
    let (mode, owner) = (rights.mode, rights.owner);
    let by_list = decides_list(cred, mode, owner).then(|| rights.by_list(cred, want)).flatten();
    Ok(grants(by_list.unwrap_or_else(|| digit_of(cred, mode, owner))))
}

/// Whether an access list, if there is one, decides the access of `cred`. Without group bits the
/// list's mask is empty too.
fn decides_list(cred: &Cred, mode: u16, (uid, _): (u32, u32)) -> bool {
    cred.uid != uid && mode & 0o070 != 0
}

/// The octal digit of the mode that applies to `cred`.
fn digit_of(cred: &Cred, mode: u16, (uid, gid): (u32, u32)) -> u16 {
    let shift = if cred.uid == uid {
        6
    } else if cred.in_group(gid) {
        3
    } else {
        0
    };
    mode >> shift & 7
}

/// Whether `cred` owns `inode` or is privileged.
///
/// # Errors
/// [`Error::Perm`].
pub(crate) fn owns(cred: &Cred, inode: &Inode) -> Result<()> {
    if cred.privileged || inode.owner().0 == cred.uid { Ok(()) } else { Err(Error::Perm) }
}

/// Whether `cred` may remove or replace the entry of `dir` that names `child`.
///
/// # Errors
/// [`Error::Perm`] for other users' entries of a sticky directory and for immutable and append-only
/// files.
pub(crate) fn may_remove_name(cred: &Cred, dir: &Inode, child: &Inode) -> Result<()> {
    let (above, below) = (dir.snapshot(), child.snapshot());
    if above.has_any(flags::APPEND) || below.has_any(flags::IMMUTABLE | flags::APPEND) {
        return Err(Error::Perm);
    }
    let sticky = above.mode() & mode::STICKY != 0;
    let owner = |file: &Inode| file.owner().0 == cred.uid;
    if sticky && !cred.privileged && !owner(child) && !owner(dir) {
        return Err(Error::Perm);
    }
    Ok(())
}

/// The mode of a file after `cred` changed its owner: without set-user-id, and without set-group-id
/// if the group may execute the file or `cred` is not in the group.
pub(crate) fn without_setid(cred: &Cred, disk: &Fields) -> u16 {
    let loses = disk.mode & 0o010 != 0 || !(cred.privileged || cred.in_group(disk.gid));
    disk.mode & !(mode::SETUID | if loses { mode::SETGID } else { 0 })
}

/// The mode of a file after `cred` wrote to it.
pub(crate) fn after_write(cred: &Cred, disk: &Fields) -> u16 {
    if cred.privileged || disk.mode & (mode::SETUID | mode::SETGID) == 0 {
        disk.mode
    } else {
        without_setid(cred, disk)
    }
}
