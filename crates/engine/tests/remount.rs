//! `Inodes::make_read_only` and `make_writable`: while a volume is read-only its image is clean and
//! is not written; operations succeed durably or are refused; a crash afterwards is recovered.

mod common;

use common::direct::{BLOCK, file, stale};
use common::{Image, KINDS, VolumeFs};
use nextent::inodes::{Access, FallocateMode, Inodes, OpenFile, ROOT_INO, Wait};
use nextent::{Cred, Error, ErrorPolicy, OpenOptions};
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, ReadOnly, Rule};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{Incompat, RoCompat, Superblock};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{PosixFs, e2fs, need};

/// Kinds of images beside [`KINDS`].
const MORE: &[(&str, &[&str])] = &[
    ("fast", &["-t", "ext4", "-O", "fast_commit"]),
    ("orphan_file", &["-t", "ext4", "-O", "orphan_file"]),
];

fn kinds() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    KINDS.iter().chain(MORE)
}

fn opened(device: &Arc<MemoryDevice>, options: &OpenOptions) -> Inodes {
    Inodes::open(device.clone(), options).unwrap()
}

fn superblock(bytes: &[u8]) -> Superblock {
    let at = SUPER_OFFSET as usize;
    Superblock::read(bytes[at..at + SUPER_SIZE].try_into().unwrap()).unwrap()
}

/// Checks that the image on `device` is clean as it is now, and that its superblock says so.
#[track_caller]
fn assert_clean(device: &MemoryDevice, image: &Image, what: &str) {
    let copy = device.snapshot();
    let sb = superblock(&copy.to_bytes());
    assert!(!sb.features().has(Incompat::RECOVER), "{what}: needs_recovery is set");
    assert!(!sb.features().has(RoCompat::ORPHAN_PRESENT), "{what}: orphan_present is set");
    assert_eq!(sb.state.get() & 3, 1, "{what}: not marked clean");
    copy.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
    let shown = need!(e2fs::dumpe2fs(&image.path(), true));
    assert!(!shown.contains("needs_recovery"), "{what}:\n{shown}");
    assert!(shown.contains("Filesystem state:         clean\n"), "{what}:\n{shown}");
}

/// Checks an image as a crash leaves it now: e2fsck recovers it, and `names` are there.
#[track_caller]
fn assert_recovers(device: &MemoryDevice, image: &Image, names: &[&str], what: &str) {
    let crashed = device.snapshot();
    crashed.save(&image.path()).unwrap();
    let report = need!(e2fs::e2fsck_recover(&image.path()));
    assert!(report.code < 4, "{what}:\n{}", report.text);
    e2fs::assert_clean(&image.path());
    let volume = opened(&Arc::new(crashed), &OpenOptions::new());
    for name in names {
        let found = VolumeFs(&volume).read(name, 0, 4);
        assert_eq!(found.as_deref(), Ok(&b"data"[..]), "{what}: {name}");
    }
    volume.close().unwrap();
}

fn write(volume: &Inodes, name: &str) {
    let fs = VolumeFs(volume);
    fs.create(name, 0o644).unwrap();
    fs.write(name, 0, b"data").unwrap();
}

/// Checks that all changes are refused, and reads and syncs are not.
#[track_caller]
fn assert_refuses(volume: &Inodes, name: &str) {
    let fs = VolumeFs(volume);
    assert!(volume.is_read_only());
    assert_eq!(fs.create("/refused", 0o644), Err(libc::EROFS));
    assert_eq!(fs.write(name, 0, b"else"), Err(libc::EROFS));
    assert_eq!(fs.truncate(name, 0), Err(libc::EROFS));
    assert_eq!(fs.unlink(name), Err(libc::EROFS));
    assert_eq!(fs.chmod(name, 0o600), Err(libc::EROFS));
    assert!(matches!(volume.trim(0..u64::MAX, 0), Err(Error::ReadOnly)));
    assert!(matches!(volume.set_label(b"label"), Err(Error::ReadOnly)));
    assert_eq!(fs.read(name, 0, 4).unwrap(), b"data");
    assert_eq!(fs.fsync(name), Ok(()));
    volume.sync().unwrap();
}

#[test]
fn a_volume_becomes_read_only_and_writable_again() {
    for (kind, args) in kinds() {
        let image = need!(Image::make(48 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened(&device, &OpenOptions::new());
        let journaled = superblock(&device.to_bytes()).features().has(Incompat::RECOVER);
        write(&volume, "/first");
        for round in 0..3 {
            let what = format!("{kind}, round {round}");
            volume.make_read_only().unwrap();
            volume.make_read_only().unwrap();
            assert_clean(&device, &image, &what);
            let before = device.to_bytes();
            assert_refuses(&volume, "/first");
            assert!(before == device.to_bytes(), "{what}: a read-only volume was written");
            volume.make_writable().unwrap();
            volume.make_writable().unwrap();
            assert!(!volume.is_read_only());
            let sb = superblock(&device.to_bytes());
            assert_eq!(sb.features().has(Incompat::RECOVER), journaled, "{what}");
            assert_eq!(sb.state.get() & 1 == 0, !journaled, "{what}");
            let name = format!("/after{round}");
            write(&volume, &name);
            volume.sync().unwrap();
            if journaled {
                assert_recovers(&device, &image, &["/first", &name], &what);
            }
        }
        assert_eq!(volume.credit_overruns(), 0);
        volume.make_read_only().unwrap();
        volume.close().unwrap();
        assert!(matches!(volume.make_writable(), Err(Error::ReadOnly)));
        assert_clean(&device, &image, kind);
        drop(volume);
        let again = opened(&device, &OpenOptions::new());
        assert_eq!(again.recovery().transactions, 0, "{kind}");
        assert_eq!(VolumeFs(&again).read("/after2", 0, 4).unwrap(), b"data");
        again.close().unwrap();
    }
}

#[test]
fn a_volume_opened_for_reading_becomes_writable() {
    for (kind, args) in kinds() {
        let image = need!(Image::make(48 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened(&device, &OpenOptions::new());
        write(&volume, "/first");
        volume.close().unwrap();
        drop(volume);
        let before = device.to_bytes();
        let volume = opened(&device, &OpenOptions::new().read_only(true));
        assert_refuses(&volume, "/first");
        assert_eq!(volume.read_only_reason(), Some("opened for reading only"));
        volume.make_read_only().unwrap();
        assert!(before == device.to_bytes(), "{kind}: a read-only volume was written");
        volume.make_writable().unwrap();
        assert_eq!(volume.read_only_reason(), None);
        write(&volume, "/second");
        VolumeFs(&volume).truncate("/first", 1).unwrap();
        VolumeFs(&volume).unlink("/first").unwrap();
        volume.sync().unwrap();
        if volume.journal_statistics().log_blocks > 0 {
            assert_recovers(&device, &image, &["/second"], kind);
        }
        volume.make_read_only().unwrap();
        assert_clean(&device, &image, kind);
        volume.make_writable().unwrap();
        write(&volume, "/third");
        common::close(&volume);
        assert_clean(&device, &image, kind);
    }
}

/// Ends the threads of a test when it is dropped, also by a panic.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the threads go on.
fn goes_on(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

/// Creates and syncs files; returns the names of those that were created.
fn make_and_sync(fs: &VolumeFs<'_>, stop: &AtomicBool) -> Vec<String> {
    let mut made = Vec::new();
    for n in (0..2000).take_while(|_| goes_on(stop)) {
        let name = format!("/made{n}");
        match fs.create(&name, 0o644) {
            Ok(()) => {
                fs.fsync(&name).unwrap();
                made.push(name);
            }
            Err(error) => assert_eq!(error, libc::EROFS, "{name}"),
        }
    }
    made
}

/// Overwrites `/over`; returns the bytes that it has then.
fn overwrite(fs: &VolumeFs<'_>, stop: &AtomicBool) -> Vec<u8> {
    let mut last = b"data".to_vec();
    for n in (0..u32::MAX).take_while(|_| goes_on(stop)) {
        let bytes = n.to_le_bytes();
        match fs.write("/over", 0, &bytes) {
            Ok(()) => last = bytes.to_vec(),
            // The data may be on the device, but not the times.
            Err(error) => {
                assert_eq!(error, libc::EROFS);
                last = fs.read("/over", 0, 4).unwrap();
            }
        }
    }
    last
}

/// Writes block after block; returns the numbers of those that were written.
fn write_blocks(file: &OpenFile<'_>, stop: &AtomicBool) -> Vec<u64> {
    let mut blocks = Vec::new();
    for n in (0..1024).take_while(|_| goes_on(stop)) {
        match file.write_direct(n * BLOCK, &[7; BLOCK as usize], Wait::Allowed) {
            Ok(_) => blocks.push(n),
            Err(Error::ReadOnly) => {}
            Err(error) => panic!("block {n}: {error}"),
        }
    }
    blocks
}

fn trim(volume: &Inodes, stop: &AtomicBool) {
    while goes_on(stop) {
        match volume.trim(0..u64::MAX, 0) {
            Ok(_) | Err(Error::ReadOnly) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Threads create and sync, overwrite, write directly into unwritten blocks, and trim, until each
/// has succeeded often enough. Meanwhile the volume becomes read-only and writable again.
fn changes_beside_remounts(kind: &[&str], rounds: u64) {
    let (image, device) = need!(stale(48 << 20, kind));
    let volume = opened(&device, &OpenOptions::new().discard(true));
    let fs = VolumeFs(&volume);
    let stop = AtomicBool::new(false);
    write(&volume, "/over");
    let direct = file(&volume, b"direct");
    direct.fallocate(FallocateMode::Allocate, 0, 1024 * BLOCK).unwrap();
    let (made, last, blocks) = thread::scope(|scope| {
        let maker = scope.spawn(|| make_and_sync(&fs, &stop));
        let overwriter = scope.spawn(|| overwrite(&fs, &stop));
        let writer = scope.spawn(|| write_blocks(&direct, &stop));
        let trimmer = scope.spawn(|| trim(&volume, &stop));
        let stopping = Stop(&stop);
        for round in 0..rounds {
            thread::sleep(Duration::from_micros(200 + round % 20 * 97));
            volume.make_read_only().unwrap();
            let before = device.to_bytes();
            if round < 2 {
                assert_clean(&device, &image, &format!("round {round}"));
            }
            thread::sleep(Duration::from_micros(300));
            assert!(before == device.to_bytes(), "round {round}: written while read-only");
            volume.make_writable().unwrap();
        }
        drop(stopping);
        trimmer.join().unwrap();
        (maker.join().unwrap(), overwriter.join().unwrap(), writer.join().unwrap())
    });
    assert_eq!(volume.credit_overruns(), 0);
    volume.make_read_only().unwrap();
    drop(direct);
    drop(volume);
    assert_clean(&device, &image, "at the end");
    let again = opened(&device, &OpenOptions::new());
    let fs = VolumeFs(&again);
    for name in made {
        assert!(fs.read(&name, 0, 1).is_ok(), "{name} is lost");
    }
    assert_eq!(fs.read("/over", 0, 4).unwrap(), last);
    for n in blocks {
        let bytes = fs.read("/direct", n * BLOCK, BLOCK as usize).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7), "block {n} is lost");
    }
    again.close().unwrap();
}

#[test]
fn changes_beside_remounts_are_kept_or_refused() {
    changes_beside_remounts(KINDS[0].1, 40);
}

#[test]
fn changes_beside_remounts_with_an_orphan_file_and_fast_commits() {
    changes_beside_remounts(&["-t", "ext4", "-O", "orphan_file,fast_commit"], 30);
}

#[test]
fn changes_beside_remounts_without_a_journal() {
    changes_beside_remounts(&["-t", "ext4", "-O", "^has_journal"], 30);
}

#[test]
fn a_volume_with_a_deleted_open_file_stays_writable() {
    for (kind, args) in MORE {
        let image = need!(Image::make(48 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened(&device, &OpenOptions::new());
        write(&volume, "/gone");
        let ino = volume.resolve(&Cred::root(), b"/gone", false).unwrap().ino;
        volume.open_file(&Cred::root(), ino, Access::READ).unwrap();
        VolumeFs(&volume).unlink("/gone").unwrap();
        assert!(matches!(volume.make_read_only(), Err(Error::Busy)), "{kind}");
        write(&volume, "/other");
        volume.sync().unwrap();
        assert_recovers(&device, &image, &["/other"], kind);
        volume.release(ino).unwrap();
        volume.make_read_only().unwrap();
        assert_clean(&device, &image, kind);
    }
}

/// Creates, opens, removes and releases files.
fn make_and_remove(volume: &Inodes, stop: &AtomicBool) {
    let (fs, root) = (VolumeFs(volume), Cred::root());
    for n in (0..u32::MAX).take_while(|_| goes_on(stop)) {
        let name = format!("/removed{}", n % 8);
        if fs.create(&name, 0o644).is_ok() {
            let _ = fs.write(&name, 0, b"data");
        }
        let Ok(found) = volume.resolve(&root, name.as_bytes(), false) else { continue };
        volume.open_file(&root, found.ino, Access::READ).unwrap();
        let _ = fs.unlink(&name);
        let released = volume.release(found.ino);
        assert!(matches!(released, Ok(()) | Err(Error::ReadOnly)), "{released:?}");
    }
}

/// Truncates a file of many extents again and again, which takes several transactions.
fn fill_and_truncate(volume: &Inodes, stop: &AtomicBool) {
    let fs = VolumeFs(volume);
    while goes_on(stop) {
        for at in 0..1500 {
            let _ = fs.write("/long", at * 2 * 1024, b"data");
        }
        let done = fs.truncate("/long", 1);
        assert!(matches!(done, Ok(()) | Err(libc::EROFS)), "{done:?}");
    }
}

/// Makes the volume read-only, once no file without a name is open.
#[track_caller]
fn make_read_only_at_last(volume: &Inodes) {
    let begun = nextent_sync::now();
    while let Err(error) = volume.make_read_only() {
        assert!(matches!(error, Error::Busy), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "still busy");
    }
}

/// Deletions and truncations that a change to read-only interrupts are completed, and keep the
/// volume from becoming read-only no longer than they take.
#[test]
fn interrupted_deletions_and_truncations_are_completed() {
    for (kind, args) in MORE {
        let args = [*args, &["-b", "1024", "-J", "size=1"]].concat();
        let image = need!(Image::make(48 << 20, &args));
        let memory = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(FaultDevice::new(memory, 1));
        let slow = Fault::Delay(Duration::from_millis(2));
        device.add(Rule::on(OpKind::Flush, slow));
        let volume = Inodes::open(device.clone(), &OpenOptions::new()).unwrap();
        write(&volume, "/long");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let threads = [
                scope.spawn(|| make_and_remove(&volume, &stop)),
                scope.spawn(|| fill_and_truncate(&volume, &stop)),
            ];
            let stopping = Stop(&stop);
            for round in 0..60 {
                thread::sleep(Duration::from_micros(200 + round % 20 * 301));
                make_read_only_at_last(&volume);
                volume.make_writable().unwrap();
            }
            drop(stopping);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        volume.make_read_only().unwrap();
        assert_clean(device.inner(), &image, kind);
    }
}

#[track_caller]
fn assert_stays(volume: &Inodes, part: &str) {
    let error = volume.make_writable().unwrap_err();
    assert!(matches!(error, Error::StaysReadOnly(_)), "{error}");
    assert_eq!(error.errno(), libc::EROFS);
    assert!(error.to_string().contains(part), "{error}");
    assert!(volume.is_read_only());
}

#[test]
fn volumes_that_stay_read_only_name_the_reason() {
    let image = need!(Image::make(48 << 20, &["-t", "ext4", "-b", "1024"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let reading = || OpenOptions::new().read_only(true);
    let fixed = Inodes::open(Arc::new(ReadOnly::new(device.snapshot())), &OpenOptions::new());
    assert_stays(&fixed.unwrap(), "the device is read-only");
    assert_stays(&opened(&device, &reading().superblock(8193)), "backup of the superblock");

    let volume = opened(&device, &OpenOptions::new());
    write(&volume, "/file");
    volume.sync().unwrap();
    let crashed = Arc::new(device.snapshot());
    volume.close().unwrap();
    assert_stays(&opened(&crashed, &reading()), "replayed in memory");
    assert_stays(&opened(&crashed, &reading().no_recovery(true)), "was not replayed");

    let image = need!(Image::make(48 << 20, &["-t", "ext4", "-O", "casefold"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    assert_stays(&opened(&device, &OpenOptions::new()), "casefold can only be read");
    e2fs::assert_clean(&image.path());
}

/// Another program used the image while this volume had it open for reading.
#[test]
fn a_volume_that_another_program_has_changed_stays_read_only() {
    for (kind, args) in kinds() {
        let image = need!(Image::make(48 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let reader = opened(&device, &OpenOptions::new().read_only(true));
        let other = opened(&device, &OpenOptions::new());
        write(&other, "/file");
        other.close().unwrap();
        assert_stays(&reader, "another program has changed it");
        assert_clean(&device, &image, kind);
    }
}

/// The last close left an orphan, which Linux and this crate free at the next mount only.
#[test]
fn a_volume_with_orphans_stays_read_only() {
    for (_, args) in MORE {
        let image = need!(Image::make(48 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened(&device, &OpenOptions::new());
        write(&volume, "/gone");
        let ino = volume.resolve(&Cred::root(), b"/gone", false).unwrap().ino;
        volume.open_file(&Cred::root(), ino, Access::READ).unwrap();
        VolumeFs(&volume).unlink("/gone").unwrap();
        volume.close().unwrap();
        let again = opened(&device, &OpenOptions::new().read_only(true));
        assert_stays(&again, "not finished deleting");
        drop(again);
        let again = opened(&device, &OpenOptions::new());
        assert_eq!(again.recovery().orphans, 1);
        again.make_read_only().unwrap();
        assert_clean(&device, &image, "after the orphan was freed");
    }
}

#[test]
fn a_damaged_volume_stays_read_only() {
    let image = need!(Image::make(48 << 20, KINDS[0].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened(&device, &OpenOptions::new());
    volume.mkdir(&Cred::root(), ROOT_INO, b"dir", 0o755).unwrap();
    let ino = volume.resolve(&Cred::root(), b"/dir", false).unwrap().ino;
    let at = volume.fiemap(ino, 0, u64::MAX, 1).unwrap()[0].physical;
    volume.close().unwrap();
    drop(volume);
    nextent_device::BlockDevice::write_at(&*device, at, &[0xff; 64]).unwrap();
    let options = OpenOptions::new().errors(ErrorPolicy::Continue);
    let volume = opened(&device, &options);
    volume.set_error_policy(ErrorPolicy::ReadOnly);
    // An orphan, which stays one.
    write(&volume, "/gone");
    let gone = volume.resolve(&Cred::root(), b"/gone", false).unwrap().ino;
    volume.open_file(&Cred::root(), gone, Access::READ).unwrap();
    VolumeFs(&volume).unlink("/gone").unwrap();
    assert!(VolumeFs(&volume).create("/dir/file", 0o644).is_err());
    assert_stays(&volume, "damage was found");
    volume.make_read_only().unwrap();
    let sb = superblock(&device.to_bytes());
    assert!(!sb.features().has(Incompat::RECOVER), "the journal is not empty");
    assert_eq!(sb.state.get() & 2, 2, "the damage is not noted");
    assert_stays(&volume, "damage was found");
}

/// A device that fails while the volume becomes writable leaves it read-only and its image clean.
#[test]
fn a_failed_change_to_writable_leaves_a_clean_image() {
    let image = need!(Image::make(48 << 20, KINDS[0].1));
    for (kind, after) in [(OpKind::Write, 0), (OpKind::Flush, 0), (OpKind::Write, 1)] {
        let memory = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(FaultDevice::new(memory, 1));
        let volume = Inodes::open(device.clone(), &OpenOptions::new()).unwrap();
        write(&volume, "/file");
        volume.make_read_only().unwrap();
        device.add(Rule::on(kind, Fault::Error(libc::EIO)).after(after).times(1));
        assert!(matches!(volume.make_writable(), Err(Error::Io(_))), "{kind:?} {after}");
        assert_eq!(device.struck(), 1);
        assert!(volume.is_read_only());
        device.clear();
        let saved = need!(Image::make(1 << 20, &[]));
        device.inner().save(&saved.path()).unwrap();
        e2fs::assert_clean(&saved.path());
        volume.make_writable().unwrap();
        write(&volume, "/more");
        common::close(&volume);
        assert_clean(device.inner(), &saved, "after the device works again");
    }
}
