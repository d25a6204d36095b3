//! `chmod`, `chown`, `utimes`, `truncate`, `chattr` as one call.

use nextent_ondisk::inode::{flags, mode};
use nextent_ondisk::{DiskTime, InodeNo, RoCompat};
use nextent_sync::{Arc, injected};

use super::{attr, permission, touch_change};
use crate::error::{Error, Result};
use crate::inode::{Change, Inode, InodeState, attributes, credits};
use crate::ops::Inodes;
use crate::{Access, Attr, Cred, FileType, SetAttr, SetTime};

impl Inodes {
    /// Changes the attributes in `set`: all, or none if any of them is not permitted. A change of
    /// owner drops set-id bits before `mode` is set.
    ///
    /// # Errors
    /// [`Error::Perm`], [`Error::Access`], [`Error::TooBig`], [`Error::ReadOnly`].
    pub fn setattr(&self, cred: &Cred, ino: InodeNo, set: &SetAttr) -> Result<Attr> {
        let inode = self.inode(ino)?;
        self.setattr_in(cred, &inode, set)
    }

    /// [`setattr`](Self::setattr) of an inode that the caller has.
    pub(crate) fn setattr_in(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        set: &SetAttr,
    ) -> Result<Attr> {
        self.fs.check_writable()?;
        let attr = self.attempt(|| {
            let mut window = inode.rw.write();
            self.check_setattr(cred, inode, set)?;
            let owner = set.uid.is_some() || set.gid.is_some();
            if (set.size.is_some() || owner) && inode.file_type() != Some(FileType::Directory) {
                self.begin_change(inode)?;
            }
            if let Some(size) = set.size {
                self.set_size(inode, &mut window, cred, size)?;
            }
            if *set != (SetAttr { size: set.size, ..SetAttr::default() }) {
                self.set_fields(cred, inode, set)?;
            }
            Ok(attr(&self.fs, inode))
        })?;
        self.sync_if_flagged(inode)?;
        Ok(attr)
    }

    fn check_setattr(&self, cred: &Cred, inode: &Inode, set: &SetAttr) -> Result<()> {
        let (uid, gid, bits, kind) = inode.with(|state| {
            let disk = &state.disk;
            (disk.uid, disk.gid, disk.flags, disk.file_type())
        });
        if inode.snapshot().is_free() {
            return Err(Error::NotFound);
        }
        // The project may change in the call that makes the file mutable.
        let project =
            set.project.filter(|_| set.flags.is_some_and(|new| new & flags::IMMUTABLE == 0));
        let only_flags = SetAttr { flags: set.flags, project, ..SetAttr::default() } == *set;
        let only_now = only_flags
            || (set.mode.is_none()
                && set.uid.is_none()
                && set.gid.is_none()
                && set.size.is_none()
                && !sets_moment(set.atime)
                && !sets_moment(set.mtime));
        if bits & flags::IMMUTABLE != 0 && !only_flags || bits & flags::APPEND != 0 && !only_now {
            return Err(Error::Perm);
        }
        if set.uid.is_some_and(|new| new != uid) && !cred.privileged {
            return Err(Error::Perm);
        }
        if let Some(new) = set.gid {
            let own = cred.uid == uid && (new == gid || cred.in_group(new));
            if !cred.privileged && !own {
                return Err(Error::Perm);
            }
        }
        if set.mode.is_some()
            || set.flags.is_some()
            || set.project.is_some()
            || set.crtime.is_some()
            || set.ctime.is_some()
            || sets_moment(set.atime)
            || sets_moment(set.mtime)
        {
            permission::owns(cred, inode)?;
        }
        let now = set.atime == Some(SetTime::Now) || set.mtime == Some(SetTime::Now);
        if now && permission::owns(cred, inode).is_err() {
            permission::may(&self.fs, cred, inode, Access::WRITE)?;
        }
        if set.size.is_some() {
            match kind {
                Some(FileType::Regular) => {
                    permission::may(&self.fs, cred, inode, Access::WRITE)?;
                    self.check_regular(inode)?;
                    if bits & flags::VERITY != 0 {
                        return Err(Error::Perm);
                    }
                }
                Some(FileType::Directory) => return Err(Error::IsDir),
                _ => return Err(Error::Invalid),
            }
        }
        self.check_flags(cred, inode, set)
    }

    fn check_flags(&self, cred: &Cred, inode: &Inode, set: &SetAttr) -> Result<()> {
        let old = inode.with(|state| state.disk.flags);
        if let Some(new) = set.flags {
            let changed = old ^ new;
            if changed & (flags::IMMUTABLE | flags::APPEND) != 0 && !cred.privileged {
                return Err(Error::Perm);
            }
            // A file that stays immutable keeps its other flags.
            let frozen = old & new & flags::IMMUTABLE != 0;
            if frozen && changed & flags::USER_MODIFIABLE != 0 {
                return Err(Error::Perm);
            }
            let stored = flags::JOURNAL_DATA | flags::EXTENTS | flags::CASEFOLD;
            if changed & stored & flags::USER_MODIFIABLE & new != 0 {
                return Err(Error::NotSupported);
            }
            let is_dir = inode.file_type() == Some(FileType::Directory);
            let inline = if is_dir { 0 } else { flags::INLINE_DATA };
            let not_dax = flags::ENCRYPT | flags::VERITY | flags::JOURNAL_DATA | inline;
            if new & flags::DAX != 0 && old & not_dax != 0
                || old & flags::DAX != 0 && new & not_dax != 0
            {
                return Err(Error::NotSupported);
            }
        }
        let project = set.project.unwrap_or_default();
        let stores = self.fs.geometry.features.has(RoCompat::PROJECT)
            && inode.with(|state| state.disk.has_project());
        if project != 0 && !stores {
            return Err(Error::NotSupported);
        }
        Ok(())
    }

    fn set_fields(&self, cred: &Cred, inode: &Arc<Inode>, set: &SetAttr) -> Result<()> {
        let fs = &self.fs;
        if injected("state-lock-across-start") {
            inode.with(|_| fs.start(credits::INODE).map(drop))?;
        }
        let h = fs.start(credits::INODE + credits::XATTR)?;
        if let Some(bits) = set.mode {
            attributes::acl_chmod(fs, &h, inode, bits)?;
        }
        let now = fs.now();
        let SetAttr { size, atime, mtime, ctime, crtime, .. } = *set;
        let times = SetAttr { size, atime, mtime, ctime, crtime, ..SetAttr::default() };
        let kind = if *set == times { Change::Contents } else { Change::Fields };
        inode.change(&h, kind, |state| {
            touch_change(fs, state);
            set_owner(cred, state, set);
            set_times(state, set, now);
            if let Some(new) = set.flags {
                let kept = state.disk.flags & !flags::USER_MODIFIABLE;
                let kept = kept | state.disk.flags & (flags::EXTENTS | flags::JOURNAL_DATA);
                let mask = match state.disk.file_type() {
                    Some(FileType::Directory) => !0,
                    Some(FileType::Regular) => flags::REGULAR_MASK,
                    _ => flags::OTHER_MASK,
                };
                state.disk.flags = kept | new & flags::USER_MODIFIABLE & mask;
            }
            if let Some(project) = set.project {
                state.disk.project = project;
            }
        });
        Ok(())
    }
}

fn sets_moment(time: Option<SetTime>) -> bool {
    matches!(time, Some(SetTime::At(_)))
}

fn set_owner(cred: &Cred, state: &mut InodeState, set: &SetAttr) {
    let disk = &mut state.disk;
    let is_dir = disk.file_type() == Some(FileType::Directory);
    if (set.uid.is_some() || set.gid.is_some()) && !is_dir {
        disk.mode = permission::without_setid(cred, disk);
    }
    disk.uid = set.uid.unwrap_or(disk.uid);
    disk.gid = set.gid.unwrap_or(disk.gid);
    if let Some(bits) = set.mode {
        let mut bits = bits & mode::PERMISSIONS;
        if !cred.privileged && !cred.in_group(disk.gid) {
            bits &= !mode::SETGID;
        }
        disk.mode = disk.mode & mode::TYPE | bits;
    }
}

fn set_times(state: &mut InodeState, set: &SetAttr, now: DiskTime) {
    let wide = state.disk.has_wide_times();
    let moment = |time: SetTime| match time {
        SetTime::Now => now.clamped(wide),
        SetTime::At(at) => at.clamped(wide),
    };
    if let Some(time) = set.atime {
        state.disk.atime = moment(time);
    }
    if let Some(time) = set.mtime {
        state.disk.mtime = moment(time);
    }
    if let Some(time) = set.ctime {
        state.disk.ctime = time.clamped(wide);
    }
    if let Some(time) = set.crtime
        && state.disk.has_crtime()
    {
        state.disk.crtime = time.clamped(wide);
    }
}

impl Inodes {
    /// Sets the access time to the present. No other call changes access times.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Aborted`].
    pub fn touch_atime(&self, ino: InodeNo) -> Result<()> {
        let inode = self.inode(ino)?;
        if inode.with(|state| state.has_flag(flags::NOATIME)) {
            return Ok(());
        }
        let h = self.fs.start(credits::INODE)?;
        let now = self.fs.now();
        inode.change(&h, Change::Contents, |state| {
            state.disk.atime = now.clamped(state.disk.has_wide_times());
        });
        Ok(())
    }
}
