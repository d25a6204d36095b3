//! A directory that is written as a whole: distributes its names among its blocks.
//!
//! For volumes that are filled before they are used. The names are known before the first
//! block is rendered, so an index is built from its leaves upwards, and each block is written
//! once. A name that gets no entry leaves a gap in its leaf.

use std::ops::Range;

use nextent_num::{must_fit, to_usize};
use nextent_ondisk::dirent::{self, NewEntry, record_len};
use nextent_ondisk::htree::{self, HashVersion, Hasher, NodeKind, NodeMut};
use nextent_ondisk::{FileBlock, FileType, InodeNo};

use super::layout::{DirInfo, hash};

/// Bytes of `.` and `..`.
const DOTS: usize = 24;

/// A block of entries: which of the names, in the shape's order, and the hash it begins with.
struct Leaf {
    names: Range<usize>,
    /// With the continuation bit.
    hash: u32,
}

/// The blocks of a directory of given names.
pub(crate) struct Shape {
    /// The names' numbers in the order in which they lie.
    order: Vec<u32>,
    leaves: Vec<Leaf>,
    /// The hash, with an index.
    index: Option<HashVersion>,
    /// Nodes between the root and the leaves, with one level of them.
    nodes: u32,
    blocks: u32,
}

impl Shape {
    /// The blocks for `names`, at least `least`.
    pub(crate) fn new(info: &DirInfo<'_>, names: &[Vec<u8>], least: u32) -> Self {
        let linear = Self::linear(info, names, least);
        let Some(hasher) = info.new_hasher().filter(|_| linear.blocks > least.max(1)) else {
            return linear;
        };
        Self::indexed(info, names, &hasher).filter(|shape| shape.blocks >= least).unwrap_or(linear)
    }

    fn linear(info: &DirInfo<'_>, names: &[Vec<u8>], least: u32) -> Self {
        let order: Vec<u32> = (0..must_fit::<u32, _>(names.len())).collect();
        let room = dirent::leaf_len(info.geometry);
        let size = |at: usize| record_len(names[at].len());
        let leaves = cut(names.len(), size, DOTS, room);
        let mut leaves: Vec<Leaf> =
            leaves.into_iter().map(|names| Leaf { names, hash: 0 }).collect();
        while leaves.len() < to_usize(least.max(1)) {
            leaves.push(Leaf { names: names.len()..names.len(), hash: 0 });
        }
        let blocks = must_fit(leaves.len());
        Self { order, leaves, index: None, nodes: 0, blocks }
    }

    /// Leaves in the order of hashes, with some room for names to come, and nodes that find them;
    /// none if there are too many.
    fn indexed(info: &DirInfo<'_>, names: &[Vec<u8>], hasher: &Hasher) -> Option<Self> {
        let geometry = info.geometry;
        let mut hashed: Vec<(u32, u32)> =
            (0u32..).zip(names).map(|(at, name)| (hash(hasher, name).major, at)).collect();
        hashed.sort_unstable();
        let size = |at: usize| record_len(names[to_usize(hashed[at].1)].len());
        let room = dirent::leaf_len(geometry);
        let (root, node) =
            (htree::limit(geometry, NodeKind::Root), htree::limit(geometry, NodeKind::Node));
        let leaves = [room / 8 * 7, room].map(|room| cut(names.len(), size, 0, room));
        let leaves = leaves.into_iter().find(|leaves| leaves.len() <= root * node)?;
        let begin = |names: Range<usize>| {
            let major = hashed[names.start].0;
            let goes_on = names.start > 0 && hashed[names.start - 1].0 == major;
            Leaf { names, hash: major | u32::from(goes_on) }
        };
        let leaves: Vec<Leaf> = leaves.into_iter().map(begin).collect();
        let nodes = if leaves.len() <= root { 0 } else { must_fit(leaves.len().div_ceil(node)) };
        let blocks = 1 + nodes + must_fit::<u32, _>(leaves.len());
        let order = hashed.into_iter().map(|(_, at)| at).collect();
        Some(Self { order, leaves, index: Some(hasher.version), nodes, blocks })
    }

    /// How many there are.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Whether they have an index.
    pub(crate) fn is_indexed(&self) -> bool {
        self.index.is_some()
    }

    /// Makes `bytes` block `n` of the directory, sealed. `entry` gives the entry of a name, if
    /// there is one.
    pub(crate) fn render<'n>(
        &self,
        info: &DirInfo<'_>,
        parent: InodeNo,
        n: u32,
        entry: impl Fn(usize) -> Option<NewEntry<'n>>,
        bytes: &mut [u8],
    ) {
        let node = htree::limit(info.geometry, NodeKind::Node);
        let first_leaf = if self.is_indexed() { 1 + self.nodes } else { 0 };
        match self.index {
            Some(version) if n == 0 => {
                let dots = (info.ino, parent);
                let mut root =
                    NodeMut::init_root(info.geometry, bytes, dots, version, FileBlock(1));
                let each = if self.nodes > 0 { node } else { 1 };
                self.point(&mut root, 1, self.leaves.iter().step_by(each));
                root.set_levels(u8::from(self.nodes > 0));
            }
            Some(_) if n < first_leaf => {
                let from = (to_usize(n) - 1) * node;
                let below = &self.leaves[from..self.leaves.len().min(from + node)];
                let child = first_leaf + must_fit::<u32, _>(from);
                let mut inner = NodeMut::init(info.geometry, bytes, FileBlock(child));
                self.point(&mut inner, child, below.iter());
            }
            _ => {
                let leaf = &self.leaves[to_usize(n - first_leaf)];
                let dots = [(info.ino, &b"."[..]), (parent, b"..")]
                    .map(|(ino, name)| NewEntry::new(ino, FileType::Directory, name));
                let dots = dots.into_iter().filter(|_| n == 0);
                let names = self.order[leaf.names.clone()].iter();
                let slots = dots.chain(names.filter_map(|at| entry(to_usize(*at))));
                let fits = dirent::pack(info.geometry, bytes, slots);
                debug_assert!(fits, "the sizes were counted");
            }
        }
        if info.geometry.features.metadata_csum() {
            let seal = super::block::seal_of(*info);
            (seal.f)(seal.seed, nextent_ondisk::BlockNo(0), bytes);
        }
    }

    /// Adds pairs for what lies below, in blocks from `first` on, the first of which is there.
    fn point<'l>(&self, node: &mut NodeMut<'_>, first: u32, below: impl Iterator<Item = &'l Leaf>) {
        for (at, leaf) in below.enumerate().skip(1) {
            node.insert(at, leaf.hash, FileBlock(first + must_fit::<u32, _>(at)));
        }
    }
}

/// Cuts `count` entries of the sizes `size` into blocks of `room` bytes; the first has `used`.
fn cut(count: usize, size: impl Fn(usize) -> usize, used: usize, room: usize) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let (mut from, mut used) = (0, used);
    for at in 0..count {
        if used + size(at) > room {
            cuts.push(from..at);
            (from, used) = (at, 0);
        }
        used += size(at);
    }
    cuts.push(from..count);
    cuts
}
