//! Adding a name: into a leaf with room, else the directory grows.
//!
//! Growth goes in steps, each of which leaves a directory that is whole: from one block to an
//! index, a level more, a node split, a leaf split. After a step the search begins again, so no
//! step needs to know about the others, and running out of space in between does no harm.

use nextent_ondisk::{Corrupt, FileBlock, InodeNo, Structure};

use super::DirError;
use super::block::{Moved, Room, entries, leaf_part, place, room_for, write_leaf};
use super::grow;
use super::hash::Hasher;
use super::index::write_root;
use super::layout::{MIN_ENTRY, entry_size};
use super::name::Name;
use super::pages::{BlockKind, PagesMut};
use super::tree::{Lost, Path, advance, continues, peek, probe};

/// What goes into an entry.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) name: Name<'a>,
    pub(super) ino: InodeNo,
    pub(super) ftype: u8,
}

/// More steps than any insertion into a whole directory takes.
const MAX_STEPS: usize = 32;

pub(super) fn insert<P: PagesMut>(p: &P, new: New<'_>) -> Result<(), P::Error> {
    new.name.ordinary()?;
    if p.is_indexed() { insert_indexed(p, new) } else { insert_linear(p, new) }
}

fn insert_linear<P: PagesMut>(p: &P, new: New<'_>) -> Result<(), P::Error> {
    let mut spot = None;
    for n in (0..p.blocks()).map(FileBlock) {
        let room = look(p, n, new)?;
        if spot.is_none() {
            spot = room.at.map(|at| (n, at));
        }
    }
    if let Some((n, at)) = spot {
        return fill(p, n, at, new);
    }
    if p.blocks() == 1 && Hasher::of_new(p.info()).is_some() {
        convert(p)?;
        return insert_indexed(p, new);
    }
    let info = *p.info();
    let n = p.append(BlockKind::Leaf)?;
    p.update(n, BlockKind::Leaf, |bytes| {
        write_leaf(&info, bytes, &[]);
        place(&info, bytes, 0, new.name.bytes(), new.ino, new.ftype);
    })
}

fn insert_indexed<P: PagesMut>(p: &P, new: New<'_>) -> Result<(), P::Error> {
    for _ in 0..MAX_STEPS {
        let (path, hash) = probe(p, new.name.bytes()).map_err(Lost::into_error)?;
        let room = look(p, path.leaf, new)?;
        look_further(p, path.clone(), hash.major, new)?;
        if let Some(at) = room.at {
            return fill(p, path.leaf, at, new);
        }
        let need = entry_size(new.name.bytes().len());
        if room.live + need <= p.info().usable() / 4 * 3 {
            grow::pack(p, path.leaf)?;
        } else if grow::make_room(p, &path)? {
            grow::split_leaf(p, &path)?;
        }
    }
    let error = Corrupt::field(Structure::DirectoryIndex, "steps to make room", MAX_STEPS as u64);
    Err(p.at(FileBlock(0), error).into())
}

/// Searches a leaf for room; the name must not be in it.
fn look<P: PagesMut>(p: &P, n: FileBlock, new: New<'_>) -> Result<Room, P::Error> {
    let image = p.image(n)?;
    let room = room_for(p.info(), &image, new.name.bytes()).map_err(|e| p.at(n, e))?;
    if room.exists { Err(DirError::Exists.into()) } else { Ok(room) }
}

/// The name must not be in the leaves either that go on with its hash.
fn look_further<P: PagesMut>(
    p: &P,
    mut path: Path,
    major: u32,
    new: New<'_>,
) -> Result<(), P::Error> {
    for _ in 0..p.blocks() {
        let next = peek(p, &path).map_err(Lost::into_error)?;
        if !continues(next, major) || !advance(p, &mut path).map_err(Lost::into_error)? {
            return Ok(());
        }
        look(p, path.leaf, new)?;
    }
    Ok(())
}

fn fill<P: PagesMut>(p: &P, n: FileBlock, at: usize, new: New<'_>) -> Result<(), P::Error> {
    let info = *p.info();
    p.update(n, BlockKind::Leaf, |bytes| {
        place(&info, bytes, at, new.name.bytes(), new.ino, new.ftype);
    })
}

/// Makes the only block the root of an index and moves its entries to a first leaf.
fn convert<P: PagesMut>(p: &P) -> Result<(), P::Error> {
    let info = *p.info();
    let Some(hasher) = Hasher::of_new(&info) else { return Ok(()) };
    let (parent, moved) = {
        let image = p.image(FileBlock(0))?;
        leave_dots(&info, &image).map_err(|e| p.at(FileBlock(0), e))?
    };
    let leaf = p.append(BlockKind::Leaf)?;
    p.update(leaf, BlockKind::Leaf, |bytes| write_leaf(&info, bytes, &moved))?;
    p.update(FileBlock(0), BlockKind::Index, |bytes| {
        write_root(&info, bytes, hasher.disk_version(), parent, leaf);
    })?;
    p.set_indexed()
}

/// The parent (inode, type) and all live entries but `.` and `..`, which must come first.
fn leave_dots(info: &super::DirInfo, bytes: &[u8]) -> Result<((u32, u8), Vec<Moved>), Corrupt> {
    let mut walk = entries(info, leaf_part(info, bytes)?);
    let bad = |name| Corrupt::field(Structure::Directory, name, 0u64);
    match walk.next() {
        Some(Ok(e)) if e.name == b"." && e.ino == info.ino.get() && e.len == MIN_ENTRY => {}
        _ => return Err(bad("first entry, which should be `.`")),
    }
    let parent = match walk.next() {
        Some(Ok(e)) if e.name == b".." && e.ino != 0 => (e.ino, e.ftype),
        _ => return Err(bad("second entry, which should be `..`")),
    };
    let mut moved = Vec::new();
    for entry in walk {
        let entry = entry?;
        if entry.ino != 0 {
            moved.push(Moved::of(&entry));
        }
    }
    Ok((parent, moved))
}
