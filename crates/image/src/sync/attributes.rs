//! Compares and sets attributes of one entry.

use super::item::Differs;
use crate::entry::{Kind, Meta, Xattr};
use crate::{EntryError, Result};
use nextent::inodes::{Attr, InodeNo, Inodes, SetAttr, SetTime, XattrMode};
use nextent::{Cred, DiskTime, Error, FileType};
use nextent_ondisk::xattr::{index, split_name};

/// The prefix of the names of access lists.
const LIST: &[u8] = b"system.posix_acl_";

/// The type of a file of the host.
pub(super) fn type_of(kind: &Kind) -> FileType {
    match kind {
        Kind::File => FileType::Regular,
        Kind::Dir => FileType::Directory,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Char(_) => FileType::CharDevice,
        Kind::Block(_) => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

/// Leaves out attributes that ext4 has no name for. A comparison would find them missing each time.
pub(super) fn drop_unstorable(meta: &mut Meta) {
    let storable = |name: &[u8]| split_name(name).is_some_and(|(kind, _)| kind != index::SYSTEM);
    meta.xattrs.retain(|(name, _)| storable(name));
}

/// All extended attributes of an inode, sorted.
pub(super) fn xattrs(volume: &Inodes, cred: &Cred, ino: InodeNo) -> nextent::Result<Vec<Xattr>> {
    let mut all = Vec::new();
    for name in volume.listxattr(cred, ino)? {
        let value = volume.getxattr(cred, ino, &name)?;
        all.push((name, value));
    }
    all.sort();
    Ok(all)
}

/// Compares the attributes of an entry of the source with those in the image. Both have one type.
pub(super) fn compare(meta: &Meta, attr: &Attr, xattrs: &[Xattr]) -> Differs {
    let is_link = attr.kind == FileType::Symlink;
    let (lists, others) = match meta.xattrs == xattrs {
        true => (false, false),
        false => (
            part(&meta.xattrs, true) != part(xattrs, true),
            part(&meta.xattrs, false) != part(xattrs, false),
        ),
    };
    Differs {
        size: meta.kind == Kind::File && meta.size != attr.size,
        mode: !is_link && meta.mode != attr.mode & 0o7777,
        owner: meta.uid != attr.uid,
        group: meta.gid != attr.gid,
        time: !is_stored(meta.mtime, attr),
        lists,
        xattrs: others,
        ..Differs::default()
    }
}

/// The access lists, or the other attributes.
fn part(all: &[Xattr], lists: bool) -> Vec<&Xattr> {
    all.iter().filter(|(name, _)| name.starts_with(LIST) == lists).collect()
}

/// Whether the inode has the time `wanted`, as exactly as it can hold it.
fn is_stored(wanted: DiskTime, attr: &Attr) -> bool {
    // An inode with a time of creation has room for nanoseconds.
    attr.mtime == wanted.clamped(true)
        || attr.crtime.is_none() && attr.mtime == wanted.clamped(false)
}

/// Sets on `ino` what `differs` names, except the time of a directory.
pub(super) fn set(
    volume: &Inodes,
    cred: &Cred,
    ino: InodeNo,
    meta: &Meta,
    differs: Differs,
) -> Result<()> {
    let is_link = matches!(meta.kind, Kind::Symlink(_));
    let owner = differs.owner || differs.group;
    let set = SetAttr {
        uid: differs.owner.then_some(meta.uid),
        gid: differs.group.then_some(meta.gid),
        // A change of owner removes set-id bits.
        mode: (!is_link && (differs.mode || owner)).then_some(meta.mode),
        ..SetAttr::default()
    };
    if set != SetAttr::default() {
        volume.setattr(cred, ino, &set)?;
    }
    // A change of owner removes capabilities.
    if differs.lists || differs.xattrs || owner {
        set_xattrs(volume, cred, ino, meta)?;
    }
    if differs.time && meta.kind != Kind::Dir {
        set_time(volume, cred, ino, meta.mtime)?;
    }
    Ok(())
}

/// Sets the time of the last change of contents.
pub(super) fn set_time(
    volume: &Inodes,
    cred: &Cred,
    ino: InodeNo,
    time: DiskTime,
) -> nextent::Result<()> {
    let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    volume.setattr(cred, ino, &set).map(drop)
}

/// Gives `ino` the extended attributes of `meta`, and no others.
fn set_xattrs(volume: &Inodes, cred: &Cred, ino: InodeNo, meta: &Meta) -> Result<()> {
    let present = xattrs(volume, cred, ino)?;
    for (name, _) in &present {
        if !meta.xattrs.iter().any(|(other, _)| other == name) {
            match volume.removexattr(cred, ino, name) {
                Ok(()) | Err(Error::NoData) => {}
                Err(error) => return Err(at("removexattr", name, error)),
            }
        }
    }
    for wanted in meta.xattrs.iter().filter(|wanted| !present.contains(wanted)) {
        let (name, value) = wanted;
        let done = volume.setxattr(cred, ino, name, value, XattrMode::Either);
        done.map_err(|error| at("setxattr", name, error))?;
    }
    // An access list that was set or removed may have changed the bits of the group.
    let now = volume.getattr(ino)?;
    if now.kind != FileType::Symlink && now.mode & 0o7777 != meta.mode {
        let set = SetAttr { mode: Some(meta.mode), ..SetAttr::default() };
        volume.setattr(cred, ino, &set)?;
    }
    Ok(())
}

fn at(what: &str, name: &[u8], error: Error) -> EntryError {
    EntryError::from(error).at(&format!("{what} {}", name.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_as_the_inode_holds_them() {
        let time = |seconds, nanos| DiskTime { seconds, nanos };
        let mut attr = Attr {
            ino: InodeNo(12),
            generation: 0,
            kind: FileType::Regular,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            project: 0,
            size: 0,
            sectors: 0,
            device: nextent::DeviceNo::default(),
            atime: time(0, 0),
            mtime: time(7, 0),
            ctime: time(0, 0),
            crtime: None,
            flags: 0,
            version: 0,
        };
        assert!(is_stored(time(7, 0), &attr) && is_stored(time(7, 5), &attr));
        assert!(!is_stored(time(8, 0), &attr));
        attr.crtime = Some(time(0, 0));
        assert!(is_stored(time(7, 0), &attr) && !is_stored(time(7, 5), &attr));
        attr.mtime = time(7, 5);
        assert!(is_stored(time(7, 5), &attr));
        // Beyond the last time that an inode can hold.
        attr.mtime = time(i64::MAX, 3).clamped(true);
        assert!(is_stored(time(i64::MAX, 3), &attr));
    }
}
