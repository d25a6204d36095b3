//! Shuttle models of first writes and flushes of a copy-on-write device.
//!
//! In every schedule:
//!
//! - A bit is written to the device only when the data of its unit is stable.
//! - A flush that begins after a write has returned makes the write stable, also if another thread
//!   flushes at the same time.
//! - First writes to parts of the same unit keep each other's bytes, and those of the base.

use super::DeltaDevice;
use super::format::{BITMAP_AT, UNIT, decode_sector};
use crate::{BlockDevice, SECTOR};
use nextent_num::{to_u64, to_usize};
use nextent_sync::{Arc, LockClass, Mutex, shuttle, thread};
use std::io;

static DEVICE: LockClass = LockClass::new("device.delta-model", 890);

/// Bytes of the device: two units.
const SIZE: u64 = 2 * UNIT;
/// What the base holds.
const BASE: u8 = 9;

/// A device that knows what a crash keeps for sure.
struct Disk {
    bytes: Mutex<Bytes>,
    is_delta: bool,
}

#[derive(Clone)]
struct Bytes {
    now: Vec<u8>,
    stable: Vec<u8>,
}

impl Disk {
    fn new(bytes: Vec<u8>, is_delta: bool) -> Arc<Self> {
        let bytes = Bytes { now: bytes.clone(), stable: bytes };
        Arc::new(Self { bytes: Mutex::new(&DEVICE, bytes), is_delta })
    }

    /// The device after a crash that keeps nothing but what is stable.
    fn after_crash(&self) -> Arc<Self> {
        Self::new(self.bytes.lock().stable.clone(), self.is_delta)
    }
}

/// Checks the units of the bits in a sector of the bitmap: their data is stable. A thread writes
/// its number, and each unit keeps bytes of the base.
fn check_bits(sector: &[u8], stable: &[u8]) {
    let words = decode_sector(0, sector).expect("a sector is written as a whole");
    let data = stable.len() - to_usize(SIZE);
    for unit in (0..2).filter(|unit| words[0] >> unit & 1 == 1) {
        let at = data + unit * to_usize(UNIT);
        let bytes = &stable[at..at + to_usize(UNIT)];
        assert_eq!(bytes[3000], BASE, "unit {unit} was not copied from the base");
        assert!(bytes[..3000].iter().any(|byte| (1..4).contains(byte)), "unit {unit} is not there");
    }
}

impl BlockDevice for Arc<Disk> {
    fn size(&self) -> u64 {
        to_u64(self.bytes.lock().now.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = to_usize(offset);
        buf.copy_from_slice(&self.bytes.lock().now[at..at + buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock();
        if self.is_delta && offset == BITMAP_AT {
            check_bits(&buf[..SECTOR], &bytes.stable);
        }
        let at = to_usize(offset);
        bytes.now[at..at + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        // Writes that come during a flush are not covered by it.
        let covered = self.bytes.lock().now.clone();
        thread::yield_now();
        self.bytes.lock().stable = covered;
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; to_usize(len)])
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

fn bytes_at(device: &impl BlockDevice, offset: u64) -> [u8; 100] {
    let mut bytes = [0; 100];
    device.read_at(offset, &mut bytes).expect("the model fails no read");
    bytes
}

#[test]
fn a_flush_covers_the_writes_before_it() {
    shuttle::check_random(
        || {
            let base = Disk::new(vec![BASE; to_usize(SIZE)], false);
            let len = DeltaDevice::<Arc<Disk>, Arc<Disk>>::file_len(SIZE).expect("it is small");
            let disk = Disk::new(vec![0; to_usize(len)], true);
            let made = DeltaDevice::create(Arc::clone(&base), Arc::clone(&disk), vec![0]);
            let device = Arc::new(made.expect("the model fails nothing"));
            // Two threads write to the first unit, one to the second.
            let places = [0, 1000, UNIT];
            let threads = places.map(|at| {
                let (device, disk, base) = (device.clone(), disk.clone(), base.clone());
                thread::spawn(move || {
                    let own = if at == 0 { 1 } else { 2 };
                    device.write_at(at, &[own; 100]).expect("the model fails no write");
                    device.flush().expect("the model fails no flush");
                    let after = DeltaDevice::open(base, disk.after_crash());
                    let after = after.expect("its header is stable");
                    assert_eq!(bytes_at(&after, at), [own; 100], "at {at}");
                })
            });
            threads.into_iter().for_each(|thread| thread.join().expect("a thread failed"));
            for (at, own) in [(0, 1), (1000, 2), (UNIT, 2), (500, BASE), (UNIT + 1000, BASE)] {
                assert_eq!(bytes_at(&*device, at), [own; 100], "at {at}");
            }
        },
        1000,
    );
}
