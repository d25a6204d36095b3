//! A power cut at a checkpoint may tear the superblock between its two sectors. Linux and e2fsck
//! verify its checksum before they read the log, so the torn superblock must be valid.

mod common;

use common::{Image, VolumeFs, checkpoint_all, close};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::superblock::{SECTOR, SUPER_OFFSET, SUPER_SIZE, Superblock};
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, XattrFlags, e2fs, need};

fn superblock(device: &MemoryDevice) -> [u8; SUPER_SIZE] {
    let mut bytes = [0; SUPER_SIZE];
    device.read_at(SUPER_OFFSET, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_torn_superblock_is_valid() {
    let kinds: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "^orphan_file"],
        &["-t", "ext4", "-O", "fast_commit"],
        &["-t", "ext4", "-O", "^has_journal"],
    ];
    for args in kinds {
        let image = need!(Image::make(32 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
        let fs = VolumeFs(&volume);
        let mut old = superblock(&device);
        let mut changes = 0;
        for step in 0..12 {
            let file = format!("/file{step}");
            fs.create(&file, 0o644).unwrap();
            fs.write(&file, 0, &vec![1; 5000 * step]).unwrap();
            fs.set_xattr(&file, "user.a", b"value", XattrFlags::Any).unwrap();
            if step % 3 == 0 {
                fs.mkdir(&format!("/dir{step}"), 0o755).unwrap();
                fs.unlink(&file).unwrap();
            }
            checkpoint_all(&volume);
            let new = superblock(&device);
            changes += usize::from(new != old);
            for (first, second) in [(&new, &old), (&old, &new)] {
                let torn = [&first[..SECTOR], &second[SECTOR..]].concat();
                let torn = Superblock::read(&torn).unwrap();
                torn.verify_checksum().unwrap_or_else(|error| panic!("{args:?}: {error}"));
            }
            old = new;
        }
        assert!(changes > 5, "{args:?}: the superblock changed {changes} times");
        close(&volume);
        device.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
    }
}
