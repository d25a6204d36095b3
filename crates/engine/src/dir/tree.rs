//! The way down the index: from a hash to a leaf, and on to the next leaf.
//!
//! A path holds copies of what it read, never a reference into a block; it is valid until the
//! index changes.

use nextent_ondisk::{Corrupt, FileBlock, Structure};

use super::hash::{Hasher, NameHash};
use super::index::{Form, Node, root_info};
use super::pages::Pages;

/// The index cannot be used.
#[derive(Debug)]
pub(super) enum Lost<E> {
    /// It breaks the format or uses a hash that is unknown; the leaves may still be whole.
    Damaged(super::DirError),
    /// A block could not be had at all.
    Failed(E),
}

impl<E: From<super::DirError>> Lost<E> {
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
    pub(super) limit: usize,
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
}

fn bad<P: Pages>(p: &P, n: FileBlock, name: &'static str, value: u32) -> Lost<P::Error> {
    Lost::Damaged(p.at(n, Corrupt::field(Structure::DirectoryIndex, name, value)))
}

/// Reads the root: the hash function of the directory and its depth.
pub(super) fn read_root<P: Pages>(p: &P) -> Result<(Hasher, usize), Lost<P::Error>> {
    let root = FileBlock(0);
    let image = p.image(root).map_err(Lost::Failed)?;
    let facts = root_info(p.info(), &image).map_err(|e| Lost::Damaged(p.at(root, e)))?;
    let hasher = Hasher::of_index(p.info(), facts.version)
        .ok_or_else(|| bad(p, root, "hash version", facts.version.into()))?;
    Ok((hasher, usize::from(facts.levels)))
}

/// The path to the leaf where entries of hash `major` begin.
pub(super) fn probe_hash<P: Pages>(p: &P, major: u32) -> Result<Path, Lost<P::Error>> {
    let (hasher, levels) = read_root(p)?;
    let mut path =
        Path { frames: Vec::with_capacity(levels + 1), leaf: FileBlock(0), hasher, levels };
    descend(p, &mut path, Some(major))?;
    Ok(path)
}

/// The path to the leaf where `name` belongs, and the name's hash.
pub(super) fn probe<P: Pages>(p: &P, name: &[u8]) -> Result<(Path, NameHash), Lost<P::Error>> {
    let (hasher, _) = read_root(p)?;
    let hash = hasher.hash(name);
    Ok((probe_hash(p, hash.major)?, hash))
}

/// Goes down from the path's end to a leaf: by hash, or always by the first slot.
fn descend<P: Pages>(p: &P, path: &mut Path, hash: Option<u32>) -> Result<(), Lost<P::Error>> {
    while path.frames.len() <= path.levels {
        let block = path.leaf;
        let image = p.image(block).map_err(Lost::Failed)?;
        let node = Node::parse(p.info(), &image, Form::of(block))
            .map_err(|e| Lost::Damaged(p.at(block, e)))?;
        let at = hash.map_or(0, |hash| node.search(hash));
        let child = node.block(at);
        if child == FileBlock(0) || child.get() >= p.blocks() {
            return Err(bad(p, block, "block in the index", child.get()));
        }
        path.frames.push(Frame { block, at, count: node.count, limit: node.limit });
        path.leaf = child;
    }
    Ok(())
}

/// The hash at which the next leaf begins, with its continuation bit; `None` after the last.
pub(super) fn peek<P: Pages>(p: &P, path: &Path) -> Result<Option<u32>, Lost<P::Error>> {
    let Some(frame) = path.frames.iter().rev().find(|f| f.at + 1 < f.count) else {
        return Ok(None);
    };
    let image = p.image(frame.block).map_err(Lost::Failed)?;
    let node = Node::parse(p.info(), &image, Form::of(frame.block))
        .map_err(|e| Lost::Damaged(p.at(frame.block, e)))?;
    Ok((frame.at + 1 < node.count).then(|| node.hash(frame.at + 1)))
}

/// Moves on to the next leaf; false after the last.
pub(super) fn advance<P: Pages>(p: &P, path: &mut Path) -> Result<bool, Lost<P::Error>> {
    let Some(keep) = path.frames.iter().rposition(|f| f.at + 1 < f.count) else {
        return Ok(false);
    };
    path.frames.truncate(keep + 1);
    let frame = &mut path.frames[keep];
    frame.at += 1;
    let (block, at) = (frame.block, frame.at);
    let image = p.image(block).map_err(Lost::Failed)?;
    let node = Node::parse(p.info(), &image, Form::of(block))
        .map_err(|e| Lost::Damaged(p.at(block, e)))?;
    let child = if at < node.count { node.block(at) } else { FileBlock(0) };
    if child == FileBlock(0) || child.get() >= p.blocks() {
        return Err(bad(p, block, "block in the index", child.get()));
    }
    path.leaf = child;
    descend(p, path, None)?;
    Ok(true)
}

/// Whether a leaf that begins at `next` goes on with entries of hash `major`.
pub(super) fn continues(next: Option<u32>, major: u32) -> bool {
    next.is_some_and(|next| next & 1 == 1 && next & !1 == major)
}
