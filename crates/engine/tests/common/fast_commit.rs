//! A volume with two files, for tests of fast commits.

use super::{Image, VolumeFs, close};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::MemoryDevice;
use nextent_sync::{Arc, Duration};
use nextent_testkit::{PosixFs, e2fs};

/// Opens a volume that commits only on request or under pressure.
pub fn open_without_timer(device: &Arc<MemoryDevice>, options: &OpenOptions) -> Inodes {
    let options = options.clone().commit_interval(Duration::ZERO);
    Inodes::open(device.clone(), &options).unwrap()
}

/// A volume with `/a` and `/b`, both durable and empty.
pub fn create_two_files(image: &Image, options: &OpenOptions) -> (Arc<MemoryDevice>, Inodes) {
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open_without_timer(&device, options);
    for name in ["/a", "/b"] {
        VolumeFs(&volume).create(name, 0o644).unwrap();
    }
    super::checkpoint_all(&volume);
    (device, volume)
}

/// Recovers a snapshot of the device, as after a power cut now: `/a` must have `len` bytes `A`.
pub fn assert_durable(what: &str, device: &MemoryDevice, len: usize) {
    let cut = Arc::new(device.snapshot());
    let recovered = open_without_timer(&cut, &OpenOptions::new());
    let bytes = VolumeFs(&recovered).read("/a", 0, len + 1).unwrap();
    let foreign = bytes.iter().filter(|byte| **byte != b'A').count();
    assert_eq!((bytes.len(), foreign), (len, 0), "{what}: length of /a, other files' bytes");
    close(&recovered);
    let dir = tempfile::tempdir().unwrap();
    cut.save(&dir.path().join("image")).unwrap();
    e2fs::assert_clean(&dir.path().join("image"));
}
