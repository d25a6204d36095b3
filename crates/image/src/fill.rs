//! A sink that writes to a new image, which no other process uses yet.
//!
//! One thread makes names and attributes and allocates blocks, so that these depend only on the
//! order of entries. Any thread writes data, without the journal: an unfinished image is useless
//! anyway.

use super::apply::{apply, at_birth, set_xattrs};
use super::entry::{FileId, Meta};
use super::image_sink::{ImageDir, make_dir, make_special};
use super::names::find;
use super::sink::{Created, Made, Order};
use super::untar::Extractable;
use super::{Result, Sink};
use nextent::inodes::{FillRun, InodeNo, Inodes};
use nextent::{Cred, Error};
use nextent_sync::atomic::{AtomicU32, Ordering};
use std::ops::Range;

/// New inodes after which a commit is made: a changed inode stays in memory until then. By number
/// and not by time, so that equal streams make equal images.
const COMMIT: u32 = 1 << 14;

/// The directories of a new image.
pub struct FillSink<'v> {
    volume: &'v Inodes,
    cred: Cred,
    /// Inodes that were made.
    made: AtomicU32,
    /// Data is not written.
    measures: bool,
}

/// The blocks of a file, for its data.
pub struct FillFile {
    runs: Vec<FillRun>,
    size: u64,
    /// The result of setting its attributes, reported once its data is written.
    attributes: Result<()>,
}

impl<'v> FillSink<'v> {
    /// The directories of `volume`, which was opened for filling.
    pub fn new(volume: &'v Inodes) -> Self {
        Self { volume, cred: Cred::root(), made: AtomicU32::new(0), measures: false }
    }

    /// The same, without the data of files.
    pub fn measuring(volume: &'v Inodes) -> Self {
        Self { measures: true, ..Self::new(volume) }
    }

    /// A new file, with its extended attributes set.
    fn created(&self, ino: InodeNo, runs: Vec<FillRun>, meta: &Meta) -> Created<FillFile, InodeNo> {
        let attributes = set_xattrs(self.volume, &self.cred, ino, meta);
        let file = FillFile { runs, size: meta.size, attributes };
        Created { file, node: ino, order: Order::Any }
    }

    /// Counts a new inode. Relaxed: one thread makes inodes.
    fn count(&self) -> Result<()> {
        let made = self.made.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if made.is_multiple_of(COMMIT) { Ok(self.volume.sync()?) } else { Ok(()) }
    }
}

impl Sink for FillSink<'_> {
    type Dir = ImageDir;
    type Node = InodeNo;
    type File = FillFile;

    fn identity(&self, _: &ImageDir, _: &[u8]) -> Option<FileId> {
        None // No source is in a new image.
    }

    fn make_dir(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<ImageDir> {
        // Set-group-id is set at the end, as by GNU tar, so that a directory without an entry that
        // is made in it meanwhile does not inherit it.
        self.count()?;
        make_dir(self.volume, &self.cred, (parent.0, name), meta.mode & 0o777, |_| false)
    }

    fn finish_dir(&self, dir: &ImageDir, meta: &Meta) -> Result<()> {
        apply(self.volume, &self.cred, dir.0, meta, None)
    }

    fn check_create(&self, parent: &ImageDir, name: &[u8], _meta: &Meta) -> Result<()> {
        match find(self.volume, &self.cred, *parent, name)? {
            Some(_) => Err(Error::Exists.into()),
            None => Ok(()),
        }
    }

    fn create(
        &self,
        parent: &ImageDir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<Created<FillFile, InodeNo>> {
        self.count()?;
        let set = at_birth(meta);
        let (ino, runs) = self.volume.fill_file(&self.cred, (parent.0, name), &set, data)?;
        Ok(self.created(ino, runs, meta))
    }

    fn write(&self, file: &FillFile, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.volume.fill_data(&file.runs, file.size, offset, bytes)?)
    }

    fn finish(&self, file: &FillFile, _meta: &Meta) -> Result<()> {
        file.attributes.clone()
    }

    fn special(&self, parent: &ImageDir, name: &[u8], meta: &Meta) -> Result<Made<InodeNo>> {
        self.count()?;
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
    fn volume(&self) -> (&Inodes, &Cred) {
        (self.volume, &self.cred)
    }

    fn create_new(
        &self,
        parent: &ImageDir,
        name: &[u8],
        meta: &Meta,
        data: &[Range<u64>],
    ) -> Result<Option<Created<FillFile, InodeNo>>> {
        self.count()?;
        let set = at_birth(meta);
        match self.volume.fill_file(&self.cred, (parent.0, name), &set, data) {
            Ok((ino, runs)) => Ok(Some(self.created(ino, runs, meta))),
            Err(Error::Exists) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn drops_contents(&self) -> bool {
        self.measures
    }

    fn removed(&self) -> Result<()> {
        // A commit makes freed blocks usable, and must not depend on timing.
        Ok(self.volume.sync()?)
    }
}
