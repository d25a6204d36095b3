//! The image of the library: new in memory, or an existing file.

use crate::failure::Failure;
use nextent::OpenOptions;
use nextent::check::{CheckOptions, CheckReport, check, survey};
use nextent::inodes::Inodes;
use nextent::mkfs::{self, MkfsOptions};
use nextent_device::{BlockDevice, FileDevice, FileOptions, LatencyDevice, MemoryDevice};
use nextent_historical::Design;
use nextent_sync::{Arc, Duration};
use std::path::{Path, PathBuf};

/// The UUID of images on simulated cores.
const FIXED: &str = "6e657874-656e-4420-8000-73696d756c61";

/// The storage of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Memory; a new image for each run.
    Memory,
    /// A file or block device, used as it is; a missing file is created once.
    File(PathBuf),
}

/// The description of an image.
#[derive(Clone, Debug)]
pub(crate) struct ImageSpec {
    pub(crate) medium: Medium,
    /// Bytes of a new image.
    pub(crate) bytes: u64,
    /// Bytes of the image for each inode, if the workload wants more than the default.
    pub(crate) bytes_per_inode: Option<u64>,
    /// Delay added to each answer of the device.
    pub(crate) latency: Duration,
}

/// A device with a file system.
pub(crate) struct Image {
    device: Arc<dyn BlockDevice>,
}

/// Sizes of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of the image.
    pub(crate) image: u64,
    /// Bytes of its journal.
    pub(crate) journal: u64,
    /// Runs of free blocks.
    pub(crate) free_runs: u64,
}

impl Image {
    /// Creates or opens the image.
    ///
    /// # Errors
    /// The size is too small for a file system, or the file cannot be opened.
    pub(crate) fn get(spec: &ImageSpec) -> Result<Self, Failure> {
        let Medium::File(path) = &spec.medium else {
            let image = Self::on(Arc::new(MemoryDevice::new(spec.bytes)), spec)?;
            return Ok(image.delayed(spec.latency));
        };
        let missing = !path.exists();
        let size = if missing { spec.bytes } else { 0 };
        let options = FileOptions::new().create(missing).size(size);
        let options = if missing { options } else { FileOptions::new() };
        let opened = FileDevice::open(path, &options);
        let device = opened.map_err(|error| Failure::usage(error.to_string()))?;
        if missing && let Err(failure) = make(&device, spec) {
            // The file did not exist before.
            let _ = std::fs::remove_file(path);
            return Err(failure);
        }
        Ok(Self { device: Arc::new(device) }.delayed(spec.latency))
    }

    /// Creates a file system on an empty device.
    pub(crate) fn on(device: Arc<dyn BlockDevice>, spec: &ImageSpec) -> Result<Self, Failure> {
        make(&*device, spec)?;
        Ok(Self { device })
    }

    fn delayed(self, latency: Duration) -> Self {
        if latency.is_zero() {
            return self;
        }
        Self { device: Arc::new(LatencyDevice::new(self.device, latency)) }
    }

    /// Opens the file system. It commits under pressure and after each `interval`, unless that is
    /// zero.
    pub(crate) fn open(&self, design: Design, interval: Duration) -> Result<Inodes, Failure> {
        let options =
            OpenOptions::new().commit_interval(interval).replacements(design.replacements());
        let volume = Inodes::open(Arc::clone(&self.device), &options);
        let volume = volume.map_err(|error| Failure::usage(format!("image: {error}")))?;
        match volume.read_only_reason() {
            Some(reason) => Err(Failure::usage(format!("image: cannot be changed: {reason}"))),
            None => Ok(volume),
        }
    }

    /// Sizes and free extents of the file system on the device.
    pub(crate) fn sizes(&self) -> Option<Sizes> {
        sizes(Arc::clone(&self.device))
    }

    /// Checks the file system. On simulated cores one thread does it, and its time is not counted.
    pub(crate) fn check(&self) -> Result<CheckReport, Failure> {
        let workers = usize::from(cfg!(feature = "simulated"));
        let mut options = CheckOptions::default();
        options.limit = 20;
        options.workers = workers;
        check(Arc::clone(&self.device), &options, &|_| {})
            .map_err(|error| Failure::broken(format!("fsck: {error}")))
    }

    /// Fails unless the check finds the image clean; `what` names the run in the error.
    #[cfg(any(feature = "simulated", test))]
    pub(crate) fn checked(&self, what: &str) -> Result<(), Failure> {
        let report = self.check()?;
        match report.problems.first().filter(|_| !report.is_clean()) {
            Some(problem) => Err(Failure::broken(format!("{what}: fsck: {problem}"))),
            None => Ok(()),
        }
    }
}

fn sizes(device: Arc<dyn BlockDevice>) -> Option<Sizes> {
    let found = survey(device, 0).ok()?;
    let size = u64::from(found.geo.block_size);
    let journal = found.journal.map_or(0, |journal| u64::from(journal.length()) * size);
    let image = found.geo.blocks_count * size;
    Some(Sizes { image, journal, free_runs: found.free.runs })
}

/// The sizes of the file system on a mounted device, if it can be read.
pub(crate) fn sizes_of_device(path: &Path) -> Option<Sizes> {
    let options = FileOptions::new().read_only(true).unlocked(true);
    sizes(Arc::new(FileDevice::open(path, &options).ok()?))
}

fn make(device: &dyn BlockDevice, spec: &ImageSpec) -> Result<(), Failure> {
    let mut options = MkfsOptions::default();
    options.bytes_per_inode = spec.bytes_per_inode;
    options.extended.prezeroed = true;
    if cfg!(feature = "simulated") {
        // The placement of directories depends on them, and a simulation must be repeatable.
        options.uuid = FIXED.parse().ok();
        options.extended.hash_seed = FIXED.parse().ok();
    }
    let made = mkfs::make(device, &options);
    made.map(drop).map_err(|error| {
        let bytes = device.size();
        Failure::usage(format!("an image of {bytes} bytes cannot be made: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_image_is_reported() {
        let spec = ImageSpec {
            medium: Medium::Memory,
            bytes: 64 << 20,
            bytes_per_inode: None,
            latency: Duration::ZERO,
        };
        let image = Image::get(&spec).expect("it is made");
        image.checked("nothing").expect("it is clean");
        // The count of free blocks in the superblock.
        image.device.write_at(1024 + 12, &7_u32.to_le_bytes()).expect("it is written");
        let found = image.checked("that").expect_err("it is not").to_string();
        assert!(found.starts_with("that: fsck: ") && found.lines().count() == 1, "{found}");
    }
}
