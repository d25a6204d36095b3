//! Directories that lie in their inode (feature `inline_data`), to be read.
//!
//! The first four bytes of the inode's block area are the parent's number; entries fill the rest
//! of it and, as a second run, the value of the attribute `system.data`. There is no `.` or `..`.

use std::ops::ControlFlow;

use nextent_num::to_u64;
use nextent_ondisk::{Corrupt, FileType, InodeNo, Structure, dirent};

use super::DirError;
use super::cursor::{AFTER_DOT, AFTER_DOTDOT, Cursor};
use super::iterate::Entry;
use super::layout::DirInfo;
use super::lookup::Found;
use super::name::Name;

/// Bytes of the parent's number.
const PARENT: usize = 4;

/// A directory inside its inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineDir<'a> {
    info: DirInfo<'a>,
    area: &'a [u8],
    more: &'a [u8],
}

impl<'a> InlineDir<'a> {
    /// A directory in the inode's block area (60 bytes) and the value of `system.data`, which may
    /// be empty.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if the area is too short for the parent's number.
    pub(crate) fn new(info: DirInfo<'a>, area: &'a [u8], more: &'a [u8]) -> Result<Self, DirError> {
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
        let ino = dirent::inline_parent(self.area).unwrap_or_default();
        if ino.0 == 0 || ino.0 > self.info.geometry.inodes_count {
            let error = Corrupt::field(Structure::InlineData, "parent directory", ino.0);
            return Err(error.at_inode(self.info.ino).into());
        }
        Ok(ino)
    }

    /// Finds `name`, `.` and `..` included.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if an entry breaks the format.
    pub(crate) fn lookup(&self, name: Name<'_>) -> Result<Option<Found>, DirError> {
        let found = |ino| Ok(Some(Found { ino, file_type: Some(FileType::Directory) }));
        match name.bytes() {
            b"." => return found(self.info.ino),
            b".." => return found(self.parent()?),
            _ => {}
        }
        for entry in self.live() {
            let (_, entry) = entry?;
            if entry.name == name.bytes() {
                return Ok(Some(Found { ino: entry.ino, file_type: entry.file_type() }));
            }
        }
        Ok(None)
    }

    /// The name of an entry that `matches`.
    ///
    /// # Errors
    /// [`DirError::Corrupt`] if an entry breaks the format.
    pub(crate) fn find_by(
        &self,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>, DirError> {
        for entry in self.live() {
            let (_, entry) = entry?;
            if matches(entry.name) {
                return Ok(Some(entry.name.to_vec()));
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
                let file_type = Some(FileType::Directory);
                if emit(Entry { name, ino, file_type, cookie }).is_break() {
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
            if emit(Entry::of(&entry, cookie)).is_break() {
                return Ok(());
            }
            cursor.set(cookie, None);
        }
        Ok(())
    }

    /// Live entries of both runs, each with its cookie.
    fn live(&self) -> impl Iterator<Item = Result<(u64, dirent::DirEntry<'a>), DirError>> {
        let info = self.info;
        let first = &self.area[PARENT..];
        let base = AFTER_DOTDOT + 1;
        let runs = [(base, first), (base + to_u64(first.len()), self.more)];
        runs.into_iter()
            .flat_map(move |(base, run)| {
                dirent::Entries::over(info.geometry, run).map(move |e| (base, e))
            })
            .filter(|(_, e)| !matches!(e, Ok(e) if !e.is_used()))
            .map(move |(base, e)| match e {
                Ok(e) => Ok((base + to_u64(e.offset), e)),
                Err(e) => Err(e.at_inode(info.ino).into()),
            })
    }
}
