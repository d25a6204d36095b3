//! The first block of a new directory, and whether a directory is empty.

use nextent_ondisk::{FileBlock, InodeNo, dirent};

use super::pages::{Pages, PagesMut};

/// Adds the first block, with `.` and `..`, to a directory that has none.
pub(super) fn init<P: PagesMut>(p: &P, parent: InodeNo) -> Result<(), P::Error> {
    let info = p.info();
    let n = p.append()?;
    p.update(n, |bytes| dirent::init_dots(info.geometry, bytes, info.ino, parent))
}

/// Whether there are no names but `.` and `..`. Reads all blocks, as leaves are never given back.
pub(super) fn is_empty<P: Pages>(p: &P) -> Result<bool, P::Error> {
    for n in (0..p.blocks()).map(FileBlock) {
        let image = p.image(n)?;
        for entry in dirent::entries(p.info().geometry, &image) {
            let entry = entry.map_err(|e| p.at(n, e))?;
            if entry.is_used() && !entry.is_dot() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
