//! Removing a name, and changing the inode of a name; both change one block.

use nextent_ondisk::{FileType, InodeNo, dirent};

use super::DirError;
use super::lookup::{Found, Spot, locate};
use super::name::Name;
use super::pages::PagesMut;

pub(super) fn remove<P: PagesMut>(p: &P, name: Name<'_>) -> Result<Found, P::Error> {
    let spot = locate(p, name.ordinary()?)?.ok_or(DirError::NotFound)?;
    let geometry = p.info().geometry;
    p.update(spot.block, |bytes| dirent::remove(geometry, bytes, spot.at))?
        .map_err(|e| p.at(spot.block, e))?;
    Ok(spot.found)
}

pub(super) fn replace<P: PagesMut>(
    p: &P,
    name: Name<'_>,
    ino: InodeNo,
    file_type: FileType,
) -> Result<Found, P::Error> {
    let spot = locate(p, name.ordinary()?)?.ok_or(DirError::NotFound)?;
    point(p, spot, ino, file_type)
}

pub(super) fn set_parent<P: PagesMut>(p: &P, parent: InodeNo) -> Result<Found, P::Error> {
    let spot = locate(p, Name::new(b"..")?)?.ok_or(DirError::NotFound)?;
    point(p, spot, parent, FileType::Directory)
}

fn point<P: PagesMut>(
    p: &P,
    spot: Spot,
    ino: InodeNo,
    file_type: FileType,
) -> Result<Found, P::Error> {
    let geometry = p.info().geometry;
    p.update(spot.block, |bytes| dirent::retarget(geometry, bytes, spot.at, ino, file_type))?;
    Ok(spot.found)
}
