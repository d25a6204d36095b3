//! Directories as inodes: the blocks that the functions of `dir` work on.
//!
//! A read needs `inode.rw` of the directory shared, a change needs it exclusively. A [`Names`] does
//! not outlive that hold. It remembers the last block, so an operation that looks up, changes and
//! looks up again uses one `Names` and searches that block once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::ControlFlow;

use nextent_num::must_fit;
use nextent_ondisk::fscrypt::{self, NoKeyName};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{Corrupt, FileBlock, InodeNo, Structure};
use nextent_store::{BlockRef, Handle, Seal};
use nextent_sync::Arc;

use super::change::Change;
use super::fs::Fs;
use super::object::Inode;
use super::{attributes, credits};
use crate::FileType;
use crate::alloc::{BlockKind, BlockRequest, Privilege};
use crate::attr::DirEntry;
use crate::dir::{self, Cursor, DirBlocks, DirInfo, InlineDir, Name};
use crate::error::{Error, Result};
use crate::map::{self, ExtentState, Mapping};

/// The names in one directory, while the caller holds its lock.
pub(crate) struct Names<'a> {
    fs: &'a Fs,
    inode: &'a Arc<Inode>,
    seed: u32,
    /// The last block that was requested; the next call often requests it again. Blocks of a
    /// directory do not move while its lock is held.
    last: RefCell<Option<(FileBlock, BlockRef)>>,
}

impl<'a> Names<'a> {
    /// The names of the directory `inode`.
    pub(crate) fn of(fs: &'a Fs, inode: &'a Arc<Inode>) -> Self {
        Self { fs, inode, seed: inode.csum_seed(), last: RefCell::new(None) }
    }

    fn place(&self, error: Corrupt) -> Error {
        error.at_inode(self.inode.ino).into()
    }

    fn find_block(&self, n: FileBlock) -> Result<BlockRef> {
        let cx = self.fs.map_cx(self.inode, Privilege::User);
        let start = match map::lookup(&cx, &self.inode.map.read(), n, 1)? {
            Mapping::Written { start, .. } => start,
            _ => {
                return Err(self.place(Corrupt::field(Structure::Directory, "hole at block", n.0)));
            }
        };
        self.fs.store.read(start, |bytes| {
            dir::check_block(self.info(), bytes).map_err(|error| error.at_block(start).into())
        })
    }
}

impl DirBlocks for Names<'_> {
    fn info(&self) -> DirInfo<'_> {
        DirInfo {
            ino: self.inode.ino,
            geometry: &self.fs.geometry,
            seed: self.seed,
            index: self.fs.dir_index,
        }
    }

    fn blocks(&self) -> u32 {
        let size = self.inode.with(|state| state.disk.size);
        must_fit((size / self.fs.block_size()).min(u64::from(u32::MAX)))
    }

    fn is_indexed(&self) -> bool {
        let snapshot = self.inode.snapshot();
        // The index of a directory that ignores case has the hashes of folded names.
        snapshot.has_any(flags::INDEX) && !snapshot.has_any(flags::CASEFOLD)
    }

    fn block(&self, n: FileBlock) -> Result<BlockRef> {
        if let Some((at, block)) = &*self.last.borrow()
            && *at == n
        {
            return Ok(block.clone());
        }
        let block = self.find_block(n)?;
        *self.last.borrow_mut() = Some((n, block.clone()));
        Ok(block)
    }

    fn append(&self, h: &Handle<'_>) -> Result<(FileBlock, BlockRef)> {
        let at = FileBlock(self.blocks());
        let seal = dir::seal_of(self.info());
        let block = add_block(self.fs, h, self.inode, at, seal)?;
        let size = (u64::from(at.0) + 1) * self.fs.block_size();
        self.inode.change(h, Change::Entries, |state| state.disk.size = size);
        Ok((at, block))
    }

    fn set_indexed(&self, h: &Handle<'_>, indexed: bool) -> Result<()> {
        self.inode.change(h, Change::Entries, |state| {
            state.disk.flags &= !flags::INDEX;
            if indexed {
                state.disk.flags |= flags::INDEX;
            }
        });
        Ok(())
    }
}

/// Allocates a zeroed block of metadata and maps it at `at` of `inode`.
fn add_block(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    at: FileBlock,
    seal: Seal,
) -> Result<BlockRef> {
    let cx = fs.map_cx(inode, Privilege::Root);
    let goal = match map::lookup(&cx, &inode.map.read(), at, 1)? {
        Mapping::Hole { goal, .. } => goal,
        _ => {
            let mapped = Corrupt::field(Structure::Directory, "block past the end", at.0);
            return Err(mapped.at_inode(inode.ino).into());
        }
    };
    let request = BlockRequest {
        goal: goal.or_else(|| cx.node_goal()),
        want: 1,
        min: 1,
        kind: BlockKind::Metadata,
        privilege: Privilege::Root,
        ino: inode.ino,
    };
    let run = fs.blocks.allocate(h, &request)?;
    let mapped = inode.change_map(h, Change::Entries, |root| {
        map::insert(&cx, h, root, at, run, ExtentState::Written)
    });
    if let Err(error) = mapped {
        fs.blocks.free(h, run.start, run.len, BlockKind::Metadata)?;
        return Err(error);
    }
    Ok(fs.store.create(h, run.start, seal))
}

/// Allocates the first block of `inode`, for the target of a symbolic link.
pub(crate) fn new_block(fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) -> Result<BlockRef> {
    add_block(fs, h, inode, FileBlock(0), Seal::NONE)
}

/// Whether the entries are inline data.
fn is_inline(inode: &Inode) -> bool {
    inode.snapshot().has_any(flags::INLINE_DATA)
}

#[cfg(feature = "lab")]
/// The first block of a directory that has blocks, prepared for a change.
pub(crate) fn first_block(fs: &Fs, inode: &Arc<Inode>) -> Result<BlockRef> {
    if is_inline(inode) {
        return Err(Error::Unsupported(crate::Cause::new("a directory with inline data")));
    }
    let names = Names::of(fs, inode);
    let block = names.block(FileBlock(0))?;
    block.set_seal(dir::seal_of(names.info()));
    Ok(block)
}

impl Names<'_> {
    /// Whether the names of this directory are encrypted.
    fn is_encrypted(&self) -> bool {
        self.inode.snapshot().has_any(flags::ENCRYPT)
    }

    /// The bytes that the entry `name` has for its name: others than `name` in an encrypted
    /// directory, and none there if no name is shown like this.
    fn stored<'n>(&self, name: &'n [u8]) -> Result<Option<Cow<'n, [u8]>>> {
        if !self.is_encrypted() || matches!(name, b"." | b"..") {
            return Ok(Some(Cow::Borrowed(name)));
        }
        match NoKeyName::parse(name) {
            None => Ok(None),
            Some(NoKeyName::Whole(stored)) => Ok(Some(Cow::Owned(stored))),
            Some(NoKeyName::Long(long)) => {
                let matches = |stored: &[u8]| long.matches(stored);
                if is_inline(self.inode) {
                    return self.inside(|dir| Ok(dir.find_by(matches)?.map(Cow::Owned)));
                }
                Ok(dir::find_by(self, long.major(), matches)?.map(Cow::Owned))
            }
        }
    }

    /// The checked form of what [`stored`](Self::stored) found.
    fn checked<'n>(&self, stored: &'n [u8]) -> Result<Name<'n>> {
        Ok(if self.is_encrypted() { Name::encrypted(stored)? } else { Name::new(stored)? })
    }

    /// The inode number in the entry `name`, not yet checked.
    fn number(&self, name: &[u8]) -> Result<Option<InodeNo>> {
        let Some(stored) = self.stored(name)? else { return Ok(None) };
        let name = self.checked(&stored)?;
        if !is_inline(self.inode) {
            return Ok(dir::lookup(self, name)?.map(|found| found.ino));
        }
        self.inside(|dir| match name.bytes() {
            b".." => Ok(Some(dir.parent()?)),
            _ => Ok(dir.lookup(name)?.map(|found| found.ino)),
        })
    }

    /// The inode number that `name` refers to, checked for plausibility.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an entry with an invalid number, see `inode::numbers`.
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Option<InodeNo>> {
        match name {
            b"." => Ok(Some(self.inode.ino)),
            b".." => self.parent().map(Some),
            _ => Ok(self.child(name)?.map(|child| child.ino)),
        }
    }

    /// The file that `name`, which is neither `.` nor `..`, refers to.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup); errors of reading the inode.
    pub(crate) fn child(&self, name: &[u8]) -> Result<Option<Arc<Inode>>> {
        self.number(name)?.map(|ino| self.fs.named(self.inode.ino, ino)).transpose()
    }

    /// Whether there is an entry `name`, valid or not.
    pub(crate) fn has(&self, name: &[u8]) -> Result<bool> {
        Ok(self.number(name)?.is_some())
    }

    /// Prepares a change of entries inside `h`. On a volume that has lost the feature `dir_index` a
    /// directory may still have the flag for an index. The change does not maintain the index and
    /// may overwrite it, so this clears the flag, as Linux does.
    fn begin_change(&self, h: &Handle<'_>) -> Result<()> {
        self.inode.bump_entries_seq();
        if self.fs.dir_index.is_none() && self.is_indexed() {
            self.set_indexed(h, false)?;
        }
        Ok(())
    }

    /// Credits for adding a name to this directory in its present state.
    pub(crate) fn insert_credits(&self) -> u32 {
        credits::entry(dir::insert_cost(self), &self.inode.map.read(), &self.fs.geometry)
    }

    /// Refuses new names in an encrypted directory.
    ///
    /// # Errors
    /// [`Error::NoKey`].
    pub(crate) fn check_key(&self) -> Result<()> {
        if self.is_encrypted() { Err(Error::NoKey) } else { Ok(()) }
    }

    /// Adds a name.
    pub(crate) fn insert(
        &self,
        h: &Handle<'_>,
        name: &[u8],
        ino: InodeNo,
        kind: FileType,
    ) -> Result<()> {
        self.check_key()?;
        self.begin_change(h)?;
        dir::insert(self, h, Name::new(name)?, ino, kind)
    }

    /// Removes a name.
    pub(crate) fn remove(&self, h: &Handle<'_>, name: &[u8]) -> Result<()> {
        let stored = self.stored(name)?.ok_or_else(|| Error::NotFound)?;
        self.begin_change(h)?;
        dir::remove(self, h, self.checked(&stored)?)?;
        Ok(())
    }

    /// Makes a name refer to another inode.
    pub(crate) fn replace(
        &self,
        h: &Handle<'_>,
        name: &[u8],
        ino: InodeNo,
        kind: FileType,
    ) -> Result<()> {
        self.check_key()?;
        self.begin_change(h)?;
        dir::replace(self, h, Name::new(name)?, ino, kind)?;
        Ok(())
    }

    /// Writes the first block of a new directory.
    pub(crate) fn init(&self, h: &Handle<'_>, parent: InodeNo) -> Result<()> {
        self.inode.bump_entries_seq();
        dir::init(self, h, parent)
    }

    /// Makes `..` refer to another directory.
    pub(crate) fn set_parent(&self, h: &Handle<'_>, parent: InodeNo) -> Result<()> {
        self.begin_change(h)?;
        dir::set_parent(self, h, parent)?;
        Ok(())
    }

    /// The directory that `..` refers to.
    pub(crate) fn parent(&self) -> Result<InodeNo> {
        let number = self.number(b"..")?.ok_or_else(|| {
            self.place(Corrupt::field(Structure::Directory, "entries without `..`", 0u32))
        })?;
        self.fs.named_parent(self.inode.ino, number)
    }

    /// Checks that `..` of this directory refers to `dir`, where it was found. A directory with
    /// entries in two directories could otherwise be locked from both at once. The caller holds
    /// `dir`, so `..` does not change.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it refers to another directory.
    pub(crate) fn check_parent(&self, dir: &Inode) -> Result<()> {
        match self.parent()? {
            parent if parent == dir.ino => Ok(()),
            parent => {
                let name = "`..` refers to another directory, inode";
                Err(self.place(Corrupt::field(Structure::Directory, name, parent.0)))
            }
        }
    }

    /// Whether there are only `.` and `..`.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        if is_inline(self.inode) {
            return self.inside(|dir| Ok(dir.is_empty()?));
        }
        dir::is_empty(self)
    }

    /// Calls `each` with the entries after `cookie` until it returns false. Names of an encrypted
    /// directory are shown as Linux shows them without the key.
    pub(crate) fn iterate(
        &self,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        if self.is_encrypted() {
            return self.iterate_encrypted(cookie, each);
        }
        self.scan(cookie, |entry| {
            let dir::Entry { ino, file_type: kind, name, cookie: next } = entry;
            let taken = each(DirEntry { ino, kind, name, next });
            if taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    /// Hands the entries after `cookie` to `emit`, as they are stored.
    fn scan(&self, cookie: u64, emit: impl FnMut(dir::Entry<'_>) -> ControlFlow<()>) -> Result<()> {
        let mut cursor = Cursor::from_cookie(cookie);
        if is_inline(self.inode) {
            return self.inside(|dir| Ok(dir.iterate(&mut cursor, emit)?));
        }
        dir::iterate(self, &mut cursor, emit)
    }

    fn iterate_encrypted(
        &self,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        // Linux gives the hash that orders the listing, if a hash does.
        let hasher = match is_inline(self.inode) {
            true => None,
            false => dir::scan_hasher(self)?,
        };
        let mut damage = Ok(());
        self.scan(cookie, |entry| {
            let dir::Entry { ino, file_type: kind, name, cookie: next } = entry;
            let dots = matches!(name, b"." | b"..");
            let hash = hasher.as_ref().filter(|_| !dots).map(|hasher| hasher.hash(name));
            let shown = match dots {
                true => Ok(String::new()),
                false => fscrypt::no_key_name(hash.unwrap_or_default(), name),
            };
            let taken = match &shown {
                Ok(_) if dots => each(DirEntry { ino, kind, name, next }),
                Ok(text) => each(DirEntry { ino, kind, name: text.as_bytes(), next }),
                Err(_) => false,
            };
            damage = shown.map(|_| ());
            if taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        damage.map_err(|error| self.place(error))
    }

    /// Runs `f` on a directory with inline data.
    fn inside<R>(&self, f: impl FnOnce(InlineDir<'_>) -> Result<R>) -> Result<R> {
        let area = self.inode.with(|state| state.disk.block);
        let more = attributes::inline_rest(self.fs, self.inode)?;
        f(InlineDir::new(self.info(), &area, &more)?)
    }
}
