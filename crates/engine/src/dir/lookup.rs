//! Finding a name, through the index or past a damaged one.

use nextent_ondisk::{Corrupt, FileBlock, FileType, InodeNo, Structure, dirent};

use super::name::Name;
use super::pages::Pages;
use super::tree::{Lost, advance, continues, probe};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode.
    pub(crate) ino: InodeNo,
    /// The file type as the entry has it; `None` without feature `filetype`.
    pub(crate) file_type: Option<FileType>,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) block: FileBlock,
    pub(super) at: usize,
    pub(super) found: Found,
}

/// Finds `name`: by its hash, or in block order if there is no index or it cannot be used.
pub(super) fn locate<P: Pages>(p: &P, name: Name<'_>) -> Result<Option<Spot>, P::Error> {
    if name.is_dots() {
        return in_block(p, FileBlock(0), name);
    }
    if p.is_indexed() {
        match by_hash(p, name) {
            Err(Lost::Damaged(_)) => {}
            Err(Lost::Failed(error)) => return Err(error),
            Ok(spot) => return Ok(spot),
        }
    }
    for n in 0..p.blocks() {
        if let Some(spot) = in_block(p, FileBlock(n), name)? {
            return Ok(Some(spot));
        }
    }
    Ok(None)
}

fn by_hash<P: Pages>(p: &P, name: Name<'_>) -> Result<Option<Spot>, Lost<P::Error>> {
    let (mut path, hash) = probe(p, name.bytes())?;
    for _ in 0..p.blocks() {
        if let Some(spot) = in_block(p, path.leaf, name).map_err(Lost::Failed)? {
            return Ok(Some(spot));
        }
        if !continues(path.next_hash(), hash.major) || !advance(p, &mut path)? {
            return Ok(None);
        }
    }
    let error = Corrupt::field(Structure::DirectoryIndex, "leaves of one hash", p.blocks());
    Err(Lost::Damaged(p.at(path.leaf, error)))
}

fn in_block<P: Pages>(p: &P, n: FileBlock, name: Name<'_>) -> Result<Option<Spot>, P::Error> {
    let image = p.image(n)?;
    let info = p.info();
    let hit = dirent::find(info.geometry, &image, name.bytes()).map_err(|e| p.at(n, e))?;
    Ok(hit.map(|entry| {
        let found = Found { ino: entry.ino, file_type: entry.file_type() };
        Spot { block: n, at: entry.offset, found }
    }))
}
