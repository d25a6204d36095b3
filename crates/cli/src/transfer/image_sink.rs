//! Writing to an image, through its journal.

use super::entry::{FileId, Kind, Meta};
use super::untar::Extractable;
use super::{PART, Result, Sink, Trouble};
use nextent::{
    Attr, Cred, Error, FallocateMode, FileType, InodeNo, NewNode, SetAttr, SetTime, Volume,
    XattrMode,
};
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

/// The directories of one image.
pub(crate) struct ImageSink<'v> {
    volume: &'v Volume,
    cred: Cred,
    preserve: bool,
    /// As in the source, to tell when both are one.
    tag: u64,
}

/// A directory of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageDir(pub(crate) InodeNo);

/// A file that is being written.
pub(crate) struct ImageFile {
    ino: InodeNo,
    /// How far it was written. Relaxed: read after all writers are done.
    end: AtomicU64,
}

impl<'v> ImageSink<'v> {
    /// Owners, times, exact modes and attributes are kept if `preserve`.
    pub(crate) fn new(volume: &'v Volume, tag: u64, preserve: bool) -> Self {
        Self { volume, cred: Cred::root(), preserve, tag }
    }

    fn mode(&self, meta: &Meta) -> u16 {
        if self.preserve { meta.mode } else { meta.plain_mode() }
    }

    fn keep(&self, ino: InodeNo, meta: &Meta, size: Option<u64>) -> Result<()> {
        let mut set = SetAttr { size, ..SetAttr::default() };
        let mut told = Ok(());
        if self.preserve {
            told = set_xattrs(self.volume, &self.cred, ino, meta);
            set = attributes(meta, size);
        }
        if set != SetAttr::default() {
            self.volume.setattr(&self.cred, ino, &set)?;
        }
        told
    }

    /// The file at `name` if it may be overwritten in place; else it makes room or fails.
    fn overwritten(&self, parent: ImageDir, name: &[u8], meta: &Meta) -> Result<Option<Attr>> {
        let old = self.volume.lookup(&self.cred, parent.0, name)?;
        if meta.id == (FileId { volume: self.tag, ino: u64::from(old.ino.0) }) {
            return Err(Trouble::new("source and target are the same file"));
        }
        match old.kind {
            FileType::Directory => Err(Trouble::new("cannot overwrite a directory with a file")),
            FileType::Regular if meta.kind == Kind::File => Ok(Some(old)),
            _ => {
                self.volume.unlink(&self.cred, parent.0, name)?;
                Ok(None)
            }
        }
    }
}

/// Everything that `meta` says and one call can set.
pub(super) fn attributes(meta: &Meta, size: Option<u64>) -> SetAttr {
    let link = matches!(meta.kind, Kind::Symlink(_));
    SetAttr {
        size,
        mode: (!link).then_some(meta.mode),
        uid: Some(meta.uid),
        gid: Some(meta.gid),
        atime: Some(SetTime::At(meta.atime)),
        mtime: Some(SetTime::At(meta.mtime)),
        ..SetAttr::default()
    }
}

/// Sets the extended attributes of `meta`. One that does not fit is the file's own trouble.
pub(super) fn set_xattrs(volume: &Volume, cred: &Cred, ino: InodeNo, meta: &Meta) -> Result<()> {
    let mut told = Ok(());
    for (name, value) in &meta.xattrs {
        let done = volume.setxattr(cred, ino, name, value, XattrMode::Either);
        told = told.and(done.map_err(|error| {
            Trouble::from(error).mild().at(&format!("setxattr {}", name.escape_ascii()))
        }));
    }
    told
}

/// Makes the link, device, fifo or socket that `meta` tells of.
pub(super) fn make_special(
    volume: &Volume,
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

impl Sink for ImageSink<'_> {
    type Dir = ImageDir;
    type Node = InodeNo;
    type File = ImageFile;

    fn make_dir(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<ImageDir> {
        match self.volume.mkdir(&self.cred, parent.0, name, self.mode(meta)) {
            Ok(attr) => Ok(ImageDir(attr.ino)),
            Err(Error::Exists) => {
                let old = self.volume.lookup(&self.cred, parent.0, name)?;
                match old.kind {
                    FileType::Directory => Ok(ImageDir(old.ino)),
                    _ => Err(Trouble::new("cannot overwrite a file with a directory")),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn finish_dir(&self, dir: &ImageDir, meta: &Meta) -> Result<()> {
        self.keep(dir.0, meta, None)
    }

    fn create(
        &self,
        parent: &ImageDir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<(ImageFile, InodeNo)> {
        let new = || {
            let mode = self.mode(meta);
            self.volume.mknod(&self.cred, parent.0, name, NewNode::Regular, mode)
        };
        let attr = match new() {
            Err(Error::Exists) => match self.overwritten(*parent, name, meta)? {
                Some(old) => {
                    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                    self.volume.setattr(&self.cred, old.ino, &empty)?
                }
                None => new()?,
            },
            attr => attr?,
        };
        let file = ImageFile { ino: attr.ino, end: AtomicU64::new(0) };
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        if bytes > PART {
            self.reserve(&file, data)?;
        }
        Ok((file, attr.ino))
    }

    fn write(&self, file: &ImageFile, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.volume.write(&self.cred, file.ino, offset, bytes)? < bytes.len() {
            return Err(Error::NoSpace.into());
        }
        file.end.fetch_max(offset + to_u64(bytes.len()), Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, file: &ImageFile, meta: &Meta) -> Result<()> {
        let short = file.end.load(Ordering::Relaxed) < meta.size;
        self.keep(file.ino, meta, short.then_some(meta.size))
    }

    fn special(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<InodeNo> {
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
        self.keep(attr.ino, meta, None)?;
        Ok(attr.ino)
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
                    return Err(Trouble::new("cannot overwrite a directory with a file"));
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
    /// Takes the space of a file that several threads will fill in any order, so that it lies in
    /// order. Maps of pointers cannot; they are filled as it comes.
    fn reserve(&self, file: &ImageFile, data: &[Range<u64>]) -> Result<()> {
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
    fn find(&self, parent: &ImageDir, name: &[u8]) -> Result<Option<InodeNo>> {
        match self.volume.lookup(&self.cred, parent.0, name) {
            Ok(attr) => Ok(Some(attr.ino)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self, parent: &ImageDir, name: &[u8]) -> Result<()> {
        Ok(self.volume.unlink(&self.cred, parent.0, name)?)
    }
}
