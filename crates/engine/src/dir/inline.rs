//! Directories that lie in their inode (feature `inline_data`), to be read.
//!
//! The first four bytes of the inode's block area are the parent's number; entries fill the rest
//! of it and, as a second run, the value of the attribute `system.data`. There is no `.` or `..`.

use std::ops::ControlFlow;

use nextent_ondisk::{Corrupt, InodeNo, Structure};

use super::block::{RawEntry, entries};
use super::cursor::{AFTER_DOT, AFTER_DOTDOT, Cursor};
use super::iterate::Entry;
use super::layout::DirInfo;
use super::lookup::Found;
use super::name::Name;
use super::raw::get32;
use super::{DIR_TYPE, DirError};

/// Bytes of the parent's number.
const PARENT: usize = 4;

/// A directory inside its inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineDir<'a> {
    info: &'a DirInfo,
    area: &'a [u8],
    more: &'a [u8],
}

impl<'a> InlineDir<'a> {
    /// A directory in the inode's block area (60 bytes) and the value of `system.data`, which may
    /// be empty.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if the area is too short for the parent's number.
    pub(crate) fn new(info: &'a DirInfo, area: &'a [u8], more: &'a [u8]) -> Result<Self, DirError> {
        if area.len() < PARENT {
            let error = Corrupt::too_short(Structure::InlineData, PARENT, area.len());
            return Err(error.at_inode(info.ino).into());
        }
        Ok(Self { info, area, more })
    }

    /// The parent directory.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if the volume has no such inode.
    pub(crate) fn parent(&self) -> Result<InodeNo, DirError> {
        self.inode(get32(self.area, 0))
    }

    /// Finds `name`, `.` and `..` included.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if an entry breaks the format.
    pub(crate) fn lookup(&self, name: Name<'_>) -> Result<Option<Found>, DirError> {
        let found = |ino| Ok(Some(Found { ino, ftype: DIR_TYPE }));
        match name.bytes() {
            b"." => return found(self.info.ino),
            b".." => return found(self.parent()?),
            _ => {}
        }
        for entry in self.live() {
            let (_, entry) = entry?;
            if entry.name == name.bytes() {
                return Ok(Some(Found { ino: self.inode(entry.ino)?, ftype: entry.ftype }));
            }
        }
        Ok(None)
    }

    /// Whether it holds no names.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if an entry breaks the format.
    pub(crate) fn is_empty(&self) -> Result<bool, DirError> {
        Ok(self.live().next().transpose()?.is_none())
    }

    /// As [`iterate`](super::iterate()).
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if an entry breaks the format.
    pub(crate) fn iterate(
        &self,
        cursor: &mut Cursor,
        mut emit: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), DirError> {
        let (dot, dotdot) = (self.info.ino, self.parent()?);
        let dots = [(&b"."[..], dot, AFTER_DOT), (b"..", dotdot, AFTER_DOTDOT)];
        for (name, ino, cookie) in dots {
            if cursor.cookie() < cookie {
                if emit(Entry { name, ino, ftype: DIR_TYPE, cookie }).is_break() {
                    return Ok(());
                }
                cursor.set(cookie, None);
            }
        }
        for entry in self.live() {
            let (cookie, entry) = entry?;
            if cookie <= cursor.cookie() {
                continue;
            }
            let ino = self.inode(entry.ino)?;
            if emit(Entry { name: entry.name, ino, ftype: entry.ftype, cookie }).is_break() {
                return Ok(());
            }
            cursor.set(cookie, None);
        }
        Ok(())
    }

    /// Live entries of both runs, each with its cookie.
    fn live(&self) -> impl Iterator<Item = Result<(u64, RawEntry<'a>), DirError>> {
        let info = self.info;
        let first = &self.area[PARENT..];
        let base = AFTER_DOTDOT + 1;
        let runs = [(base, first), (base + first.len() as u64, self.more)];
        runs.into_iter()
            .flat_map(move |(base, run)| entries(info, run).map(move |e| (base, e)))
            .filter(|(_, e)| !matches!(e, Ok(e) if e.ino == 0))
            .map(move |(base, e)| match e {
                Ok(e) => Ok((base + e.at as u64, e)),
                Err(e) => Err(e.at_inode(info.ino).into()),
            })
    }

    fn inode(&self, ino: u32) -> Result<InodeNo, DirError> {
        if ino == 0 || ino > self.info.inodes_count {
            let error = Corrupt::field(Structure::InlineData, "inode number", ino);
            return Err(error.at_inode(self.info.ino).into());
        }
        Ok(InodeNo(ino))
    }
}
