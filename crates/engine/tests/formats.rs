//! Volumes of other systems, of the first revision and with old features. After changes by the
//! engine, e2fsck and Linux accept the volume, and the engine's check finds no problem.

mod common;

use common::{Image, VolumeFs, VolumeTree, close, open_file};
use nextent::check::{CheckOptions, check};
use nextent::inodes::{ROOT_INO, SetAttr, XattrMode};
use nextent::{Cred, OpenOptions};
use nextent_device::FileOptions;
use nextent_sync::Arc;
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{
    Access, KernelMount, ModelFs, Op, PosixFs, Skip, e2fs, need, same_result, sample_ops,
};

/// A name, the arguments of mke2fs, and debugfs commands that run afterwards.
type Format = (&'static str, &'static [&'static str], &'static [&'static str]);

const FORMATS: &[Format] = &[
    ("hurd ext2", &["-t", "ext2", "-o", "hurd", "-b", "1024"], &[]),
    ("hurd ext3", &["-t", "ext3", "-o", "hurd"], &[]),
    ("hurd extents", &["-t", "ext3", "-o", "hurd", "-O", "extent,flex_bg"], &[]),
    ("freebsd ext2", &["-t", "ext2", "-o", "freebsd"], &[]),
    ("freebsd ext4", &["-t", "ext4", "-o", "freebsd", "-O", "metadata_csum"], &[]),
    ("lites", &["-t", "ext3", "-o", "lites"], &[]),
    ("masix", &["-t", "ext2"], &["ssv creator_os 2"]),
    ("revision 0", &["-t", "ext2", "-r", "0", "-b", "1024"], &[]),
    ("revision 0, features", &["-t", "ext2", "-I", "128", "-b", "1024"], &["ssv rev_level 0"]),
    (
        "revision 0, extents",
        &["-t", "ext3", "-I", "128", "-O", "extent,uninit_bg,flex_bg"],
        &["ssv rev_level 0"],
    ),
    ("no features", &["-t", "ext2", "-O", "none"], &[]),
    ("no types", &["-t", "ext4", "-O", "^filetype"], &[]),
    ("few fields", &["-t", "ext4", "-O", "^dir_nlink,^extra_isize,^huge_file,^large_file"], &[]),
    ("inodes of 512", &["-t", "ext4", "-I", "512", "-O", "^metadata_csum,uninit_bg"], &[]),
    ("all backups", &["-t", "ext3", "-O", "^sparse_super,^resize_inode", "-b", "1024"], &[]),
    ("data in the log", &["-t", "ext3"], &["ssv default_mount_opts 0x20"]),
    ("legacy hash", &["-t", "ext3", "-b", "1024"], &["ssv def_hash_version 0"]),
    ("tea hash", &["-t", "ext4", "-b", "1024"], &["ssv def_hash_version 2"]),
];

fn made(size: u64, (_, args, changes): &Format) -> Result<Image, Skip> {
    let image = Image::make(size, args)?;
    if !changes.is_empty() {
        e2fs::debugfs(&image.path(), true, changes)?;
    }
    Ok(image)
}

#[track_caller]
fn assert_checked(image: &Image, what: &str) {
    let device = open_file(&image.path(), &FileOptions::new().read_only(true));
    let report = check(Arc::new(device), &CheckOptions::default(), &|_| ()).unwrap();
    let errors = report.problems.iter().map(|problem| format!("{problem}\n"));
    assert!(report.is_clean(), "{what}:\n{}", errors.collect::<String>());
}

#[test]
fn every_format_like_the_model() {
    let how = Compare { times: false, root: false, ..Compare::default() };
    for (seed, format) in (50..).zip(FORMATS) {
        let what = format.0;
        let image = need!(made(64 << 20, format));
        let volume = image.open();
        let extents = volume.geometry().features.has(nextent_ondisk::Incompat::EXTENTS);
        let model = ModelFs::new(u64::from(volume.geometry().block_size));
        for (at, op) in sample_ops(seed, 120).iter().enumerate() {
            let mapped = matches!(
                op,
                Op::Allocate { .. } | Op::Zero { .. } | Op::Collapse { .. } | Op::Insert { .. }
            );
            if mapped && !extents {
                continue;
            }
            if let Err(difference) = same_result(op, &model, &VolumeFs(&volume)) {
                panic!("{what}, call {at}, model | volume: {difference}");
            }
        }
        let tree = walk(&model).unwrap();
        assert_same(&tree, &walk(&VolumeTree(&volume)).unwrap(), &how);
        close(&volume);
        drop(volume);
        let report = need!(e2fs::e2fsck(&image.path()));
        assert!(report.is_clean(), "{what}:\n{}", report.text);
        assert_checked(&image, what);
        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        assert_same(&tree, &walk(&HostDir::new(mount.path())).unwrap(), &how);
        mount.unmount();
    }
}

/// The engine accepts and removes files that the kernel made on these volumes.
#[test]
fn files_of_linux_are_removed() {
    for format in FORMATS {
        let what = format.0;
        // Linux writes no inode checksums there, which e2fsck reports as damage.
        if what == "freebsd ext4" {
            continue;
        }
        let image = need!(made(32 << 20, format));
        let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
        for n in 0..200 {
            std::fs::create_dir_all(mount.path().join(format!("d{}", n % 7))).unwrap();
            let file = mount.path().join(format!("d{}/a-longer-name-of-a-file-{n}", n % 7));
            std::fs::write(file, vec![7; n * 100]).unwrap();
        }
        mount.unmount();
        assert_checked(&image, what);
        let volume = image.open();
        let fs = VolumeFs(&volume);
        for n in 0..200 {
            let file = format!("/d{}/a-longer-name-of-a-file-{n}", n % 7);
            match n % 4 {
                0 => fs.unlink(&file).unwrap(),
                1 => fs.truncate(&file, 50).unwrap(),
                2 => fs.chown(&file, 70_000, 80_000).unwrap(),
                _ => fs.write(&file, 30_000, &[1; 3000]).unwrap(),
            }
        }
        close(&volume);
        drop(volume);
        let report = need!(e2fs::e2fsck(&image.path()));
        assert!(report.is_clean(), "{what}:\n{}", report.text);
        assert_checked(&image, what);
        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        let stat = std::fs::metadata(mount.path().join("d2/a-longer-name-of-a-file-2")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&stat), 70_000, "{what}");
        mount.unmount();
    }
}

/// Makes a file with a translator, on a volume of the Hurd.
fn with_translator(image: &Image) -> Result<(), Skip> {
    let path = image.path();
    let text = image.path().with_file_name("text");
    std::fs::write(&text, [b'x'; 3000]).unwrap();
    let write = format!("write {} file", text.display());
    e2fs::debugfs(&path, true, &[&write, "setb 900", "sif file version 900"])?;
    // Repair the counts of free blocks.
    let report = e2fs::run("e2fsck", ["-fy", path.to_str().unwrap()])?;
    assert!(report.status.code().is_some_and(|code| code <= 1));
    e2fs::assert_clean(&path);
    Ok(())
}

#[test]
fn a_translator_is_kept_and_freed_with_its_file() {
    let image = need!(Image::make(16 << 20, &["-t", "ext2", "-o", "hurd", "-b", "1024"]));
    need!(with_translator(&image));
    assert_checked(&image, "with a translator");
    let translator = || need_text(e2fs::debugfs(&image.path(), false, &["stat file"]));
    assert!(translator().contains("Translator: 900"), "{}", translator());
    let root = Cred::root();
    let volume = image.open();
    let ino = volume.lookup(&root, ROOT_INO, b"file").unwrap().ino;
    volume.setattr(&root, ino, &SetAttr { mode: Some(0o4711), ..SetAttr::default() }).unwrap();
    volume.write(&root, ino, 2000, &[2; 9000]).unwrap();
    volume.setxattr(&root, ino, b"user.long", &[3; 500], XattrMode::Either).unwrap();
    volume.setattr(&root, ino, &SetAttr { size: Some(10), ..SetAttr::default() }).unwrap();
    close(&volume);
    drop(volume);
    assert!(translator().contains("Translator: 900"), "{}", translator());
    e2fs::assert_clean(&image.path());
    assert_checked(&image, "changed");
    let volume = image.open();
    volume.unlink(&root, ROOT_INO, b"file").unwrap();
    let made = volume.mkdir(&root, ROOT_INO, b"file", 0o755).unwrap();
    assert_eq!(made.version, 0);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
    assert_checked(&image, "removed");
}

#[test]
fn a_translator_on_metadata_is_damage() {
    for (block, what) in [("2", "metadata"), ("99999999", "outside")] {
        let image = need!(Image::make(16 << 20, &["-t", "ext2", "-o", "hurd", "-b", "1024"]));
        need!(with_translator(&image));
        need!(e2fs::debugfs(&image.path(), true, &[&format!("sif file version {block}")]));
        assert!(!need!(e2fs::e2fsck(&image.path())).is_clean(), "{what}");
        let device = open_file(&image.path(), &FileOptions::new().read_only(true));
        let report = check(Arc::new(device), &CheckOptions::default(), &|_| ()).unwrap();
        assert!(!report.is_clean(), "{what}");
        let volume = image.open();
        let root = Cred::root();
        let gone = volume.unlink(&root, ROOT_INO, b"file");
        // The unlink fails, or removes the name and leaves an orphan that cannot be freed.
        drop(gone);
        drop(volume);
        let report = need!(e2fs::e2fsck_recover(&image.path()));
        assert!(report.code < 4, "{what}:\n{}", report.text);
    }
}

fn need_text(text: Result<String, Skip>) -> String {
    text.unwrap_or_default()
}

/// Linux refuses to mount such volumes; the engine opens them read-only.
#[test]
fn features_without_fields_on_the_hurd_are_read_only() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4", "-o", "hurd", "-b", "1024"]));
    let volume = image.open();
    let reason = "feature 64bit can only be read on a volume of the Hurd";
    assert_eq!(volume.read_only_reason(), Some(reason));
    assert!(volume.mkdir(&Cred::root(), ROOT_INO, b"dir", 0o755).is_err());
    drop(volume);
    e2fs::assert_clean(&image.path());
    let refused = need!(KernelMount::try_new(&image.path(), Access::ReadOnly, ""));
    assert!(refused.is_err(), "Linux mounts it");
}

#[test]
fn files_of_the_first_revision_grow_past_2_gib() {
    let image = need!(Image::make(64 << 20, &["-t", "ext2", "-b", "4096", "-r", "0"]));
    let volume = image.open();
    let fs = VolumeFs(&volume);
    fs.create("/file", 0o644).unwrap();
    fs.set_xattr("/file", "user.a", b"b", nextent_testkit::XattrFlags::Any).unwrap();
    fs.write("/file", (3 << 30) - 5, b"the end").unwrap();
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
    let text = need!(e2fs::dumpe2fs(&image.path(), true));
    assert!(text.contains("large_file") && text.contains("1 (dynamic)"), "{text}");
    let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
    let bytes = std::fs::metadata(mount.path().join("file")).unwrap().len();
    assert_eq!(bytes, (3 << 30) + 2);
    mount.unmount();
    let volume = common::open(&image.path(), &OpenOptions::default()).unwrap();
    assert_eq!(VolumeFs(&volume).read("/file", (3 << 30) - 5, 10).unwrap(), b"the end");
    close(&volume);
}
