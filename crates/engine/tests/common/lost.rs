//! Two files, one of which loses blocks that a fast commit has named.

use super::{Image, VolumeFs, close};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::MemoryDevice;
use nextent_sync::{Arc, Duration};
use nextent_testkit::{PosixFs, e2fs};

/// Opens without commits by time.
pub fn open_untimed(device: &Arc<MemoryDevice>, options: &OpenOptions) -> Inodes {
    let options = options.clone().commit_interval(Duration::ZERO);
    Inodes::open(device.clone(), &options).unwrap()
}

/// A volume with `/a` and `/b`, both durable and empty.
pub fn two_files(image: &Image, options: &OpenOptions) -> (Arc<MemoryDevice>, Inodes) {
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open_untimed(&device, options);
    for name in ["/a", "/b"] {
        VolumeFs(&volume).create(name, 0o644).unwrap();
    }
    super::put_in_place(&volume);
    (device, volume)
}

/// Cuts the power now, with all that was written on the disk: `/a` must have the bytes of its
/// fsync.
pub fn assert_kept(what: &str, device: &MemoryDevice, len: usize) {
    let cut = Arc::new(device.snapshot());
    let recovered = open_untimed(&cut, &OpenOptions::new());
    let bytes = VolumeFs(&recovered).read("/a", 0, len + 1).unwrap();
    let foreign = bytes.iter().filter(|byte| **byte != b'A').count();
    assert_eq!((bytes.len(), foreign), (len, 0), "{what}: length of /a, bytes not its own");
    close(&recovered);
    let dir = tempfile::tempdir().unwrap();
    cut.save(&dir.path().join("image")).unwrap();
    e2fs::assert_clean(&dir.path().join("image"));
}
