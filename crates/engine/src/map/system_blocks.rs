//! No file's map leads to the volume's own blocks.
//!
//! Superblock, descriptors, bitmaps, inode tables and journal belong to nobody. A map that leads
//! to one of them is damaged or forged: writing the file would destroy the volume, reading it
//! would tell other people's secrets. Entries come into a map in two ways. Those that the
//! allocator hands out are right; those that were read from the device are looked at here, a root
//! when its inode is loaded and a node when it is first used as one. A lookup or a change that
//! finds them in memory pays for nothing of this.

use super::{MapCx, MapKind, MapRoot, Space};
use nextent_num::{must_fit, to_u64};
use nextent_ondisk::extent::Node;
use nextent_ondisk::indirect::pointer;
use nextent_ondisk::{BlockNo, Corrupt, InodeNo, Structure};
use nextent_store::MetaBlock;

/// The mark of a block whose entries were looked at as those of an extent node.
pub(super) const EXTENT_NODE: u32 = 1;
/// The mark of a block that was looked at as a table of pointers.
pub(super) const TABLE: u32 = 2;

/// The rule, as an error tells it; the value is the block led to.
const RULE: &str = "pointer to the volume's own block";

/// Looks at the root of the map of `ino`, which was just read.
///
/// # Errors
/// The first entry that leads to the volume's own blocks.
pub(crate) fn check_root(space: &dyn Space, ino: InodeNo, root: &MapRoot) -> Result<(), Corrupt> {
    let found = match root.kind() {
        MapKind::Extents => node(space, root.bytes()),
        MapKind::Indirect => table(space, root.bytes()),
    };
    found.map_err(|error| error.at_inode(ino))
}

/// Looks at all entries of `block` if nobody did so since it was read: the cache may know it as
/// something else, when two structures of a damaged volume claim it.
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

/// Pointers mostly rise by one, so runs of them are looked at.
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
