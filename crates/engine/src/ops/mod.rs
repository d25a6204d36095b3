//! The POSIX operations, one per file: permissions, locks, handles, and calls of the layers below.
//!
//! An operation finds its inodes, takes their `inode.rw` locks (parents first), checks permissions,
//! starts a handle, makes its changes and releases the locks. Then, without locks, it frees files
//! that lost their last name. [`Inodes::attempt`] repeats an operation that ran out of space while
//! freed blocks were waiting for a commit.

mod access;
mod change;
mod create;
mod direct;
mod fallocate;
mod fiemap;
mod file;
mod fill;
mod fsync;
mod getattr;
mod inodes;
mod label;
mod link;
mod lookup;
mod open;
mod path;
pub(crate) mod permission;
mod pin;
#[cfg(feature = "lab")]
mod probe;
mod read;
mod readdir;
mod readlink;
mod rename;
mod seek;
mod setattr;
mod statfs;
mod superblock;
mod symlink;
mod sync;
mod tmpfile;
mod trim;
mod truncate;
mod unlink;
mod write;
mod xattr;

pub use direct::{Attached, Done, Queue, Refused, Wait};
pub use file::OpenFile;
pub use fill::FillRun;
pub use inodes::{CacheUsage, Inodes, ROOT_INO};
pub(crate) use inodes::{DEVICE_READ_ONLY, ReadOnlyReasons};
#[cfg(feature = "lab")]
pub use probe::HandleProbe;

pub(crate) use create::LINK_MAX;
pub(crate) use fill::{write_to_runs, zero_edges};
pub(crate) use symlink::check_target;
pub(crate) use truncate::{LARGE, max_size};

use nextent_ondisk::fscrypt;
use nextent_ondisk::inode::flags;
use nextent_ondisk::{FileBlock, InodeNo};
use nextent_store::Handle;
use nextent_sync::{Arc, BiasedRwLockReadGuard, BiasedRwLockWriteGuard};

use crate::alloc::{Privilege, Window};
use crate::error::{Error, Result};
use crate::inode::entries::Names;
use crate::inode::{Change, Fs, Inode, InodeState};
use crate::{Access, Attr, Cred, FileType};

/// Block `number` of a file.
///
/// # Errors
/// [`Error::TooBig`] for blocks that no map can address.
#[inline]
pub(crate) fn file_block(number: u64) -> Result<FileBlock> {
    u32::try_from(number).map(FileBlock).map_err(|_| Error::TooBig)
}

/// Commits that an operation without space waits for at most: other operations may use the blocks
/// that those free.
pub(crate) const RETRIES: u32 = 3;

/// The longest name of an entry, in bytes.
pub(crate) const NAME_MAX: usize = 255;

impl Inodes {
    /// Runs `operation`. If it ran out of space and a commit frees some, runs it again afterwards.
    pub(crate) fn attempt<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        for _ in 0..RETRIES {
            let releases = self.fs.blocks.releases();
            let done = operation();
            let full = done.as_ref().is_err_and(Error::is_full_volume);
            if !full || !self.report(self.fs.reclaim(releases))? {
                return self.report(done);
            }
        }
        self.report(operation())
    }

    /// Reports the outcome of an operation to the volume, which notes damage before the caller gets
    /// the error. Called without a handle and with `inode.rw` locks at most.
    pub(crate) fn report<R>(&self, outcome: Result<R>) -> Result<R> {
        if self.fs.blocks.has_damage() {
            self.fs.report_allocator_damage();
        }
        outcome.map_err(|error| self.fs.report_error(error))
    }

    /// The inode `ino`, which must be in use or an orphan.
    pub(crate) fn inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        self.fs.inode(ino).map_err(|error| self.fs.report_error(error))
    }

    /// The directory `ino`.
    pub(crate) fn directory(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        match inode.file_type() {
            Some(FileType::Directory) => Ok(inode),
            _ => Err(Error::NotDir),
        }
    }

    /// Takes `[inode.rw]` of a directory exclusively.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was removed during the wait: its number may have been reused.
    pub(crate) fn lock_directory<'i>(
        &self,
        dir: &'i Inode,
    ) -> Result<BiasedRwLockWriteGuard<'i, Window>> {
        let guard = dir.rw.write();
        still_a_directory(dir)?;
        Ok(guard)
    }

    /// Takes `[inode.rw]` of a directory shared.
    ///
    /// # Errors
    /// As [`lock_directory`](Self::lock_directory).
    pub(crate) fn lock_directory_shared<'i>(
        &self,
        dir: &'i Inode,
    ) -> Result<BiasedRwLockReadGuard<'i, Window>> {
        let guard = dir.rw.read();
        still_a_directory(dir)?;
        Ok(guard)
    }

    /// The regular file `ino`.
    pub(crate) fn regular(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        self.check_regular(&inode)?;
        Ok(inode)
    }

    /// Whether `inode` is a regular file whose contents can be used; it may be free by now.
    ///
    /// # Errors
    /// [`Error::NoKey`] for an encrypted file, [`Error::IsDir`], [`Error::Invalid`].
    pub(crate) fn check_regular(&self, inode: &Inode) -> Result<()> {
        let snapshot = inode.snapshot();
        match snapshot.file_type() {
            Some(FileType::Regular) if snapshot.has_any(flags::ENCRYPT) => Err(Error::NoKey),
            Some(FileType::Regular) => Ok(()),
            Some(FileType::Directory) => Err(Error::IsDir),
            _ => Err(Error::Invalid),
        }
    }

    /// Whether `cred` may add `name` to `dir`, whose `[inode.rw]` is held exclusively.
    pub(crate) fn check_new_name(
        &self,
        cred: &Cred,
        dir: &Inode,
        names: &Names<'_>,
        name: &[u8],
    ) -> Result<()> {
        self.check_not_removed(dir)?;
        permission::may(&self.fs, cred, dir, Access::EXECUTE)?;
        if names.has(name)? {
            return Err(Error::Exists);
        }
        self.check_dir_change(cred, dir)
    }

    /// Whether `cred` may change the entries of `dir`, whose `[inode.rw]` is held exclusively.
    pub(crate) fn check_dir_change(&self, cred: &Cred, dir: &Inode) -> Result<()> {
        self.check_not_removed(dir)?;
        permission::may(&self.fs, cred, dir, Access::CHANGE_DIR)
    }

    /// Whether `dir`, whose `[inode.rw]` is held, can have entries.
    fn check_not_removed(&self, dir: &Inode) -> Result<()> {
        let snapshot = dir.snapshot();
        if snapshot.is_free() || snapshot.is_unlinked() { Err(Error::NotFound) } else { Ok(()) }
    }
}

/// Whether `inode`, whose `[inode.rw]` is held, is still in use after the wait for that lock.
///
/// # Errors
/// [`Error::NotFound`].
pub(crate) fn still_in_use(inode: &Inode) -> Result<()> {
    if inode.snapshot().is_free() { Err(Error::NotFound) } else { Ok(()) }
}

fn still_a_directory(inode: &Inode) -> Result<()> {
    let snapshot = inode.snapshot();
    if snapshot.is_free() || snapshot.file_type() != Some(FileType::Directory) {
        Err(Error::NotFound)
    } else {
        Ok(())
    }
}

/// Whether `name` is valid for a new entry.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Invalid),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// Which reserved blocks `cred` may use.
pub(crate) fn privilege(fs: &Fs, cred: &Cred) -> Privilege {
    if fs.fills {
        return Privilege::Reserved;
    }
    let (uid, gid) = fs.fixed.reserved_owner;
    let owner = cred.uid == uid || (gid != 0 && cred.in_group(gid));
    if cred.privileged || owner { Privilege::Root } else { Privilege::User }
}

/// Sets a directory's times after a change of its entries.
pub(crate) fn touch_dir(fs: &Fs, h: &Handle<'_>, dir: &Arc<Inode>) {
    let now = fs.now();
    dir.change(h, Change::Entries, |state| {
        let now = now.clamped(state.disk.has_wide_times());
        state.disk.mtime = now;
        state.disk.ctime = now;
        state.disk.version += 1;
    });
}

/// Sets the time of the last change.
pub(crate) fn touch_change(fs: &Fs, state: &mut InodeState) {
    state.disk.ctime = fs.now().clamped(state.disk.has_wide_times());
    state.disk.version += 1;
}

/// The size that `stat` gives: of an encrypted symbolic link, that of what `readlink` gives.
fn shown_size(disk: &nextent_ondisk::Inode) -> u64 {
    match disk.file_type() {
        Some(FileType::Symlink) if disk.has_flag(flags::ENCRYPT) => {
            fscrypt::no_key_target_len(disk.size)
        }
        _ => disk.size,
    }
}

/// The attributes that `stat` returns for `inode`.
pub(crate) fn attr(fs: &Fs, inode: &Inode) -> Attr {
    inode.with(|state| {
        let disk = &state.disk;
        let kind = disk.file_type().unwrap_or(FileType::Regular);
        let device = match kind {
            FileType::CharDevice | FileType::BlockDevice => {
                let (major, minor) = nextent_ondisk::inode::device::decode(&disk.block);
                crate::DeviceNo { major, minor }
            }
            _ => crate::DeviceNo::default(),
        };
        Attr {
            ino: inode.ino,
            generation: disk.generation,
            kind,
            mode: disk.mode & 0o7777,
            links: u32::from(disk.links),
            uid: disk.uid,
            gid: disk.gid,
            project: disk.project,
            size: shown_size(disk),
            sectors: disk.sectors(&fs.geometry),
            device,
            atime: disk.atime,
            mtime: disk.mtime,
            ctime: disk.ctime,
            crtime: disk.has_crtime().then_some(disk.crtime),
            flags: disk.flags & flags::USER_VISIBLE,
            version: disk.version,
        }
    })
}
