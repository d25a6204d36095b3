//! Checks that no file maps blocks of the system zone.
//!
//! A map with such an entry is damaged or forged. Writing the file would destroy the volume, and
//! reading it would disclose data of other files.
//!
//! | source of an entry | check |
//! |---|---|
//! | the allocator | none: it does not allocate the system zone |
//! | a root read from the device | when its inode is loaded |
//! | a node read from the device | when it is first used as a node |
//!
//! Later uses of a cached node do not repeat the check.

use super::{MapCx, MapKind, MapRoot, Space};
use nextent_num::{must_fit, to_u64};
use nextent_ondisk::extent::Node;
use nextent_ondisk::indirect::pointer;
use nextent_ondisk::{BlockNo, Corrupt, InodeNo, Structure};
use nextent_store::MetaBlock;

/// The mark of a cached block that was checked as an extent node.
pub(super) const EXTENT_NODE: u32 = 1;
/// The mark of a cached block that was checked as a table of pointers.
pub(super) const TABLE: u32 = 2;

/// The name of the wrong field in errors. Its value is the block number.
const RULE: &str = "pointer into the system zone";

/// Checks the root of the map of `ino`, which was just read.
///
/// # Errors
/// The first entry that maps a block of the system zone.
pub(crate) fn check_root(space: &dyn Space, ino: InodeNo, root: &MapRoot) -> Result<(), Corrupt> {
    let found = match root.kind() {
        MapKind::Extents => node(space, root.bytes()),
        MapKind::Indirect => table(space, root.bytes()),
    };
    found.map_err(|error| error.at_inode(ino))
}

/// Checks all entries of `block`, unless it has `mark`. On a damaged volume the block may have been
/// read as another structure, so a check at reading is not enough.
pub(super) fn check_once(
    cx: &MapCx<'_>,
    block: &MetaBlock,
    bytes: &[u8],
    mark: u32,
) -> Result<(), Corrupt> {
    if !cx.refuse_system_blocks || block.is_marked(mark) {
        return Ok(());
    }
    let found = match mark {
        TABLE => table(cx.space, bytes),
        _ => node(cx.space, bytes),
    };
    found.map_err(|error| cx.place(error, Some(block.number())))?;
    block.mark(mark);
    Ok(())
}

fn node(space: &dyn Space, bytes: &[u8]) -> Result<(), Corrupt> {
    let node = Node::new(bytes)?;
    let check = |start: BlockNo, len: u32| match space.overlaps_system_zone(start, len) {
        true => Err(Corrupt::field(Structure::ExtentNode, RULE, start.0)),
        false => Ok(()),
    };
    if node.depth() == 0 {
        node.extents().try_for_each(|extent| check(extent.start, extent.len))
    } else {
        node.indexes().try_for_each(|index| check(index.child, 1))
    }
}

/// Pointers mostly rise by one, so they are checked in runs.
fn table(space: &dyn Space, bytes: &[u8]) -> Result<(), Corrupt> {
    let count = bytes.len() / 4;
    let mut slot = 0;
    while slot < count {
        let start = pointer(bytes, slot);
        let follows = |i: &usize| pointer(bytes, *i).0 == start.0 + to_u64(*i - slot);
        let len = 1 + (slot + 1..count).take_while(follows).count();
        if start.0 != 0 && space.overlaps_system_zone(start, must_fit(len)) {
            return Err(Corrupt::field(Structure::IndirectBlock, RULE, start.0));
        }
        slot += if start.0 == 0 { 1 } else { len };
    }
    Ok(())
}
