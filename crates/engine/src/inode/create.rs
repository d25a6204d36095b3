//! Creating inodes.

use nextent_num::{low_half, must_fit};
use nextent_ondisk::inode::{BASE_SIZE, EXTRA_SIZE, Inode as Fields, flags, mode};
use nextent_ondisk::{Geometry, Incompat, InodeNo};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::change::Change;
use super::fs::Fs;
use super::object::Inode;
use crate::alloc::InodeKind;
use crate::error::Result;
use crate::map::{MapKind, MapRoot};
use crate::{Cred, FileType};

/// The properties of a new inode.
pub(crate) struct NewInode<'a> {
    pub(crate) cred: &'a Cred,
    pub(crate) kind: FileType,
    /// Permission bits, with the umask applied.
    pub(crate) mode: u16,
    /// Initial link count.
    pub(crate) links: u16,
    /// The name, which decides the group of a new directory.
    pub(crate) name: &'a [u8],
}

/// Allocates an inode number near `parent` and initialises the inode. The caller holds the parent's
/// `[inode.rw]` exclusively. In the same handle it gives the inode a name or makes it an orphan.
///
/// The number still counts as free until [`Inode::finish_creation`], when the inode is complete.
/// Otherwise a caller that kept the number from an earlier file would find an inode without its
/// attributes, or a directory without its first block, and report damage.
///
/// # Errors
/// [`Error::NoInodes`](crate::Error::NoInodes) when all inodes are in use.
pub(crate) fn create(
    fs: &Fs,
    h: &Handle<'_>,
    parent: &Arc<Inode>,
    new: &NewInode<'_>,
) -> Result<Arc<Inode>> {
    let hash = nextent_ondisk::checksum::csum(fs.geometry.csum_seed, new.name);
    let kind = match new.kind {
        FileType::Directory => InodeKind::Dir,
        _ => InodeKind::File,
    };
    let ino = fs.inodes.allocate(h, parent.ino, kind, hash)?;
    let made = init(fs, h, parent, new, ino);
    if made.is_err() {
        fs.inodes.free(h, ino, new.kind == FileType::Directory)?;
    }
    made
}

fn init(
    fs: &Fs,
    h: &Handle<'_>,
    parent: &Arc<Inode>,
    new: &NewInode<'_>,
    ino: InodeNo,
) -> Result<Arc<Inode>> {
    let inode = fs.blank_inode(ino)?;
    let parent = parent.with(|state| state.disk.clone());
    let before = inode.with(|state| state.disk.generation);
    let disk = fields(fs, &parent, new, ino, before);
    let kind = match disk.has_flag(flags::EXTENTS) {
        true => MapKind::Extents,
        false => MapKind::Indirect,
    };
    let mut root = inode.map.write();
    *root = MapRoot::empty(kind);
    inode.change(h, Change::Life, |state| {
        state.disk = disk;
        state.disk.block = *root.bytes();
        state.raw_mut().fill(0);
        state.data_changed = Some(h.tid());
    });
    drop(root);
    super::attributes::note_no_capability(&inode);
    Ok(inode)
}

fn fields(fs: &Fs, parent: &Fields, new: &NewInode<'_>, ino: InodeNo, before: u32) -> Fields {
    let now = fs.now();
    let mut disk = Fields {
        mode: new.kind.mode_bits() | new.mode & mode::PERMISSIONS,
        uid: new.cred.uid,
        gid: new.cred.gid,
        links: new.links,
        generation: generation(&fs.geometry, ino, before, now.seconds),
        flags: inherited_flags(fs, parent, new.kind),
        extra_isize: extra_isize(fs),
        ..Fields::default()
    };
    if parent.mode & mode::SETGID != 0 {
        disk.gid = parent.gid;
        if new.kind == FileType::Directory {
            disk.mode |= mode::SETGID;
        } else if !new.cred.privileged
            && !new.cred.in_group(disk.gid)
            && new.mode & 0o2010 == 0o2010
        {
            disk.mode &= !mode::SETGID;
        }
    }
    if parent.has_flag(flags::PROJINHERIT) && disk.has_project() {
        disk.project = parent.project;
    }
    let now = now.clamped(disk.has_wide_times());
    disk.atime = now;
    disk.ctime = now;
    disk.mtime = now;
    if disk.has_crtime() {
        disk.crtime = now;
    }
    disk
}

fn inherited_flags(fs: &Fs, parent: &Fields, kind: FileType) -> u32 {
    let mask = match kind {
        FileType::Directory => !0,
        FileType::Regular => flags::REGULAR_MASK,
        _ => flags::OTHER_MASK,
    };
    let mapped = matches!(kind, FileType::Directory | FileType::Regular);
    let extents = mapped && fs.geometry.features.has(Incompat::EXTENTS);
    parent.flags & flags::INHERITED & mask | if extents { flags::EXTENTS } else { 0 }
}

/// The extra size that the superblock requests, if it fits; the format's default if it requests
/// none.
fn extra_isize(fs: &Fs) -> u16 {
    let room = fs.geometry.inode_size - must_fit::<u16, _>(BASE_SIZE);
    let (want, least) = fs.fixed.extra_isize;
    let size = match want.max(least) {
        0 => EXTRA_SIZE,
        size => size,
    };
    if size > room || !size.is_multiple_of(4) { EXTRA_SIZE.min(room) } else { size }
}

/// A generation that the last file of this inode number did not have. It depends only on the volume
/// and the clock, so that equal steps make equal images.
pub(crate) fn generation(geometry: &Geometry, ino: InodeNo, before: u32, seconds: i64) -> u32 {
    let mixed =
        nextent_ondisk::inode::csum_seed(geometry, ino, before ^ low_half(seconds.cast_unsigned()));
    if mixed == before { mixed.wrapping_add(1) } else { mixed }
}
