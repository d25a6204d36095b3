//! Create, write, read and close on images of every kind, checked by e2fsck.

mod common;

use common::{Image, KINDS, close};
use nextent::inodes::{Access, NewNode, ROOT_INO, SetAttr};
use nextent::{Cred, Error};
use nextent_testkit::{e2fs, need};

#[test]
fn create_write_read_close() {
    for (kind, args) in KINDS {
        eprintln!("kind {kind}");
        let image = need!(Image::make(64 << 20, args));
        let root = Cred::root();
        {
            let volume = image.open();
            let attr = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap();
            let data: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
            assert_eq!(volume.write(&root, attr.ino, 0, &data).unwrap(), data.len());
            let mut back = vec![0; 200_000];
            assert_eq!(volume.read(attr.ino, 0, &mut back).unwrap(), data.len());
            assert_eq!(back[..data.len()], data);
            let dir = volume.mkdir(&root, ROOT_INO, b"dir", 0o755).unwrap();
            volume.symlink(&root, dir.ino, b"short", b"../file").unwrap();
            volume.symlink(&root, dir.ino, b"long", &[b'x'; 500]).unwrap();
            assert_eq!(
                volume.readlink(volume.resolve(&root, b"/dir/long", false).unwrap().ino).unwrap(),
                [b'x'; 500]
            );
            assert_eq!(volume.resolve(&root, b"/dir/short", true).unwrap().ino, attr.ino);
            close(&volume);
        }
        e2fs::assert_clean(&image.path());
        let volume = image.open();
        let attr = volume.resolve(&root, b"/file", true).unwrap();
        assert_eq!(attr.size, 100_000);
        volume
            .setattr(&root, attr.ino, &SetAttr { size: Some(5000), ..SetAttr::default() })
            .unwrap();
        volume.unlink(&root, ROOT_INO, b"file").unwrap();
        assert!(matches!(volume.getattr(attr.ino), Err(Error::NotFound)));
        assert!(matches!(volume.rmdir(&root, ROOT_INO, b"dir"), Err(Error::NotEmpty)));
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}

#[test]
fn an_unlinked_file_exists_while_it_is_open() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-O", "orphan_file"]));
    let root = Cred::root();
    let volume = image.open();
    let attr = volume.create(&root, ROOT_INO, b"file", 0o644).unwrap();
    volume.write(&root, attr.ino, 0, &[7; 50_000]).unwrap();
    volume.unlink(&root, ROOT_INO, b"file").unwrap();
    let mut byte = [0];
    assert_eq!(volume.read(attr.ino, 49_999, &mut byte).unwrap(), 1);
    assert_eq!(byte, [7]);
    volume.release(attr.ino).unwrap();
    assert!(volume.getattr(attr.ino).is_err());
    let temp = volume.tmpfile(&root, ROOT_INO, 0o600).unwrap();
    volume.write(&root, temp.ino, 0, b"hello").unwrap();
    volume.link(&root, temp.ino, ROOT_INO, b"named").unwrap();
    volume.release(temp.ino).unwrap();
    let left = volume.tmpfile(&root, ROOT_INO, 0o600).unwrap();
    volume.open_file(&root, left.ino, Access::READ).unwrap();
    close(&volume);
    drop(volume);
    // The open file is an orphan, which the next open of the volume frees.
    let volume = image.open();
    assert!(volume.getattr(left.ino).is_err());
    assert_eq!(volume.resolve(&root, b"/named", true).unwrap().size, 5);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}
