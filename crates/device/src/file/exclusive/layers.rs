//! Finds the block devices and files that hold the same bytes, from sysfs and the loop driver.
//!
//! A loop device lies over its backing file or device, a partition over its disk, a device-mapper
//! or md device over its members.

use super::super::{device_number, sys};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The identity of a regular file or block device, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Node {
    /// A file: the device number of its file system, and its inode.
    File(u64, u64),
    /// A block device: its number.
    Block(u64),
}

impl Node {
    pub(in super::super) fn of(meta: &Metadata) -> Self {
        match meta.file_type().is_block_device() {
            true => Self::Block(meta.rdev()),
            false => Self::File(meta.dev(), meta.ino()),
        }
    }

    /// The node at `path`, if this process can stat it.
    pub(super) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|meta| Self::of(&meta))
    }
}

/// An attached loop device.
#[derive(Clone, Debug)]
pub(in super::super) struct Loop {
    /// Its device number.
    pub(in super::super) device: u64,
    /// The path of its backing file at the time of attachment, as this process sees paths.
    pub(super) path: PathBuf,
    /// Its backing file, if this process can identify it.
    pub(in super::super) backing: Option<Node>,
    /// The byte range of the backing file.
    pub(in super::super) start: u64,
    pub(super) end: u64,
}

impl Loop {
    /// The loop device with this number.
    pub(super) fn of(device: u64) -> Option<Self> {
        let sys = sys_path(device).join("loop");
        let mut path = std::fs::read(sys.join("backing_file")).ok()?;
        if path.last() == Some(&b'\n') {
            path.pop();
        }
        let path = (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path)))?;
        let number = |name: &str| {
            let text = std::fs::read_to_string(sys.join(name)).unwrap_or_default();
            text.trim().parse::<u64>().unwrap_or(0)
        };
        let (start, limit) = (number("offset"), number("sizelimit"));
        let end = if limit == 0 { u64::MAX } else { start.saturating_add(limit) };
        // The driver also identifies a backing file that was renamed or is in another mount
        // namespace.
        let by_driver = File::open(device_path(device)).ok().and_then(|file| {
            let (dev, ino, rdev) = sys::loop_backing(&file)?;
            Some(if rdev == 0 { Node::File(dev, ino) } else { Node::Block(rdev) })
        });
        let backing = by_driver.or_else(|| Node::at(&path));
        Some(Self { device, path, backing, start, end })
    }

    /// All attached loop devices.
    pub(in super::super) fn all() -> Vec<Self> {
        let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
        let loops = devices.flatten().filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with("loop"))
        });
        loops.filter_map(|entry| Self::of(number_at(&entry.path())?)).collect()
    }
}

/// `node` and the loop devices over it, also over each other.
pub(super) fn with_loops_over(node: Node) -> Vec<Node> {
    let loops = Loop::all();
    let mut nodes = vec![node];
    let mut next = 0;
    while let Some(below) = nodes.get(next).copied() {
        let over = loops.iter().filter(|over| over.backing == Some(below));
        let over: Vec<_> = over.map(|over| Node::Block(over.device)).collect();
        nodes.extend(over.into_iter().filter(|one| *one != below && *one != node));
        next += 1;
    }
    nodes
}

/// The sysfs directory of a block device.
pub(in super::super) fn sys_path(device: u64) -> PathBuf {
    let (major, minor) = (device_number::major(device), device_number::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// The name of a block device in sysfs.
pub(super) fn name_of(device: u64) -> Option<OsString> {
    let folder = std::fs::canonicalize(sys_path(device)).ok()?;
    folder.file_name().map(OsString::from)
}

/// The usual path of a block device.
pub(in super::super) fn device_path(device: u64) -> PathBuf {
    Path::new("/dev").join(name_of(device).unwrap_or_default())
}

/// The number of the block device of a sysfs directory.
fn number_at(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(device_number::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The disk, if `device` is a partition.
pub(super) fn disk_of(device: u64) -> Option<u64> {
    let folder = std::fs::canonicalize(sys_path(device)).ok()?;
    let is_part = folder.join("partition").exists();
    is_part.then(|| number_at(folder.parent()?)).flatten()
}

/// The bytes of its disk that a partition has.
pub(super) fn place_of(device: u64) -> Option<Range<u64>> {
    let number = |name: &str| {
        let text = std::fs::read_to_string(sys_path(device).join(name)).ok()?;
        text.trim().parse::<u64>().ok()?.checked_mul(512)
    };
    let start = number("start")?;
    Some(start..start.checked_add(number("size")?)?)
}

/// The path of the partition of `disk` with exactly these bytes.
pub(in super::super) fn partition_device(disk: u64, bytes: Range<u64>) -> Option<PathBuf> {
    let mut parts = parts_of(disk).into_iter();
    let device = parts.find(|part| place_of(*part).as_ref() == Some(&bytes))?;
    let path = device_path(device);
    (Node::at(&path) == Some(Node::Block(device))).then_some(path)
}

/// The partitions of a disk.
fn parts_of(device: u64) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(sys_path(device)) else { return Vec::new() };
    let parts = entries.flatten().filter(|entry| entry.path().join("partition").exists());
    parts.filter_map(|entry| number_at(&entry.path())).collect()
}

/// A device, its disk and its partitions: a claim of one conflicts with the others.
pub(super) fn family(device: u64) -> Vec<u64> {
    let mut all = vec![device];
    all.extend(disk_of(device));
    all.extend(parts_of(device));
    all
}

/// The members of a device-mapper or md device.
pub(super) fn members_of(device: u64) -> Vec<u64> {
    linked(device, "slaves")
}

/// The devices that have `device` as a member.
pub(super) fn holders_of(device: u64) -> Vec<u64> {
    linked(device, "holders")
}

fn linked(device: u64, what: &str) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(sys_path(device).join(what)) else { return Vec::new() };
    entries.flatten().filter_map(|entry| number_at(&entry.path())).collect()
}
