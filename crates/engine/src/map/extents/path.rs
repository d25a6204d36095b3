//! The path from the root to the leaf that covers a block.

use super::super::{Extent, MapCx, MapRoot, system_blocks};
use super::MAX_DEPTH;
use super::check::{self, Expect};
use super::node;
use crate::error::{Error, Result};
use nextent_num::{must_fit, to_u64};
use nextent_ondisk::extent::Node;
use nextent_ondisk::{BlockNo, Corrupt, Structure};
use nextent_store::{BlockRef, Buf, Handle};
use std::ops::Deref;

/// One node of a path.
#[derive(Default)]
struct Level {
    /// None for the root.
    block: Option<BlockRef>,
    /// In an inner node the entry of the path. In the leaf the number of extents that begin at or
    /// before the block searched for.
    pos: usize,
    /// The node's extents end at or before this block.
    bound: u32,
}

/// A path from the root to a leaf. Valid until the tree changes.
pub(super) struct Path {
    levels: [Level; MAX_DEPTH + 1],
    leaf: usize,
}

/// The bytes of a node when [`Path::image`] was called.
pub(in super::super) enum Image<'a> {
    Root(&'a [u8]),
    Block(Buf),
}

impl Deref for Image<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Root(bytes) => bytes,
            Self::Block(buf) => buf,
        }
    }
}

/// Reads the node `no` and checks it, also against its parent.
pub(super) fn read_node(cx: &MapCx<'_>, no: BlockNo, expect: &Expect) -> Result<(BlockRef, Buf)> {
    let place = |corrupt: Corrupt| cx.place(corrupt, Some(no));
    check::child(no, cx.geometry).map_err(|c| cx.place(c, None))?;
    let block = cx.store.read(no, |bytes| {
        check::whole(bytes, expect, cx.geometry, cx.csum_seed).map_err(|c| Error::from(place(c)))
    })?;
    let image = block.image();
    check::node(&image, expect).map_err(place)?;
    system_blocks::check_once(cx, &block, &image, system_blocks::EXTENT_NODE)?;
    Ok((block, image))
}

/// A leaf for read-only operations.
pub(super) struct Leaf<'a> {
    image: Image<'a>,
    no: Option<BlockNo>,
    /// As [`Path::bound`].
    pub(super) bound: u32,
}

impl<'a> Leaf<'a> {
    /// The leaf that covers `at`, or into which an extent at `at` belongs. Cheaper than
    /// [`Path::find`].
    pub(super) fn find(cx: &MapCx<'_>, root: &'a MapRoot, at: u32) -> Result<Self> {
        let mut leaf = Self { image: Image::Root(root.bytes()), no: None, bound: u32::MAX };
        let mut depth = check::root(root.bytes()).map_err(|c| cx.place(c, None))?.depth();
        while depth > 0 {
            depth -= 1;
            let node = leaf.node(cx)?;
            let pos = node::upper_bound(node, at).saturating_sub(1);
            let child = node.index(pos);
            if pos + 1 < node.len() {
                leaf.bound = leaf.bound.min(node.key(pos + 1).get());
            }
            let expect = Expect { depth, key: child.block.get(), bound: leaf.bound };
            leaf.image = Image::Block(read_node(cx, child.child, &expect)?.1);
            leaf.no = Some(child.child);
        }
        Ok(leaf)
    }

    /// The leaf's bytes as a node.
    pub(super) fn node(&self, cx: &MapCx<'_>) -> Result<Node<'_>> {
        Ok(Node::new(&self.image).map_err(|c| cx.place(c, self.no))?)
    }

    /// Extent `i`, which must exist. Checks it.
    pub(super) fn extent(&self, cx: &MapCx<'_>, node: Node<'_>, i: usize) -> Result<Extent> {
        let e = Extent::from(node.extent(i));
        check::extent(&e, self.bound, cx.geometry).map_err(|c| cx.place(c, self.no))?;
        Ok(e)
    }

    /// Extent `i`, which must exist. Checks it, and that it begins after `at`.
    pub(super) fn extent_after(
        &self,
        cx: &MapCx<'_>,
        node: Node<'_>,
        i: usize,
        at: u32,
    ) -> Result<Extent> {
        let e = self.extent(cx, node, i)?;
        self.check_key_order(cx, e.at.get(), at)?;
        Ok(e)
    }

    /// See [`check::check_key_order`].
    pub(super) fn check_key_order(&self, cx: &MapCx<'_>, next: u32, at: u32) -> Result<()> {
        Ok(check::check_key_order(next, at).map_err(|c| cx.place(c, self.no))?)
    }

    /// The first file block of extent `i`, or of the next leaf if there is no extent `i`.
    pub(super) fn key(&self, node: Node<'_>, i: usize) -> u32 {
        if i < node.len() { node.key(i).get() } else { self.bound }
    }
}

impl Path {
    /// The path to the leaf that covers `at`, or into which an extent at `at` belongs.
    pub(super) fn find(cx: &MapCx<'_>, root: &MapRoot, at: u32) -> Result<Self> {
        let node = check::root(root.bytes()).map_err(|c| cx.place(c, None))?;
        let leaf = usize::from(node.depth());
        let mut path = Self { levels: Default::default(), leaf };
        path.levels[0].bound = u32::MAX;
        path.levels[0].pos = node::upper_bound(node, at);
        if leaf > 0 {
            path.descend(cx, node, at)?;
        }
        Ok(path)
    }

    fn descend(&mut self, cx: &MapCx<'_>, root: Node<'_>, at: u32) -> Result<()> {
        let (mut no, mut expect) = self.step(0, root);
        for level in 1..=self.leaf {
            let (block, image) = read_node(cx, no, &expect)?;
            let node = check::node(&image, &expect).map_err(|c| cx.place(c, Some(no)))?;
            let this = &mut self.levels[level];
            this.block = Some(block);
            this.pos = node::upper_bound(node, at);
            this.bound = expect.bound;
            if level < self.leaf {
                (no, expect) = self.step(level, node);
            }
        }
        Ok(())
    }

    /// Selects the entry of an inner node for the descent: `pos` becomes the entry instead of the
    /// number of keys.
    fn step(&mut self, level: usize, node: Node<'_>) -> (BlockNo, Expect) {
        let this = &mut self.levels[level];
        this.pos = this.pos.saturating_sub(1);
        let child = node.index(this.pos);
        let next = this.pos + 1;
        let mut bound = this.bound;
        if next < node.len() {
            bound = bound.min(node.key(next).get());
        }
        let depth = must_fit(self.leaf - level - 1);
        (child.child, Expect { depth, key: child.block.get(), bound })
    }

    /// The level of the leaf; the root is 0.
    pub(super) fn leaf(&self) -> usize {
        self.leaf
    }

    /// See [`Level::pos`].
    pub(super) fn pos(&self, level: usize) -> usize {
        self.levels[level].pos
    }

    /// The first key of the next leaf. The extents of this leaf end at or before it.
    pub(super) fn bound(&self) -> u32 {
        self.levels[self.leaf].bound
    }

    /// The block of a node; none for the root.
    pub(super) fn number(&self, level: usize) -> Option<BlockNo> {
        self.levels[level].block.as_ref().map(|block| block.number())
    }

    /// The bytes of a node.
    pub(super) fn image<'a>(&self, level: usize, root: &'a MapRoot) -> Image<'a> {
        match &self.levels[level].block {
            Some(block) => Image::Block(block.image()),
            None => Image::Root(root.bytes()),
        }
    }

    /// The bytes of the leaf.
    pub(super) fn leaf_image<'a>(&self, root: &'a MapRoot) -> Image<'a> {
        self.image(self.leaf, root)
    }

    /// The node in the bytes `image` of `level`.
    pub(super) fn node<'a>(
        &self,
        cx: &MapCx<'_>,
        level: usize,
        image: &'a [u8],
    ) -> Result<Node<'a>> {
        Ok(Node::new(image).map_err(|c| cx.place(c, self.number(level)))?)
    }

    /// The first file block of extent `i` of the leaf, or of the next leaf if there is no extent
    /// `i`.
    pub(super) fn key(&self, leaf: Node<'_>, i: usize) -> u32 {
        if i < leaf.len() { leaf.key(i).get() } else { self.bound() }
    }

    /// Extent `i` of the leaf. Checks it.
    pub(super) fn extent(&self, cx: &MapCx<'_>, leaf: Node<'_>, i: usize) -> Result<Extent> {
        self.extent_before(cx, leaf, i, self.bound())
    }

    /// Extent `i` of the leaf. Checks it, and that it ends at or before `next`.
    pub(super) fn extent_before(
        &self,
        cx: &MapCx<'_>,
        leaf: Node<'_>,
        i: usize,
        next: u32,
    ) -> Result<Extent> {
        let place = |c| cx.place(c, self.number(self.leaf));
        if i >= leaf.len() {
            let gone = Corrupt::field(Structure::ExtentNode, "eh_entries", to_u64(leaf.len()));
            return Err(place(gone).into());
        }
        let e = Extent::from(leaf.extent(i));
        check::extent(&e, next, cx.geometry).map_err(place)?;
        Ok(e)
    }

    /// Changes the bytes of a node.
    pub(super) fn edit<R>(
        &self,
        cx: &MapCx<'_>,
        h: &Handle<'_>,
        root: &mut MapRoot,
        level: usize,
        change: impl FnOnce(&mut [u8]) -> node::Edited<R>,
    ) -> Result<R> {
        let done = match &self.levels[level].block {
            Some(block) => {
                block.set_seal(cx.extent_seal());
                h.update(block, change)
            }
            None => change(root.bytes_mut()),
        };
        Ok(done.map_err(|c| cx.place(c, self.number(level)))?)
    }
}
