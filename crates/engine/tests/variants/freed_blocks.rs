//! Blocks that a fast commit names belong to its file until the whole transaction is durable, even
//! if the file loses them meanwhile.

use crate::common::{Image, VolumeFs, assert_durable, close, create_two_files};
use nextent_testkit::{PosixFs, need};

const KIB1: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=4"];

#[test]
fn another_file_gets_no_freed_block_before_a_commit() {
    for variant in crate::all_variants() {
        let image = need!(Image::make(24 << 20, KIB1));
        let (device, volume) = create_two_files(&image, &variant.options);
        let fs = VolumeFs(&volume);
        fs.write("/a", 0, &vec![b'A'; 3 << 20]).unwrap();
        fs.fsync("/a").unwrap();
        fs.truncate("/a", 0).unwrap();
        fs.write("/b", 0, &vec![b'B'; 3 << 20]).unwrap();
        volume.trim(0..u64::MAX, 1).unwrap();
        assert_durable(&format!("variant {}", variant.name), &device, 3 << 20);
        close(&volume);
    }
}
