//! How a file is opened.

use std::path::Path;

use nextent_ondisk::InodeNo;
use nextent_sync::Arc;

use super::path::{LINKS_MAX, Place, bytes};
use super::{File, Volume};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::{Access, Attr, FileType, ROOT_INO};

/// How a file is opened: a builder, as [`std::fs::OpenOptions`].
///
/// # Examples
///
/// ```
/// use std::io::Write;
///
/// use nextent::{FileOptions, Volume};
///
/// fn log(volume: &Volume, line: &str) -> std::io::Result<()> {
///     let mut file = FileOptions::new().append(true).create(true).open(volume, "/log")?;
///     writeln!(file, "{line}")
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct FileOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u16,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }
}

/// What the name at the end of a path turned out to be.
enum Found {
    Existing(Attr),
    Missing,
    /// A symbolic link to follow.
    Link(Vec<u8>),
}

impl FileOptions {
    /// Nothing is allowed yet: set at least [`read`](Self::read), [`write`](Self::write) or
    /// [`append`](Self::append).
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows reading.
    pub fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// Allows writing.
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Allows writing, each time at the end of the file. Writers do not overwrite each other.
    pub fn append(mut self, yes: bool) -> Self {
        self.append = yes;
        self
    }

    /// Empties the file. Needs [`write`](Self::write).
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Makes the file if it does not exist. Needs [`write`](Self::write) or
    /// [`append`](Self::append).
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Makes the file, which must not exist. [`create`](Self::create) and
    /// [`truncate`](Self::truncate) then mean nothing.
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Permission bits (`07777`) of a file that is made, before the umask; `0666` by default.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = super::Permissions::from_mode(mode).bits;
        self
    }

    /// Opens the file at `path` on `volume`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that contradict each other, [`Error::Exists`] with
    /// [`create_new`](Self::create_new), [`Error::IsDir`] for a directory that would be written,
    /// [`Error::NotSupported`] for pipes, sockets and devices, [`Error::Perm`] for a file that may
    /// only be appended to, [`Error::NoSpace`], [`Error::NoInodes`], [`Error::ReadOnly`],
    /// [`Error::NotFound`], [`Error::Access`] and the other errors of path resolution.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        self.check()?;
        let mut path = bytes(path.as_ref())?.to_vec();
        let mut base = ROOT_INO;
        let mut links = LINKS_MAX;
        loop {
            let Some(place) = volume.place_from(base, &path)? else {
                let root = volume.inodes().getattr(ROOT_INO)?;
                return self.open_existing(volume, &root)?.ok_or(Error::NotFound);
            };
            if place.slash && (self.create || self.create_new) {
                return Err(Error::IsDir);
            }
            match self.look(volume, &place)? {
                Found::Link(target) => {
                    links = links.checked_sub(1).ok_or(Error::Loop)?;
                    base = place.dir;
                    path = target;
                }
                Found::Existing(_) if self.create_new => return Err(Error::Exists),
                Found::Existing(attr) => {
                    if place.slash && attr.kind != FileType::Directory {
                        return Err(Error::NotDir);
                    }
                    // Else it was removed meanwhile: look again.
                    if let Some(file) = self.open_existing(volume, &attr)? {
                        return Ok(file);
                    }
                }
                Found::Missing if !self.create && !self.create_new => return Err(Error::NotFound),
                Found::Missing => {
                    let (dir, name) = (place.dir, place.name);
                    match volume.inodes().create_opened(&volume.cred, dir, name, self.mode) {
                        // Made by another thread meanwhile.
                        Err(Error::Exists) if !self.create_new => {}
                        made => return Ok(self.file(volume, made?)),
                    }
                }
            }
        }
    }

    /// The combinations that std refuses, too.
    fn check(&self) -> Result<()> {
        let writes = self.write || self.append;
        let changes = self.truncate || self.create || self.create_new;
        let cuts_appended = self.append && self.truncate && !self.create_new;
        let valid = (writes || (self.read && !changes)) && !cuts_appended;
        if valid { Ok(()) } else { Err(Error::Invalid) }
    }

    fn access(&self) -> Access {
        Access { read: self.read, write: self.write || self.append, execute: false }
    }

    fn file(&self, volume: &Volume, inode: Arc<Inode>) -> File {
        File::new(volume, inode, self.access(), self.append)
    }

    fn look(&self, volume: &Volume, place: &Place<'_>) -> Result<Found> {
        let inodes = volume.inodes();
        match inodes.lookup(&volume.cred, place.dir, place.name) {
            Err(Error::NotFound) => Ok(Found::Missing),
            Ok(link) if link.kind == FileType::Symlink && !self.create_new => {
                let mut target = inodes.readlink(link.ino)?;
                if place.slash {
                    target.push(b'/');
                }
                Ok(Found::Link(target))
            }
            found => found.map(Found::Existing),
        }
    }

    /// Opens the file that was found; `None` if its number is another file's by now.
    fn open_existing(&self, volume: &Volume, found: &Attr) -> Result<Option<File>> {
        let access = self.access();
        match found.kind {
            FileType::Directory if access.write || self.create => return Err(Error::IsDir),
            FileType::Directory | FileType::Regular => {}
            _ => return Err(Error::NotSupported),
        }
        let inodes = volume.inodes();
        let inode = match inodes.open_inode(&volume.cred, found.ino, access) {
            Err(Error::NotFound) => return Ok(None),
            opened => opened?,
        };
        let file = self.file(volume, inode);
        if file.metadata().attr().generation != found.generation {
            return Ok(None);
        }
        self.check_append_only(volume, found.ino)?;
        if self.truncate && !self.create_new {
            file.set_len(0)?;
        }
        Ok(Some(file))
    }

    /// Linux lets a file with the flag `a` (chattr) be opened for appending only.
    fn check_append_only(&self, volume: &Volume, ino: InodeNo) -> Result<()> {
        let overwrites = (self.write && !self.append) || self.truncate;
        if overwrites && volume.inodes().is_append_only(ino)? {
            return Err(Error::Perm);
        }
        Ok(())
    }
}
