//! Queues of every device return each submitted transfer, complete, with its own error.

use nextent_device::queue::{Buffer, Completed, DeviceQueue, Direction, Piece, Pieces, Transfer};
use nextent_device::{
    BlockDevice, DeltaDevice, DeltaFile, DevicePart, Event, Fault, FaultDevice, FileDevice,
    FileOptions, LatencyDevice, MemoryDevice, OpKind, Overlay, RecordingDevice, Rule,
};
use nextent_sync::{Arc, Duration, now};
use std::path::Path;

const SIZE: u64 = 4 << 20;
const UNIT: usize = 4096;

fn write(tag: u64, offset: u64, bytes: &[u8]) -> Transfer {
    let piece = Piece { offset, start: 0, len: bytes.len() };
    let direction = Direction::Write;
    Transfer { tag, direction, buffer: Buffer::from_bytes(bytes), pieces: piece.into() }
}

fn read(tag: u64, pieces: &[(u64, usize)]) -> Transfer {
    let mut all = Pieces::default();
    let mut start = 0;
    for (offset, len) in pieces {
        all.push(Piece { offset: *offset, start, len: *len });
        start += len;
    }
    Transfer { tag, direction: Direction::Read, buffer: Buffer::new(start), pieces: all }
}

fn all(queue: &mut dyn DeviceQueue) -> Vec<Completed> {
    let mut done = Vec::new();
    let count = queue.in_flight();
    queue.complete(count, &mut done);
    assert_eq!((done.len(), queue.in_flight()), (count, 0));
    done.sort_by_key(|completed| completed.transfer.tag);
    done
}

/// Writes and reads 64 units with eight in flight, then reads across two units and beyond the end.
fn works(device: &dyn BlockDevice) {
    let mut queue = device.queue(8);
    let mut done = Vec::new();
    for n in 0..64u64 {
        queue.submit(write(n, n * 7919 % 64 * UNIT as u64, &[n as u8 + 1; UNIT]));
        if queue.in_flight() >= 8 {
            queue.complete(1, &mut done);
        }
    }
    done.extend(all(&mut *queue));
    let mut tags: Vec<u64> = done.iter().map(|completed| completed.transfer.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..64).collect::<Vec<_>>());
    for Completed { transfer, result } in done {
        result.unwrap();
        assert_eq!(transfer.buffer[..], [transfer.tag as u8 + 1; UNIT]);
        let mut buf = [0; UNIT];
        device.read_at(transfer.tag * 7919 % 64 * UNIT as u64, &mut buf).unwrap();
        assert_eq!(buf[..], transfer.buffer[..]);
    }
    queue.submit(read(1, &[(7919 % 64 * 4096, UNIT), (0, UNIT), (200 * 4096, 512)]));
    queue.submit(read(2, &[(SIZE - 512, 1024)]));
    queue.submit(read(3, &[]));
    queue.submit(write(4, SIZE, &[1; 512]));
    queue.submit(write(5, 100, &[9; 300]));
    let outside = Piece { offset: 0, start: 1, len: UNIT };
    queue.submit(Transfer { pieces: outside.into(), ..write(6, 0, &[1; UNIT]) });
    let done = all(&mut *queue);
    let oks: Vec<bool> = done.iter().map(|completed| completed.result.is_ok()).collect();
    assert_eq!(oks, [true, false, true, false, true, false]);
    let bytes = &done[0].transfer.buffer;
    assert!(bytes[..UNIT].iter().all(|byte| *byte == 2));
    assert!(bytes[2 * UNIT..].iter().all(|byte| *byte == 0));
    let mut buf = [0; 300];
    device.read_at(100, &mut buf).unwrap();
    assert_eq!(buf, [9; 300]);
    // The queue is dropped with transfers in flight, which complete.
    queue.submit(write(1, 128 * 4096, &[3; UNIT]));
    queue.submit(read(2, &[(0, UNIT)]));
    drop(queue);
    device.flush().unwrap();
}

fn file(path: &Path, options: &FileOptions) -> FileDevice {
    FileDevice::open(path, &options.clone().create(true).offset(8192).size(SIZE)).unwrap()
}

#[test]
fn every_device_has_queues() {
    let memory = MemoryDevice::new(SIZE);
    works(&memory);
    works(&Overlay::new(MemoryDevice::new(SIZE)));
    let len = DeltaDevice::<MemoryDevice, MemoryDevice>::file_len(SIZE).unwrap();
    let delta = MemoryDevice::new(len);
    works(&DeltaDevice::create(MemoryDevice::new(SIZE), &delta, vec![]).unwrap());
    // Units that are in the delta, and units that are not.
    works(&DeltaDevice::open(MemoryDevice::new(SIZE), &delta).unwrap());
    works(&DevicePart::new(MemoryDevice::new(2 * SIZE), 512..512 + SIZE).unwrap());
    works(&Arc::new(Box::new(MemoryDevice::new(SIZE))));
    works(&RecordingDevice::new(MemoryDevice::new(SIZE)));
    works(&LatencyDevice::new(MemoryDevice::new(SIZE), Duration::from_micros(50)));
    let faults = FaultDevice::new(MemoryDevice::new(SIZE), 1);
    let slow = Fault::Delay(Duration::from_micros(200));
    faults.add(Rule::on(OpKind::Write, slow).per_mille(300));
    works(&faults);
}

#[test]
fn files_have_queues_of_the_system_and_of_threads() {
    // In a directory on disk, because tmpfs does not always support direct transfers.
    for dir in [tempfile::tempdir().unwrap(), tempfile::tempdir_in(".").unwrap()] {
        let path = dir.path().join("image");
        works(&file(&path, &FileOptions::new()));
        works(&file(&path, &FileOptions::new().queue_by_threads(true)));
        works(&LatencyDevice::new(file(&path, &FileOptions::new()), Duration::from_micros(50)));
        let base = FileDevice::open(&path, &FileOptions::new().read_only(true)).unwrap();
        let delta = dir.path().join("delta");
        let delta = DeltaFile::open_file(base, &delta, &FileOptions::new(), |_| vec![0]).unwrap();
        delta.write_zeroes(0, SIZE).unwrap();
        works(&DevicePart::new(delta, 0..SIZE).unwrap());
        let direct = FileOptions::new().create(true).offset(8192).size(SIZE).direct(true);
        match FileDevice::open(&path, &direct) {
            Ok(device) => works(&device),
            Err(error) => eprintln!("no direct transfers here: {error}"),
        }
        if let Ok(device) = FileDevice::open(&path, &direct.queue_by_threads(true)) {
            works(&device);
        }
        let open = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        open.set_len(SIZE).unwrap();
        works(&FileDevice::from_open(open).unwrap());
    }
}

#[test]
fn many_queues_share_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let device = file(&dir.path().join("image"), &FileOptions::new());
    nextent_sync::thread::scope(|scope| {
        for t in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                let mut queue = device.queue(4);
                let mut done = Vec::new();
                for n in 0..200 {
                    queue.submit(write(n, (t * 200 + n) * 4096, &[t as u8 + 1; UNIT]));
                    if queue.in_flight() == 4 {
                        queue.complete(2, &mut done);
                    }
                }
                drop(queue);
                assert!(done.iter().all(|completed| completed.result.is_ok()));
            });
        }
    });
    let mut buf = vec![0; 200 * UNIT];
    for t in 0..4u64 {
        device.read_at(t * 200 * 4096, &mut buf).unwrap();
        assert!(buf.iter().all(|byte| *byte == t as u8 + 1));
    }
}

#[test]
fn delays_of_transfers_in_flight_overlap() {
    let delay = Duration::from_millis(20);
    let device = LatencyDevice::new(MemoryDevice::new(SIZE), delay);
    let mut queue = device.queue(32);
    let began = now();
    for n in 0..32 {
        queue.submit(write(n, n * 4096, &[1; UNIT]));
    }
    let mut done = Vec::new();
    queue.complete(0, &mut done);
    assert!(done.is_empty());
    assert_eq!(all(&mut *queue).len(), 32);
    assert!((delay..delay * 16).contains(&began.elapsed()));
}

#[test]
fn faults_are_reported_at_completion() {
    let device = FaultDevice::new(MemoryDevice::new(SIZE), 1);
    device.write_at(0, &[8; 8 * UNIT]).unwrap();
    let at = |n: u64| n * 4096..(n + 1) * 4096;
    device.add(Rule::on(OpKind::Write, Fault::Error(libc::ENOSPC)).within(at(0)));
    device.add(Rule::on(OpKind::Write, Fault::Torn { sectors: 3 }).within(at(1)));
    device.add(Rule::on(OpKind::Write, Fault::Lost).within(at(2)));
    device.add(Rule::on(OpKind::Write, Fault::Delay(Duration::from_millis(30))).within(at(3)));
    device.add(Rule::on(OpKind::Read, Fault::Error(libc::EIO)).within(at(4)));
    let mut queue = device.queue(8);
    let began = now();
    (0..4).for_each(|n| queue.submit(write(n, n * 4096, &[1; UNIT])));
    queue.submit(read(4, &[(4 * 4096, UNIT)]));
    assert_eq!(device.struck(), 5);
    let done = all(&mut *queue);
    assert!(began.elapsed() >= Duration::from_millis(30));
    let errno = |n: usize| done[n].result.as_ref().err().and_then(std::io::Error::raw_os_error);
    let told: Vec<_> = (0..5).map(errno).collect();
    assert_eq!(told, [Some(libc::ENOSPC), Some(libc::EIO), None, None, Some(libc::EIO)]);
    let bytes = device.inner().to_bytes();
    let first = |n: usize| (bytes[n * UNIT], bytes[n * UNIT + 1535], bytes[n * UNIT + 1536]);
    assert_eq!(
        [first(0), first(1), first(2), first(3)],
        [(8, 8, 8), (1, 1, 8), (8, 8, 8), (1, 1, 1)]
    );
}

#[test]
fn recorded_transfers_take_effect_between_submission_and_completion() {
    let device = RecordingDevice::new(MemoryDevice::new(SIZE));
    let mut queue = device.queue(4);
    (0..4).for_each(|n| queue.submit(write(n, n * 4096, &[n as u8 + 1; UNIT])));
    device.mark(7);
    all(&mut *queue);
    let order: Vec<u64> = device
        .recording()
        .events()
        .iter()
        .map(|event| match event {
            Event::Write { offset, .. } => offset / 4096,
            Event::Mark(mark) => mark * 100,
            _ => u64::MAX,
        })
        .collect();
    assert_eq!(order, [1, 3, 700, 2, 0]);
}
