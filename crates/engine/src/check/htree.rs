//! Pass 2: the hash index of one directory.
//!
//! Every block of the directory must be reached once: the root, the nodes below it, and the leaves,
//! whose names must hash into the range that the index gives them.

use nextent_num::{must_fit, to_usize};
use nextent_ondisk::htree::{self, HashVersion, Hasher, Node, NodeKind};
use nextent_ondisk::{FileBlock, InodeNo};

use super::image::Image;
use super::report::Problem;

/// The use of a directory block in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// No index reaches it.
    Stray,
    Root,
    Node,
    /// Entries, with hashes from the first to below the second, or up to it when `and_last`.
    Leaf {
        low: u32,
        high: u32,
        and_last: bool,
    },
}

/// The index of a directory: a use for each of its blocks, and how names are hashed.
pub(super) struct Index {
    pub(super) uses: Vec<Use>,
    pub(super) hasher: Option<Hasher>,
}

/// One past every hash.
const END: u32 = u32::MAX;

struct Walk<'a> {
    image: &'a Image,
    ino: InodeNo,
    seed: u32,
    read: &'a dyn Fn(FileBlock) -> Option<Vec<u8>>,
    uses: Vec<Use>,
    sound: bool,
}

/// Reads the index of `ino`, a directory of `blocks` blocks. `None`, with a problem reported, if
/// the root is invalid.
pub(super) fn index(
    image: &Image,
    ino: InodeNo,
    seed: u32,
    blocks: u32,
    read: &dyn Fn(FileBlock) -> Option<Vec<u8>>,
) -> Option<Index> {
    let uses = vec![Use::Stray; to_usize(blocks)];
    let mut walk = Walk { image, ino, seed, read, uses, sound: true };
    let root = read(FileBlock(0))?;
    let info = match htree::root_info(&image.geo, &root) {
        Ok(info) => info,
        Err(error) => {
            walk.corrupt(&error, 0);
            return None;
        }
    };
    if !walk.check(NodeKind::Root, &root, 0) {
        return None;
    }
    walk.uses[0] = Use::Root;
    // At most two levels of nodes, one level after the other.
    let mut level = walk.children(NodeKind::Root, &root, (0, END));
    for _ in 0..info.levels {
        level = walk.descend(level);
    }
    for (at, low, high) in level {
        walk.leaf(at, low, high);
    }
    let stray = walk.uses.iter().position(|found| *found == Use::Stray);
    if let (Some(at), true) = (stray, walk.sound) {
        walk.wrong(format!("directory block {at} is not reached by the hash index"));
    }
    Some(Index { uses: walk.uses, hasher: image.sb.hasher(info.hash_code) })
}

type Child = (FileBlock, u32, u32);

impl Walk<'_> {
    fn wrong(&mut self, text: String) {
        self.sound = false;
        self.image.push(Problem::error(2, "index", text).at_inode(self.ino));
    }

    fn corrupt(&mut self, error: &nextent_ondisk::Corrupt, at: u32) {
        self.sound = false;
        let mut problem = Problem::corrupt(2, "index", error).at_inode(self.ino);
        problem.message = format!("directory block {at}: {}", problem.message);
        self.image.push(problem);
    }

    fn check(&mut self, kind: NodeKind, block: &[u8], at: u32) -> bool {
        let blocks = must_fit(self.uses.len());
        if let Err(error) = htree::check(&self.image.geo, kind, block, blocks) {
            self.corrupt(&error, at);
            return false;
        }
        if self.image.geo.features.metadata_csum()
            && let Err(error) = htree::verify(self.seed, block)
        {
            self.corrupt(&error, at);
        }
        true
    }

    fn children(&mut self, kind: NodeKind, block: &[u8], (low, high): (u32, u32)) -> Vec<Child> {
        let pairs: Vec<_> = Node::new(kind, block).pairs().collect();
        let mut children = Vec::with_capacity(pairs.len());
        for (at, (hash, child)) in pairs.iter().enumerate() {
            let from = if at == 0 { low } else { *hash };
            let to = pairs.get(at + 1).map_or(high, |(next, _)| *next);
            if from < low || from > high {
                self.wrong(format!("hash {from:#x} of an index node is out of its range"));
            }
            children.push((*child, from, to));
        }
        children
    }

    fn descend(&mut self, level: Vec<Child>) -> Vec<Child> {
        let mut below = Vec::new();
        for (at, low, high) in level {
            if !self.claim(at, Use::Node) {
                continue;
            }
            let Some(block) = (self.read)(at) else {
                self.sound = false;
                continue;
            };
            if self.check(NodeKind::Node, &block, at.0) {
                below.extend(self.children(NodeKind::Node, &block, (low, high)));
            }
        }
        below
    }

    fn claim(&mut self, at: FileBlock, found: Use) -> bool {
        let before = &mut self.uses[to_usize(at.0)];
        if *before == Use::Stray {
            *before = found;
            return true;
        }
        self.wrong(format!("directory block {at} is reached twice by the hash index"));
        false
    }

    fn leaf(&mut self, at: FileBlock, low: u32, high: u32) {
        let found = Use::Leaf { low: low & !1, high: high & !1, and_last: high & 1 == 1 };
        self.claim(at, found);
    }
}

impl Index {
    /// Whether the name belongs into a block of this use; `true` if that is unknown.
    pub(super) fn admits(&self, found: Use, name: &[u8]) -> bool {
        let Some(hasher) = self.hasher else { return true };
        let Use::Leaf { low, high, and_last } = found else { return true };
        if hasher.version == HashVersion::SipHash {
            return true;
        }
        let major = hasher.hash(name).major;
        major >= low && (major < high || (and_last && major == high))
    }
}
