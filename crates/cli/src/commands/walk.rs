//! Walks over a tree of an image, for commands that change or remove the whole tree.
//!
//! A walk keeps its levels on the heap, one path, and a few MiB of names. It enters no directory
//! twice: in a damaged image a directory may be below itself or have several names. Failures are
//! printed, and the walk goes on after them.

use crate::failure::{Failure, Result};
use crate::image::at;
use crate::location::Inside;
use nextent::FileType;
use nextent::inodes::{Attr, InodeNo, Inodes};
use nextent_image::{ListedEntry, Listing};
use std::collections::HashSet;

/// The most bytes of names of the levels above the current one.
const HELD_MAX: usize = 4 << 20;

/// When a file is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// A directory, before its entries.
    Before,
    /// A directory, after its entries.
    After,
    /// Anything else.
    Once,
}

/// A visit of a file below the top of a walk, or of the top.
pub(super) struct Visit<'a> {
    pub(super) when: When,
    pub(super) path: &'a Inside,
    pub(super) attr: &'a Attr,
    /// The directory and the name in it; none for the top.
    pub(super) entry: Option<(InodeNo, &'a [u8])>,
}

/// A directory that a walk is in.
struct WalkLevel {
    attr: Attr,
    listing: Listing,
    /// Its name in the level above.
    name: Vec<u8>,
    /// Length of its path.
    len: usize,
    /// An entry of it failed.
    failed: bool,
}

struct TreeWalk<'a, 'v> {
    volume: &'a Inodes,
    /// The command, for messages.
    what: &'static str,
    path: Inside,
    levels: Vec<WalkLevel>,
    entered: HashSet<InodeNo>,
    /// Bytes of the listings of all levels but the last.
    held: usize,
    failed: bool,
    visit: &'v mut dyn FnMut(&Visit<'_>) -> Result<()>,
}

/// Visits the directory `attr`, which is at `top`, and everything below it. A directory with a
/// failed entry is not visited [`After`](When::After).
///
/// # Errors
/// A failure without a message, if a visit failed; one that ends the command.
pub(super) fn walk(
    volume: &Inodes,
    what: &'static str,
    (top, attr): (&Inside, Attr),
    visit: &mut dyn FnMut(&Visit<'_>) -> Result<()>,
) -> Result<()> {
    let (path, levels, entered) = (top.clone(), Vec::new(), HashSet::new());
    let mut walk = TreeWalk { volume, what, path, levels, entered, held: 0, failed: false, visit };
    walk.enter(attr, Vec::new())?;
    while !walk.levels.is_empty() {
        walk.step()?;
    }
    if walk.failed { Err(Failure::reported(1)) } else { Ok(()) }
}

/// Calls `each` for a file and, if `recursive`, for everything below it.
///
/// # Errors
/// As [`walk`].
pub(super) fn all(
    volume: &Inodes,
    what: &'static str,
    (top, attr): (&Inside, Attr),
    recursive: bool,
    each: &mut dyn FnMut(&Inside, &Attr) -> Result<()>,
) -> Result<()> {
    if !recursive || attr.kind != FileType::Directory {
        return each(top, &attr);
    }
    walk(volume, what, (top, attr), &mut |visit: &Visit<'_>| match visit.when {
        When::After => Ok(()),
        When::Before | When::Once => each(visit.path, visit.attr),
    })
}

impl TreeWalk<'_, '_> {
    /// Visits the next entry of the last level, or leaves that level.
    fn step(&mut self) -> Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let (dir, len) = (level.attr.ino, level.len);
        let Some(entry) = level.listing.next(self.volume) else { return self.leave() };
        self.path.path.truncate(len);
        let entry = match at(self.what, &self.path, entry) {
            Ok(entry) => entry,
            Err(failure) => return self.fail(failure),
        };
        self.path.push(&entry.name);
        let attr = self.volume.getattr_listed(dir, entry.ino);
        match at(self.what, &self.path, attr) {
            Ok(attr) if attr.kind == FileType::Directory => self.enter(attr, entry.name),
            Ok(attr) => self.once(dir, &entry, &attr),
            Err(failure) => self.fail(failure),
        }
    }

    fn once(&mut self, dir: InodeNo, entry: &ListedEntry, attr: &Attr) -> Result<()> {
        let (when, path) = (When::Once, &self.path);
        let done = (self.visit)(&Visit { when, path, attr, entry: Some((dir, &entry.name)) });
        done.or_else(|failure| self.fail(failure))
    }

    /// Enters the directory at the current path.
    fn enter(&mut self, attr: Attr, name: Vec<u8>) -> Result<()> {
        if !self.entered.insert(attr.ino) {
            let text = format!(
                "{} {}: this directory (inode {}) has another name or contains itself; not entered \
                 again",
                self.what, self.path, attr.ino
            );
            return self.fail(Failure::new(text));
        }
        let entry = self.levels.last().map(|above| (above.attr.ino, name.as_slice()));
        let (when, path) = (When::Before, &self.path);
        if let Err(failure) = (self.visit)(&Visit { when, path, attr: &attr, entry }) {
            self.fail(failure)?;
        }
        if let Some(above) = self.levels.last_mut() {
            if self.held + above.listing.held() > HELD_MAX {
                above.listing.let_go();
            }
            self.held += above.listing.held();
        }
        let (listing, len) = (Listing::of(attr.ino), self.path.path.len());
        self.levels.push(WalkLevel { attr, listing, name, len, failed: false });
        Ok(())
    }

    /// Returns to the level above.
    fn leave(&mut self) -> Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        self.path.path.truncate(level.len);
        let WalkLevel { attr, name, failed, .. } = level;
        let mut entry = None;
        if let Some(above) = self.levels.last_mut() {
            self.held -= above.listing.held();
            above.failed |= failed;
            entry = Some((above.attr.ino, name.as_slice()));
        }
        if failed {
            return Ok(());
        }
        let (when, path) = (When::After, &self.path);
        let done = (self.visit)(&Visit { when, path, attr: &attr, entry });
        done.or_else(|failure| self.fail(failure))
    }

    /// Prints a failure and records it at the last level.
    fn fail(&mut self, failure: Failure) -> Result<()> {
        if failure.ends_all() {
            return Err(failure);
        }
        failure.print();
        self.failed = true;
        if let Some(level) = self.levels.last_mut() {
            level.failed = true;
        }
        Ok(())
    }
}
