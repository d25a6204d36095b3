//! A sink that writes to an image, through its journal.

use super::apply::apply;
use super::entry::{FileId, Kind, Meta};
use super::sink::{Created, Made, Order};
use super::untar::Extractable;
use super::writers::{Claim, Writers};
use super::{EntryError, PART, Result, Sink, locks};
use crate::umask::creator;
use nextent::inodes::{Access, Attr, FallocateMode, InodeNo, Inodes, NewNode, SetAttr};
use nextent::{Cred, Error, FileType};
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Mutex};
use std::collections::HashSet;
use std::ops::Range;

/// The directories of one image.
pub struct ImageSink<'v> {
    volume: &'v Inodes,
    cred: Cred,
    preserve: bool,
    /// The identity of the image, to recognise it as the source's.
    tag: u64,
    /// Files with several names are replaced, not overwritten, as by cp(1) -a.
    parts_names: bool,
    /// Files with several names that are being overwritten.
    writers: Arc<Writers>,
    /// Symbolic links that this copy made: a later source replaces them, and is not written through
    /// them. `[copy.links]`
    links: Mutex<HashSet<InodeNo>>,
}

/// A directory of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageDir(pub InodeNo);

/// A file that is being written. It is open meanwhile: if it loses its name, its inode number
/// cannot be reused, so late writes reach no other file.
pub struct ImageFile<'v> {
    volume: &'v Inodes,
    ino: InodeNo,
    /// The end of the written data. Relaxed: read after all writers are done.
    end: AtomicU64,
    /// The claim on a file with several names.
    claim: Option<Claim>,
}

impl Drop for ImageFile<'_> {
    fn drop(&mut self) {
        // A file that cannot be freed now is freed by the next open of the image.
        let _ = self.volume.release(self.ino);
    }
}

impl<'v> ImageSink<'v> {
    /// A sink that keeps owners, times, exact modes and attributes if `preserve`. Otherwise the
    /// umask applies, which is read here, before threads start.
    pub fn new(volume: &'v Inodes, tag: u64, preserve: bool) -> Self {
        let cred = if preserve { Cred::root() } else { creator() };
        let links = Mutex::new(&locks::LINKS, HashSet::new());
        let (parts_names, writers) = (false, Writers::new());
        Self { volume, cred, preserve, tag, parts_names, writers, links }
    }

    /// Files of the target with several names are replaced if `parts`.
    pub fn parting_names(self, parts: bool) -> Self {
        Self { parts_names: parts, ..self }
    }

    fn mode(&self, meta: &Meta) -> u16 {
        if self.preserve { meta.mode } else { meta.plain_mode() }
    }

    fn set_attributes(&self, ino: InodeNo, meta: &Meta, size: Option<u64>) -> Result<()> {
        if self.preserve {
            return apply(self.volume, &self.cred, ino, meta, size);
        }
        if size.is_some() {
            let set = SetAttr { size, ..SetAttr::default() };
            self.volume.setattr(&self.cred, ino, &set)?;
        }
        Ok(())
    }

    /// The identity that a source in the same image has for `attr`.
    fn id_of(&self, attr: &Attr) -> FileId {
        FileId { volume: self.tag, ino: u64::from(attr.ino.0) }
    }

    /// The file at `name` if it is to be overwritten in place; otherwise removes it, or fails.
    fn overwritten(&self, parent: ImageDir, name: &[u8], meta: &Meta) -> Result<Option<Attr>> {
        let end = self.existing(parent, name, meta)?;
        if end.is_none() {
            self.volume.unlink(&self.cred, parent.0, name)?;
        }
        Ok(end)
    }

    /// The file that is overwritten in place; none if `name`, which exists, is replaced. Fails if
    /// it must stay.
    fn existing(&self, parent: ImageDir, name: &[u8], meta: &Meta) -> Result<Option<Attr>> {
        let old = self.volume.lookup(&self.cred, parent.0, name)?;
        if meta.id == self.id_of(&old) {
            return Err(EntryError::new("source and target are the same file"));
        }
        match old.kind {
            FileType::Directory => Err(EntryError::new("cannot overwrite a directory with a file")),
            FileType::Regular if meta.kind == Kind::File && !self.parts(&old) => Ok(Some(old)),
            FileType::Symlink if meta.kind == Kind::File => {
                if self.links.lock().contains(&old.ino) {
                    return Ok(None);
                }
                self.behind_link(parent, name, meta)
            }
            FileType::Symlink => Ok(None),
            // cp(1) would write to the pipe or device. In an image no program reads from it.
            _ if meta.kind == Kind::File && !self.parts(&old) => Err(not_written(old.kind)),
            _ => Ok(None),
        }
    }

    /// Whether a file is replaced, not overwritten, since it has other names; as by cp(1) -a, also
    /// a pipe or a device.
    fn parts(&self, old: &Attr) -> bool {
        self.parts_names && old.links > 1
    }

    /// The file that the link `name` leads to; none if the link is replaced. As cp(1), a copy
    /// writes through links of the target.
    fn behind_link(&self, parent: ImageDir, name: &[u8], meta: &Meta) -> Result<Option<Attr>> {
        match self.volume.resolve_from(&self.cred, parent.0, name, true) {
            Ok(end) if meta.id == self.id_of(&end) => {
                Err(EntryError::new("source and target are the same file"))
            }
            Ok(end) if end.kind == FileType::Directory => {
                Err(EntryError::new("cannot overwrite a directory with a file"))
            }
            Ok(end) if self.parts(&end) => Ok(None),
            Ok(end) if end.kind == FileType::Regular => Ok(Some(end)),
            Ok(end) => Err(not_written(end.kind)),
            Err(Error::NotFound) => {
                Err(EntryError::new("the target is a dangling link; not written through it"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes and opens a file at `name`.
    fn new_file(
        &self,
        parent: ImageDir,
        name: &[u8],
        meta: &Meta,
    ) -> nextent::Result<ImageFile<'v>> {
        let attr = self.volume.create(&self.cred, parent.0, name, self.mode(meta))?;
        Ok(self.file(attr.ino, None))
    }

    /// Opens and empties the file `old`.
    fn old_file(&self, old: &Attr) -> Result<ImageFile<'v>> {
        let claim = (old.links > 1).then(|| self.writers.claim(u64::from(old.ino.0)));
        self.volume.open_file(&self.cred, old.ino, Access::WRITE)?;
        let file = self.file(old.ino, claim);
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        self.volume.setattr(&self.cred, old.ino, &empty)?;
        Ok(file)
    }

    /// The file `ino`, which the caller has opened.
    fn file(&self, ino: InodeNo, claim: Option<Claim>) -> ImageFile<'v> {
        ImageFile { volume: self.volume, ino, end: AtomicU64::new(0), claim }
    }
}

fn not_written(kind: FileType) -> EntryError {
    EntryError::new(format!(
        "the target is a {}, which cannot be written in an image; remove it first",
        kind_name(kind)
    ))
}

/// The name of a kind of file in messages.
fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharDevice | FileType::BlockDevice => "device",
        _ => "special file",
    }
}

/// Makes a directory, or returns the existing one; fails if that `is_source`.
pub(super) fn make_dir(
    volume: &Inodes,
    cred: &Cred,
    (parent, name): (InodeNo, &[u8]),
    mode: u16,
    is_source: impl FnOnce(&Attr) -> bool,
) -> Result<ImageDir> {
    match volume.mkdir(cred, parent, name, mode) {
        Ok(attr) => Ok(ImageDir(attr.ino)),
        Err(Error::Exists) => {
            let old = volume.lookup(cred, parent, name)?;
            if is_source(&old) {
                return Err(EntryError::new("source and target are the same directory"));
            }
            match old.kind {
                FileType::Directory => Ok(ImageDir(old.ino)),
                _ => Err(EntryError::new("cannot overwrite a file with a directory")),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes the symbolic link, device, fifo or socket that `meta` describes.
pub(super) fn make_special(
    volume: &Inodes,
    cred: &Cred,
    (parent, name): (InodeNo, &[u8]),
    meta: &Meta,
    mode: u16,
) -> nextent::Result<Attr> {
    let node = match &meta.kind {
        Kind::Symlink(target) => return volume.symlink(cred, parent, name, target),
        Kind::Char(device) => NewNode::CharDevice(*device),
        Kind::Block(device) => NewNode::BlockDevice(*device),
        Kind::Fifo => NewNode::Fifo,
        Kind::Socket => NewNode::Socket,
        Kind::File | Kind::Dir => return Err(Error::Invalid),
    };
    volume.mknod(cred, parent, name, node, mode)
}

impl<'v> Sink for ImageSink<'v> {
    type Dir = ImageDir;
    type Node = InodeNo;
    type File = ImageFile<'v>;

    fn identity(&self, parent: &ImageDir, name: &[u8]) -> Option<FileId> {
        let found = self.volume.lookup(&self.cred, parent.0, name).ok()?;
        Some(self.id_of(&found))
    }

    fn make_dir(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<ImageDir> {
        // As cp(1), where the umask takes these bits of directories even if a default access list
        // applies.
        let mode = match self.preserve {
            // Set-group-id is set at the end, so that entries made meanwhile do not inherit it.
            true => meta.mode & 0o777,
            false => meta.plain_mode() & !(self.cred.umask & 0o022),
        };
        let is_source = |old: &Attr| meta.id == self.id_of(old);
        make_dir(self.volume, &self.cred, (parent.0, name), mode, is_source)
    }

    fn finish_dir(&self, dir: &ImageDir, meta: &Meta) -> Result<()> {
        self.set_attributes(dir.0, meta, None)
    }

    fn check_create(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<()> {
        let old = match self.volume.lookup(&self.cred, parent.0, name) {
            Err(Error::NotFound) => None,
            found => {
                found?;
                self.existing(*parent, name, meta)?
            }
        };
        let (ino, want) = match old {
            Some(old) => (old.ino, Access::WRITE),
            None => (parent.0, Access { execute: true, ..Access::WRITE }),
        };
        Ok(self.volume.access(&self.cred, ino, want)?)
    }

    fn create(
        &self,
        parent: &ImageDir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<Created<ImageFile<'v>, InodeNo>> {
        let file = match self.new_file(*parent, name, meta) {
            Err(Error::Exists) => match self.overwritten(*parent, name, meta)? {
                Some(old) => self.old_file(&old)?,
                None => self.new_file(*parent, name, meta)?,
            },
            file => file?,
        };
        let order = if file.claim.is_some() { Order::OneWorker } else { Order::Any };
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        if bytes > PART {
            self.reserve(&file, data)?;
        }
        let node = file.ino;
        Ok(Created { file, node, order })
    }

    fn write(&self, file: &ImageFile<'v>, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.volume.write(&self.cred, file.ino, offset, bytes)? < bytes.len() {
            return Err(Error::NoSpace.into());
        }
        file.end.fetch_max(offset + to_u64(bytes.len()), Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, file: &ImageFile<'v>, meta: &Meta) -> Result<()> {
        let short = file.end.load(Ordering::Relaxed) < meta.size;
        self.set_attributes(file.ino, meta, short.then_some(meta.size))
    }

    fn special(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<Made<InodeNo>> {
        let new = || {
            let mode = self.mode(meta);
            make_special(self.volume, &self.cred, (parent.0, name), meta, mode)
        };
        let attr = match new() {
            Err(Error::Exists) => {
                self.overwritten(*parent, name, meta)?;
                new()?
            }
            attr => attr?,
        };
        if matches!(meta.kind, Kind::Symlink(_)) {
            self.links.lock().insert(attr.ino);
        }
        Ok((attr.ino, self.set_attributes(attr.ino, meta, None)))
    }

    fn link(&self, node: &InodeNo, parent: &ImageDir, name: &[u8]) -> Result<()> {
        let link = || self.volume.link(&self.cred, *node, parent.0, name);
        match link() {
            Err(Error::Exists) => {
                let old = self.volume.lookup(&self.cred, parent.0, name)?;
                if old.ino == *node {
                    return Ok(());
                }
                if old.kind == FileType::Directory {
                    return Err(EntryError::new("cannot overwrite a directory with a file"));
                }
                self.volume.unlink(&self.cred, parent.0, name)?;
                link()?;
                Ok(())
            }
            done => Ok(done.map(|_| ())?),
        }
    }
}

impl ImageSink<'_> {
    /// Allocates the blocks of a file that several threads fill in any order, so that they are in
    /// order on disk. Files without extents cannot reserve blocks.
    fn reserve(&self, file: &ImageFile<'_>, data: &[Range<u64>]) -> Result<()> {
        for range in data {
            let len = range.end - range.start;
            let mode = FallocateMode::Allocate;
            match self.volume.fallocate(&self.cred, file.ino, mode, range.start, len) {
                Err(Error::NotSupported) => return Ok(()),
                done => done?,
            }
        }
        Ok(())
    }
}

impl Extractable for ImageSink<'_> {
    fn volume(&self) -> (&Inodes, &Cred) {
        (self.volume, &self.cred)
    }
}
