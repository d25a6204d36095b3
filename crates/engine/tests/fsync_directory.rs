//! `fsync` and `fdatasync` of a directory make all earlier changes of its names durable. That also
//! holds for a directory that was evicted from memory and did not change since.

mod common;

use common::{Image, VolumeFs, VolumeTree, checkpoint_all};
use nextent::inodes::{Inodes, Shrink};
use nextent::{Cred, OpenOptions};
use nextent_device::{MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Duration};
use nextent_testkit::tree::{Compare, assert_same, walk};
use nextent_testkit::{PosixFs, RenameFlags, XattrFlags, e2fs, need};

type Case = (&'static str, &'static str, fn(&VolumeFs<'_>));

/// A change, and the directory that is synced.
const CASES: [Case; 13] = [
    ("create", "/d", |fs| fs.create("/d/new", 0o644).unwrap()),
    ("unlink", "/d", |fs| fs.unlink("/d/f").unwrap()),
    ("rename", "/d", |fs| fs.rename("/d/f", "/d/g", RenameFlags::Replace).unwrap()),
    ("rename out, from", "/d", |fs| fs.rename("/d/f", "/e/f", RenameFlags::Replace).unwrap()),
    ("rename out, to", "/e", |fs| fs.rename("/d/f", "/e/f", RenameFlags::Replace).unwrap()),
    ("replace", "/d", |fs| fs.rename("/d/f", "/d/twin", RenameFlags::Replace).unwrap()),
    ("exchange", "/e", |fs| fs.rename("/d/f", "/e/x", RenameFlags::Exchange).unwrap()),
    ("link", "/d", |fs| fs.link("/e/x", "/d/link").unwrap()),
    ("mkdir", "/d", |fs| fs.mkdir("/d/sub", 0o755).unwrap()),
    ("rmdir", "/d", |fs| fs.rmdir("/d/empty").unwrap()),
    ("directory moved", "/e", |fs| fs.rename("/d/empty", "/e/y", RenameFlags::Replace).unwrap()),
    ("itself moved", "/e/y", |fs| fs.rename("/d/empty", "/e/y", RenameFlags::Replace).unwrap()),
    ("attribute", "/d", |fs| fs.set_xattr("/d", "user.a", &[7; 900], XattrFlags::Any).unwrap()),
];

const HOW: Compare =
    Compare { times: true, root: false, owners: true, dir_sizes: true, xattrs: true, holes: true };

fn prepare(fs: &VolumeFs<'_>) {
    for dir in ["/d", "/e", "/d/empty"] {
        fs.mkdir(dir, 0o755).unwrap();
    }
    for file in ["/d/f", "/d/twin", "/e/x", "/other"] {
        fs.create(file, 0o644).unwrap();
        fs.write(file, 0, &[1; 5000]).unwrap();
    }
}

#[test]
fn earlier_changes_of_names_are_durable() {
    for features in ["none", "fast_commit"] {
        let kind = ["-t", "ext4", "-O", features];
        let args = if features == "none" { &kind[..2] } else { &kind[..] };
        let image = need!(Image::make(32 << 20, args));
        for data_only in [false, true] {
            for (what, dir, change) in CASES {
                let base = MemoryDevice::load(&image.path()).unwrap();
                let device = Arc::new(RecordingDevice::new(base));
                let options = OpenOptions::new().commit_interval(Duration::from_secs(3600));
                let volume = Inodes::open(device.clone(), &options).unwrap();
                let fs = VolumeFs(&volume);
                prepare(&fs);
                checkpoint_all(&volume);
                change(&fs);
                // A change of another file, which a fast commit may have.
                fs.write("/other", 5000, &[2; 5000]).unwrap();
                fs.fsync("/other").unwrap();
                volume.shrink_caches(Shrink::All);
                let ino = volume.resolve(&Cred::root(), dir.as_bytes(), false).unwrap().ino;
                match data_only {
                    true => volume.fdatasync(ino).unwrap(),
                    false => volume.fsync(ino).unwrap(),
                }
                let wanted = walk(&VolumeTree(&volume)).unwrap();
                let recording = device.recording();
                let cut = recording.image_at(recording.stable_at(recording.events().len()));
                let cut = Arc::new(cut);
                let again = Inodes::open(cut.clone(), &OpenOptions::default()).unwrap();
                eprintln!("{features}, {what}, data only: {data_only}");
                assert_same(&wanted, &walk(&VolumeTree(&again)).unwrap(), &HOW);
                again.close().unwrap();
                let dir = tempfile::tempdir().unwrap();
                cut.save(&dir.path().join("image")).unwrap();
                e2fs::assert_clean(&dir.path().join("image"));
            }
        }
    }
}
