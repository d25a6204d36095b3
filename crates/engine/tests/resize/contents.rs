//! All that a resize must keep of files: the tree, with times, flags, maps and bytes.

use std::collections::BTreeMap;
use std::io;

use nextent::inodes::{Attr, InodeNo, Inodes};
use nextent::{FileType, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_sync::Arc;
use nextent_testkit::tree::{Compare, Kind, Stat, Tree, TreeSource, diff, walk};

use super::common::VolumeTree;

/// The most differences in the text of a failure.
const SHOWN: usize = 12;

/// Linux shows some unwritten runs as data.
const LINUX: Compare =
    Compare { times: true, root: true, owners: true, dir_sizes: true, xattrs: true, holes: false };

/// The contents of a volume.
pub(crate) struct Contents {
    /// Without sizes and bytes of files.
    tree: Tree,
    details: BTreeMap<Vec<u8>, Details>,
}

#[derive(Clone, PartialEq, Eq)]
struct Details {
    /// Without inode number, and without the space that includes the map.
    attr: Attr,
    /// Allocated runs of files and directories: offset, length, whether unwritten.
    runs: Vec<(u64, u64, bool)>,
    /// The bytes of the runs of a file.
    bytes: Vec<u8>,
}

impl Details {
    fn of(volume: &Inodes, ino: InodeNo) -> nextent::Result<Self> {
        let mut attr = volume.getattr(ino)?;
        attr.ino = InodeNo(0);
        // More runs may need more blocks for the map.
        attr.sectors = 0;
        let mut found = Self { attr, runs: Vec::new(), bytes: Vec::new() };
        if !matches!(found.attr.kind, FileType::Regular | FileType::Directory) {
            return Ok(found);
        }
        for run in volume.fiemap(ino, 0, u64::MAX / 2, usize::MAX)? {
            match found.runs.last_mut() {
                Some((at, len, unwritten))
                    if *at + *len == run.logical && *unwritten == run.unwritten =>
                {
                    *len += run.len;
                }
                _ => found.runs.push((run.logical, run.len, run.unwritten)),
            }
        }
        if found.attr.kind == FileType::Regular {
            for (at, len, _) in found.runs.iter().filter(|run| !run.2) {
                let old = found.bytes.len();
                found.bytes.resize(old + *len as usize, 0);
                volume.read(ino, *at, &mut found.bytes[old..])?;
            }
        }
        Ok(found)
    }

    /// The first difference to `new`.
    fn difference(&self, new: &Self) -> Option<String> {
        let mut attr = new.attr.clone();
        // Larger inodes have a time of creation.
        attr.crtime = attr.crtime.filter(|_| self.attr.crtime.is_some());
        if self.attr != attr {
            let (old, new) = (format!("{:?}", self.attr), format!("{attr:?}"));
            let fields = old.split(", ").zip(new.split(", ")).filter(|(old, new)| old != new);
            return Some(fields.map(|(old, new)| format!("{old} | {new}; ")).collect());
        }
        if self.runs != new.runs {
            return Some(format!("runs {:?} | {:?}", self.runs, new.runs));
        }
        if self.bytes == new.bytes {
            return None;
        }
        let at = self.bytes.iter().zip(&new.bytes).position(|(old, new)| old != new)?;
        Some(format!("byte {at} of the runs {:?}", self.runs))
    }
}

/// A volume as a tree of empty files, so that the walk does not read them.
struct EmptyFiles<'v>(VolumeTree<'v>);

impl TreeSource for EmptyFiles<'_> {
    type Node = InodeNo;

    fn root(&self) -> io::Result<InodeNo> {
        self.0.root()
    }

    fn children(&self, dir: &InodeNo) -> io::Result<Vec<(Vec<u8>, InodeNo)>> {
        self.0.children(dir)
    }

    fn stat(&self, node: &InodeNo) -> io::Result<Stat> {
        let stat = self.0.stat(node)?;
        Ok(Stat { size: if stat.kind == Kind::File { 0 } else { stat.size }, ..stat })
    }

    fn read(&self, _: &InodeNo, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn target(&self, node: &InodeNo) -> io::Result<Vec<u8>> {
        self.0.target(node)
    }

    fn xattrs(&self, node: &InodeNo) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        self.0.xattrs(node)
    }
}

impl Contents {
    /// The contents of an open volume.
    pub(crate) fn of(volume: &Inodes) -> Result<Self, String> {
        let tree = walk(&EmptyFiles(VolumeTree(volume))).map_err(|error| error.to_string())?;
        let mut details = BTreeMap::new();
        for entry in tree.entries.iter().filter(|entry| entry.same_as.is_none()) {
            let ino = InodeNo(entry.stat.ino as u32);
            let found = Details::of(volume, ino)
                .map_err(|error| format!("{}: {error}", entry.path.escape_ascii()))?;
            details.insert(entry.path.clone(), found);
        }
        Ok(Self { tree, details })
    }

    /// The contents of the volume on `device`, which is not changed.
    pub(crate) fn read(device: &MemoryDevice) -> Result<Self, String> {
        let options = OpenOptions::new().read_only(true);
        let volume = Inodes::open(Arc::new(device.snapshot()), &options)
            .map_err(|error| format!("open: {error}"))?;
        Self::of(&volume)
    }

    /// The differences to `new`; an error describes them.
    pub(crate) fn compare(&self, new: &Self) -> Result<(), String> {
        let mut lines = diff(&self.tree, &new.tree, &Compare { holes: true, ..LINUX });
        for (path, old) in &self.details {
            let Some(new) = new.details.get(path) else { continue };
            if let Some(text) = old.difference(new) {
                lines.push(format!("{}: {text}", path.escape_ascii()));
            }
        }
        described("before | after", &lines)
    }
}

impl Contents {
    /// As [`compare`](Self::compare), but e2fsck may have found more names of files.
    pub(crate) fn compare_repaired(&self, new: &mut Self) -> Result<(), String> {
        for (path, old) in &self.details {
            if let Some(found) = new.details.get_mut(path) {
                found.attr.links = old.attr.links;
            }
        }
        for entry in &mut new.tree.entries {
            let old = self.tree.entries.binary_search_by(|old| old.path.cmp(&entry.path));
            if let Ok(at) = old {
                entry.stat.nlink = self.tree.entries[at].stat.nlink;
            }
        }
        self.compare(new)
    }
}

/// The tree of the volume on `device`, with the bytes of files.
pub(crate) fn full_tree(device: &MemoryDevice) -> Result<Tree, String> {
    let options = OpenOptions::new().read_only(true);
    let volume = Inodes::open(Arc::new(device.snapshot()), &options)
        .map_err(|error| format!("open: {error}"))?;
    walk(&VolumeTree(&volume)).map_err(|error| error.to_string())
}

/// The differences between the tree from before and that which Linux shows.
pub(crate) fn compare_with_linux(before: &Tree, theirs: &Tree) -> Result<(), String> {
    described("before | Linux", &diff(before, theirs, &LINUX))
}

fn described(sides: &str, lines: &[String]) -> Result<(), String> {
    if lines.is_empty() {
        return Ok(());
    }
    let cut = |line: &String| line.chars().take(500).collect::<String>();
    let shown: Vec<String> = lines.iter().take(SHOWN).map(cut).collect();
    Err(format!("{} differences, {sides}:\n{}", lines.len(), shown.join("\n")))
}
