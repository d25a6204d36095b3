//! Renames that leave a whiteout, as overlayfs asks for.

mod common;

use common::{Image, VolumeTree, close};
use nextent::inodes::{Inodes, NewNode, ROOT_INO, RenameMode};
use nextent::{Cred, DeviceNo, Error, FileType};
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{Access, KernelMount, e2fs, need};

const KINDS: [&[&str]; 3] =
    [&["-t", "ext4"], &["-t", "ext4", "-O", "fast_commit"], &["-t", "ext2", "-b", "1024"]];

fn rename(volume: &Inodes, from: &[u8], to: &[u8], mode: RenameMode) -> nextent::Result<()> {
    volume.rename_leaving_whiteout(&Cred::root(), (ROOT_INO, from), (ROOT_INO, to), mode)
}

fn assert_whiteout(volume: &Inodes, name: &[u8]) {
    let found = volume.lookup(&Cred::root(), ROOT_INO, name).unwrap();
    assert_eq!((found.kind, found.mode, found.links), (FileType::CharDevice, 0, 1));
    assert_eq!(found.device, DeviceNo { major: 0, minor: 0 });
}

#[test]
fn the_old_name_becomes_a_device_with_number_zero() {
    for args in KINDS {
        let image = need!(Image::make(16 << 20, args));
        let volume = image.open();
        let root = Cred::root();
        let file = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap().ino;
        let dir = volume.mkdir(&root, ROOT_INO, b"dir", 0o755).unwrap().ino;
        volume.mknod(&root, dir, b"inside", NewNode::Fifo, 0o644).unwrap();
        volume.mknod(&root, ROOT_INO, b"target", NewNode::Regular, 0o644).unwrap();

        assert!(matches!(
            rename(&volume, b"file", b"target", RenameMode::NoReplace),
            Err(Error::Exists)
        ));
        assert!(matches!(
            rename(&volume, b"file", b"target", RenameMode::Exchange),
            Err(Error::Invalid)
        ));
        assert!(matches!(
            rename(&volume, b"none", b"target", RenameMode::Replace),
            Err(Error::NotFound)
        ));
        assert_eq!(volume.lookup(&root, ROOT_INO, b"file").unwrap().ino, file);

        rename(&volume, b"file", b"target", RenameMode::Replace).unwrap();
        assert_eq!(volume.lookup(&root, ROOT_INO, b"target").unwrap().ino, file);
        assert_whiteout(&volume, b"file");
        // Into the directory, which is then moved itself.
        let to = (dir, &b"moved"[..]);
        let from = (ROOT_INO, &b"target"[..]);
        volume.rename_leaving_whiteout(&root, from, to, RenameMode::NoReplace).unwrap();
        assert_whiteout(&volume, b"target");
        rename(&volume, b"dir", b"other", RenameMode::NoReplace).unwrap();
        assert_whiteout(&volume, b"dir");
        assert_eq!(volume.lookup(&root, dir, b"moved").unwrap().ino, file);
        // The whiteout keeps the name. An fsync of the moved file makes the whiteout durable, too.
        rename(&volume, b"other", b"dir", RenameMode::NoReplace).unwrap_err();
        volume.fsync(file).unwrap();

        let ours = walk(&VolumeTree(&volume)).unwrap();
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        assert_same(&ours, &walk(&HostDir::new(mount.path())).unwrap(), &Compare::default());
    }
}

#[test]
fn without_a_free_inode_nothing_changes() {
    let image = need!(Image::make(8 << 20, &["-t", "ext4", "-N", "16"]));
    let volume = image.open();
    let root = Cred::root();
    let mut made = 0;
    while volume.mknod(&root, ROOT_INO, format!("f{made}").as_bytes(), NewNode::Fifo, 0o600).is_ok()
    {
        made += 1;
    }
    assert!(made > 1);
    for mode in [RenameMode::Replace, RenameMode::NoReplace] {
        let to: &[u8] = if mode == RenameMode::Replace { b"f1" } else { b"new" };
        assert!(matches!(rename(&volume, b"f0", to, mode), Err(Error::NoInodes)));
    }
    assert_eq!(volume.lookup(&root, ROOT_INO, b"f0").unwrap().kind, FileType::Fifo);
    assert!(matches!(volume.lookup(&root, ROOT_INO, b"new"), Err(Error::NotFound)));
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}
