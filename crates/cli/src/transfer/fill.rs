//! Writing to an image that was just made and that nobody else sees.
//!
//! Names, attributes and places come from one thread, so that they depend on nothing but their
//! order; bytes go to their places from any thread and past the journal: an image that is not
//! finished is of no use anyway.

use super::apply::{apply, at_birth, set_xattrs, without_lists};
use super::entry::{FileId, Meta};
use super::image_sink::{ImageDir, find, follow, make_special, remove};
use super::sink::{Created, Made, Order};
use super::untar::Extractable;
use super::{Result, Sink};
use nextent::inodes::{Attr, FillRun, InodeNo, Inodes};
use nextent::{Cred, Error, FileType};
use std::ops::Range;

/// The directories of a new image.
pub(crate) struct FillSink<'v> {
    volume: &'v Inodes,
    cred: Cred,
}

/// Where the data of a file goes.
pub(crate) struct FillFile {
    runs: Vec<FillRun>,
    size: u64,
    /// What one of its attributes met; told when the contents are in place.
    told: Result<()>,
}

impl<'v> FillSink<'v> {
    /// The directories of `volume`, which was opened for filling.
    pub(crate) fn new(volume: &'v Inodes) -> Self {
        Self { volume, cred: Cred::root() }
    }
}

impl Sink for FillSink<'_> {
    type Dir = ImageDir;
    type Node = InodeNo;
    type File = FillFile;

    fn identity(&self, _: &ImageDir, _: &[u8]) -> Option<FileId> {
        None // No source lies in an image that is being made.
    }

    fn make_dir(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<ImageDir> {
        match self.volume.mkdir(&self.cred, parent.0, name, meta.mode) {
            Ok(attr) => Ok(ImageDir(attr.ino)),
            Err(Error::Exists) => {
                let old = self.volume.lookup(&self.cred, parent.0, name)?;
                match old.kind {
                    FileType::Directory => Ok(ImageDir(old.ino)),
                    _ => Err(super::Trouble::new("cannot overwrite a file with a directory")),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn finish_dir(&self, dir: &ImageDir, meta: &Meta) -> Result<()> {
        apply(self.volume, &self.cred, dir.0, meta, None)
    }

    fn create(
        &self,
        parent: &ImageDir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<Created<FillFile, InodeNo>> {
        let set = at_birth(meta);
        let (ino, runs) = self.volume.fill_file(&self.cred, (parent.0, name), &set, data)?;
        let told = set_xattrs(self.volume, &self.cred, ino, meta);
        let file = FillFile { runs, size: meta.size, told };
        Ok(Created { file, node: ino, order: Order::Any })
    }

    fn write(&self, file: &FillFile, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.volume.fill_data(&file.runs, file.size, offset, bytes)?)
    }

    fn finish(&self, file: &FillFile, _meta: &Meta) -> Result<()> {
        file.told.clone()
    }

    fn special(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<Made<InodeNo>> {
        let place = (parent.0, name);
        let attr = make_special(self.volume, &self.cred, place, meta, meta.mode)?;
        Ok((attr.ino, apply(self.volume, &self.cred, attr.ino, meta, None)))
    }

    fn link(&self, node: &InodeNo, parent: &ImageDir, name: &[u8]) -> Result<()> {
        self.volume.link(&self.cred, *node, parent.0, name)?;
        Ok(())
    }
}

impl Extractable for FillSink<'_> {
    fn find(&self, parent: &ImageDir, name: &[u8]) -> Result<Option<Attr>> {
        find(self.volume, &self.cred, *parent, name)
    }

    fn follow(&self, parent: &ImageDir, target: &[u8]) -> Result<ImageDir> {
        follow(self.volume, &self.cred, *parent, target)
    }

    fn remove(&self, parent: &ImageDir, name: &[u8], kind: FileType) -> Result<()> {
        remove(self.volume, &self.cred, *parent, name, kind)?;
        // Whether freed blocks may be used again must not depend on when commits happen to run.
        Ok(self.volume.sync()?)
    }

    fn without_lists(&self, dir: &ImageDir, mode: u16) -> Result<()> {
        without_lists(self.volume, &self.cred, dir.0, mode)
    }

    fn target(&self, node: InodeNo) -> Result<Vec<u8>> {
        Ok(self.volume.readlink(node)?)
    }
}
