//! Blocks of entries: searches in one, and its checksum.

use nextent_num::to_u64;
use nextent_ondisk::dirent::{self, DirEntry, NewEntry, record_len};
use nextent_ondisk::{BlockNo, Corrupt, InodeNo, Structure, htree};
use nextent_store::Seal;

use super::layout::DirInfo;

/// The result of a search for free space in a leaf.
pub(super) struct Room {
    /// Whether there is one.
    pub(super) fits: bool,
    /// Bytes that the entries need, packed.
    pub(super) live: usize,
    /// Whether the name is there already.
    pub(super) exists: bool,
}

/// Looks for a place for `name` and for the name itself.
pub(super) fn room_for(info: DirInfo<'_>, bytes: &[u8], name: &[u8]) -> Result<Room, Corrupt> {
    let need = record_len(name.len());
    let mut room = Room { fits: false, live: 0, exists: false };
    let mut end = 0;
    for entry in dirent::entries(info.geometry, bytes) {
        let entry = entry?;
        room.exists |= entry.is_used() && entry.name == name;
        room.fits |= entry.spare() >= need;
        room.live += entry.rec_len - entry.spare();
        end = entry.offset + entry.rec_len;
    }
    if end != dirent::leaf_len(info.geometry) {
        // Entries would be put over the checksum's place.
        return Err(Corrupt::field(Structure::Directory, "end of the last entry", to_u64(end)));
    }
    Ok(room)
}

/// An entry that moves from one block to another.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    ino: InodeNo,
    code: u8,
    pub(super) name: Box<[u8]>,
}

impl Moved {
    pub(super) fn of(entry: &DirEntry<'_>) -> Self {
        Self { ino: entry.ino, code: entry.type_code, name: entry.name.into() }
    }

    pub(super) fn slot(&self) -> NewEntry<'_> {
        NewEntry { ino: self.ino, type_code: self.code, name: &self.name }
    }

    pub(super) fn size(&self) -> usize {
        record_len(self.name.len())
    }
}

/// The live entries of a leaf.
pub(super) fn live(info: DirInfo<'_>, bytes: &[u8]) -> Result<Vec<Moved>, Corrupt> {
    let mut list = Vec::new();
    for entry in dirent::entries(info.geometry, bytes) {
        let entry = entry?;
        if entry.is_used() {
            list.push(Moved::of(&entry));
        }
    }
    Ok(list)
}

/// How a directory's blocks are checksummed.
pub(crate) fn seal_of(info: DirInfo<'_>) -> Seal {
    if info.geometry.features.metadata_csum() {
        Seal { f: seal, seed: info.seed }
    } else {
        Seal::NONE
    }
}

/// Seals either kind of block: a first block turns from one to the other, and an image of the
/// former kind may still wait for its checksum.
fn seal(seed: u32, no: BlockNo, block: &mut [u8]) {
    if dirent::has_tail(block) {
        dirent::seal(seed, no, block);
    } else {
        htree::seal(seed, no, block);
    }
}

/// Checks a directory block that was just read: its checksum. What the block says is checked
/// again at each use.
///
/// # Errors
/// [`Corrupt`] with the inode; the caller names the block.
pub(crate) fn check_block(info: DirInfo<'_>, block: &[u8]) -> Result<(), Corrupt> {
    if !info.geometry.features.metadata_csum() {
        return Ok(());
    }
    let sum = if dirent::has_tail(block) {
        dirent::verify(info.seed, block)
    } else {
        htree::verify(info.seed, block)
    };
    sum.map_err(|error| error.at_inode(info.ino))
}
