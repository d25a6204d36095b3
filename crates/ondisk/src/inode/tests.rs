use proptest::prelude::*;

use super::*;
use crate::testing::{Image, small_geometry};

#[test]
fn fields_agree_with_debugfs() {
    let make = |tree: &std::path::Path| std::fs::write(tree.join("file"), "x").unwrap();
    let args = "-t ext4 -O project,quota -I 256 -d %/tree";
    let mut image = Image::make_from("inode-fields", args, "16m", make);
    image.debugfs_write(&[
        "sif file uid 70000",
        "sif file gid 80000",
        "sif file mode 0104711",
        "sif file size 0x123456789",
        "sif file generation 77",
        "sif file crtime 20000101",
        "sif file mtime @0x180000001",
        "sif file projid 9",
        "mknod node c 300 60000",
        "symlink link target",
    ]);
    let geometry = image.geometry();
    let read = |path: &str| {
        let ino = image.inode_called(path);
        verify(&geometry, ino, image.inode_bytes(ino)).unwrap();
        Inode::read(&geometry, image.inode_bytes(ino)).unwrap()
    };
    let file = read("file");
    assert_eq!((file.uid, file.gid, file.mode), (70000, 80000, 0o104_711));
    assert_eq!((file.size, file.generation, file.project), (0x1_2345_6789, 77, 9));
    assert_eq!(file.crtime.seconds, 946_684_800);
    assert_eq!(file.mtime.seconds, 0x1_8000_0001);
    assert_eq!(file.file_type(), Some(FileType::Regular));
    assert!(file.has_project() && file.has_crtime() && file.has_wide_times());
    assert_eq!(file.xattr_area(&geometry), Some(160..256));
    let node = read("node");
    assert_eq!(node.file_type(), Some(FileType::CharDevice));
    assert_eq!(device::decode(&node.block), (300, 60000));
    let link = read("link");
    assert!(link.is_fast_symlink());
    assert_eq!(&link.block[..6], b"target");
}

#[test]
fn a_large_block_count_changes_its_unit() {
    let mut geometry = small_geometry();
    let mut inode = Inode::default();
    assert!(inode.set_sectors(&geometry, 1 << 32).is_err());
    geometry.features.set(RoCompat::HUGE_FILE, true);
    for sectors in [0, 8, 1 << 32, (1 << 48) - 8, 1 << 48, 1 << 50] {
        inode.set_sectors(&geometry, sectors).unwrap();
        assert_eq!(inode.sectors(&geometry), sectors);
        assert_eq!(inode.has_flag(flags::HUGE_FILE), sectors >= 1 << 48);
    }
    assert!(inode.set_sectors(&geometry, u64::MAX).is_err());
}

#[test]
fn an_extra_size_that_does_not_fit_is_refused() {
    let geometry = small_geometry();
    let mut bytes = [0; 256];
    bytes[0x80] = 128;
    Inode::read(&geometry, &bytes).unwrap();
    for size in [132u8, 127, 2] {
        bytes[0x80] = size;
        assert!(Inode::read(&geometry, &bytes).is_err());
    }
    assert!(Inode::read(&geometry, &bytes[..255]).is_err());
}

proptest! {
    #[test]
    fn a_written_inode_reads_back_unchanged(
        mut bytes in proptest::collection::vec(any::<u8>(), 256),
        extra in 0u8..=32,
    ) {
        bytes[0x80] = extra * 4;
        bytes[0x81] = 0;
        let mut geometry = small_geometry();
        geometry.features.apply("64bit,huge_file,large_dir,metadata_csum").unwrap();
        let inode = Inode::read(&geometry, &bytes).unwrap();
        let mut copy = bytes.clone();
        inode.write(&geometry, &mut copy);
        prop_assert_eq!(&Inode::read(&geometry, &copy).unwrap(), &inode);
        prop_assert_eq!(&copy[160..], &bytes[160..]);
        seal(&geometry, InodeNo(9), &mut copy);
        verify(&geometry, InodeNo(9), &copy).unwrap();
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut geometry = small_geometry();
        geometry.features.set(RoCompat::METADATA_CSUM, true);
        if let Ok(inode) = Inode::read(&geometry, &bytes) {
            let _ = (inode.sectors(&geometry), inode.xattr_area(&geometry));
            let _ = (inode.is_fast_symlink(), device::decode(&inode.block));
        }
        let _ = verify(&geometry, InodeNo(1), &bytes);
    }
}
