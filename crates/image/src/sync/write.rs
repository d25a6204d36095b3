//! Makes the planned changes.
//!
//! | change | calls | after a crash in between |
//! |---|---|---|
//! | a new file | a file without a name gets contents and attributes, then its name | no file |
//! | a file with other contents | the same, with a temporary name that is then renamed | the old file |
//! | a link, device, pipe or socket | made with a temporary name, then renamed | the old entry |
//! | a directory for a file | made with a temporary name, exchanged, the file is removed | either |
//! | a file for a directory | made, then the directory is removed, then the file is renamed | a part of the directory, or none |
//!
//! So a name always leads to a complete old file or a complete new one. The next run removes a
//! temporary name that a crash has left, since the source does not have it.
//!
//! A directory gets its time at the end, since each change of an entry sets it.

use super::attributes::{set, set_time, type_of};
use super::compare::Trees;
use super::item::{Action, Differs, Item, SyncObserver};
use super::links::Claims;
use super::plan::{Change, Pair, Removal, What};
use super::remove::remove_tree;
use crate::apply::apply;
use crate::entry::{Kind, Meta};
use crate::host_source::HostNode;
use crate::image_sink::make_special;
use crate::sink::Made;
use crate::trail::Trail;
use crate::{BUFFER, EntryError, Report, Result, Source};
use nextent::inodes::{InodeNo, Inodes, RenameMode};
use nextent::{DiskTime, Error, FileType};
use nextent_num::{to_u64, to_usize};
use nextent_sync::Arc;
use std::collections::HashMap;
use std::ops::Range;

/// How many entries were changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) removed: u64,
}

/// Makes changes, or only reports them in a dry run.
pub(super) struct Writer<'a> {
    trees: &'a Trees<'a>,
    report: &'a Report<'a>,
    observer: &'a dyn SyncObserver,
    dry: bool,
    /// Files of the source with several names: their inodes.
    made: Claims,
    /// Entries to be removed last.
    removals: Vec<Removal>,
    /// Directories that get their time at the end.
    times: HashMap<InodeNo, (DiskTime, Arc<Trail>)>,
    buffer: Vec<u8>,
    pub(super) counts: Counts,
}

/// A new directory whose entries are being made.
struct Level {
    ino: InodeNo,
    node: HostNode,
    meta: Meta,
    trail: Arc<Trail>,
    rest: std::vec::IntoIter<(Vec<u8>, HostNode)>,
}

/// A place for an entry: the directory, and the type of the present entry.
#[derive(Clone, Copy)]
struct Place {
    dir: InodeNo,
    old: Option<FileType>,
}

/// A file that this has opened.
struct Opened<'a>(&'a Inodes, InodeNo);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // A file that cannot be freed now is freed by the next open of the image.
        let _ = self.0.release(self.1);
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        trees: &'a Trees<'a>,
        report: &'a Report<'a>,
        observer: &'a dyn SyncObserver,
        made: Claims,
        dry: bool,
    ) -> Self {
        Self {
            trees,
            report,
            observer,
            dry,
            made,
            removals: Vec::new(),
            times: HashMap::new(),
            buffer: vec![0; BUFFER],
            counts: Counts::default(),
        }
    }

    /// Makes the changes. Removes only if nothing has failed, and last: if the source could not be
    /// read as a whole, what is missing there may exist. A full volume is the exception.
    pub(super) fn run(&mut self, changes: Vec<Change>, removals: Vec<Removal>) {
        self.removals = removals;
        for change in changes {
            if self.report.stopped() {
                break;
            }
            let Change { trail, node, what } = change;
            let done = match what {
                What::Set { ino, differs } => self.set(&trail, &node, ino, differs),
                What::Make { dir, old, differs } => {
                    let place = Place { dir: dir.ino, old };
                    let made = self.make(&trail, &node, place, differs);
                    made.inspect(|()| self.touch(&dir))
                }
            };
            if let Err(error) = done {
                self.report.fail(&self.trees.source.show(&node), &error);
            }
        }
        if !self.report.failed() {
            self.remove_all();
        }
        if self.dry || self.report.stopped() {
            return;
        }
        for (ino, (time, trail)) in std::mem::take(&mut self.times) {
            if let Err(error) = set_time(self.trees.volume, &self.trees.cred, ino, time) {
                self.report.fail(&self.trees.show(&trail), &explain(error.into()));
            }
        }
    }

    /// How many entries were to be removed and were not.
    pub(super) fn left(&self) -> usize {
        self.removals.len()
    }

    /// Makes the directory of the image that is brought to the source, `name` in `parent`.
    pub(super) fn make_top(&mut self, node: &HostNode, parent: InodeNo, name: &[u8]) {
        let place = Place { dir: parent, old: None };
        if let Err(error) = self.tree(&Trail::top(b""), node, place, name, Differs::default()) {
            self.report.fail(&self.trees.source.show(node), &error);
        }
    }

    /// Notes that the directory gets its time at the end.
    fn touch(&mut self, dir: &Pair) {
        self.times.insert(dir.ino, (dir.mtime, Arc::clone(&dir.trail)));
    }

    fn item(&mut self, trail: &Trail, kind: FileType, action: Action, differs: Differs) {
        match action {
            Action::Create => self.counts.created += 1,
            Action::Remove => self.counts.removed += 1,
            _ => self.counts.updated += 1,
        }
        let path = trail.path();
        self.observer.item(&Item { path: &path, kind, action, differs });
    }

    fn set(
        &mut self,
        trail: &Arc<Trail>,
        node: &HostNode,
        ino: InodeNo,
        differs: Differs,
    ) -> Result<()> {
        let meta = self.trees.meta(node)?;
        if !self.dry {
            set(self.trees.volume, &self.trees.cred, ino, &meta, differs).map_err(explain)?;
        }
        if differs.time && meta.kind == Kind::Dir {
            self.times.insert(ino, (meta.mtime, Arc::clone(trail)));
        }
        self.item(trail, type_of(&meta.kind), Action::SetAttributes, differs);
        Ok(())
    }

    fn make(
        &mut self,
        trail: &Arc<Trail>,
        node: &HostNode,
        place: Place,
        differs: Differs,
    ) -> Result<()> {
        let meta = self.trees.meta(node)?;
        match meta.kind {
            Kind::Dir => self.tree(trail, node, place, trail.name(), differs),
            _ => self.entry(trail, node, &meta, place, differs),
        }
    }

    /// Makes a directory and all below it.
    fn tree(
        &mut self,
        trail: &Arc<Trail>,
        node: &HostNode,
        place: Place,
        name: &[u8],
        differs: Differs,
    ) -> Result<()> {
        let mut levels = vec![self.level(trail, node, place, name, differs)?];
        while let Some(level) = levels.last_mut() {
            let next = if self.report.stopped() { None } else { level.rest.next() };
            let Some((name, node)) = next else {
                let level = levels.pop().expect("it was the last");
                if let Err(error) = self.finish(&level) {
                    self.report.fail(&self.trees.source.show(&level.node), &error);
                }
                continue;
            };
            let trail = Trail::below(&level.trail, &name);
            let place = Place { dir: level.ino, old: None };
            let differs = Differs::default();
            let done = self.trees.meta(&node).and_then(|meta| match meta.kind {
                Kind::Dir => self.level(&trail, &node, place, &name, differs).map(Some),
                _ => self.entry(&trail, &node, &meta, place, differs).map(|()| None),
            });
            match done {
                Ok(level) => levels.extend(level),
                Err(error) => self.report.fail(&self.trees.source.show(&node), &error),
            }
        }
        Ok(())
    }

    /// Makes a directory, and reads the names of its entries.
    fn level(
        &mut self,
        trail: &Arc<Trail>,
        node: &HostNode,
        place: Place,
        name: &[u8],
        differs: Differs,
    ) -> Result<Level> {
        self.report.file();
        let meta = self.trees.meta(node)?;
        let rest = self.trees.list(node)?.into_iter();
        let ino = match self.dry {
            true => place.dir,
            false => self.with_room(|it| it.directory(place, name))?,
        };
        self.item(trail, FileType::Directory, action_of(place), differs);
        let (node, trail) = (node.clone(), Arc::clone(trail));
        Ok(Level { ino, node, meta, trail, rest })
    }

    /// Gives a new directory its attributes, after its entries.
    fn finish(&self, level: &Level) -> Result<()> {
        if self.dry || self.report.stopped() {
            return Ok(());
        }
        apply(self.trees.volume, &self.trees.cred, level.ino, &level.meta, None)
    }

    /// Makes an entry that is no directory.
    fn entry(
        &mut self,
        trail: &Arc<Trail>,
        node: &HostNode,
        meta: &Meta,
        place: Place,
        differs: Differs,
    ) -> Result<()> {
        self.report.file();
        let (kind, shared) = (type_of(&meta.kind), meta.links > 1);
        if self.dry && place.old == Some(FileType::Directory) {
            self.remove_old(place.dir, trail)?;
        }
        let known = if shared { self.made.get(&meta.id).copied() } else { None };
        if let Some(ino) = known {
            if !self.dry {
                self.with_room(|it| it.link(ino, place, trail))?;
            }
            self.item(trail, kind, Action::Link, differs);
            return Ok(());
        }
        let (ino, attributes) = match self.dry {
            true => (InodeNo::default(), Ok(())),
            false => self.with_room(|it| match meta.kind {
                Kind::File => it.file(node, meta, place, trail),
                _ => it.special(meta, place, trail),
            })?,
        };
        if shared {
            self.made.insert(meta.id, ino);
        }
        self.item(trail, kind, action_of(place), differs);
        attributes
    }

    /// Calls `make`. If the volume is full, removes what is to be removed and tries again.
    fn with_room<T>(&mut self, mut make: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        match make(self) {
            Err(error) if error.full && !self.removals.is_empty() && !self.report.failed() => {
                self.remove_all();
                make(self).map_err(explain)
            }
            done => done.map_err(explain),
        }
    }

    fn remove_all(&mut self) {
        for removal in std::mem::take(&mut self.removals) {
            if self.report.stopped() {
                return;
            }
            let Removal { dir, name, ino } = removal;
            let trail = Trail::below(&dir.trail, &name);
            match self.remove(dir.ino, &name, ino, &trail, false) {
                Ok(()) => self.touch(&dir),
                Err(error) => self.report.fail(&self.trees.show(&trail), &error),
            }
        }
    }
}

/// The calls that change the volume.
impl Writer<'_> {
    /// Makes a regular file with its contents.
    fn file(
        &mut self,
        node: &HostNode,
        meta: &Meta,
        place: Place,
        trail: &Arc<Trail>,
    ) -> Result<Made<InodeNo>> {
        let (volume, cred) = (self.trees.volume, &self.trees.cred);
        let from = self.trees.source.open(node, meta)?;
        let data = self.trees.source.data(&from, meta)?;
        let ino = volume.tmpfile(cred, place.dir, 0o600)?.ino;
        let _open = Opened(volume, ino);
        let end = data.last().map_or(0, |range| range.end);
        for range in data {
            self.copy(&from, ino, range)?;
        }
        let size = (end < meta.size).then_some(meta.size);
        let attributes = apply(volume, cred, ino, meta, size);
        if !from.is_unchanged(meta)? {
            return Err(EntryError::new("changed while it was read"));
        }
        // An attribute that does not fit is reported, but the contents are whole.
        if attributes.as_ref().is_err_and(EntryError::is_fatal) {
            attributes.clone()?;
        }
        self.link(ino, place, trail)?;
        Ok((ino, attributes))
    }

    fn copy(
        &mut self,
        from: &<crate::HostSource as Source>::File,
        ino: InodeNo,
        range: Range<u64>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let want = to_usize((range.end - at).min(to_u64(self.buffer.len())));
            let got = self.trees.source.read(from, at, &mut self.buffer[..want])?;
            if got == 0 {
                return Err(EntryError::new("became shorter while it was read"));
            }
            let (volume, cred) = (self.trees.volume, &self.trees.cred);
            if volume.write(cred, ino, at, &self.buffer[..got])? < got {
                return Err(Error::NoSpace.into());
            }
            self.report.bytes(to_u64(got));
            at += to_u64(got);
        }
        Ok(())
    }

    /// Makes a symbolic link, device, pipe or socket.
    fn special(&mut self, meta: &Meta, place: Place, trail: &Arc<Trail>) -> Result<Made<InodeNo>> {
        let (volume, cred) = (self.trees.volume, &self.trees.cred);
        let (temporary, ino) = self.temporary(|temporary| {
            let made = make_special(volume, cred, (place.dir, temporary), meta, meta.mode)?;
            Ok(made.ino)
        })?;
        let attributes = apply(volume, cred, ino, meta, None);
        self.rename_over(place, &temporary, trail)?;
        Ok((ino, attributes))
    }

    /// Makes an empty directory.
    fn directory(&mut self, place: Place, name: &[u8]) -> Result<InodeNo> {
        let (volume, cred) = (self.trees.volume, &self.trees.cred);
        if place.old.is_none() {
            return Ok(volume.mkdir(cred, place.dir, name, 0o700)?.ino);
        }
        let (temporary, ino) =
            self.temporary(|temporary| Ok(volume.mkdir(cred, place.dir, temporary, 0o700)?.ino))?;
        let (from, to) = ((place.dir, &temporary[..]), (place.dir, name));
        if let Err(error) = volume.rename(cred, from, to, RenameMode::Exchange) {
            // The first error counts.
            let _ = volume.rmdir(cred, place.dir, &temporary);
            return Err(error.into());
        }
        volume.unlink(cred, place.dir, &temporary)?;
        Ok(ino)
    }

    /// Gives an inode a name.
    fn link(&mut self, ino: InodeNo, place: Place, trail: &Arc<Trail>) -> Result<()> {
        let (volume, cred) = (self.trees.volume, &self.trees.cred);
        if place.old.is_none() {
            volume.link(cred, ino, place.dir, trail.name())?;
            return Ok(());
        }
        let (temporary, _) =
            self.temporary(|temporary| volume.link(cred, ino, place.dir, temporary).map(drop))?;
        self.rename_over(place, &temporary, trail)
    }

    /// Calls `make` with names until one is free.
    fn temporary<T>(&self, make: impl Fn(&[u8]) -> nextent::Result<T>) -> Result<(Vec<u8>, T)> {
        let mut number = 0u32;
        loop {
            let name = format!(".nextent-sync-{number}").into_bytes();
            match make(&name) {
                Err(Error::Exists) => number += 1,
                made => return Ok((name, made?)),
            }
        }
    }

    /// Renames `temporary`, which is no directory, to the name of `trail`.
    fn rename_over(&mut self, place: Place, temporary: &[u8], trail: &Arc<Trail>) -> Result<()> {
        let (volume, cred) = (self.trees.volume, &self.trees.cred);
        let emptied = match place.old {
            Some(FileType::Directory) => self.remove_old(place.dir, trail),
            _ => Ok(()),
        };
        let renamed = emptied.and_then(|()| {
            let (from, to) = ((place.dir, temporary), (place.dir, trail.name()));
            Ok(volume.rename(cred, from, to, RenameMode::Replace)?)
        });
        if renamed.is_err() {
            // The first error counts.
            let _ = volume.unlink(cred, place.dir, temporary);
        }
        renamed
    }

    /// Removes the directory whose name an entry gets.
    fn remove_old(&mut self, dir: InodeNo, trail: &Arc<Trail>) -> Result<()> {
        let trees = self.trees;
        let ino = trees.volume.lookup(&trees.cred, dir, trail.name())?.ino;
        self.remove(dir, trail.name(), ino, trail, true)
    }

    /// Removes an entry and all below it, and reports it unless another `replaces` it.
    fn remove(
        &mut self,
        dir: InodeNo,
        name: &[u8],
        ino: InodeNo,
        trail: &Arc<Trail>,
        replaces: bool,
    ) -> Result<()> {
        let (trees, dry) = (self.trees, self.dry);
        let mut gone = |gone: &Arc<Trail>, kind| {
            if !replaces || !Arc::ptr_eq(gone, trail) {
                self.item(gone, kind, Action::Remove, Differs::default());
            }
        };
        let done = remove_tree(trees.volume, &trees.cred, (dir, name, ino), trail, dry, &mut gone);
        done.map_err(|(at, error)| match Arc::ptr_eq(&at, trail) {
            true => explain(error.into()),
            false => explain(error.into()).at(&trees.show(&at)),
        })
    }
}

fn action_of(place: Place) -> Action {
    if place.old.is_some() { Action::Replace } else { Action::Create }
}

/// Says what most likely forbids a change: a caller with root's rights meets no permissions.
fn explain(error: EntryError) -> EntryError {
    match error.to_string().as_str() == Error::Perm.to_string() {
        true => EntryError::new("is immutable or append-only in the image, or its directory is"),
        false => error,
    }
}
