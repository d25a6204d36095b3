//! The image to resize, and the length of its file.
//!
//! | image | without a size | longer than now | shorter than now |
//! |---|---|---|---|
//! | a whole regular file | that of the file, but never less | the file is extended first, sparsely | the file is cut afterwards |
//! | a block device, a part of a disk, an export | that of the device, but never less | refused | keeps its length |
//! | an overlay | that of its base, but never less | refused | keeps its length |
//!
//! A file that was extended is cut again if the volume did not grow.

use crate::disk::Disk;
use crate::target::Place;
use nextent::check::{CheckOptions, Overview};
use nextent::resize::{ResizeOptions, ResizeProgress, Resized, minimum_blocks, resize};
use nextent::{Error, Foreign};
use nextent_device::{BlockDevice, Overlay};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{Geometry, Incompat, Superblock};
use nextent_sync::Arc;
use std::io;

/// The page size in bytes that sizes of devices are rounded down to, as by mke2fs.
const PAGE: u64 = 4096;

/// What the bytes of an image are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All of a regular file, whose length follows the volume.
    File,
    Device,
    Part,
    Export,
    Overlay,
}

impl Kind {
    fn of(place: &Place, disk: &Disk) -> Self {
        let is_part = place.part.is_some() || place.offset > 0 || place.size.is_some();
        match disk {
            Disk::Nbd(_) => Self::Export,
            Disk::Overlay(_) | Disk::Base(_) => Self::Overlay,
            Disk::File(_) if is_part => Self::Part,
            Disk::File(file) if file.is_block_device() => Self::Device,
            Disk::File(_) => Self::File,
        }
    }
}

/// Why a volume was not resized.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// By the engine.
    Volume(Error),
    /// A file could not be made longer or shorter, for the given reason.
    File(io::Error),
}

/// A volume, and the device that it is on.
pub(crate) struct Resizable {
    disk: Arc<Disk>,
    kind: Kind,
    sb: Superblock,
    geometry: Geometry,
}

impl Resizable {
    /// Reads the superblock of the volume on `disk`, which was opened from `place`.
    pub(crate) fn read(place: &Place, disk: Disk) -> nextent::Result<Self> {
        let kind = Kind::of(place, &disk);
        let disk = Arc::new(disk);
        let (sb, geometry) = superblock(&disk)?;
        Ok(Self { disk, kind, sb, geometry })
    }

    /// The superblock as it was read.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Blocks of the volume.
    pub(crate) fn blocks(&self) -> u64 {
        self.geometry.blocks_count
    }

    pub(crate) fn block_size(&self) -> u64 {
        self.geometry.block_size.into()
    }

    /// The blocks that the file or the device has.
    pub(crate) fn room(&self) -> u64 {
        self.disk.size() / self.block_size()
    }

    /// Whether the volume has `blocks` already, and its device has them, too.
    pub(crate) fn has(&self, blocks: u64) -> bool {
        blocks == self.blocks() && blocks <= self.room()
    }

    /// The size of a volume that fills `room` blocks, as whole pages; never less than now.
    pub(crate) fn filled(&self, room: u64) -> u64 {
        whole_pages(room, self.block_size()).max(self.blocks())
    }

    /// Why the device cannot have more bytes; `None` if it can.
    pub(crate) fn limit(&self) -> Option<String> {
        let bytes = self.disk.size();
        Some(match self.kind {
            Kind::File => return None,
            Kind::Device => format!("the device has only {bytes} bytes; enlarge it first"),
            Kind::Part => format!(
                "the partition has only {bytes} bytes; enlarge it first, in the partition table"
            ),
            Kind::Export => {
                format!("the export has only {bytes} bytes; enlarge it first, at the server")
            }
            Kind::Overlay => format!("the overlay has only the {bytes} bytes of its base"),
        })
    }

    /// Blocks of the group descriptors of a volume with so many blocks.
    pub(crate) fn descriptor_blocks(&self, blocks: u64) -> u64 {
        let first = self.geometry.first_data_block.0;
        let groups = (blocks - first).div_ceil(self.geometry.blocks_per_group.into());
        groups.div_ceil(self.geometry.descs_per_block.into())
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.disk) as Arc<dyn BlockDevice>
    }

    /// The fewest blocks that the volume can have. A volume that was not closed is recovered in
    /// memory.
    pub(crate) fn minimum(&self) -> nextent::Result<u64> {
        let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(&self.disk)));
        minimum_blocks(&device)
    }

    /// The size that a resize to `blocks` results in.
    pub(crate) fn resulting(&self, blocks: u64) -> nextent::Result<u64> {
        nextent::resize::resized_blocks(&*self.disk, blocks, &ResizeOptions::default())
    }

    /// Makes the volume one of `blocks` blocks. `exact`: a file then has the length of the volume;
    /// otherwise it is not cut.
    pub(crate) fn resize(
        &mut self,
        blocks: u64,
        exact: bool,
        options: &ResizeOptions,
        progress: &dyn Fn(ResizeProgress),
    ) -> Result<Resized, Trouble> {
        let before = self.disk.size();
        let too_large = || Trouble::File(io::Error::from(io::ErrorKind::FileTooLarge));
        let bytes = blocks.checked_mul(self.block_size()).ok_or_else(too_large)?;
        // A volume that is cut short is refused as it is.
        let whole = self.blocks() <= self.room();
        let extends = self.kind == Kind::File && whole && bytes > before;
        if extends {
            self.set_len(bytes).map_err(Trouble::File)?;
        }
        let device = self.device();
        let done = resize(&device, blocks, options, progress);
        drop(device);
        match done {
            Ok(done) => {
                let bytes = done.blocks * self.block_size();
                if self.kind == Kind::File && exact && bytes < self.disk.size() {
                    self.set_len(bytes).map_err(Trouble::File)?;
                }
                Ok(done)
            }
            Err(error) => {
                if extends && self.is_unchanged() {
                    self.set_len(before).map_err(Trouble::File)?;
                }
                Err(Trouble::Volume(error))
            }
        }
    }

    /// Whether the volume on the device has its old size, and no journal that may say otherwise.
    fn is_unchanged(&self) -> bool {
        superblock(&self.disk).is_ok_and(|(sb, geometry)| {
            geometry.blocks_count == self.blocks() && !sb.features().has(Incompat::RECOVER)
        })
    }

    /// The superblock on the device now.
    pub(crate) fn current(&self) -> Option<Superblock> {
        superblock(&self.disk).ok().map(|(sb, _)| sb)
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        let disk = Arc::get_mut(&mut self.disk);
        let disk = disk.ok_or_else(|| io::Error::other("the device is still in use"))?;
        disk.set_len(bytes)?;
        disk.flush()
    }
}

/// A number of blocks, rounded down to whole pages.
pub(super) fn whole_pages(blocks: u64, block_size: u64) -> u64 {
    blocks - blocks % (PAGE / block_size).max(1)
}

/// The first superblock, and the geometry that it describes. No backup takes its place: a resize
/// changes the first one. The engine checks the checksum, which may wait for recovery.
fn superblock(disk: &Arc<Disk>) -> nextent::Result<(Superblock, Geometry)> {
    let mut bytes = [0; SUPER_SIZE];
    let foreign = || {
        let read = &mut |at, buf: &mut [u8]| disk.read_at(at, buf).is_ok();
        Error::Foreign(Foreign::identify(disk.size(), read))
    };
    disk.read_at(SUPER_OFFSET, &mut bytes).map_err(|_| foreign())?;
    let sb = Superblock::read(&bytes).map_err(|_| foreign())?;
    let geometry = sb.check(u64::MAX);
    if geometry.is_err() {
        // Its error says what else it is, such as an external journal.
        Overview::read(Arc::clone(disk) as Arc<dyn BlockDevice>, &CheckOptions::default())?;
    }
    Ok((sb, geometry?))
}
