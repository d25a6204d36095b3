//! Directories that ignore case, which can only be read.

mod common;

use common::{Image, VolumeFs, VolumeTree, close};
use nextent::{Cred, Error, OpenOptions};
use nextent_testkit::tree::walk;
use nextent_testkit::{PosixFs, e2fs, need};

/// Entries of the directory: many enough for an index.
const ENTRIES: usize = 700;

/// An image whose directory `/dir` ignores case. Its names have capitals, and its index has their
/// folded hashes. Without checksums, so that bytes can be changed.
fn image() -> Result<Image, nextent_testkit::Skip> {
    let image = Image::make(16 << 20, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"])?;
    let volume = image.open();
    let fs = VolumeFs(&volume);
    fs.mkdir("/dir", 0o755).unwrap();
    for n in 0..ENTRIES {
        fs.create(&format!("/dir/letters-that-fold-{n}"), 0o644).unwrap();
    }
    close(&volume);
    drop(volume);
    let mut bytes = std::fs::read(image.path()).unwrap();
    let (small, large) = (b"letters-that-fold-", b"LETTERS-THAT-FOLD-");
    let mut at = 0;
    while let Some(next) = bytes[at..].windows(small.len()).position(|part| part == small) {
        bytes[at + next..][..large.len()].copy_from_slice(large);
        at += next;
    }
    std::fs::write(image.path(), bytes).unwrap();
    let set = ["feature casefold", "ssv encoding 1", "sif /dir flags 0x40081000"];
    e2fs::debugfs(&image.path(), true, &set)?;
    e2fs::assert_clean(&image.path());
    Ok(image)
}

#[test]
fn names_of_a_directory_that_ignores_case_are_found_exactly() {
    let image = need!(image());
    let before = std::fs::read(image.path()).unwrap();
    let volume = image.open();
    let why = volume.read_only_reason().unwrap();
    assert!(why.contains("casefold") && why.contains("exactly"), "{why}");
    let tree = walk(&VolumeTree(&volume)).unwrap();
    assert_eq!(tree.entries.len(), ENTRIES + 2, "the root and the directory");
    for entry in &tree.entries {
        let found = volume.resolve(&Cred::root(), &entry.path, false).unwrap();
        assert_eq!(u64::from(found.ino.0), entry.stat.ino);
    }
    let folded = volume.resolve(&Cred::root(), b"/dir/letters-that-fold-1", false);
    assert!(matches!(folded, Err(Error::NotFound)), "{folded:?}");
    assert_eq!(VolumeFs(&volume).create("/dir/new", 0o644), Err(libc::EROFS));
    close(&volume);
    drop(volume);
    let volume = common::open(&image.path(), &OpenOptions::new().read_only(true)).unwrap();
    assert!(volume.is_read_only());
    close(&volume);
    assert!(before == std::fs::read(image.path()).unwrap(), "the image is unchanged");
    e2fs::assert_clean(&image.path());
}
