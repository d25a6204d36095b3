//! A source that reads an image.

use super::entry::{FileId, Kind, Meta, Xattr};
use super::trail::Trail;
use super::{EntryError, Result, Source, name};
use crate::escape;
use crate::listing::{ListedEntry, Listing};
use nextent::inodes::{Attr, InodeNo, Inodes, ROOT_INO, SeekKind};
use nextent::{Cred, Error, FileType};
use nextent_sync::Arc;
use std::ops::Range;

/// A file of an image and its path.
#[derive(Clone, Debug)]
pub struct ImageNode {
    ino: InodeNo,
    /// The directory that listed it; none for a path that the user gave.
    listed_in: Option<InodeNo>,
    trail: Arc<Trail>,
}

impl ImageNode {
    /// The file `ino`, which `path` leads to.
    pub fn top(ino: InodeNo, path: &[u8]) -> Self {
        Self { ino, listed_in: None, trail: Trail::top(path) }
    }
}

/// The files of one image.
pub struct ImageSource<'v> {
    volume: &'v Inodes,
    cred: Cred,
    /// The image's name.
    name: String,
    /// Distinguishes this image from devices and other images.
    tag: u64,
    xattrs: bool,
}

impl<'v> ImageSource<'v> {
    /// The files of `volume`, with their extended attributes if `xattrs`.
    pub fn new(volume: &'v Inodes, name: &str, tag: u64, xattrs: bool) -> Self {
        Self { volume, cred: Cred::root(), name: name.to_owned(), tag, xattrs }
    }

    fn xattrs(&self, ino: InodeNo) -> Result<Vec<Xattr>> {
        let mut all = Vec::new();
        for name in self.volume.listxattr(&self.cred, ino)? {
            let value = self.volume.getxattr(&self.cred, ino, &name)?;
            all.push((name, value));
        }
        all.sort();
        Ok(all)
    }

    /// Whether this is an empty `lost+found` in the root directory, which is not copied: every file
    /// system has its own.
    fn is_empty_lost_found(&self, dir: InodeNo, name: &[u8], ino: InodeNo) -> bool {
        let mut empty = true;
        dir == ROOT_INO
            && name == b"lost+found"
            && self
                .volume
                .readdir(ino, 0, &mut |entry| {
                    empty = matches!(entry.name, b"." | b"..");
                    empty
                })
                .is_ok()
            && empty
    }
}

fn kind(attr: &Attr) -> Kind {
    match attr.kind {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink(Vec::new()),
        FileType::CharDevice => Kind::Char(attr.device),
        FileType::BlockDevice => Kind::Block(attr.device),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        _ => Kind::File,
    }
}

impl Source for ImageSource<'_> {
    type Node = ImageNode;
    type File = InodeNo;

    const DIRS_HAVE_ONE_NAME: bool = true;

    fn show(&self, node: &ImageNode) -> String {
        format!("{}:{}", self.name, escape::name(&node.trail.path()))
    }

    fn meta(&self, node: &ImageNode) -> Result<Meta> {
        let attr = match node.listed_in {
            Some(dir) => self.volume.getattr_listed(dir, node.ino)?,
            None => self.volume.getattr(node.ino)?,
        };
        let mut kind = kind(&attr);
        if let Kind::Symlink(target) = &mut kind {
            *target = self.volume.readlink(node.ino)?;
            name::check_target(target)?;
        }
        let xattrs = if self.xattrs { self.xattrs(node.ino)? } else { Vec::new() };
        Ok(Meta {
            id: FileId { volume: self.tag, ino: u64::from(node.ino.0) },
            kind,
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            links: u64::from(attr.links),
            size: attr.size,
            allocated: attr.sectors.saturating_mul(512),
            atime: attr.atime,
            mtime: attr.mtime,
            xattrs,
            stream: false,
        })
    }

    fn list(&self, dir: &ImageNode, each: &mut dyn FnMut(Vec<u8>, ImageNode)) -> Result<()> {
        let mut listing = Listing::of(dir.ino);
        while let Some(entry) = listing.next(self.volume) {
            let ListedEntry { name, ino, .. } = entry?;
            if !self.is_empty_lost_found(dir.ino, &name, ino) {
                let trail = Trail::below(&dir.trail, &name);
                each(name, ImageNode { ino, listed_in: Some(dir.ino), trail });
            }
        }
        Ok(())
    }

    fn open(&self, node: &ImageNode, _: &Meta) -> Result<InodeNo> {
        Ok(node.ino)
    }

    fn data(&self, file: &InodeNo, meta: &Meta) -> Result<Vec<Range<u64>>> {
        let mut ranges = Vec::new();
        let (mut at, mut mapped) = (0, 0);
        let geometry = self.volume.geometry();
        let room = geometry.blocks_count.saturating_mul(u64::from(geometry.block_size));
        while at < meta.size {
            let start = match self.volume.seek(*file, at, SeekKind::Data) {
                Ok(start) => start,
                Err(Error::NoData) => break,
                Err(error) => return Err(error.into()),
            };
            let end = self.volume.seek(*file, start, SeekKind::Hole)?.min(meta.size);
            if end <= start {
                return Err(EntryError::new("its block map is damaged"));
            }
            // A damaged map may repeat the same blocks, and a copy would fill the host.
            mapped += end - start;
            if mapped > room {
                return Err(EntryError::new("maps more data than its volume has blocks"));
            }
            ranges.push(start..end);
            at = end;
        }
        Ok(ranges)
    }

    fn read(&self, file: &InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.volume.read(*file, offset, buf)?)
    }
}
