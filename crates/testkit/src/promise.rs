//! Promises of fsync, with marks for the crash explorer.
//!
//! One thread for each of a few files appends a known pattern. After an append's fsync has
//! returned, the thread records a mark. A crash after that mark must leave the file at least so
//! long, with the pattern in all its bytes.

use crate::{CutInfo, PosixFs};
use nextent_device::{BlockDevice, RecordingDevice};
use std::collections::BTreeMap;

/// The file's name.
fn path(file: u32) -> String {
    format!("/promise{file}")
}

/// The byte that a file has at `at`.
fn byte(file: u32, at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16) ^ u64::from(file).wrapping_mul(89)) as u8 | 1
}

fn bytes(file: u32, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| byte(file, at)).collect()
}

/// Makes the file and appends `step` bytes `times` times, with an fsync and a mark after each.
///
/// # Errors
/// The errno of the first failed call.
pub fn append_with_promises<D: BlockDevice>(
    fs: &(impl PosixFs + ?Sized),
    device: &RecordingDevice<D>,
    file: u32,
    times: u64,
    step: u64,
) -> Result<(), i32> {
    fs.create(&path(file), 0o644)?;
    for n in 0..times {
        fs.write(&path(file), n * step, &bytes(file, n * step, step))?;
        fs.fsync(&path(file))?;
        device.mark((u64::from(file) << 40) | ((n + 1) * step));
    }
    Ok(())
}

/// Checks, in a recovered file system, every promise before the cut.
///
/// # Errors
/// A line that names the file and the missing bytes.
pub fn check_promises(fs: &(impl PosixFs + ?Sized), info: &CutInfo) -> Result<(), String> {
    let mut promised: BTreeMap<u32, u64> = BTreeMap::new();
    for mark in info.marks.iter().filter(|mark| *mark >> 63 == 0) {
        promised.insert((mark >> 40) as u32, mark & ((1 << 40) - 1));
    }
    for (file, len) in promised {
        let name = path(file);
        let held = fs
            .read(&name, 0, len as usize + (1 << 20))
            .map_err(|errno| format!("{name}: fsync promised {len} bytes, errno {errno}"))?;
        if (held.len() as u64) < len {
            return Err(format!("{name}: fsync promised {len} bytes, {} are there", held.len()));
        }
        // Bytes after the promise may be there or not. If the size covers them, they were written.
        let wrong = held.iter().zip(0..).find(|(have, at)| **have != byte(file, *at));
        if let Some((have, at)) = wrong {
            return Err(format!("{name}: byte {at} of {} is {have}, never written", held.len()));
        }
    }
    Ok(())
}
