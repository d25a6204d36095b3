//! The operations on cached blocks, and the interface that the inode layer implements for them.

use std::ops::ControlFlow;

use nextent_ondisk::dirent::NewEntry;
use nextent_ondisk::htree::{self, Hasher};
use nextent_ondisk::{BlockNo, FileBlock, FileType, InodeNo};
use nextent_store::{BlockRef, Buf, Handle};

use super::cursor::Cursor;
use super::iterate::Entry;
use super::layout::DirInfo;
use super::lookup::Found;
use super::name::Name;
use super::pages::{Pages, PagesMut};
use crate::Result;

/// The blocks of one directory, as its inode knows them.
///
/// Blocks are read with [`check_block`](super::check_block) and created with
/// [`seal_of`](super::seal_of) as their seal; those that were read get the same seal here before
/// their first change.
pub(crate) trait DirBlocks {
    /// What does not change.
    fn info(&self) -> DirInfo<'_>;
    /// Blocks in the directory: its size over the block size.
    fn blocks(&self) -> u32;
    /// Whether the inode has the index flag.
    fn is_indexed(&self) -> bool;
    /// Block `n`, below [`blocks`](Self::blocks). A hole is an error.
    fn block(&self, n: FileBlock) -> Result<BlockRef>;
    /// Allocates and creates a zeroed block at the end, and changes the size; makes sure of the
    /// credits for this itself.
    fn append(&self, h: &Handle<'_>) -> Result<(FileBlock, BlockRef)>;
    /// Sets or clears the index flag.
    fn set_indexed(&self, h: &Handle<'_>, indexed: bool) -> Result<()>;
}

/// A directory to read.
struct Reader<'d, D>(&'d D);

/// A directory to change in a handle.
struct Writer<'d, 'h, D> {
    dir: &'d D,
    h: &'d Handle<'h>,
}

fn number_of(dir: &impl DirBlocks, n: FileBlock) -> Option<BlockNo> {
    dir.block(n).ok().map(|block| block.number())
}

fn uses_index(dir: &impl DirBlocks) -> bool {
    dir.is_indexed() && dir.info().index.is_some()
}

impl<D: DirBlocks> Pages for Reader<'_, D> {
    type Image = Buf;
    type Error = crate::Error;

    fn info(&self) -> DirInfo<'_> {
        self.0.info()
    }

    fn blocks(&self) -> u32 {
        self.0.blocks()
    }

    fn is_indexed(&self) -> bool {
        uses_index(self.0)
    }

    fn image(&self, n: FileBlock) -> Result<Buf> {
        Ok(self.0.block(n)?.image())
    }

    fn number(&self, n: FileBlock) -> Option<BlockNo> {
        number_of(self.0, n)
    }
}

impl<D: DirBlocks> Pages for Writer<'_, '_, D> {
    type Image = Buf;
    type Error = crate::Error;

    fn info(&self) -> DirInfo<'_> {
        self.dir.info()
    }

    fn blocks(&self) -> u32 {
        self.dir.blocks()
    }

    fn is_indexed(&self) -> bool {
        uses_index(self.dir)
    }

    fn image(&self, n: FileBlock) -> Result<Buf> {
        Ok(self.dir.block(n)?.image())
    }

    fn number(&self, n: FileBlock) -> Option<BlockNo> {
        number_of(self.dir, n)
    }
}

impl<D: DirBlocks> PagesMut for Writer<'_, '_, D> {
    fn update<R>(&self, n: FileBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let block = self.dir.block(n)?;
        block.set_seal(super::seal_of(self.dir.info()));
        Ok(self.h.update(&block, f))
    }

    fn append(&self) -> Result<FileBlock> {
        Ok(self.dir.append(self.h)?.0)
    }

    fn set_indexed(&self) -> Result<()> {
        self.dir.set_indexed(self.h, true)
    }
}

/// What `name` stands for, if it is there. `.` and `..` are names like others.
///
/// # Errors
/// `Corrupt`, or what reading a block says.
pub(crate) fn lookup<D: DirBlocks>(dir: &D, name: Name<'_>) -> Result<Option<Found>> {
    Ok(super::lookup::locate(&Reader(dir), name)?.map(|spot| spot.found))
}

/// Adds `name`.
///
/// # Errors
/// `Exists`; `NoSpace` if no block is to be had or the index is full; `Corrupt`, also when the
/// index is damaged; `Invalid` for `.` and `..`.
pub(crate) fn insert<D: DirBlocks>(
    dir: &D,
    h: &Handle<'_>,
    name: Name<'_>,
    ino: InodeNo,
    file_type: FileType,
) -> Result<()> {
    super::insert::insert(&Writer { dir, h }, NewEntry::new(ino, file_type, name.bytes()))
}

/// Takes `name` out and returns what it stood for.
///
/// # Errors
/// `NotFound`; `Corrupt`; `Invalid` for `.` and `..`.
pub(crate) fn remove<D: DirBlocks>(dir: &D, h: &Handle<'_>, name: Name<'_>) -> Result<Found> {
    super::remove::remove(&Writer { dir, h }, name)
}

/// Points `name` at another inode and returns what it stood for.
///
/// # Errors
/// As [`remove`].
pub(crate) fn replace<D: DirBlocks>(
    dir: &D,
    h: &Handle<'_>,
    name: Name<'_>,
    ino: InodeNo,
    file_type: FileType,
) -> Result<Found> {
    super::remove::replace(&Writer { dir, h }, name, ino, file_type)
}

/// Points `..` at another directory and returns what it stood for.
///
/// # Errors
/// `NotFound` if there is no `..`; `Corrupt`.
pub(crate) fn set_parent<D: DirBlocks>(dir: &D, h: &Handle<'_>, parent: InodeNo) -> Result<Found> {
    super::remove::set_parent(&Writer { dir, h }, parent)
}

/// Hands entries after `cursor` to `emit`, `.` and `..` first, and moves the cursor along.
///
/// `emit` returns `Break` for an entry it did not take; the next call begins with it.
///
/// # Errors
/// `Corrupt`, or what reading a block says; the cursor is then after the last entry taken.
pub(crate) fn iterate<D: DirBlocks>(
    dir: &D,
    cursor: &mut Cursor,
    emit: impl FnMut(Entry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    super::iterate::iterate(&Reader(dir), cursor, emit)
}

/// The hash function that orders a scan; `None` if it goes in the order of the blocks.
///
/// # Errors
/// What reading a block says.
pub(crate) fn scan_hasher<D: DirBlocks>(dir: &D) -> Result<Option<Hasher>> {
    super::iterate::scan_hasher(&Reader(dir))
}

/// The name of an entry of the index key `major` that `matches`. If no index orders the entries,
/// all of them are read.
///
/// # Errors
/// `Corrupt`, or what reading a block says.
pub(crate) fn find_by<D: DirBlocks>(
    dir: &D,
    major: u32,
    matches: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>> {
    super::iterate::find_by(&Reader(dir), major, matches)
}

/// Whether there are no names but `.` and `..`.
///
/// # Errors
/// `Corrupt`, or what reading a block says.
pub(crate) fn is_empty<D: DirBlocks>(dir: &D) -> Result<bool> {
    super::init::is_empty(&Reader(dir))
}

/// Gives a directory without blocks its first one, with `.` and `..`.
///
/// # Errors
/// `NoSpace`, or what appending says.
pub(crate) fn init<D: DirBlocks>(dir: &D, h: &Handle<'_>, parent: InodeNo) -> Result<()> {
    super::init::init(&Writer { dir, h }, parent)
}

/// What an insertion may need at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InsertCost {
    /// Blocks changed that were there before; each is a credit.
    pub(crate) changes: u32,
    /// Blocks appended; each is a credit, and those of its allocation.
    pub(crate) appends: u32,
}

/// What an insertion into this directory may need at most. `remove`, `replace` and `set_parent`
/// change one block, `init` appends one.
pub(crate) fn insert_cost<D: DirBlocks>(dir: &D) -> InsertCost {
    let info = dir.info();
    if uses_index(dir) {
        // A node and a leaf split on every level, and the leaf once more if its halves are uneven.
        let nodes = 1 + u32::from(htree::max_levels(info.geometry));
        return InsertCost { changes: nodes + 1, appends: nodes + 2 };
    }
    // From one block to an index: the block, a leaf for its entries, and that leaf split.
    InsertCost { changes: 1, appends: if info.index.is_some() { 2 } else { 1 } }
}
