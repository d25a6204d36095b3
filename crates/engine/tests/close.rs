//! `Inodes::close` while other threads run operations. The closed image is clean and has the
//! effects of all operations that succeeded. Later operations fail.

mod common;

use common::direct::{BLOCK, file, stale};
use common::{Image, KINDS, VolumeFs};
use nextent::inodes::{FallocateMode, Inodes, Wait};
use nextent::{Error, OpenOptions};
use nextent_device::{BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, Rule};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{Access, KernelMount, PosixFs, e2fs, need};

fn opened(device: &Arc<impl BlockDevice + 'static>) -> Inodes {
    Inodes::open(device.clone(), &OpenOptions::default()).unwrap()
}

/// Checks that the image is clean without a replay; e2fsck -fn does none.
fn assert_clean(device: &MemoryDevice, image: &Image) {
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Creates and syncs files until a call fails with `EROFS`. Returns the names of the created and
/// of the synced files.
fn create_and_sync(fs: &VolumeFs<'_>, thread: usize) -> (Vec<String>, Vec<String>) {
    let (mut made, mut synced) = (Vec::new(), Vec::new());
    for n in 0.. {
        let name = format!("/f{thread}-{n}");
        match fs.create(&name, 0o644) {
            Ok(()) => made.push(name.clone()),
            Err(error) => {
                assert_eq!(error, libc::EROFS, "{name}");
                break;
            }
        }
        match fs.fsync(&name) {
            Ok(()) => synced.push(name),
            Err(error) => {
                assert_eq!(error, libc::EROFS, "{name}");
                break;
            }
        }
    }
    (made, synced)
}

fn close_during_creations(kind: &[&str], rounds: u64, threads: usize, flush: Duration) {
    let image = need!(Image::make(64 << 20, kind));
    for round in 0..rounds {
        let memory = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(FaultDevice::new(memory, 1));
        if !flush.is_zero() {
            device.add(Rule::on(OpKind::Flush, Fault::Delay(flush)));
        }
        let volume = opened(&device);
        let fs = VolumeFs(&volume);
        let done = thread::scope(|scope| {
            let fs = &fs;
            let workers: Vec<_> =
                (0..threads).map(|t| scope.spawn(move || create_and_sync(fs, t))).collect();
            thread::sleep(flush * 4 + Duration::from_micros(500 + round % 50 * 37));
            volume.close().unwrap();
            assert_eq!(fs.create("/late", 0o644), Err(libc::EROFS));
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        drop(volume);
        let again = opened(&device);
        assert_eq!(again.recovery().transactions, 0, "a closed image has nothing to replay");
        for (made, synced) in done {
            for name in made.iter().chain(&synced) {
                let found = VolumeFs(&again).read(name, 0, 1);
                assert!(found.is_ok(), "round {round}: {name} is lost: {found:?}");
            }
        }
        again.close().unwrap();
        if round == 0 || round + 1 == rounds {
            let checked = Image::make(1 << 20, &[]).ok().unwrap();
            assert_clean(device.inner(), &checked);
        }
    }
}

#[test]
fn files_synced_during_a_close_are_kept() {
    close_during_creations(KINDS[0].1, 60, 3, Duration::ZERO);
}

#[test]
fn files_synced_during_a_close_are_kept_with_slow_flushes() {
    close_during_creations(KINDS[0].1, 20, 12, Duration::from_millis(3));
}

#[test]
fn files_synced_by_fast_commits_during_a_close_are_kept() {
    close_during_creations(&["-t", "ext4", "-O", "fast_commit"], 40, 3, Duration::ZERO);
}

#[test]
fn files_synced_during_a_close_are_kept_without_a_journal() {
    close_during_creations(&["-t", "ext4", "-O", "^has_journal"], 20, 3, Duration::ZERO);
}

/// The writes go to unwritten blocks, so their conversions are deferred.
#[test]
fn direct_writes_during_a_close_are_kept() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let start = device.snapshot();
    for round in 0..40 {
        let device = Arc::new(start.snapshot());
        let volume = opened(&device);
        let f = file(&volume, b"f");
        f.fallocate(FallocateMode::Allocate, 0, 512 * BLOCK).unwrap();
        let written = thread::scope(|scope| {
            let workers: Vec<_> = (0..2u64)
                .map(|t| {
                    let f = &f;
                    scope.spawn(move || {
                        let mut written = Vec::new();
                        for block in (0..256).map(|n| 2 * n + t) {
                            let bytes = [7; BLOCK as usize];
                            match f.write_direct(block * BLOCK, &bytes, Wait::Allowed) {
                                Ok(_) => written.push(block),
                                Err(Error::ReadOnly) => break,
                                Err(error) => panic!("block {block}: {error}"),
                            }
                        }
                        written
                    })
                })
                .collect();
            thread::sleep(Duration::from_micros(100 + round * 23));
            volume.close().unwrap();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        drop(f);
        drop(volume);
        let again = opened(&device);
        let mut bytes = vec![0; BLOCK as usize];
        for block in written {
            let ino = again.resolve(&nextent::Cred::root(), b"/f", false).unwrap().ino;
            again.read(ino, block * BLOCK, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7), "round {round}: block {block} is lost");
        }
        again.close().unwrap();
        assert_clean(&device, &image);
    }
}

/// In a frozen volume everything is durable and nothing can change, so sync(2) and fsync(2) need
/// not wait.
#[test]
fn a_sync_of_a_frozen_volume_returns() {
    let image = need!(Image::make(64 << 20, KINDS[0].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Arc::new(opened(&device));
    VolumeFs(&volume).create("/a", 0o644).unwrap();
    volume.freeze().unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let theirs = volume.clone();
    let syncer = thread::spawn(move || {
        send.send(theirs.sync().is_ok() && VolumeFs(&theirs).fsync("/a").is_ok()).unwrap();
    });
    let answer = receive.recv_timeout(Duration::from_secs(5));
    volume.thaw().unwrap();
    syncer.join().unwrap();
    assert_eq!(answer, Ok(true));
    VolumeFs(&volume).create("/b", 0o644).unwrap();
    volume.close().unwrap();
    assert_clean(&device, &image);
}

/// A close ends a freeze, even one that another thread starts at the same time. An operation that
/// waits for the thaw succeeds or fails.
#[test]
fn a_frozen_volume_closes() {
    let image = need!(Image::make(64 << 20, KINDS[0].1));
    for _ in 0..30 {
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened(&device);
        let fs = VolumeFs(&volume);
        fs.create("/a", 0o644).unwrap();
        volume.freeze().unwrap();
        let made = thread::scope(|scope| {
            let worker = scope.spawn(|| fs.create("/b", 0o644));
            let freezer = scope.spawn(|| volume.freeze().map(drop));
            volume.close().unwrap();
            if let Err(error) = freezer.join().unwrap() {
                assert!(matches!(error, Error::ReadOnly), "{error}");
            }
            worker.join().unwrap()
        });
        drop(volume);
        let again = opened(&device);
        assert_eq!(VolumeFs(&again).read("/b", 0, 1).is_ok(), made.is_ok(), "{made:?}");
        again.close().unwrap();
    }
}

/// The second of two callers returns only after the volume is closed.
#[test]
fn a_second_close_waits_for_the_first() {
    let image = need!(Image::make(64 << 20, KINDS[0].1));
    let memory = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(memory, 1));
    let volume = opened(&device);
    VolumeFs(&volume).create("/a", 0o644).unwrap();
    device.add(Rule::on(OpKind::Flush, Fault::Delay(Duration::from_millis(30))));
    thread::scope(|scope| {
        let other = scope.spawn(|| volume.close());
        thread::sleep(Duration::from_millis(10));
        volume.close().unwrap();
        assert_clean(device.inner(), &image);
        other.join().unwrap().unwrap();
    });
}

/// As with Linux, only a check marks a volume clean that is not: one without a journal that was in
/// use in a crash, or one for which an administrator wants a check.
#[test]
fn a_volume_that_is_not_clean_stays_so() {
    for kind in ["ext2", "ext4"] {
        let image = need!(Image::make(16 << 20, &["-t", kind]));
        need!(e2fs::debugfs(&image.path(), true, &["ssv state 0"]));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let is_clean = || {
            let mut bytes = [0; 1024];
            device.read_at(1024, &mut bytes).unwrap();
            bytes[58] & 1 == 1
        };
        let volume = opened(&device);
        VolumeFs(&volume).create("/file", 0o644).unwrap();
        volume.make_read_only().unwrap();
        assert!(!is_clean(), "{kind}");
        volume.make_writable().unwrap();
        volume.close().unwrap();
        assert!(!is_clean(), "{kind}");
        assert_clean(&device, &image);
        device.save(&image.path()).unwrap();
        let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
        assert!(mount.path().join("file").exists());
        mount.unmount();
        let checked = need!(e2fs::run("e2fsck", ["-fy".as_ref(), image.path().as_os_str()]));
        assert!(checked.status.code() < Some(2), "{checked:?}");
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        opened(&device).close().unwrap();
        device.save(&image.path()).unwrap();
        let text = need!(e2fs::dumpe2fs(&image.path(), true));
        assert!(text.lines().any(|line| line.ends_with(" clean")), "{text}");
    }
}

/// A volume without a journal whose user has crashed.
#[test]
fn a_crash_without_a_journal_is_remembered() {
    let image = need!(Image::make(16 << 20, &["-t", "ext2"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened(&device);
    VolumeFs(&volume).create("/file", 0o644).unwrap();
    volume.sync().unwrap();
    let crashed = Arc::new(device.snapshot());
    volume.close().unwrap();
    opened(&crashed).close().unwrap();
    crashed.save(&image.path()).unwrap();
    let text = need!(e2fs::dumpe2fs(&image.path(), true));
    assert!(text.contains("not clean"), "{text}");
    e2fs::assert_clean(&image.path());
}
