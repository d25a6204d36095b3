//! A source that reads an image.
//!
//! A directory is listed in the order of inodes, not in that of its blocks, which hashes of names
//! decide. Inodes and contents of files that were made one after another are near each other, so a
//! copy reads the device from its start to its end, and what was read ahead is used.

use super::entry::{FileId, Kind, Meta, Xattr};
use super::trail::Trail;
use super::{EntryError, Result, Source, name};
use crate::escape;
use crate::listing::{ListedEntry, Listing};
use nextent::inodes::{Attr, InodeNo, Inodes, ROOT_INO, SeekKind};
use nextent::{Cred, Error, FileType};
use nextent_sync::Arc;
use std::ops::Range;

/// The most entries of a directory that are sorted by inode at once, which bounds memory.
const SORTED: usize = 1 << 16;

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
        loop {
            let (mut entries, mut end) = (Vec::new(), None);
            while entries.len() < SORTED && end.is_none() {
                match listing.next(self.volume) {
                    Some(Ok(entry)) => entries.push(entry),
                    Some(Err(error)) => end = Some(Err(error.into())),
                    None => end = Some(Ok(())),
                }
            }
            entries.sort_by_key(|entry| entry.ino);
            for ListedEntry { name, ino, .. } in entries {
                if !self.is_empty_lost_found(dir.ino, &name, ino) {
                    let trail = Trail::below(&dir.trail, &name);
                    each(name, ImageNode { ino, listed_in: Some(dir.ino), trail });
                }
            }
            if let Some(end) = end {
                return end;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use nextent::OpenOptions;
    use nextent::inodes::NewNode;
    use nextent::mkfs::{self, MkfsOptions};
    use nextent_device::MemoryDevice;

    #[test]
    fn directories_are_listed_in_the_order_of_inodes() {
        let size = 8 << 20;
        let device = MemoryDevice::new(size);
        let mut options = MkfsOptions::default();
        options.size = Some(size);
        mkfs::make(&device, &options).expect("memory has room");
        let opened = Inodes::open(Arc::new(device), &OpenOptions::new());
        let volume = opened.expect("it was made");
        for n in 0..100 {
            let name = format!("{n}");
            let place = (ROOT_INO, name.as_bytes(), NewNode::Regular);
            let made = volume.mknod(&Cred::root(), place.0, place.1, place.2, 0o644);
            made.expect("the image has room");
        }
        let source = ImageSource::new(&volume, "", 0, false);
        let mut names = Vec::new();
        let top = ImageNode::top(ROOT_INO, b"/");
        source.list(&top, &mut |name, _| names.push(name)).expect("memory can be read");
        let made: Vec<_> = (0..100).map(|n| n.to_string().into_bytes()).collect();
        assert_eq!(names, made);
        volume.close().expect("memory can be written");
    }
}
