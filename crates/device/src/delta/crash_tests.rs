//! Power cuts at any point, for writes, commits and rebases.

use super::{DeltaDevice, DeltaError};
use crate::queue::DeviceQueue;
use crate::{BlockDevice, Loss, MemoryDevice, Recording, RecordingDevice, SECTOR};
use nextent_sync::atomic::{AtomicU64, Ordering};
use std::io::{self, IoSlice};
use std::ops::Range;

/// The last unit is short.
const SIZE: u64 = 70 * 4096 + 1536;

/// Random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

fn base(seed: u8) -> MemoryDevice {
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 512) as u8 ^ seed).collect();
    MemoryDevice::from_bytes(&bytes)
}

fn store() -> MemoryDevice {
    MemoryDevice::new(DeltaDevice::<MemoryDevice, MemoryDevice>::file_len(SIZE).unwrap())
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Writes that a crash at `cut` loses: none, all, or a random choice with torn writes.
fn loss(recording: &Recording, cut: usize, kind: u64, random: &mut Random) -> Loss {
    let unstable = recording.unstable_at(cut);
    match kind {
        0 => Loss::default(),
        1 => Loss { lost: unstable, torn: Vec::new() },
        _ => {
            let mut loss = Loss::default();
            for event in unstable {
                match random.below(3) {
                    0 => loss.lost.push(event),
                    1 => {
                        let kept = (0..600).map(|_| random.below(2) == 0).collect();
                        loss.torn.push((event, kept));
                    }
                    _ => {}
                }
            }
            loss
        }
    }
}

/// The image after each operation, and the events before and after it.
struct Step {
    events: Range<usize>,
    image: Vec<u8>,
    flushes: bool,
}

/// A random operation, and whether it is a flush. No discards: recordings keep their bytes.
fn operate(device: &impl BlockDevice, random: &mut Random, n: u64) -> bool {
    let at = match random.below(2) {
        0 => random.below(SIZE / 4096) * 4096,
        _ => random.below(SIZE - 1),
    };
    let len = [100, 512, 4096, 9000, 50_000][random.below(5) as usize].min(SIZE - at);
    match random.below(8) {
        0 | 1 => {
            device.flush().unwrap();
            return true;
        }
        2 => device.write_zeroes(at, len).unwrap(),
        3 => {
            let bytes = vec![n as u8 | 0x40; len as usize];
            let (one, two) = bytes.split_at(random.below(len) as usize);
            device.write_vectored_at(at, &[one, two].map(IoSlice::new)).unwrap();
        }
        _ => device.write_at(at, &vec![n as u8 | 0x80; len as usize]).unwrap(),
    }
    false
}

#[test]
fn a_crash_keeps_what_was_flushed() {
    for seed in 1..5 {
        let mut random = Random(seed);
        let base = base(0);
        let recorder = RecordingDevice::new(store());
        let device = DeltaDevice::create(&base, &recorder, vec![0]).unwrap();
        let made = recorder.events();
        let mut steps = vec![Step { events: 0..made, image: bytes_of(&device), flushes: true }];
        for n in 0..40 {
            let from = recorder.events();
            let flushes = operate(&device, &mut random, n);
            let events = from..recorder.events();
            steps.push(Step { events, image: bytes_of(&device), flushes });
        }
        assert_eq!(bytes_of(&base), bytes_of(&self::base(0)));
        let recording = recorder.recording();
        for cut in made..=recording.events().len() {
            for kind in 0..4 {
                let loss = loss(&recording, cut, kind, &mut random);
                let image = recording.image_with(cut, &loss);
                check_crash(&base, &image, &steps, cut, &mut random);
            }
        }
    }
}

fn check_crash(
    base: &MemoryDevice,
    image: &MemoryDevice,
    steps: &[Step],
    cut: usize,
    random: &mut Random,
) {
    let device = DeltaDevice::open(base, image).unwrap();
    let mut found = bytes_of(&device);
    let flushed = steps.iter().rposition(|step| step.flushes && step.events.end <= cut).unwrap();
    let begun = steps.iter().rposition(|step| step.events.start < cut).unwrap();
    for (sector, bytes) in found.chunks(SECTOR).enumerate() {
        let at = sector * SECTOR;
        let steps = &steps[flushed..=begun];
        let whole = |step: &Step| step.image[at..at + bytes.len()] == *bytes;
        // Of several writes to parts of a sector, any may survive.
        let parts = || {
            let may = |(n, byte)| steps.iter().any(|step| step.image[at + n] == byte);
            bytes.iter().copied().enumerate().all(may)
        };
        assert!(steps.iter().any(whole) || parts(), "sector {sector}, cut {cut}");
    }
    // The next session sees the same, also in parts of units that a lost write left in the file.
    let at = random.below(SIZE - 700) as usize;
    device.write_at(at as u64, &[1; 700]).unwrap();
    device.flush().unwrap();
    found[at..at + 700].fill(1);
    let again = DeltaDevice::open(base, image).unwrap();
    assert_eq!(bytes_of(&again), found, "cut {cut}");
}

/// Records two devices, with a mark in both recordings after each operation of either.
struct Clocked<'a> {
    devices: [&'a RecordingDevice<MemoryDevice>; 2],
    side: usize,
    clock: &'a AtomicU64,
}

impl<'a> Clocked<'a> {
    fn device(&self) -> &'a RecordingDevice<MemoryDevice> {
        self.devices[self.side]
    }

    fn ticked(&self, result: io::Result<()>) -> io::Result<()> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.devices.iter().for_each(|device| device.mark(now));
        result
    }
}

impl BlockDevice for Clocked<'_> {
    fn size(&self) -> u64 {
        self.device().size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device().read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.ticked(self.device().write_at(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.ticked(self.device().flush())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        // As a file does it. A recording would keep the bytes.
        self.ticked(self.device().write_zeroes(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.ticked(self.device().write_zeroes(offset, len))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.device().next_data(offset)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        self.device().queue(depth)
    }
}

/// A base, and a delta of it with random data.
fn changed(seed: u64) -> (MemoryDevice, MemoryDevice) {
    let (base, store) = (base(0), store());
    let device = DeltaDevice::create(&base, &store, vec![0, 8192]).unwrap();
    device.write_at(700, b"the first sample").unwrap();
    let mut random = Random(seed);
    for n in 0..12 {
        operate(&device, &mut random, n);
    }
    device.flush().unwrap();
    drop(device);
    (base, store)
}

/// Calls `check` with the images of both devices after each crash.
fn each_crash(
    recorders: [&RecordingDevice<MemoryDevice>; 2],
    clock: &AtomicU64,
    check: impl Fn(MemoryDevice, MemoryDevice, u64),
) {
    let recordings = recorders.map(RecordingDevice::recording);
    let mut random = Random(7);
    for time in 0..=clock.load(Ordering::Relaxed) {
        let cuts = recordings.each_ref().map(|recording| {
            let is_it = |event: &crate::Event| *event == crate::Event::Mark(time);
            recording.events().iter().position(is_it).unwrap_or(0)
        });
        for kind in 0..6 {
            let [one, two] = [0, 1].map(|n| {
                // All four pairs of nothing and all, and random ones.
                let kind = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [2, 2]][kind][n];
                let loss = loss(&recordings[n], cuts[n], kind, &mut random);
                recordings[n].image_with(cuts[n], &loss)
            });
            check(one, two, time);
        }
    }
}

#[test]
fn a_commit_is_completed_after_a_crash() {
    for seed in 1..4 {
        let (base, store) = changed(seed);
        let wanted = bytes_of(&DeltaDevice::open(&base, &store).unwrap());
        let recorders = [RecordingDevice::new(base), RecordingDevice::new(store)];
        let clock = AtomicU64::new(0);
        let devices = recorders.each_ref();
        let [over, into] = [0, 1].map(|side| Clocked { devices, side, clock: &clock });
        DeltaDevice::open(over, into).unwrap().commit().unwrap();
        assert_eq!(bytes_of(&recorders[0]), wanted);
        each_crash(devices, &clock, |base, store, time| {
            let mut device = DeltaDevice::open(&base, &store).unwrap();
            assert!(bytes_of(&device) == wanted, "seed {seed}, time {time}: the overlay");
            assert_eq!(device.is_read_only(), device.is_committing());
            device.commit().unwrap();
            assert_eq!((device.delta_bytes().unwrap(), device.is_read_only()), (0, false));
            assert!(bytes_of(&base) == wanted, "seed {seed}, time {time}: the base");
            let again = DeltaDevice::open(&base, &store).unwrap();
            again.write_at(3, b"x").unwrap();
        });
    }
}

/// The other base is longer, and differs in every unit, in a few, or in none but a sample.
#[test]
fn a_rebase_is_done_or_not_after_a_crash() {
    for step in [4096, 9 * 4096, SIZE] {
        let (base, store) = changed(step);
        let wanted = bytes_of(&DeltaDevice::open(&base, &store).unwrap());
        let other = MemoryDevice::new(SIZE + 8192);
        other.write_at(0, &bytes_of(&base)).unwrap();
        for at in (100..SIZE).step_by(step as usize) {
            other.write_at(at, b"other").unwrap();
        }
        let recorders = [RecordingDevice::new(base), RecordingDevice::new(store)];
        let clock = AtomicU64::new(0);
        let devices = recorders.each_ref();
        let [over, into] = [0, 1].map(|side| Clocked { devices, side, clock: &clock });
        DeltaDevice::open(over, into).unwrap().rebase(&other, vec![0]).unwrap();
        each_crash(devices, &clock, |base, store, time| {
            let new = DeltaDevice::open(&other, &store);
            let old = DeltaDevice::open(&base, &store);
            assert_ne!(new.is_ok(), old.is_ok(), "time {time}");
            match (old, new) {
                (Ok(old), _) => assert!(bytes_of(&old) == wanted, "time {time}"),
                (_, Ok(new)) => assert!(bytes_of(&new) == wanted, "time {time}"),
                _ => unreachable!("one of them is open"),
            }
        });
        let new = DeltaDevice::open(&other, recorders[1].inner()).unwrap();
        assert!(bytes_of(&new) == wanted);
        let old = DeltaDevice::open(recorders[0].inner(), recorders[1].inner());
        assert!(matches!(old, Err(DeltaError::BaseSize { .. })));
    }
}
