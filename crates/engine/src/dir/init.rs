//! The first block of a new directory, and whether a directory is empty.

use nextent_ondisk::{FileBlock, InodeNo};

use super::DIR_TYPE;
use super::block::{entries, write_first};
use super::name::is_dots;
use super::pages::{BlockKind, Pages, PagesMut};

/// Adds the first block, with `.` and `..`, to a directory that has none.
pub(super) fn init<P: PagesMut>(p: &P, parent: InodeNo) -> Result<(), P::Error> {
    let info = *p.info();
    let n = p.append(BlockKind::Leaf)?;
    p.update(n, BlockKind::Leaf, |bytes| write_first(&info, bytes, parent, DIR_TYPE))
}

/// Whether there are no names but `.` and `..`. Reads all blocks, as leaves are never given back.
pub(super) fn is_empty<P: Pages>(p: &P) -> Result<bool, P::Error> {
    for n in (0..p.blocks()).map(FileBlock) {
        let image = p.image(n)?;
        for entry in entries(p.info(), &image) {
            let entry = entry.map_err(|e| p.at(n, e))?;
            if entry.ino != 0 && !is_dots(entry.name) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
