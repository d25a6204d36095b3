//! Adding a name: into a leaf with room, else the directory grows.
//!
//! Growth goes in steps, each of which leaves a directory that is whole: from one block to an
//! index, a level more, a node split, a leaf split. After a step the search begins again, so no
//! step needs to know about the others, and running out of space in between does no harm.

use nextent_num::to_u64;
use nextent_ondisk::dirent::{self, NewEntry, record_len};
use nextent_ondisk::htree::NodeMut;
use nextent_ondisk::{Corrupt, FileBlock, InodeNo, Structure};

use super::DirError;
use super::block::{Moved, Room, room_for};
use super::grow::{self, write_leaf};
use super::layout::DirInfo;
use super::name::Name;
use super::pages::PagesMut;
use super::tree::{Lost, Path, advance, continues, probe};

/// More steps than any insertion into a whole directory takes.
const MAX_STEPS: usize = 32;

pub(super) fn insert<P: PagesMut>(p: &P, slot: NewEntry<'_>) -> Result<(), P::Error> {
    Name::new(slot.name)?.ordinary()?;
    if p.is_indexed() { insert_indexed(p, slot) } else { insert_linear(p, slot) }
}

fn insert_linear<P: PagesMut>(p: &P, slot: NewEntry<'_>) -> Result<(), P::Error> {
    let mut place = None;
    for n in (0..p.blocks()).map(FileBlock) {
        if look(p, n, slot.name)?.fits {
            place.get_or_insert(n);
        }
    }
    if let Some(n) = place {
        return fill(p, n, slot);
    }
    if p.blocks() == 1 && p.info().new_hasher().is_some() {
        convert(p)?;
        return insert_indexed(p, slot);
    }
    let geometry = p.info().geometry;
    let n = p.append()?;
    p.update(n, |bytes| dirent::init_leaf(geometry, bytes))?;
    fill(p, n, slot)
}

fn insert_indexed<P: PagesMut>(p: &P, slot: NewEntry<'_>) -> Result<(), P::Error> {
    for _ in 0..MAX_STEPS {
        let (path, hash) = probe(p, slot.name).map_err(Lost::into_error)?;
        let room = look(p, path.leaf, slot.name)?;
        if continues(path.next_hash(), hash.major) {
            look_further(p, path.clone(), hash.major, slot.name)?;
        }
        if room.fits {
            return fill(p, path.leaf, slot);
        }
        let need = record_len(slot.name.len());
        if room.live + need <= dirent::leaf_len(p.info().geometry) / 4 * 3 {
            grow::pack(p, path.leaf)?;
        } else if grow::make_room(p, &path)? {
            grow::split_leaf(p, &path)?;
        }
    }
    let error = Corrupt::field(Structure::DirectoryIndex, "steps to make room", to_u64(MAX_STEPS));
    Err(p.at(FileBlock(0), error).into())
}

/// Searches a leaf for room; the name must not be in it.
fn look<P: PagesMut>(p: &P, n: FileBlock, name: &[u8]) -> Result<Room, P::Error> {
    let image = p.image(n)?;
    let room = room_for(p.info(), &image, name).map_err(|e| p.at(n, e))?;
    if room.exists { Err(DirError::Exists.into()) } else { Ok(room) }
}

/// The name must not be in the leaves either that go on with its hash.
fn look_further<P: PagesMut>(
    p: &P,
    mut path: Path,
    major: u32,
    name: &[u8],
) -> Result<(), P::Error> {
    for _ in 0..p.blocks() {
        if !continues(path.next_hash(), major)
            || !advance(p, &mut path).map_err(Lost::into_error)?
        {
            return Ok(());
        }
        look(p, path.leaf, name)?;
    }
    Ok(())
}

/// Puts the entry into a leaf that [`look`] found room in.
fn fill<P: PagesMut>(p: &P, n: FileBlock, slot: NewEntry<'_>) -> Result<(), P::Error> {
    let geometry = p.info().geometry;
    match p.update(n, |bytes| dirent::insert(geometry, bytes, &slot))? {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            let error = Corrupt::field(Structure::Directory, "room for an entry", 0u32);
            Err(p.at(n, error).into())
        }
        Err(error) => Err(p.at(n, error).into()),
    }
}

/// Makes the only block the root of an index and moves its entries to a first leaf.
fn convert<P: PagesMut>(p: &P) -> Result<(), P::Error> {
    let info = p.info();
    let Some(hasher) = info.new_hasher() else { return Ok(()) };
    let (parent, moved) = {
        let image = p.image(FileBlock(0))?;
        leave_dots(info, &image).map_err(|e| p.at(FileBlock(0), e))?
    };
    let leaf = p.append()?;
    write_leaf(p, leaf, moved.iter())?;
    p.update(FileBlock(0), |bytes| {
        NodeMut::init_root(info.geometry, bytes, (info.ino, parent), hasher.version, leaf);
    })?;
    p.set_indexed()
}

/// The parent and all live entries but `.` and `..`, which must come first.
fn leave_dots(info: DirInfo<'_>, bytes: &[u8]) -> Result<(InodeNo, Vec<Moved>), Corrupt> {
    let mut walk = dirent::entries(info.geometry, bytes);
    let bad = |name| Err(Corrupt::field(Structure::Directory, name, 0u32));
    match walk.next().transpose()? {
        Some(e) if e.name == b"." && e.ino == info.ino => {}
        _ => return bad("first entry, which should be `.`"),
    }
    let parent = match walk.next().transpose()? {
        Some(e) if e.name == b".." && e.is_used() => e.ino,
        _ => return bad("second entry, which should be `..`"),
    };
    let mut moved = Vec::new();
    for entry in walk {
        let entry = entry?;
        if entry.is_used() {
            moved.push(Moved::of(&entry));
        }
    }
    Ok((parent, moved))
}
