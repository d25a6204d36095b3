//! Locks, threads, faults and crash images.

use nextent_device::queue::{Direction, Piece, Transfer};
use nextent_device::{
    BlockDevice, Buffer, Event, Fault, FaultDevice, FileDevice, FileOptions, Loss, MemoryDevice,
    MemoryStock, OpKind, OpenError, Overlay, ReadOnly, RecordingDevice, Rule,
};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, thread};
use std::io::ErrorKind;
use std::path::Path;

fn options() -> FileOptions {
    FileOptions::new()
}

fn make(path: &Path) -> FileDevice {
    FileDevice::open(path, &options().create(true).size(65536)).unwrap()
}

#[test]
fn a_second_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let first = make(&path);
    let locked = |options: &FileOptions| {
        matches!(FileDevice::open(&path, options), Err(OpenError::Locked { .. }))
    };
    assert!(locked(&options()));
    assert!(locked(&options().read_only(true)));
    assert!(!locked(&options().read_only(true).unlocked(true)));
    assert!(locked(&options().unlocked(true)), "only a reader may go without the lock");
    drop(first);
    let reader = FileDevice::open(&path, &options().read_only(true)).unwrap();
    assert!(!locked(&options().read_only(true)));
    assert!(locked(&options()));
    assert_eq!(reader.write_at(0, b"x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    let message = FileDevice::open(&path, &options()).unwrap_err().to_string();
    assert!(message.contains("a.img") && message.contains("in use"), "{message}");
}

/// For each kind of queue, one that is older than the change. The file may have another name by
/// then.
#[test]
fn a_device_for_reading_becomes_writable() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("a.img"), dir.path().join("b.img"));
    for how in [options(), options().queue_by_threads(true)] {
        drop(make(&path));
        let device = FileDevice::open(&path, &how.read_only(true)).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        drop(make(&path));
        let mut queue = device.own_queue(2);
        let mut write = |offset| {
            let piece = Piece { offset, start: 0, len: 512 };
            let (tag, direction, buffer) = (1, Direction::Write, Buffer::from_bytes(&[7; 512]));
            queue.submit(Transfer { tag, direction, buffer, pieces: piece.into() });
            let mut done = Vec::new();
            queue.complete(1, &mut done);
            done.remove(0).result
        };
        assert!(write(0).is_err());
        device.allow_writes().unwrap();
        device.allow_writes().unwrap();
        assert!(!device.is_read_only());
        write(4096).unwrap();
        device.write_at(512, &[8; 512]).unwrap();
        device.flush().unwrap();
        let bytes = std::fs::read(&moved).unwrap();
        assert_eq!((bytes[0], bytes[512], bytes[4096]), (0, 8, 7));
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        for how in [options(), options().read_only(true)] {
            let refused = FileDevice::open(&moved, &how);
            assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
        }
        drop((device, queue));
        FileDevice::open(&moved, &options()).unwrap();
    }
}

#[test]
fn a_device_that_others_read_stays_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    drop(make(&path));
    let open = |how: &FileOptions| FileDevice::open(&path, how);
    let device = open(&options().read_only(true)).unwrap();
    let reader = open(&options().read_only(true)).unwrap();
    let refused = device.allow_writes().unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    assert_eq!(device.write_at(0, b"x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    device.read_at(0, &mut [0; 512]).unwrap();
    drop(reader);
    assert!(matches!(open(&options()), Err(OpenError::Locked { .. })), "the lock is gone");
    device.allow_writes().unwrap();
    device.write_at(0, b"x").unwrap();
}

/// Users of different parts of a file do not exclude each other; those of the same bytes do, and
/// users of the whole file do.
#[test]
fn parts_are_locked_for_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    drop(make(&path));
    let part = |at: u64, size: u64| options().offset(at).size(size).part("1");
    let (first, second) = (part(4096, 8192), part(12288, 8192));
    let rest = options().offset(4096);
    let locked = |options: &FileOptions| match FileDevice::open(&path, options) {
        Ok(_) => false,
        Err(OpenError::Locked { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    let reading = |options: &FileOptions| options.clone().read_only(true);
    let writer = FileDevice::open(&path, &first).unwrap();
    assert!(locked(&first) && locked(&reading(&first)) && locked(&rest));
    assert!(locked(&options()) && locked(&reading(&options())));
    assert!(locked(&part(0, 4097)) && locked(&part(12287, 1)));
    assert!(!locked(&part(0, 4096)) && !locked(&reading(&part(0, 4096))));
    let other = FileDevice::open(&path, &second).unwrap();
    assert!(locked(&second) && !locked(&part(20480, 4096)));
    let message = FileDevice::open(&path, &second).unwrap_err().to_string();
    assert!(message.contains("disk.img@1: in use"), "{message}");
    drop(writer);
    assert!(!locked(&first) && !locked(&reading(&first)) && locked(&options()));
    let reader = FileDevice::open(&path, &reading(&first)).unwrap();
    assert!(locked(&first) && !locked(&reading(&first)));
    drop(other);
    assert!(!locked(&reading(&options())) && locked(&options()));
    drop(reader);
    let whole = FileDevice::open(&path, &options()).unwrap();
    assert!(locked(&first) && locked(&reading(&first)) && locked(&rest));
    drop(whole);
    let whole = FileDevice::open(&path, &reading(&options())).unwrap();
    assert!(locked(&first) && !locked(&reading(&first)));
    drop(whole);
    assert!(!locked(&options()));
}

/// While another part has its own writer.
#[test]
fn a_part_for_reading_becomes_writable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    drop(make(&path));
    let part = |at: u64| options().offset(at).size(4096).part("1");
    let other = FileDevice::open(&path, &part(0)).unwrap();
    let device = FileDevice::open(&path, &part(4096).read_only(true)).unwrap();
    let reader = FileDevice::open(&path, &part(4096).read_only(true)).unwrap();
    assert!(matches!(device.allow_writes(), Err(OpenError::Locked { .. })));
    drop(reader);
    assert!(matches!(FileDevice::open(&path, &part(4096)), Err(OpenError::Locked { .. })));
    device.allow_writes().unwrap();
    device.write_at(0, b"text").unwrap();
    assert!(FileDevice::open(&path, &part(4096).read_only(true)).is_err());
    drop(device);
    FileDevice::open(&path, &part(4096)).unwrap();
    drop(other);
    FileDevice::open(&path, &options()).unwrap();
}

/// Nothing outside of a part is written, discarded or read, and the file keeps its length.
#[test]
fn a_part_has_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, [7; 200_000]).unwrap();
    for how in [options(), options().direct(true)] {
        let part = how.offset(50_000).size(100_000).part("1");
        let Ok(device) = FileDevice::open(&path, &part) else { continue };
        assert_eq!(device.size(), 100_000);
        device.write_at(0, &[1; 100_000]).unwrap();
        device.discard(0, 100_000).unwrap();
        device.write_zeroes(0, 100_000).unwrap();
        device.write_at(99_999, b"x").unwrap();
        assert!(device.write_at(99_999, b"xx").is_err() && device.discard(1, 100_000).is_err());
        assert!(
            device.write_zeroes(99_999, 2).is_err() && device.write_at(u64::MAX, b"x").is_err()
        );
        assert!(device.read_at(100_000, &mut [0]).is_err());
        device.flush().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), bytes[149_999]), (200_000, b'x'));
        assert!(bytes[..50_000].iter().chain(&bytes[150_000..]).all(|byte| *byte == 7));
    }
    let beyond = options().offset(150_000).size(50_001);
    assert!(matches!(FileDevice::open(&path, &beyond), Err(OpenError::TooShort { .. })));
}

/// Locks that other programs take of bytes of the file do not exclude readers of a part.
#[test]
#[cfg(target_os = "linux")]
fn locks_of_other_programs_do_not_collide() {
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    drop(make(&path));
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: zero is valid for integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as i16, 4096, 8192);
    // SAFETY: the descriptor is open, and the call reads one `flock`.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(rc, 0);
    let part = options().offset(4096).size(8192).read_only(true);
    let one = FileDevice::open(&path, &part).unwrap();
    assert!(FileDevice::open(&path, &part).is_ok());
    drop(one);
    // A writer cannot know what the lock is for.
    assert!(matches!(FileDevice::open(&path, &options()), Err(OpenError::Locked { .. })));
    drop(file);
    assert!(FileDevice::open(&path, &options()).is_ok());
}

#[test]
fn a_path_that_is_no_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path, options: &FileOptions| FileDevice::open(path, options).unwrap_err();
    for (path, kind) in
        [(dir.path(), "a directory"), (Path::new("/dev/null"), "a character device")]
    {
        let error = open(path, &options());
        assert!(error.to_string().contains(&format!("is {kind}, neither")), "{error}");
        assert!(matches!(error, OpenError::NotADevice { .. }));
    }
    assert_eq!(open(&dir.path().join("none"), &options()).kind(), ErrorKind::NotFound);
    let path = dir.path().join("short");
    drop(make(&path));
    assert!(matches!(open(&path, &options().offset(70_000)), OpenError::TooShort { .. }));
    assert!(matches!(open(&path, &options().size(u64::MAX)), OpenError::TooShort { .. }));
    let rest = FileDevice::open(&path, &options().offset(1024)).unwrap();
    assert_eq!(rest.size(), 64512);
}

/// For each way to read.
#[test]
fn a_truncated_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut");
    for how in [options(), options().queue_by_threads(true), options().direct(true)] {
        drop(make(&path));
        let Ok(device) = FileDevice::open(&path, &how) else { continue };
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let error = device.read_at(8192, &mut [0; 1000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("cut short: it ends before byte 9192"), "{error}");
        let mut queue = device.queue(2);
        let piece = Piece { offset: 8192, start: 0, len: 512 };
        let (tag, direction, buffer) = (1, Direction::Read, Buffer::new(512));
        queue.submit(Transfer { tag, direction, buffer, pieces: piece.into() });
        let mut done = Vec::new();
        queue.complete(1, &mut done);
        let error = done.remove(0).result.unwrap_err();
        assert!(error.to_string().contains("cut short"), "{error}");
    }
}

#[test]
fn a_device_grows_and_never_shrinks_on_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("grow");
    let mut device = make(&path);
    device.write_at(65000, b"tail").unwrap();
    device.set_len(1 << 20).unwrap();
    device.write_at((1 << 20) - 1, b"x").unwrap();
    drop(device);
    let device = FileDevice::open(&path, &options().create(true).size(4096)).unwrap();
    assert_eq!(device.size(), 4096);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

/// Each thread writes every `threads`-th block and reads it back.
fn hammer(device: &dyn BlockDevice, block: usize) {
    const THREADS: usize = 8;
    let blocks = device.size() as usize / block;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..4u8 {
                    for number in (thread..blocks).step_by(THREADS) {
                        let bytes = vec![round ^ number as u8 ^ thread as u8; block];
                        let at = (number * block) as u64;
                        device.write_at(at, &bytes).unwrap();
                        let mut back = vec![0; block];
                        device.read_at(at, &mut back).unwrap();
                        assert!(back == bytes, "block {number} of thread {thread}");
                    }
                    device.flush().unwrap();
                }
            });
        }
    });
    let mut back = vec![0; block];
    for number in 0..blocks {
        device.read_at((number * block) as u64, &mut back).unwrap();
        assert!(back.iter().all(|&b| b == 3 ^ number as u8 ^ (number % THREADS) as u8));
    }
}

#[test]
fn many_threads_write_their_own_blocks() {
    const SIZE: u64 = 512 * 1024;
    hammer(&MemoryDevice::new(SIZE), 1024);
    hammer(&Overlay::new(MemoryDevice::new(SIZE)), 1024);
    let recording = RecordingDevice::new(MemoryDevice::new(SIZE));
    hammer(&recording, 1024);
    let bytes = recording.inner().to_bytes();
    assert!(recording.image_at(recording.events()).to_bytes() == bytes);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("f");
    hammer(&FileDevice::open(&path, &options().create(true).size(SIZE)).unwrap(), 1024);
    if let Ok(direct) = FileDevice::open(&path, &options().direct(true)) {
        hammer(&direct, 1024);
    }
}

#[test]
fn a_read_only_device_reads_and_refuses_writes() {
    let device = ReadOnly::new(MemoryDevice::from_bytes(b"abcdef"));
    assert!(device.is_read_only());
    assert!(device.write_at(0, b"x").is_err() && device.write_zeroes(0, 1).is_err());
    assert!(device.discard(0, 1).is_err() && device.flush().is_ok());
    assert_eq!(device.into_inner().to_bytes(), b"abcdef");
}

#[test]
fn faults_follow_the_plan() {
    let device = FaultDevice::new(MemoryDevice::new(8192), 7);
    device.add(Rule::on(OpKind::Write, Fault::Error(libc::ENOSPC)).after(1).times(1));
    device.add(Rule::on(OpKind::Write, Fault::Torn { sectors: 1 }).within(4096..8192).times(1));
    device.add(Rule::on(OpKind::Write, Fault::Lost).within(0..512).times(1));
    device.add(Rule::on(OpKind::Read, Fault::Error(libc::EIO)).within(2048..4096));
    device.add(Rule::on(OpKind::Flush, Fault::Error(libc::EIO)).times(1));
    assert!(device.write_at(1024, &[1; 512]).is_ok());
    let full = device.write_at(1024, &[2; 512]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    assert!(device.write_at(4096, &[3; 4096]).is_err());
    assert!(device.write_at(0, &[4; 512]).is_ok());
    assert!(device.read_at(3000, &mut [0; 10]).is_err());
    assert!(device.flush().is_err() && device.flush().is_ok());
    let bytes = device.inner().to_bytes();
    assert_eq!((bytes[0], bytes[1024], bytes[4096], bytes[4608]), (0, 1, 3, 0));
    assert_eq!(device.struck(), 5);
}

#[test]
fn random_faults_repeat_with_their_seed() {
    let run = |seed| {
        let device = FaultDevice::new(MemoryDevice::new(4096), seed);
        device.add(Rule::always(Fault::Error(libc::EIO)).per_mille(300));
        (0..200).map(|_| device.write_at(0, b"x").is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let struck = run(3).iter().filter(|ok| !**ok).count();
    assert!((20..120).contains(&struck), "{struck} of 200");
}

#[test]
fn a_crash_keeps_flushed_writes_and_any_of_the_rest() {
    let device = RecordingDevice::new(MemoryDevice::new(8192));
    device.write_at(0, &[1; 1024]).unwrap();
    device.flush().unwrap();
    device.mark(42);
    device.write_at(0, &[2; 1024]).unwrap();
    device.write_zeroes(512, 512).unwrap();
    let recording = device.recording();
    let end = recording.events().len();
    assert_eq!(recording.stable_at(1), 0);
    assert_eq!(recording.stable_at(2), 1);
    assert_eq!(recording.unstable_at(end), vec![3, 4]);
    assert_eq!(recording.flush_cuts(), vec![0, 1, 2, 5]);
    assert_eq!(recording.marks_before(end).collect::<Vec<_>>(), vec![42]);
    assert_eq!(recording.marks_before(2).count(), 0);
    let bytes = |loss: &Loss| {
        let image = recording.image_with(end, loss).to_bytes();
        (image[0], image[512])
    };
    assert_eq!(bytes(&Loss::default()), (2, 0));
    assert_eq!(bytes(&Loss { lost: vec![3], torn: vec![] }), (1, 0));
    assert_eq!(bytes(&Loss { lost: vec![3, 4], torn: vec![] }), (1, 1));
    let torn = Loss { lost: vec![4], torn: vec![(3, vec![false, true])] };
    assert_eq!(bytes(&torn), (1, 2));
    assert!(matches!(recording.events()[1], Event::Flush { began: 1 }));
}

#[test]
fn images_late_in_a_recording_are_right() {
    let device = RecordingDevice::new(MemoryDevice::new(1 << 20));
    for n in 0..1000u64 {
        device.write_at(n * 512, &n.to_le_bytes()).unwrap();
    }
    let recording = device.recording();
    for cut in [0, 1, 127, 128, 129, 500, 999, 1000] {
        let image = recording.image_at(cut).to_bytes();
        for n in 0..1000 {
            let held = u64::from_le_bytes(image[n * 512..n * 512 + 8].try_into().unwrap());
            assert_eq!(held, if n < cut { n as u64 } else { 0 });
        }
    }
}

#[test]
fn shared_chunks_are_counted() {
    let device = MemoryDevice::new(1 << 30);
    device.write_at(0, &[1; 100_000]).unwrap();
    let before = device.stats();
    assert_eq!((before.chunks, before.shared), (7, 0));
    let copy = device.clone();
    assert_eq!(device.stats().shared, 7);
    copy.write_at(0, b"mine").unwrap();
    assert_eq!(device.stats().shared, 6);
    device.discard(0, 1 << 30).unwrap();
    assert_eq!(device.stats().chunks, 0);
    assert_eq!(copy.stats().chunks, 7);
}

#[test]
fn memory_from_a_stock_reads_as_zeros() {
    let stock = MemoryStock::default();
    let all = 4 << 20;
    for round in 1..4 {
        let device = MemoryDevice::with_stock(all, &stock);
        let copy = device.clone();
        let mut seen = vec![9; all as usize];
        device.read_at(0, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0), "round {round}");
        // Writes part of each chunk; the rest must not show an earlier device's bytes.
        for at in (0..all).step_by(16 << 10) {
            device.write_at(at + 100, &[round; 1000]).unwrap();
        }
        device.read_at(0, &mut seen).unwrap();
        let written = seen.iter().filter(|&&byte| byte == round).count();
        let zeros = seen.iter().filter(|&&byte| byte == 0).count();
        assert_eq!((written, zeros), (256_000, all as usize - 256_000));
        device.write_at(0, &[round; 1 << 20]).unwrap();
        assert_eq!(copy.stats().chunks, 0);
    }
    // Slabs of 64 chunks returned to the stock and were reused.
    let shown = format!("{stock:?}");
    assert!(!shown.contains("(0 ") && shown.ends_with("slabs)"), "{shown}");
}

/// A thread writes a number to the first chunk and then to the last. A snapshot that had the last
/// write only would show a state that no power cut leaves.
#[test]
fn a_snapshot_is_of_one_moment() {
    const CHUNKS: u64 = 400;
    const CHUNK: u64 = 16 * 1024;
    let device = Arc::new(MemoryDevice::new(CHUNKS * CHUNK));
    for chunk in 0..CHUNKS {
        device.write_at(chunk * CHUNK, &[0; 8]).unwrap();
    }
    let last = (CHUNKS - 1) * CHUNK;
    let number = |device: &MemoryDevice, at| {
        let mut bytes = [0; 8];
        device.read_at(at, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let ended = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (device, ended) = (Arc::clone(&device), Arc::clone(&ended));
        move || {
            let mut n = 0u64;
            while !ended.load(Ordering::Relaxed) {
                n += 1;
                device.write_at(0, &n.to_le_bytes()).unwrap();
                device.write_at(last, &n.to_le_bytes()).unwrap();
                // Both ends of a range of whole chunks, which closes the gate.
                device.write_zeroes(CHUNK + 100, 3 * CHUNK).unwrap();
            }
        }
    });
    let torn = (0..3000).filter(|_| {
        let copy = device.snapshot();
        let (first, last) = (number(&copy, 0), number(&copy, last));
        !(last == first || last + 1 == first)
    });
    let torn = torn.count();
    ended.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(torn, 0);
}
