//! Who else has a file: loop devices over it, and the file under a loop device.
//!
//! The lock of [`lock`](super::options) keeps two openers of one file apart. The kernel takes no
//! such lock when a loop device over the file is mounted, and a second opener may come by the loop
//! device. sysfs tells of both: `/sys/block/loopN/loop/backing_file`.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The loop device over `file` that the kernel has mounted, swaps to or has given to a device above
/// it.
pub(super) fn busy_loop_over(file: &Metadata) -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|entry| {
        let name = entry.file_name();
        let is_loop = name.to_str().is_some_and(|name| name.starts_with("loop"));
        let backing = if is_loop { backing_file(&entry.path()) } else { None }?;
        let found = std::fs::metadata(backing).ok()?;
        let same = (found.dev(), found.ino()) == (file.dev(), file.ino());
        let device = Path::new("/dev").join(&name);
        (same && is_busy(&device, &entry.path())).then_some(device)
    })
}

/// The file under the loop device with that number, if it is one.
pub(super) fn file_under(device: u64) -> Option<PathBuf> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    backing_file(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
}

/// What sysfs says is under the block device at `sys`.
fn backing_file(sys: &Path) -> Option<PathBuf> {
    let mut path = std::fs::read(sys.join("loop/backing_file")).ok()?;
    if path.last() == Some(&b'\n') {
        path.pop();
    }
    (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path)))
}

/// Whether the kernel uses a block device: an exclusive open says so for all mount namespaces,
/// where it is allowed; else what this process can see does.
fn is_busy(device: &Path, sys: &Path) -> bool {
    let exclusive = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device);
    match exclusive {
        Ok(_) => false,
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => true,
        Err(_) => is_mounted(sys) || is_swap(device) || has_holders(sys),
    }
}

fn is_mounted(sys: &Path) -> bool {
    let number = std::fs::read_to_string(sys.join("dev")).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = number.trim();
    !number.is_empty() && mounts.lines().any(|line| line.split(' ').nth(2) == Some(number))
}

fn is_swap(device: &Path) -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split_whitespace().next().map(Path::new) == Some(device))
}

fn has_holders(sys: &Path) -> bool {
    std::fs::read_dir(sys.join("holders")).is_ok_and(|mut holders| holders.next().is_some())
}

/// The file under the loop device `device`, open to be locked; none if it is no loop device or its
/// file cannot be opened here.
pub(super) fn open_under(device: u64) -> Option<File> {
    File::open(file_under(device)?).ok()
}
