//! Compares the source with the image and plans the changes; changes nothing.
//!
//! Workers take directories that both trees have from one stack. A worker merges the two sorted
//! lists of names. A directory that only the source has is one change, whose contents are read when
//! it is made.

use super::attributes::{compare, drop_unstorable, type_of, xattrs};
use super::item::Differs;
use super::plan::{Change, LinkedName, Pair, Plan, Removal, What};
use crate::attributes::Attributes;
use crate::diff::{Side, first_difference};
use crate::entered::Entered;
use crate::entry::{Kind, Meta};
use crate::host_source::{HostNode, HostSource};
use crate::host_sys;
use crate::image_source::{ImageNode, ImageSource};
use crate::listing::{ListedEntry, sorted};
use crate::queue::Queue;
use crate::trail::Trail;
use crate::transfer::FileId;
use crate::{BUFFER, EntryError, Report, Result, Source, escape, name};
use nextent::inodes::{Attr, InodeNo, Inodes, ROOT_INO};
use nextent::{Cred, FileType};
use nextent_ondisk::inode::flags;
use nextent_sync::{Arc, thread};
use std::cmp::Ordering;

/// A result, or the tree whose entry failed.
type Compared<T> = std::result::Result<T, (Side, EntryError)>;

/// The two trees.
pub(super) struct Trees<'a> {
    pub(super) source: &'a HostSource,
    /// Whose the entries are, if not the source's.
    pub(super) owners: &'a Attributes,
    pub(super) volume: &'a Inodes,
    pub(super) cred: Cred,
    /// The directory of the image, as messages name it.
    pub(super) name: String,
}

impl Trees<'_> {
    /// The attributes that the image is to have for `node`.
    pub(super) fn meta(&self, node: &HostNode) -> Result<Meta> {
        let mut meta = self.source.meta_in(node)?;
        drop_unstorable(&mut meta);
        self.owners.apply(b"", &mut meta)?;
        Ok(meta)
    }

    /// The path of an entry of the image, for messages.
    pub(super) fn show(&self, trail: &Trail) -> String {
        let path = trail.path();
        let slash = if path.is_empty() || self.name.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{}", self.name, escape::name(&path))
    }

    /// The entries of a directory of the source, sorted by name.
    pub(super) fn list(&self, dir: &HostNode) -> Result<Vec<(Vec<u8>, HostNode)>> {
        let mut all = Vec::new();
        self.source.list(dir, &mut |name, node| all.push((name, node)))?;
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        // A directory that changes while it is read may return a name twice.
        all.dedup_by(|a, b| a.0 == b.0);
        Ok(all)
    }
}

/// A comparison.
pub(super) struct Comparison<'a> {
    trees: &'a Trees<'a>,
    report: &'a Report<'a>,
    queue: Queue<Arc<Pair>>,
    entered: Entered,
    /// Files of one length and time are read, too.
    checksum: bool,
    /// The source has an absolute path.
    is_absolute: bool,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(trees: &'a Trees<'a>, report: &'a Report<'a>, checksum: bool) -> Self {
        let (queue, entered) = (Queue::new(), Entered::new(true));
        Self { trees, report, queue, entered, checksum, is_absolute: false }
    }

    /// Compares the directories `node` and `ino`.
    pub(super) fn run(&mut self, node: HostNode, ino: InodeNo, workers: usize) -> Plan {
        self.is_absolute = node.is_absolute();
        let mut plan = Plan::default();
        let mut buffers = [Vec::new(), Vec::new()];
        if let Err((side, error)) = self.both(None, (b"", &node), ino, &mut plan, &mut buffers) {
            self.fail(side, &node, &Trail::top(b""), &error);
        }
        self.queue.done();
        thread::scope(|scope| {
            // This thread does not work: other threads of the program may use its working
            // directory.
            let all: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(|| self.work())).collect();
            for worker in all {
                match worker.join() {
                    Ok(found) => plan.append(found),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        plan.sort();
        plan
    }

    fn work(&self) -> Plan {
        host_sys::own_descriptors();
        // A path that the user gave may be relative.
        if self.is_absolute {
            host_sys::own_directory();
        }
        let mut plan = Plan::default();
        let mut buffers = [Vec::new(), Vec::new()];
        while let Some(dir) = self.queue.newest() {
            let _ending = self.queue.ending();
            if !self.report.stopped() {
                self.entries(&dir, &mut plan, &mut buffers);
            }
        }
        plan
    }

    fn fail(&self, side: Side, node: &HostNode, trail: &Trail, error: &EntryError) {
        match side {
            Side::Left => self.report.fail(&self.trees.source.show(node), error),
            Side::Right => self.report.fail(&self.trees.show(trail), error),
        }
    }

    /// Compares the entries of a directory.
    fn entries(&self, dir: &Arc<Pair>, plan: &mut Plan, buffers: &mut [Vec<u8>; 2]) {
        let listed =
            self.trees.list(&dir.node).map_err(in_source).and_then(|theirs| {
                Ok((theirs, sorted(self.trees.volume, dir.ino).map_err(in_image)?))
            });
        let (theirs, ours) = match listed {
            Ok(lists) => lists,
            Err((side, error)) => return self.fail(side, &dir.node, &dir.trail, &error),
        };
        let (mut theirs, mut ours) = (theirs.into_iter().peekable(), ours.into_iter().peekable());
        while !self.report.stopped() {
            let order = match (theirs.peek(), ours.peek()) {
                (Some((theirs, _)), Some(ours)) => theirs.cmp(&ours.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            let theirs = if order.is_le() { theirs.next() } else { None };
            let ours = if order.is_ge() { ours.next() } else { None };
            match (theirs, ours) {
                (Some((name, node)), None) => {
                    let trail = Trail::below(&dir.trail, &name);
                    let (dir, differs) = (Arc::clone(dir), Differs::default());
                    let what = What::Make { dir, old: None, differs };
                    plan.changes.push(Change { trail, node, what });
                }
                (None, Some(entry)) => self.only_in_image(dir, entry, plan),
                (Some((name, node)), Some(entry)) => {
                    let done = self.both(Some(dir), (&name, &node), entry.ino, plan, buffers);
                    if let Err((side, error)) = done {
                        self.fail(side, &node, &Trail::below(&dir.trail, &name), &error);
                    }
                }
                (None, None) => {}
            }
        }
    }

    fn only_in_image(&self, dir: &Arc<Pair>, entry: ListedEntry, plan: &mut Plan) {
        let ListedEntry { name, ino, .. } = entry;
        if is_lost_found(dir, &name) {
            return;
        }
        match name::check(&name) {
            Ok(()) => plan.removals.push(Removal { dir: Arc::clone(dir), name, ino }),
            Err(error) => self.report.fail(&self.trees.show(&dir.trail), &error),
        }
    }

    /// Compares two entries of one name, which the directories `dir` have; without these, the two
    /// tops. Adds directories to the queue.
    fn both(
        &self,
        dir: Option<&Arc<Pair>>,
        (name, node): (&[u8], &HostNode),
        ino: InodeNo,
        plan: &mut Plan,
        buffers: &mut [Vec<u8>; 2],
    ) -> Compared<()> {
        let volume = self.trees.volume;
        // Most entries need none.
        let trail = || dir.map_or_else(|| Trail::top(b""), |dir| Trail::below(&dir.trail, name));
        let attr = match dir {
            Some(dir) => volume.getattr_listed(dir.ino, ino),
            None => volume.getattr(ino),
        };
        let attr = attr.map_err(in_image)?;
        let meta = self.trees.meta(node).map_err(in_source)?;
        self.report.file();
        let differs = match type_of(&meta.kind) == attr.kind {
            false => Differs { kind: true, ..Differs::default() },
            true => {
                let present = xattrs(volume, &self.trees.cred, ino).map_err(in_image)?;
                let differs = compare(&meta, &attr, &present);
                let contents = self.contents_differ((node, &meta), &attr, differs, buffers)?;
                Differs { contents, ..differs }
            }
        };
        let add = |what, plan: &mut Plan| {
            let (trail, node) = (trail(), node.clone());
            plan.changes.push(Change { trail, node, what });
        };
        let is_dir = meta.kind == Kind::Dir && !differs.kind;
        if is_dir {
            self.enter(&attr)?;
        }
        match dir {
            Some(dir) if differs.kind && is_lost_found(dir, name) => {
                return Err(in_source(EntryError::new("cannot take the place of lost+found")));
            }
            Some(dir) if !is_dir && !differs.kind && (meta.links > 1 || attr.links > 1) => {
                let (trail, node, dir) = (trail(), node.clone(), Arc::clone(dir));
                let (id, kind) = (meta.id, attr.kind);
                plan.names.push(LinkedName { trail, node, dir, id, ino, kind, differs });
            }
            Some(dir) if differs.is_other_file() => {
                add(What::Make { dir: Arc::clone(dir), old: Some(attr.kind), differs }, plan);
            }
            _ if differs.is_any() => add(What::Set { ino, differs }, plan),
            _ => {}
        }
        if is_dir {
            let (node, trail, mtime) = (node.clone(), trail(), meta.mtime);
            self.queue.push(Arc::new(Pair { node, ino, trail, mtime }));
        }
        Ok(())
    }

    /// Whether the contents of two files of one length differ.
    fn read_both(
        &self,
        (node, meta): (&HostNode, &Meta),
        ino: InodeNo,
        buffers: &mut [Vec<u8>; 2],
    ) -> Compared<bool> {
        for buffer in buffers.iter_mut() {
            buffer.resize(BUFFER, 0);
        }
        let ours = ImageSource::new(self.trees.volume, "", 0, false);
        let other = ImageNode::top(ino, b"");
        let left = (self.trees.source, node, meta);
        let other_meta = ours.meta(&other).map_err(in_image)?;
        let first = first_difference(left, (&ours, &other, &other_meta), buffers);
        Ok(first?.is_some())
    }

    /// Whether the contents of the two files of `name` differ, which have one length. False after a
    /// failure, which is reported.
    pub(super) fn names_differ(&self, name: &LinkedName) -> bool {
        if name.kind != FileType::Regular || self.checksum {
            return false;
        }
        let meta = self.trees.meta(&name.node).map_err(in_source);
        let read = meta.and_then(|meta| {
            self.read_both((&name.node, &meta), name.ino, &mut [Vec::new(), Vec::new()])
        });
        read.unwrap_or_else(|(side, error)| {
            self.fail(side, &name.node, &name.trail, &error);
            false
        })
    }

    /// Records that the walk enters a directory of the image.
    fn enter(&self, attr: &Attr) -> Compared<()> {
        if attr.flags & flags::ENCRYPT != 0 {
            let text = "is encrypted; its names cannot be compared without the key";
            return Err(in_image(EntryError::new(text)));
        }
        let id = FileId { volume: 0, ino: u64::from(attr.ino.0) };
        self.entered.enter_id(id).map_err(in_image)
    }

    /// Whether the contents of a file, the target of a link or the number of a device differ. Files
    /// of one length and time are taken as equal, unless the caller wants all to be read.
    fn contents_differ(
        &self,
        (node, meta): (&HostNode, &Meta),
        attr: &Attr,
        differs: Differs,
        buffers: &mut [Vec<u8>; 2],
    ) -> Compared<bool> {
        match &meta.kind {
            Kind::File if differs.size => Ok(true),
            Kind::File if !differs.time && !self.checksum => Ok(false),
            Kind::File => self.read_both((node, meta), attr.ino, buffers),
            Kind::Symlink(target) => {
                let present = self.trees.volume.readlink(attr.ino).map_err(in_image)?;
                Ok(present != *target)
            }
            Kind::Char(device) | Kind::Block(device) => Ok(attr.device != *device),
            Kind::Dir | Kind::Fifo | Kind::Socket => Ok(false),
        }
    }
}

fn in_source(error: EntryError) -> (Side, EntryError) {
    (Side::Left, error)
}

fn in_image(error: impl Into<EntryError>) -> (Side, EntryError) {
    (Side::Right, error.into())
}

/// Whether it is the directory of e2fsck, which no source need have.
fn is_lost_found(dir: &Pair, name: &[u8]) -> bool {
    dir.ino == ROOT_INO && name == b"lost+found"
}
