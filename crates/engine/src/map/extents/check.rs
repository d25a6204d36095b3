//! Validation of nodes and extents.
//!
//! A node is checked as a whole when it is read from the device. Each later use checks the header
//! and the entry that it uses again: on a damaged volume the block may have been read as another
//! structure.

use super::super::Extent;
use super::MAX_DEPTH;
use nextent_ondisk::extent::{self, Expected, Node};
use nextent_ondisk::{BlockNo, Corrupt, Geometry, Structure};

/// The properties of a node that follow from its parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expect {
    /// Levels below the node.
    pub(super) depth: u16,
    /// The key in the parent, which must be the node's first key.
    pub(super) key: u32,
    /// The next key in the parent. The node's extents end at or before it.
    pub(super) bound: u32,
}

fn wrong(name: &'static str, value: impl Into<u64>) -> Corrupt {
    Corrupt::field(Structure::ExtentNode, name, value)
}

/// Checks a root with all its entries.
pub(in super::super) fn check_root(b: &[u8], geometry: &Geometry) -> Result<(), Corrupt> {
    extent::check(geometry, b, &Expected::ROOT).map(drop)
}

/// The node in the bytes of a root. Checks its header.
pub(super) fn root(b: &[u8]) -> Result<Node<'_>, Corrupt> {
    let node = counted(b)?;
    if usize::from(node.depth()) > MAX_DEPTH {
        return Err(wrong("eh_depth", node.depth()));
    }
    if node.is_empty() && node.depth() > 0 {
        return Err(wrong("eh_entries", 0u32));
    }
    Ok(node)
}

/// The node in the bytes of a block. Checks its header and its first key.
pub(super) fn node<'a>(b: &'a [u8], expect: &Expect) -> Result<Node<'a>, Corrupt> {
    let node = counted(b)?;
    if node.header().max + 2 < extent::capacity(b.len()) {
        return Err(wrong("eh_max", node.header().max));
    }
    if node.depth() != expect.depth {
        return Err(wrong("eh_depth", node.depth()));
    }
    if node.is_empty() {
        return Err(wrong("eh_entries", 0u32));
    }
    if node.key(0).get() != expect.key {
        return Err(wrong("first key (not the key in its parent)", node.key(0).get()));
    }
    Ok(node)
}

fn counted(b: &[u8]) -> Result<Node<'_>, Corrupt> {
    let node = Node::new(b)?;
    let header = node.header();
    if header.max == 0 || header.max > extent::capacity(b.len()) {
        return Err(wrong("eh_max", header.max));
    }
    if header.entries > header.max {
        return Err(wrong("eh_entries", header.entries));
    }
    Ok(node)
}

/// Checks a node that was just read, with all its entries.
pub(super) fn whole(
    b: &[u8],
    expect: &Expect,
    geometry: &Geometry,
    seed: Option<u32>,
) -> Result<(), Corrupt> {
    node(b, expect)?;
    if let Some(seed) = seed {
        extent::verify(seed, b)?;
    }
    let range = u64::from(expect.key)..u64::from(expect.bound);
    extent::check(geometry, b, &Expected { depth: Some(expect.depth), range }).map(drop)
}

/// Checks one extent, which must end at or before the key `next`.
pub(super) fn extent(e: &Extent, next: u32, geometry: &Geometry) -> Result<(), Corrupt> {
    match e.at.get().checked_add(e.len) {
        Some(end) if e.len > 0 && end <= next => {}
        _ => return Err(wrong("ee_len", e.len)),
    }
    if !geometry.holds_run(e.start, u64::from(e.len)) {
        return Err(wrong("ee_start", e.start.get()));
    }
    Ok(())
}

/// Checks that a walk at `at` continues at a greater key, `next`.
///
/// Keys rise in a node when it is read. On a damaged volume another structure may share the block
/// and change it later. A walk that goes back might not end. A descent needs no such check, because
/// its depth is bounded.
pub(super) fn check_key_order(next: u32, at: u32) -> Result<(), Corrupt> {
    if next > at || at == u32::MAX { Ok(()) } else { Err(wrong("next key (out of order)", next)) }
}

/// Checks the block number of a child.
pub(super) fn child(no: BlockNo, geometry: &Geometry) -> Result<(), Corrupt> {
    if geometry.holds_run(no, 1) { Ok(()) } else { Err(wrong("ei_leaf", no.get())) }
}
