//! Taking a name out and pointing a name elsewhere; both change one block.

use nextent_ondisk::{FileBlock, InodeNo};

use super::DirError;
use super::block::{retarget, take_out};
use super::lookup::{Found, Spot, locate};
use super::name::Name;
use super::pages::{BlockKind, PagesMut};

pub(super) fn remove<P: PagesMut>(p: &P, name: Name<'_>) -> Result<Found, P::Error> {
    let spot = locate(p, name.ordinary()?)?.ok_or(DirError::NotFound)?;
    let kind = kind_of(p, spot.block);
    p.update(spot.block, kind, |bytes| take_out(bytes, spot.at, spot.before))?;
    Ok(spot.found)
}

pub(super) fn replace<P: PagesMut>(
    p: &P,
    name: Name<'_>,
    ino: InodeNo,
    ftype: u8,
) -> Result<Found, P::Error> {
    let spot = locate(p, name.ordinary()?)?.ok_or(DirError::NotFound)?;
    point(p, spot, ino, ftype)
}

pub(super) fn set_parent<P: PagesMut>(p: &P, parent: InodeNo) -> Result<Found, P::Error> {
    let spot = locate(p, Name::new(b"..")?)?.ok_or(DirError::NotFound)?;
    point(p, spot, parent, spot.found.ftype)
}

fn point<P: PagesMut>(p: &P, spot: Spot, ino: InodeNo, ftype: u8) -> Result<Found, P::Error> {
    let info = *p.info();
    let kind = kind_of(p, spot.block);
    p.update(spot.block, kind, |bytes| retarget(&info, bytes, spot.at, ino, ftype))?;
    Ok(spot.found)
}

/// How the block an entry was found in is checksummed: only the root of an index is not a leaf.
fn kind_of<P: PagesMut>(p: &P, block: FileBlock) -> BlockKind {
    if p.is_indexed() && block == FileBlock(0) { BlockKind::Index } else { BlockKind::Leaf }
}
