//! Descent of the index: from a hash to a leaf, and on to the next leaf.
//!
//! A path holds copies of what it read, never a reference into a block; it is valid until the
//! index changes. No block comes twice on a path, so changes to its blocks do not meet.

use nextent_ondisk::htree::{self, Hasher, NameHash, Node, NodeKind};
use nextent_ondisk::{Corrupt, FileBlock, Structure};

use super::DirError;
use super::layout::hash;
use super::pages::Pages;

/// The index cannot be used.
#[derive(Debug)]
pub(super) enum Lost<E> {
    /// It breaks the format or uses a hash that is unknown; the leaves may still be whole.
    Damaged(DirError),
    /// A block could not be had at all.
    Failed(E),
}

impl<E: From<DirError>> Lost<E> {
    pub(super) fn into_error(self) -> E {
        match self {
            Lost::Damaged(error) => error.into(),
            Lost::Failed(error) => error,
        }
    }
}

/// One step of the way down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) block: FileBlock,
    pub(super) at: usize,
    pub(super) count: usize,
    pub(super) full: bool,
    /// The hash of the pair after `at`, with its continuation bit.
    next: Option<u32>,
}

impl Frame {
    fn of(block: FileBlock, node: Node<'_>, at: usize) -> Self {
        let next = (at + 1 < node.len()).then(|| node.pair(at + 1).0);
        Self { block, at, count: node.len(), full: node.is_full(), next }
    }
}

/// The root's facts and the steps from it to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) frames: Vec<Frame>,
    pub(super) leaf: FileBlock,
    pub(super) hasher: Hasher,
    levels: usize,
}

impl Path {
    /// The node that points to the leaf.
    pub(super) fn bottom(&self) -> &Frame {
        self.frames.last().expect("a path begins with the root")
    }

    /// The hash at which the next leaf begins, with its continuation bit; `None` after the last.
    pub(super) fn next_hash(&self) -> Option<u32> {
        self.frames.iter().rev().find_map(|frame| frame.next)
    }
}

/// The kind of an index block.
pub(super) fn kind_of(block: FileBlock) -> NodeKind {
    if block == FileBlock(0) { NodeKind::Root } else { NodeKind::Node }
}

fn bad<P: Pages>(p: &P, n: FileBlock, name: &'static str, value: u32) -> Lost<P::Error> {
    Lost::Damaged(p.at(n, Corrupt::field(Structure::DirectoryIndex, name, value)))
}

/// Runs `f` on the index block `n`.
fn with_node<P: Pages, R>(
    p: &P,
    n: FileBlock,
    f: impl FnOnce(Node<'_>) -> R,
) -> Result<R, Lost<P::Error>> {
    let image = p.image(n).map_err(Lost::Failed)?;
    let node = htree::open(p.info().geometry, kind_of(n), &image);
    Ok(f(node.map_err(|e| Lost::Damaged(p.at(n, e)))?))
}

/// Reads the root: the hash function of the directory and the levels below the root.
pub(super) fn read_root<P: Pages>(p: &P) -> Result<(Hasher, usize), Lost<P::Error>> {
    let image = p.image(FileBlock(0)).map_err(Lost::Failed)?;
    root_facts(p, &image)
}

fn root_facts<P: Pages>(p: &P, image: &[u8]) -> Result<(Hasher, usize), Lost<P::Error>> {
    let root = FileBlock(0);
    let facts = htree::root_info(p.info().geometry, image);
    let facts = facts.map_err(|e| Lost::Damaged(p.at(root, e)))?;
    let hasher = p.info().hasher(facts.hash_code);
    let hasher = hasher.ok_or_else(|| bad(p, root, "hash version", facts.hash_code.into()))?;
    Ok((hasher, usize::from(facts.levels)))
}

/// The path to the leaf where entries of hash `major` begin.
pub(super) fn probe_hash<P: Pages>(p: &P, major: u32) -> Result<Path, Lost<P::Error>> {
    probe_by(p, |_| major)
}

/// The path to the leaf where `name` belongs, and the name's hash.
pub(super) fn probe<P: Pages>(p: &P, name: &[u8]) -> Result<(Path, NameHash), Lost<P::Error>> {
    let mut found = NameHash::default();
    let path = probe_by(p, |hasher| {
        found = hash(hasher, name);
        found.major
    })?;
    Ok((path, found))
}

/// The path to the leaf of the hash that `major` says once it knows the function.
fn probe_by<P: Pages>(p: &P, major: impl FnOnce(&Hasher) -> u32) -> Result<Path, Lost<P::Error>> {
    let root = FileBlock(0);
    let image = p.image(root).map_err(Lost::Failed)?;
    let (hasher, levels) = root_facts(p, &image)?;
    let major = major(&hasher);
    let node = htree::open(p.info().geometry, NodeKind::Root, &image)
        .map_err(|e| Lost::Damaged(p.at(root, e)))?;
    let at = node.find(major);
    let mut frames = Vec::with_capacity(levels + 1);
    frames.push(Frame::of(root, node, at));
    let mut path = Path { frames, leaf: root, hasher, levels };
    path.leaf = checked_child(p, &path, node.pair(at).1)?;
    descend(p, &mut path, Some(major))?;
    Ok(path)
}

/// Goes down from the path's end to a leaf: by hash, or always by the first pair.
fn descend<P: Pages>(p: &P, path: &mut Path, hash: Option<u32>) -> Result<(), Lost<P::Error>> {
    while path.frames.len() <= path.levels {
        let block = path.leaf;
        let (frame, child) = with_node(p, block, |node| {
            let at = hash.map_or(0, |hash| node.find(hash));
            (Frame::of(block, node, at), node.pair(at).1)
        })?;
        path.frames.push(frame);
        path.leaf = checked_child(p, path, child)?;
    }
    Ok(())
}

/// A child of the path's last node: inside the directory, and not on the path already.
fn checked_child<P: Pages>(
    p: &P,
    path: &Path,
    child: FileBlock,
) -> Result<FileBlock, Lost<P::Error>> {
    let on_path = path.frames.iter().any(|f| f.block == child);
    if on_path || child == FileBlock(0) || child.get() >= p.blocks() {
        return Err(bad(p, path.bottom().block, "block in the index", child.get()));
    }
    Ok(child)
}

/// Moves on to the next leaf; false after the last.
pub(super) fn advance<P: Pages>(p: &P, path: &mut Path) -> Result<bool, Lost<P::Error>> {
    let Some(keep) = path.frames.iter().rposition(|f| f.at + 1 < f.count) else {
        return Ok(false);
    };
    path.frames.truncate(keep + 1);
    let Frame { block, at, .. } = path.frames[keep];
    let (frame, child) = with_node(p, block, |node| {
        let at = (at + 1).min(node.len() - 1);
        (Frame::of(block, node, at), node.pair(at).1)
    })?;
    path.frames[keep] = frame;
    path.leaf = checked_child(p, path, child)?;
    descend(p, path, None)?;
    Ok(true)
}

/// Whether a leaf that begins at `next` goes on with entries of hash `major`.
pub(super) fn continues(next: Option<u32>, major: u32) -> bool {
    next.is_some_and(|next| next & 1 == 1 && next & !1 == major)
}
