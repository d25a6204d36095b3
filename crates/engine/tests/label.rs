//! Changing the label and other fields while the volume is open: in all copies of the superblock.

mod common;
#[path = "label/uuid.rs"]
mod uuid;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use common::{Image, KINDS, VolumeFs, close};
use nextent::inodes::Inodes;
use nextent::{Error, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice, RecordingDevice};
use nextent_ondisk::superblock::SUPER_SIZE;
use nextent_ondisk::{Compat, RoCompat, Superblock};
use nextent_sync::{Arc, thread};
use nextent_testkit::{Access, Explorer, KernelMount, PosixFs, Skip, e2fs, need};

/// `FS_IOC_GETFSLABEL` and `FS_IOC_SETFSLABEL`.
const GET: libc::c_ulong = 0x8100_9431;
const SET: libc::c_ulong = 0x4100_9432;

fn ioctl(dir: &Path, number: libc::c_ulong, label: &mut [u8; 256]) -> Result<(), Skip> {
    let file = File::open(dir).unwrap();
    // SAFETY: both calls read or write 256 bytes.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number as _, label.as_mut_ptr()) };
    if done == 0 { Ok(()) } else { Err(Skip::missing("labels in the kernel")) }
}

/// The labels in all copies of the superblock, whose checksums must be right.
fn labels(image: &Image) -> Vec<Vec<u8>> {
    let device = MemoryDevice::load(&image.path()).unwrap();
    let read = |at: u64| {
        let mut bytes = [0; SUPER_SIZE];
        device.read_at(at, &mut bytes).unwrap();
        let sb = Superblock::read(&bytes).unwrap();
        sb.verify_checksum().unwrap();
        sb
    };
    let first = read(1024);
    let geometry = first.check(device.size()).unwrap();
    let backups = geometry.groups().skip(1).filter_map(|group| geometry.super_block_of(group));
    let copies = backups.map(|block| read(block.0 << geometry.block_bits));
    std::iter::once(first.clone()).chain(copies).map(|sb| sb.label_bytes().to_vec()).collect()
}

fn set(volume: &Inodes, label: &[u8]) {
    volume.set_label(label).unwrap();
    assert_eq!(volume.label(), label);
}

#[test]
fn all_copies_have_the_label_as_with_linux() {
    for (name, args) in KINDS {
        if args.contains(&"-r") {
            continue; // Linux would give a volume of the first revision no label
        }
        let image = need!(Image::make(300 << 20, args));
        let theirs = need!(Image::make(1 << 20, &["-t", "ext2"]));
        std::fs::copy(image.path(), theirs.path()).unwrap();
        let mount = need!(KernelMount::new(&theirs.path(), Access::ReadWrite));
        let mut wide = [0; 256];
        wide[..5].copy_from_slice(b"label");
        need!(ioctl(mount.path(), SET, &mut wide));
        mount.unmount();

        let volume = image.open();
        assert_eq!(volume.label(), b"");
        set(&volume, b"sixteen bytes ok");
        set(&volume, b"label");
        VolumeFs(&volume).create("/file", 0o644).unwrap();
        close(&volume);
        drop(volume);
        let ours = labels(&image);
        assert_eq!(ours, labels(&theirs), "{name}");
        assert!(ours.len() > 1 && ours.iter().all(|label| label == b"label"), "{name}: {ours:?}");
        e2fs::assert_clean(&image.path());
        let text = need!(e2fs::dumpe2fs(&image.path(), true));
        assert!(text.contains("Filesystem volume name:   label\n"), "{text}");

        let mount = need!(KernelMount::new(&image.path(), Access::ReadOnly));
        let mut found = [1; 256];
        need!(ioctl(mount.path(), GET, &mut found));
        mount.unmount();
        assert_eq!(&found[..6], b"label\0");
    }
}

#[test]
fn a_label_outlives_a_crash_and_a_damaged_backup() {
    let image = need!(Image::make(40 << 20, &["-t", "ext4", "-b", "1024"]));
    let mut bytes = std::fs::read(image.path()).unwrap();
    let damaged = 8193 << 10;
    bytes[damaged + 0x3a] ^= 1;
    let copy = bytes[damaged..][..SUPER_SIZE].to_vec();
    std::fs::write(image.path(), bytes).unwrap();
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    set(&volume, b"kept");
    volume.sync().unwrap();
    let crashed = Arc::new(device.snapshot());
    drop(volume);
    let volume = Inodes::open(crashed.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(volume.label(), b"kept");
    close(&volume);
    crashed.save(&image.path()).unwrap();
    let mut bytes = std::fs::read(image.path()).unwrap();
    assert!(bytes[damaged..][..SUPER_SIZE] == copy, "the damaged backup is as it was");
    bytes[damaged + 0x3a] ^= 1;
    bytes[damaged + 0x78..][..4].copy_from_slice(b"kept");
    let mut sb = Superblock::read(&bytes[damaged..][..SUPER_SIZE]).unwrap();
    sb.seal();
    bytes[damaged..][..SUPER_SIZE].copy_from_slice(sb.bytes());
    std::fs::write(image.path(), bytes).unwrap();
    assert!(labels(&image).iter().all(|label| label == b"kept"));
    e2fs::assert_clean(&image.path());
}

#[test]
fn labels_of_many_threads_do_not_mix() {
    let image = need!(Image::make(40 << 20, &["-t", "ext4", "-b", "1024"]));
    let volume = image.open();
    thread::scope(|scope| {
        for name in [&b"one"[..], b"two", b"three", b"four"] {
            let volume = &volume;
            scope.spawn(move || (0..50).for_each(|_| volume.set_label(name).unwrap()));
        }
    });
    let last = volume.label();
    close(&volume);
    drop(volume);
    assert!(labels(&image).iter().all(|label| *label == last));
    e2fs::assert_clean(&image.path());
}

#[test]
fn bad_labels_are_refused() {
    let image = need!(Image::make(16 << 20, &["-t", "ext4", "-L", "before"]));
    let volume = image.open();
    for bad in [&b"seventeen bytes!!"[..], b"a\0b"] {
        let error = volume.set_label(bad).unwrap_err();
        assert!(matches!(error, Error::Invalid), "{error}");
    }
    assert_eq!(volume.label(), b"before");
    set(&volume, b"");
    close(&volume);
    assert!(matches!(volume.set_label(b"late"), Err(Error::ReadOnly)));
    drop(volume);
    e2fs::assert_clean(&image.path());
}

fn tune(sb: &mut Superblock) {
    sb.set_label_bytes(b"tuned");
    sb.set_reserved_blocks_count(7);
    let mut features = sb.features();
    features.set(RoCompat::VERITY, true);
    sb.set_features(features);
}

/// A crash leaves all fields of a change or none, in the superblock.
#[test]
fn a_change_of_several_fields_is_one_transaction() {
    let image = need!(Image::make(40 << 20, &["-t", "ext4", "-b", "1024"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    volume.change_superblock(&tune).unwrap();
    let mut crashes = vec![(device.snapshot(), None)];
    volume.sync().unwrap();
    crashes.push((device.snapshot(), Some(true)));
    drop(volume);
    for (crashed, expected) in crashes {
        let crashed = Arc::new(crashed);
        let volume = Inodes::open(crashed.clone(), &OpenOptions::default()).unwrap();
        let sb = volume.superblock();
        let fields = [
            sb.label_bytes() == b"tuned",
            sb.reserved_blocks_count() == 7,
            sb.features().has(RoCompat::VERITY),
        ];
        let first = expected.unwrap_or(fields[0]);
        assert!(fields.iter().all(|field| *field == first), "{fields:?}");
        close(&volume);
        crashed.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
    }
    assert!(labels(&image).iter().all(|label| label == b"tuned"));
}

#[test]
fn changes_of_other_structures_are_refused() {
    let image = need!(Image::make(40 << 20, &["-t", "ext4", "-b", "1024"]));
    let volume = image.open();
    let refused = |what: &str, change: &dyn Fn(&mut Superblock)| {
        let done = volume.change_superblock(change);
        assert!(matches!(done, Err(Error::NotSupported | Error::Corrupt(_))), "{what}: {done:?}");
    };
    let without = |bit: RoCompat| {
        move |sb: &mut Superblock| {
            let mut features = sb.features();
            features.set(bit, false);
            sb.set_features(features);
        }
    };
    refused("checksums", &without(RoCompat::METADATA_CSUM));
    refused("backups", &without(RoCompat::SPARSE_SUPER));
    refused("uuid", &|sb| sb.uuid[0] ^= 1);
    refused("blocks", &|sb| sb.set_blocks_count(sb.blocks_count() - 1));
    refused("inodes", &|sb| sb.inode_size.set(128));
    refused("reserve", &|sb| sb.set_reserved_blocks_count(1 << 40));
    refused("block size", &|sb| sb.log_block_size.set(60));
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

/// Repairs an image as at boot, and returns whether it then has a journal and the file.
fn repaired(device: &MemoryDevice) -> Result<bool, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    device.save(file.path()).map_err(|error| error.to_string())?;
    let path = file.path().to_str().unwrap();
    let output = e2fs::run("e2fsck", ["-f", "-y", path]).map_err(|skip| format!("{skip:?}"))?;
    // A torn superblock is the one repair that a person must order, by a backup.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() > Some(1) {
        return Err(text);
    }
    let report = e2fs::e2fsck(file.path()).map_err(|skip| format!("{skip:?}"))?;
    if !report.is_clean() {
        return Err(format!("{text}{}", report.text));
    }
    let device = Arc::new(MemoryDevice::load(file.path()).map_err(|error| error.to_string())?);
    let volume = Inodes::open(device, &OpenOptions::new()).map_err(|error| error.to_string())?;
    let kept = VolumeFs(&volume).read("/kept", 0, 4);
    let kept = kept.map_err(|error| format!("{error:?}"))?;
    let journal = volume.superblock().features().has(Compat::HAS_JOURNAL);
    close(&volume);
    if kept == b"text" { Ok(journal) } else { Err("the file is damaged".into()) }
}

/// After each crash the volume has its files, and a whole journal or none.
#[test]
fn journals_are_added_and_removed_across_crashes() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext3", "-b", "1024"]] {
        let image = need!(Image::make(16 << 20, args));
        let volume = image.open();
        VolumeFs(&volume).create("/kept", 0o644).unwrap();
        VolumeFs(&volume).write("/kept", 0, b"text").unwrap();
        close(&volume);
        drop(volume);
        let base = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(RecordingDevice::new(base));
        let shared: Arc<dyn BlockDevice> = device.clone();
        nextent::remove_journal(&shared).unwrap();
        let removed = device.events();
        assert_eq!(nextent::add_journal(&shared, None).unwrap(), 1024);
        for (cut, journal) in [(removed, false), (device.events(), true)] {
            assert_eq!(repaired(&device.image_at(cut)), Ok(journal));
        }
        assert!(matches!(nextent::add_journal(&shared, None), Err(Error::Exists)));
        let explorer = Explorer { most: 40, subsets: 1, ..Explorer::default() };
        let report =
            explorer.explore(&device.recording(), |device, _| repaired(&device).map(|_| ()));
        report.assert_none_failed();
    }
}
