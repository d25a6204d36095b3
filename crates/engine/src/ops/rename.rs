//! `rename(2)`: replacing, without replacing, or exchanging; with a whiteout as the old name.
//!
//! Locks: first `volume.rename` if the directories differ. Only such a rename changes the shape of
//! the tree, so ancestry read under that lock stays true. Then the directories, the ancestor first,
//! else by number. Then the two files, directories first, else by number.

use nextent_ondisk::inode::{device, flags};
use nextent_ondisk::{Corrupt, InodeNo, Structure};
use nextent_store::Handle;
use nextent_sync::{Arc, BiasedRwLockWriteGuard};

use super::{check_name, permission, touch_change, touch_dir};
use crate::alloc::Window;
use crate::attr::Name;
use crate::error::{Error, Result};
use crate::inode::create::{NewInode, create};
use crate::inode::entries::Names;
use crate::inode::{Change, Inode, credits, truncate};
use crate::ops::Inodes;
use crate::{Access, Cred, FileType, RenameMode};

/// What a rename leaves as the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Nothing,
    /// A character device with the number 0:0.
    Whiteout,
}

/// One end of a rename.
struct RenameEnd<'a> {
    dir: &'a Arc<Inode>,
    names: &'a Names<'a>,
    name: &'a [u8],
    child: Option<Arc<Inode>>,
}

impl RenameEnd<'_> {
    fn is_dir(&self) -> bool {
        self.child.as_ref().is_some_and(|c| c.file_type() == Some(FileType::Directory))
    }
}

impl Inodes {
    /// Moves the name `from` to `to`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] for [`RenameMode::NoReplace`], [`Error::NotEmpty`],
    /// [`Error::IsDir`], [`Error::NotDir`], [`Error::Invalid`] for a directory moved into itself,
    /// [`Error::CrossDevice`] across projects, [`Error::NoKey`] out of or into an encrypted
    /// directory, and as [`unlink`](Self::unlink).
    pub fn rename<'n>(
        &self,
        cred: &Cred,
        from: impl Into<Name<'n>>,
        to: impl Into<Name<'n>>,
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_name(cred, from.into(), to.into(), (mode, Leaves::Nothing))
    }

    /// As [`rename`](Self::rename), but leaves a whiteout as the old name, in the same transaction:
    /// a character device with the number 0:0, no permissions, and the caller as its owner. By
    /// whiteouts the upper layer of overlayfs hides files of lower layers.
    ///
    /// # Errors
    /// Also [`Error::NoInodes`]; [`Error::Invalid`] with [`RenameMode::Exchange`].
    pub fn rename_leaving_whiteout<'n>(
        &self,
        cred: &Cred,
        from: impl Into<Name<'n>>,
        to: impl Into<Name<'n>>,
        mode: RenameMode,
    ) -> Result<()> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid);
        }
        self.rename_name(cred, from.into(), to.into(), (mode, Leaves::Whiteout))
    }

    fn rename_name(
        &self,
        cred: &Cred,
        from: Name<'_>,
        to: Name<'_>,
        (mode, leaves): (RenameMode, Leaves),
    ) -> Result<()> {
        self.fs.check_writable()?;
        if [from.name, to.name].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(Error::Busy);
        }
        let (gone, synced) = self.attempt(|| {
            let old_dir = self.directory(from.dir)?;
            let new_dir = self.directory(to.dir)?;
            let _shape = (from.dir != to.dir).then(|| self.fs.rename.lock());
            let _guards = self.lock_dirs(&old_dir, &new_dir)?;
            self.check_dir_change(cred, &old_dir)?;
            self.check_dir_change(cred, &new_dir)?;
            let old_names = Names::of(&self.fs, &old_dir);
            let other = (from.dir != to.dir).then(|| Names::of(&self.fs, &new_dir));
            let new_names = other.as_ref().unwrap_or(&old_names);
            let mut old =
                RenameEnd { dir: &old_dir, names: &old_names, name: from.name, child: None };
            let mut new = RenameEnd { dir: &new_dir, names: new_names, name: to.name, child: None };
            check_name(old.name)?;
            old.child = Some(self.child_of(&old)?.ok_or_else(|| Error::NotFound)?);
            check_name(new.name)?;
            new.child = self.child_of(&new)?;
            match (mode, &new.child) {
                (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
                (RenameMode::Exchange, None) => return Err(Error::NotFound),
                _ => {}
            }
            let gone = self.rename_locked(cred, &old, &new, (mode, leaves))?;
            Ok((
                gone,
                self.sync_entries_if_flagged(&old_dir).and(self.sync_entries_if_flagged(&new_dir)),
            ))
        })?;
        // The names are changed, so a replaced file is freed even if the change cannot be made
        // durable.
        let reaped = gone.map_or(Ok(()), |inode| truncate::reap_if_gone(&self.fs, &inode));
        self.report(synced).and(self.report(reaped))
    }

    fn child_of(&self, end: &RenameEnd<'_>) -> Result<Option<Arc<Inode>>> {
        let child = end.names.child(end.name)?;
        if let Some(child) = &child
            && child.file_type() == Some(FileType::Directory)
        {
            Names::of(&self.fs, child).check_parent(end.dir)?;
        }
        Ok(child)
    }

    fn lock_dirs<'a>(
        &self,
        one: &'a Inode,
        other: &'a Inode,
    ) -> Result<(BiasedRwLockWriteGuard<'a, Window>, Option<BiasedRwLockWriteGuard<'a, Window>>)>
    {
        if one.ino == other.ino {
            return Ok((self.lock_directory(one)?, None));
        }
        // Only to find an order. If a directory is removed meanwhile and its number reused, that is
        // found out once both locks are held.
        let above = |one, other| self.is_ancestor(one, other).unwrap_or(false);
        let other_first = if above(other.ino, one.ino) {
            true
        } else if above(one.ino, other.ino) {
            false
        } else {
            other.ino < one.ino
        };
        let (first, second) = if other_first { (other, one) } else { (one, other) };
        Ok((self.lock_directory(first)?, Some(self.lock_directory(second)?)))
    }

    /// Whether `above` is `ino` or one of its ancestors. `volume.rename` is held. The ancestors of
    /// a directory that the caller holds cannot be removed, because they are not empty.
    fn is_ancestor(&self, above: InodeNo, ino: InodeNo) -> Result<bool> {
        let mut at = ino;
        // A damaged tree may have loops. The walk compares with a noted directory, and notes
        // another one at distances that double; in a loop it meets the noted one again.
        let (mut noted, mut steps, mut until) = (ino, 0u32, 1u32);
        while at != above && at != crate::ROOT_INO {
            let dir = self.directory(at)?;
            at = Names::of(&self.fs, &dir).parent()?;
            steps += 1;
            if at == noted {
                let name = "loop of parent directories, length";
                let error = Corrupt::field(Structure::Directory, name, steps);
                return Err(error.at_inode(at).into());
            }
            if steps == until {
                (noted, until) = (at, until.saturating_mul(2));
            }
        }
        Ok(at == above)
    }

    fn rename_locked(
        &self,
        cred: &Cred,
        old: &RenameEnd<'_>,
        new: &RenameEnd<'_>,
        (mode, leaves): (RenameMode, Leaves),
    ) -> Result<Option<Arc<Inode>>> {
        let source = old.child.as_ref().ok_or_else(|| Error::NotFound)?;
        if new.child.as_ref().is_some_and(|target| target.ino == source.ino) {
            return Ok(None);
        }
        self.check_shape(old, new, mode)?;
        self.check_rename(cred, old, new, mode)?;
        old.names.check_key().and_then(|()| new.names.check_key())?;
        let target = new.child.as_ref();
        let mut children: Vec<&Arc<Inode>> = [Some(source), target].into_iter().flatten().collect();
        children.sort_by_key(|c| (c.file_type() != Some(FileType::Directory), c.ino));
        let _guards: Vec<_> = children.iter().map(|child| child.rw.write()).collect();
        if let (Some(target), RenameMode::Replace) = (target, mode) {
            match (old.is_dir(), new.is_dir()) {
                (true, false) => return Err(Error::NotDir),
                (false, true) => return Err(Error::IsDir),
                (true, true) if !Names::of(&self.fs, target).is_empty()? => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
        }
        children.iter().try_for_each(|child| self.fs.complete_deferred_exclusive(child))?;
        let entry = new.names.insert_credits();
        let h = match leaves {
            Leaves::Nothing => self.fs.start(credits::rename(entry))?,
            Leaves::Whiteout => self.fs.start(credits::rename_leaving_whiteout(entry))?,
        };
        match (target, mode, leaves) {
            (Some(target), RenameMode::Exchange, _) => {
                self.exchange(&h, old, new, source, target)?;
            }
            (_, _, Leaves::Nothing) => self.replace(&h, old, new, source, None)?,
            (_, _, Leaves::Whiteout) => {
                let whiteout = self.make_whiteout(cred, &h, old)?;
                if let Err(error) = self.replace(&h, old, new, source, Some(&whiteout)) {
                    self.drop_new(h, &whiteout)?;
                    return Err(error);
                }
                whiteout.finish_creation();
            }
        }
        touch_dir(&self.fs, &h, old.dir);
        touch_dir(&self.fs, &h, new.dir);
        drop(h);
        let replaced = target.filter(|_| mode == RenameMode::Replace);
        Ok(replaced.map(Arc::clone))
    }

    /// Refuses to move a directory below itself, or onto one it lies in.
    fn check_shape(
        &self,
        old: &RenameEnd<'_>,
        new: &RenameEnd<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        if old.dir.ino == new.dir.ino {
            return Ok(());
        }
        let source = old.child.as_ref().map(|c| c.ino);
        if old.is_dir() && self.is_ancestor(source.unwrap_or_default(), new.dir.ino)? {
            return Err(Error::Invalid);
        }
        let target = new.child.as_ref().map(|c| c.ino);
        if new.is_dir() && self.is_ancestor(target.unwrap_or_default(), old.dir.ino)? {
            return Err(match mode {
                RenameMode::Exchange => Error::Invalid,
                _ => Error::NotEmpty,
            });
        }
        Ok(())
    }

    fn check_rename(
        &self,
        cred: &Cred,
        old: &RenameEnd<'_>,
        new: &RenameEnd<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let moves = old.dir.ino != new.dir.ino;
        let exchange = mode == RenameMode::Exchange;
        let ends = [(old, new, true), (new, old, exchange)];
        for (end, other, leaves) in ends {
            let Some(child) = &end.child else { continue };
            permission::may_remove_name(cred, end.dir, child)?;
            if leaves && moves && end.is_dir() {
                // Its `..` changes.
                permission::may(&self.fs, cred, child, Access::WRITE)?;
                let grows = !(exchange && other.is_dir());
                if grows && !(mode == RenameMode::Replace && other.is_dir()) {
                    self.check_room_for_subdirectory(other.dir)?;
                }
            }
            if leaves && moves {
                let (bits, project) = other.dir.with(|s| (s.disk.flags, s.disk.project));
                if bits & flags::PROJINHERIT != 0 && child.with(|s| s.disk.project) != project {
                    return Err(Error::CrossDevice);
                }
            }
        }
        Ok(())
    }

    /// Notes that `child` has another name. If it is a directory, so has each file below it, and an
    /// fsync of such a file must make the rename durable too.
    fn note_renamed(&self, h: &Handle<'_>, child: &Arc<Inode>) {
        if child.file_type() == Some(FileType::Directory) {
            h.bar_fast();
        }
        child.change(h, Change::Names, |state| touch_change(&self.fs, state));
    }

    /// A new whiteout, which the caller names or drops.
    fn make_whiteout(
        &self,
        cred: &Cred,
        h: &Handle<'_>,
        end: &RenameEnd<'_>,
    ) -> Result<Arc<Inode>> {
        // Replay of fast commits knows no new device beside a moved name.
        h.bar_fast();
        let new = NewInode { cred, kind: FileType::CharDevice, mode: 0, links: 1, name: end.name };
        let whiteout = create(&self.fs, h, end.dir, &new)?;
        whiteout.change(h, Change::Life, |state| state.disk.block = device::encode(0, 0));
        Ok(whiteout)
    }

    /// Moves the source to the new name; `whiteout` gets the old name.
    fn replace(
        &self,
        h: &Handle<'_>,
        old: &RenameEnd<'_>,
        new: &RenameEnd<'_>,
        source: &Arc<Inode>,
        whiteout: Option<&Arc<Inode>>,
    ) -> Result<()> {
        let fs = &self.fs;
        let kind = source.file_type().ok_or_else(|| Error::NotFound)?;
        match &new.child {
            Some(_) => new.names.replace(h, new.name, source.ino, kind)?,
            None => new.names.insert(h, new.name, source.ino, kind)?,
        }
        match whiteout {
            None => old.names.remove(h, old.name)?,
            Some(left) => old.names.replace(h, old.name, left.ino, FileType::CharDevice)?,
        }
        if let Some(target) = &new.child
            && self.drop_name(h, new.dir, target)
        {
            fs.orphans.add(fs, h, target);
        }
        if kind == FileType::Directory && old.dir.ino != new.dir.ino {
            Names::of(fs, source).set_parent(h, new.dir.ino)?;
            self.remove_subdirectory(h, old.dir);
            self.add_subdirectory(h, new.dir);
        }
        self.note_renamed(h, source);
        Ok(())
    }

    fn exchange(
        &self,
        h: &Handle<'_>,
        old: &RenameEnd<'_>,
        new: &RenameEnd<'_>,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
    ) -> Result<()> {
        let fs = &self.fs;
        let source_kind = source.file_type().ok_or_else(|| Error::NotFound)?;
        let target_kind = target.file_type().ok_or_else(|| Error::NotFound)?;
        new.names.replace(h, new.name, source.ino, source_kind)?;
        old.names.replace(h, old.name, target.ino, target_kind)?;
        if old.dir.ino != new.dir.ino {
            for (child, kind, left, joined) in
                [(source, source_kind, old, new), (target, target_kind, new, old)]
            {
                if kind == FileType::Directory {
                    Names::of(fs, child).set_parent(h, joined.dir.ino)?;
                    self.remove_subdirectory(h, left.dir);
                    self.add_subdirectory(h, joined.dir);
                }
            }
        }
        for child in [source, target] {
            self.note_renamed(h, child);
        }
        Ok(())
    }
}
