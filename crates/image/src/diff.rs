//! Compares two trees, of images or of the host.
//!
//! The walk takes both trees by sorted names, a directory before its entries, so that the
//! differences of equal trees come in the same order. A directory that only one tree has is one
//! difference.
//!
//! Holes count as zeros. Lengths of directories are not compared, nor are times of the last access
//! or of the last change of attributes. Two names that are one file in one tree must be one file in
//! the other, as far as both trees have these names.

use super::transfer::{FileId, Kind, Meta, Source};
use super::{BUFFER, EntryError, Result, name};
use nextent_num::{to_u64, to_usize};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// One of two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first.
    Left,
    /// The second.
    Right,
}

/// What of two files differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The kinds. Nothing else is compared then.
    Kind(&'static str, &'static str),
    /// The lengths of regular files, in bytes. Contents are not compared then.
    Size(u64, u64),
    /// The contents, first at this byte.
    Contents(u64),
    /// The targets of symbolic links.
    Target(Vec<u8>, Vec<u8>),
    /// The numbers of devices.
    Device,
    /// The permission bits.
    Mode(u16, u16),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// The times of the last change of contents.
    Time,
    /// An extended attribute, by its name.
    Xattr(Vec<u8>),
    /// In one tree only, this name and an earlier one are one file.
    Links,
}

/// A difference of two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Only one tree has the name.
    Only {
        /// That tree.
        side: Side,
        /// The kind of the file.
        kind: &'static str,
    },
    /// Both have the name, and the files differ.
    Changed(Vec<Change>),
}

/// Attributes that are not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is an attribute
pub struct Ignored {
    /// Permission bits.
    pub modes: bool,
    /// Owners and groups.
    pub owners: bool,
    /// Times.
    pub times: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Which names are one file.
    pub links: bool,
}

/// Receives the events of a comparison.
pub trait Compared {
    /// The files at `path`, below the two top directories and without a slash at its start,
    /// differ. False ends the comparison.
    fn differs(&mut self, path: &[u8], difference: &Difference) -> bool;

    /// The file at `path` cannot be compared.
    fn fails(&mut self, path: &[u8], side: Side, error: &EntryError);
}

/// Compares the trees at `left` and `right`.
pub fn diff<L: Source, R: Source>(
    left: (&L, L::Node),
    right: (&R, R::Node),
    ignored: Ignored,
    to: &mut dyn Compared,
) {
    let mut walk = Walk {
        left: Tree { source: left.0, entered: HashSet::new() },
        right: Tree { source: right.0, entered: HashSet::new() },
        ignored,
        to,
        path: Vec::new(),
        same: HashMap::new(),
        buffers: [vec![0; BUFFER], vec![0; BUFFER]],
        ended: false,
    };
    walk.run((left.1, right.1));
}

/// The name of a kind, as in messages.
pub fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink(_) => "symbolic link",
        Kind::Char(_) => "character device",
        Kind::Block(_) => "block device",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

struct Tree<'a, S: Source> {
    source: &'a S,
    /// Directories that were entered, where one may have several names only by damage.
    entered: HashSet<FileId>,
}

/// An entry of a directory: the node in each tree that has it.
type Pair<L, R> = (Vec<u8>, Option<L>, Option<R>);

/// A directory that the walk is in.
struct Level<L, R> {
    rest: std::vec::IntoIter<Pair<L, R>>,
    /// Bytes of its path.
    len: usize,
}

struct Walk<'a, L: Source, R: Source> {
    left: Tree<'a, L>,
    right: Tree<'a, R>,
    ignored: Ignored,
    to: &'a mut dyn Compared,
    /// The path of the current entry.
    path: Vec<u8>,
    /// Files with several names that the walk has met: the file that has the name in the other
    /// tree.
    same: HashMap<(Side, FileId), FileId>,
    buffers: [Vec<u8>; 2],
    ended: bool,
}

impl<S: Source> Tree<'_, S> {
    /// The entries of a directory, sorted by name.
    fn list(&mut self, dir: &S::Node, meta: &Meta) -> Result<Vec<(Vec<u8>, S::Node)>> {
        if S::DIRS_HAVE_ONE_NAME && !self.entered.insert(meta.id) {
            return Err(EntryError::new("this directory has another name or contains itself"));
        }
        let mut all = Vec::new();
        self.source.list(dir, &mut |name, node| all.push((name, node)))?;
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        match all.iter().find_map(|(entry, _)| name::check(entry).err()) {
            Some(bad) => Err(bad),
            None => Ok(all),
        }
    }
}

impl<L: Source, R: Source> Walk<'_, L, R> {
    fn run(&mut self, tops: (L::Node, R::Node)) {
        let mut levels = Vec::new();
        levels.extend(self.both(tops));
        while let Some(level) = levels.last_mut()
            && !self.ended
        {
            self.path.truncate(level.len);
            let Some((name, left, right)) = level.rest.next() else {
                levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            match (left, right) {
                (Some(left), Some(right)) => levels.extend(self.both((left, right))),
                (Some(left), None) => {
                    let kind = self.left.source.meta(&left).map(|meta| kind_name(&meta.kind));
                    self.only(Side::Left, kind);
                }
                (None, Some(right)) => {
                    let kind = self.right.source.meta(&right).map(|meta| kind_name(&meta.kind));
                    self.only(Side::Right, kind);
                }
                (None, None) => {}
            }
        }
    }

    fn only(&mut self, side: Side, kind: Result<&'static str>) {
        match kind {
            Ok(kind) => self.report(&Difference::Only { side, kind }),
            Err(error) => self.to.fails(&self.path, side, &error),
        }
    }

    fn report(&mut self, difference: &Difference) {
        self.ended |= !self.to.differs(&self.path, difference);
    }

    /// Compares two files that have the same name. If both are directories, returns their entries.
    fn both(&mut self, (left, right): (L::Node, R::Node)) -> Option<Level<L::Node, R::Node>> {
        let metas = (self.left.source.meta(&left), self.right.source.meta(&right));
        let (one, other) = match metas {
            (Ok(one), Ok(other)) => (one, other),
            (one, other) => {
                for (side, meta) in [(Side::Left, one), (Side::Right, other)] {
                    if let Err(error) = meta {
                        self.to.fails(&self.path, side, &error);
                    }
                }
                return None;
            }
        };
        let kinds = (kind_name(&one.kind), kind_name(&other.kind));
        if kinds.0 != kinds.1 {
            self.report(&Difference::Changed(vec![Change::Kind(kinds.0, kinds.1)]));
            return None;
        }
        let mut changes = Vec::new();
        match (&one.kind, &other.kind) {
            (Kind::File, _) if one.size != other.size => {
                changes.push(Change::Size(one.size, other.size));
            }
            (Kind::File, _) => match first_difference(
                (self.left.source, &left, &one),
                (self.right.source, &right, &other),
                &mut self.buffers,
            ) {
                Ok(at) => changes.extend(at.map(Change::Contents)),
                Err((side, error)) => self.to.fails(&self.path, side, &error),
            },
            (Kind::Symlink(a), Kind::Symlink(b)) if a != b => {
                changes.push(Change::Target(a.clone(), b.clone()));
            }
            (Kind::Char(a), Kind::Char(b)) | (Kind::Block(a), Kind::Block(b)) if a != b => {
                changes.push(Change::Device);
            }
            _ => {}
        }
        self.attributes(&one, &other, &mut changes);
        if !changes.is_empty() {
            self.report(&Difference::Changed(changes));
        }
        if one.kind != Kind::Dir {
            return None;
        }
        let mut listed = (Vec::new(), Vec::new());
        match self.left.list(&left, &one) {
            Ok(list) => listed.0 = list,
            Err(error) => {
                self.to.fails(&self.path, Side::Left, &error);
                return None;
            }
        }
        match self.right.list(&right, &other) {
            Ok(list) => listed.1 = list,
            Err(error) => {
                self.to.fails(&self.path, Side::Right, &error);
                return None;
            }
        }
        Some(Level { rest: merge(listed.0, listed.1).into_iter(), len: self.path.len() })
    }

    fn attributes(&mut self, one: &Meta, other: &Meta, changes: &mut Vec<Change>) {
        let ignored = self.ignored;
        let is_link = matches!(one.kind, Kind::Symlink(_));
        if !ignored.modes && !is_link && one.mode != other.mode {
            changes.push(Change::Mode(one.mode, other.mode));
        }
        let owners = ((one.uid, one.gid), (other.uid, other.gid));
        if !ignored.owners && owners.0 != owners.1 {
            changes.push(Change::Owner(owners.0, owners.1));
        }
        if !ignored.times && one.mtime != other.mtime {
            changes.push(Change::Time);
        }
        if !ignored.xattrs {
            let value = |meta: &Meta, name: &[u8]| {
                let mut found = meta.xattrs.iter().filter(|(given, _)| given == name);
                found.next().map(|(_, value)| value.clone())
            };
            let all = one.xattrs.iter().chain(&other.xattrs).map(|(name, _)| name);
            let mut names: Vec<_> = all.collect();
            names.sort();
            names.dedup();
            let differ = names.into_iter().filter(|name| value(one, name) != value(other, name));
            changes.extend(differ.cloned().map(Change::Xattr));
        }
        if !ignored.links && one.kind != Kind::Dir && self.are_linked_otherwise(one, other) {
            changes.push(Change::Links);
        }
    }

    /// Whether the two files were met before, but not together.
    fn are_linked_otherwise(&mut self, one: &Meta, other: &Meta) -> bool {
        if one.links < 2 && other.links < 2 {
            return false;
        }
        let of_left = *self.same.entry((Side::Left, one.id)).or_insert(other.id);
        let of_right = *self.same.entry((Side::Right, other.id)).or_insert(one.id);
        of_left != other.id || of_right != one.id
    }
}

/// The first byte at which two files of the same length differ.
///
/// # Errors
/// The side that failed, and why.
pub(crate) fn first_difference<L: Source, R: Source>(
    (left, node, one): (&L, &L::Node, &Meta),
    (right, other_node, other): (&R, &R::Node, &Meta),
    [buf_a, buf_b]: &mut [Vec<u8>; 2],
) -> std::result::Result<Option<u64>, (Side, EntryError)> {
    let (left_at, right_at) = (|error| (Side::Left, error), |error| (Side::Right, error));
    let a = left.open(node, one).map_err(left_at)?;
    let b = right.open(other_node, other).map_err(right_at)?;
    let data_a = left.data(&a, one).map_err(left_at)?;
    let data_b = right.data(&b, other).map_err(right_at)?;
    for range in union(data_a, data_b) {
        let mut at = range.start;
        while at < range.end {
            let len = to_usize((range.end - at).min(to_u64(BUFFER)));
            let (buf_a, buf_b) = (&mut buf_a[..len], &mut buf_b[..len]);
            exactly(left, &a, at, buf_a).map_err(left_at)?;
            exactly(right, &b, at, buf_b).map_err(right_at)?;
            if buf_a != buf_b {
                let first = buf_a.iter().zip(&*buf_b).position(|(a, b)| a != b);
                return Ok(Some(at + to_u64(first.unwrap_or_default())));
            }
            at += to_u64(len);
        }
    }
    Ok(None)
}

/// Fills `buf`.
fn exactly<S: Source>(source: &S, file: &S::File, at: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match source.read(file, at + to_u64(done), &mut buf[done..])? {
            0 => return Err(EntryError::new("became shorter while it was read")),
            read => done += read,
        }
    }
    Ok(())
}

/// The ranges that either list has; both are in order.
fn union(a: Vec<Range<u64>>, b: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<_> = a.into_iter().chain(b).collect();
    all.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(all.len());
    for range in all {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Joins two sorted lists by name.
fn merge<L, R>(left: Vec<(Vec<u8>, L)>, right: Vec<(Vec<u8>, R)>) -> Vec<Pair<L, R>> {
    let mut all = Vec::with_capacity(left.len().max(right.len()));
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return all,
        };
        let one = if order.is_le() { left.next() } else { None };
        let other = if order.is_ge() { right.next() } else { None };
        let (one, other) = (one.map_or((None, None), split), other.map_or((None, None), split));
        let name = one.0.or(other.0).unwrap_or_default();
        all.push((name, one.1, other.1));
    }
}

fn split<N>((name, node): (Vec<u8>, N)) -> (Option<Vec<u8>>, Option<N>) {
    (Some(name), Some(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined() {
        assert_eq!(union(vec![0..4, 10..12], vec![2..5, 5..6, 20..21]), [0..6, 10..12, 20..21]);
        assert_eq!(union(vec![], vec![]), Vec::<Range<u64>>::new());
    }

    #[test]
    fn names_are_joined() {
        let list = |names: &str| names.bytes().map(|name| (vec![name], name)).collect::<Vec<_>>();
        let all = merge(list("abd"), list("bce"));
        let shown: Vec<_> = all.iter().map(|(_, a, b)| (*a, *b)).collect();
        let (a, b, c, d, e) = (Some(b'a'), Some(b'b'), Some(b'c'), Some(b'd'), Some(b'e'));
        assert_eq!(shown, [(a, None), (b, b), (None, c), (d, None), (None, e)]);
    }
}
