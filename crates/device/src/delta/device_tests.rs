//! A delta without crashes: its checks, its space and its threads.

use super::{DeltaDevice, DeltaError, DeltaFile, is_unused_delta, replace_base};
use crate::{
    BlockDevice, Fault, FaultDevice, FileOptions, LatencyDevice, MemoryDevice, OpKind, OpenError,
    ReadOnly, Rule,
};
use nextent_sync::{Duration, thread};

const SIZE: u64 = 300 << 20;

fn store(size: u64) -> MemoryDevice {
    MemoryDevice::new(DeltaDevice::<MemoryDevice, MemoryDevice>::file_len(size).unwrap())
}

fn byte(device: &impl BlockDevice, at: u64) -> u8 {
    let mut byte = [0];
    device.read_at(at, &mut byte).unwrap();
    byte[0]
}

/// Across pages of the bitmap.
#[test]
fn only_written_units_are_in_the_delta() {
    let (base, store) = (MemoryDevice::new(SIZE), store(SIZE));
    base.write_at(200 << 20, &[5; 100_000]).unwrap();
    let device = DeltaDevice::create(&base, &store, vec![0]).unwrap();
    let ends = 127 << 20;
    device.write_at(ends - 8192, &[7; 16384]).unwrap();
    device.write_at((200 << 20) + 50, &[8; 10]).unwrap();
    // Zeros over zeros of the base need no unit; zeros over data need one.
    device.write_zeroes(1 << 20, 10 << 20).unwrap();
    device.write_zeroes((200 << 20) + 8192, 4096).unwrap();
    device.flush().unwrap();
    assert_eq!(device.delta_bytes().unwrap(), 6 * 4096);
    let device = DeltaDevice::open(&base, &store).unwrap();
    assert_eq!(device.delta_bytes().unwrap(), 6 * 4096);
    let data = |at| device.next_data(at).unwrap().unwrap();
    assert!(data(0).start > 100 << 20 && data(0).start <= ends - 8192);
    for (at, value) in [(ends, 7), (ends - 8193, 0), (200 << 20, 5), ((200 << 20) + 55, 8)] {
        assert_eq!(byte(&device, at), value, "at {at}");
    }
    assert_eq!(byte(&device, (200 << 20) + 8192 + 100), 0);
    // A discarded unit stays in the delta: it never shows the base again.
    device.discard(200 << 20, 4096).unwrap();
    device.discard(201 << 20, 1 << 20).unwrap();
    assert_eq!(device.delta_bytes().unwrap(), 6 * 4096);
    assert_eq!(byte(&base, (200 << 20) + 55), 5);
}

#[test]
fn a_wrong_or_damaged_delta_is_refused() {
    let (base, store) = (MemoryDevice::new(SIZE), store(SIZE));
    let device = DeltaDevice::create(&base, &store, vec![0, 1 << 20, u64::MAX]).unwrap();
    device.write_at(5000, b"text").unwrap();
    device.flush().unwrap();
    drop(device);
    let refused = |base: &MemoryDevice, store: &MemoryDevice| {
        DeltaDevice::open(base, store).err().expect("it is refused").to_string()
    };
    let longer = MemoryDevice::new(SIZE + 512);
    assert!(refused(&longer, &store).contains("that has 314572800 bytes, this one has 314573312"));
    let changed = base.snapshot();
    changed.write_at((1 << 20) + 4095, b"x").unwrap();
    assert!(refused(&changed, &store).contains("belongs to another base, or its base has changed"));
    changed.write_zeroes(1 << 20, 8192).unwrap();
    changed.write_at((1 << 20) + 4096, b"x").unwrap();
    DeltaDevice::open(&changed, &store).unwrap();
    assert!(refused(&base, &MemoryDevice::new(100)).contains("is not a delta"));
    assert!(refused(&base, &MemoryDevice::new(SIZE)).contains("is not a delta"));
    let short = MemoryDevice::new(SIZE);
    let mut header = [0; 512];
    store.read_at(0, &mut header).unwrap();
    short.write_at(0, &header).unwrap();
    assert!(refused(&base, &short).contains("is cut short: it has 314572800 of"));
    let damaged = store.snapshot();
    damaged.write_at(20, b"x").unwrap();
    assert!(refused(&base, &damaged).contains("is damaged: the checksum of its header"));
    // The bitmap is checked when it is needed, and before a commit or a rebase writes.
    let damaged = store.snapshot();
    damaged.write_at(4096 + 100, b"x").unwrap();
    let mut device = DeltaDevice::open(&base, &damaged).unwrap();
    let wrong = device.read_at(5000, &mut [0; 4]).unwrap_err().to_string();
    assert_eq!(wrong, "is damaged: a checksum of its bitmap is wrong");
    assert!(device.write_at(5000, b"x").is_err() && device.next_data(0).is_err());
    assert_eq!(byte(&device, 200 << 20), 0);
    assert!(device.commit().is_err() && !device.is_committing());
    assert!(device.rebase(&longer, vec![0]).is_err());
    assert_eq!(base.stats().chunks, 0);
}

#[test]
fn a_base_may_be_replaced_by_its_copy() {
    let (base, store) = (MemoryDevice::new(SIZE), store(SIZE));
    drop(DeltaDevice::create(&base, &store, vec![0]).unwrap());
    let copy = base.snapshot();
    copy.write_at(100, b"a counter").unwrap();
    assert!(matches!(DeltaDevice::open(&copy, &store), Err(DeltaError::BaseChanged)));
    let other = MemoryDevice::new(SIZE * 2);
    let refused = replace_base(&store, &other, vec![0]);
    assert!(matches!(refused, Err(DeltaError::BaseSize { .. })));
    replace_base(&store, &copy, vec![0]).unwrap();
    DeltaDevice::open(&copy, &store).unwrap();
}

#[test]
fn a_failed_flush_or_commit_is_repeated() {
    let base = FaultDevice::new(MemoryDevice::new(1 << 20), 1);
    let store = FaultDevice::new(store(1 << 20), 1);
    let mut device = DeltaDevice::create(&base, &store, vec![0]).unwrap();
    device.write_at(5000, b"text").unwrap();
    // The flush of the data, and then that of the bitmap.
    for flushes in 0..2 {
        let fails = Rule::on(OpKind::Flush, Fault::Error(libc::EIO)).after(flushes).times(1);
        store.add(fails);
        assert!(device.flush().is_err());
    }
    device.flush().unwrap();
    assert_eq!(byte(&DeltaDevice::open(&base, &store).unwrap(), 5000), b't');
    base.add(Rule::on(OpKind::Write, Fault::Error(libc::ENOSPC)).times(1));
    assert!(device.commit().is_err());
    assert!(device.is_committing() && device.is_read_only());
    assert_eq!(device.write_at(0, b"x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert!(matches!(device.allow_writes(), Err(DeltaError::Committing)));
    assert!(matches!(replace_base(&store, &base, vec![0]), Err(DeltaError::Committing)));
    assert_eq!(byte(&device, 5000), b't');
    drop(device);
    let mut device = DeltaDevice::open(&base, &store).unwrap();
    assert_eq!(device.commit().unwrap(), 4096);
    assert_eq!((byte(&base, 5000), device.delta_bytes().unwrap()), (b't', 0));
    assert_eq!(device.commit().unwrap(), 0);
    device.write_at(0, b"x").unwrap();
    let mut over = DeltaDevice::create(ReadOnly::new(base), &store, vec![0]).unwrap();
    assert!(over.commit().is_err());
}

#[test]
fn a_delta_for_reading_becomes_writable_unless_it_changed() {
    let (base, store) = (MemoryDevice::new(SIZE), store(SIZE));
    drop(DeltaDevice::create(&base, &store, vec![0]).unwrap());
    for changes in [false, true] {
        // A device whose file does not allow writes yet.
        let reader = DeltaDevice::open(&base, &store).unwrap();
        reader.writes.store(false, nextent_sync::atomic::Ordering::Release);
        assert!(reader.is_read_only() && reader.write_at(0, b"x").is_err());
        assert_eq!(byte(&reader, 9000), 0);
        if changes {
            let writer = DeltaDevice::open(&base, &store).unwrap();
            writer.write_at(9000, b"x").unwrap();
            writer.flush().unwrap();
        }
        match changes {
            true => assert!(matches!(reader.allow_writes(), Err(DeltaError::Changed))),
            false => reader.allow_writes().unwrap(),
        }
        assert_eq!(reader.is_read_only(), changes);
    }
}

#[test]
fn a_file_is_made_for_the_first_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("delta");
    let base = MemoryDevice::new(1 << 20);
    let open = |how: &FileOptions| DeltaFile::open_file(&base, &path, how, |_| vec![0]);
    let reading = FileOptions::new().read_only(true);
    assert!(is_unused_delta(&path) && open(&reading).is_err() && !path.exists());
    // As an interrupted creation leaves it.
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    assert!(is_unused_delta(&path));
    let device = open(&FileOptions::new()).unwrap();
    assert!(!is_unused_delta(&path));
    device.write_at(100, b"text").unwrap();
    device.flush().unwrap();
    assert!(matches!(open(&FileOptions::new()), Err(OpenError::Locked { .. })));
    assert!(matches!(open(&reading), Err(OpenError::Locked { .. })));
    drop(device);
    let readers = [open(&reading).unwrap(), open(&reading).unwrap()];
    assert!(readers.iter().all(|device| byte(device, 100) == b't' && device.is_read_only()));
    assert!(open(&FileOptions::new()).is_err());
    drop(readers);
    let other = dir.path().join("other");
    std::fs::write(&other, "something else").unwrap();
    let refused = DeltaFile::open_file(&base, &other, &FileOptions::new(), |_| vec![0]);
    let refused = refused.err().unwrap().to_string();
    assert!(refused.ends_with("other: is not a delta of nextent"), "{refused}");
    assert_eq!(std::fs::read(&other).unwrap(), b"something else");
}

/// Each thread owns every eighth piece of 512 bytes, so first writes to a unit compete.
#[test]
fn threads_write_parts_of_the_same_units() {
    const THREADS: u64 = 8;
    const PIECES: u64 = 2048;
    let base = MemoryDevice::new(PIECES * 512);
    base.write_at(0, &vec![0xee; (PIECES * 512) as usize]).unwrap();
    let store = store(base.size());
    // While a thread reads the base, the others get to the same unit.
    let slow = LatencyDevice::new(&base, Duration::from_micros(50));
    let device = DeltaDevice::create(slow, &store, vec![]).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                for piece in (thread..PIECES).step_by(THREADS as usize) {
                    match piece / THREADS % 4 {
                        0 => device.write_zeroes(piece * 512, 512).unwrap(),
                        // Left as it is in the base.
                        1 => {}
                        _ => device.write_at(piece * 512, &[thread as u8 + 1; 512]).unwrap(),
                    }
                    if piece.is_multiple_of(61) {
                        device.flush().unwrap();
                    }
                }
            });
        }
    });
    device.flush().unwrap();
    let again = DeltaDevice::open(&base, &store).unwrap();
    let devices: [&dyn BlockDevice; 2] = [&device, &again];
    for device in devices {
        for piece in 0..PIECES {
            let wanted = match piece / THREADS % 4 {
                0 => 0,
                1 => 0xee,
                _ => (piece % THREADS) as u8 + 1,
            };
            let mut bytes = [0; 512];
            device.read_at(piece * 512, &mut bytes).unwrap();
            assert_eq!(bytes, [wanted; 512], "piece {piece}");
        }
    }
}
