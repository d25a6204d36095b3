//! The kernel's words for files, and ours.

use fuser::{FileAttr, Generation, INodeNo, TimeOrNow};
use nextent::{
    Attr, Cred, DeviceNo, DiskTime, FallocateMode, FileType, InodeNo, NewNode, ROOT_INO,
    RenameMode, SetAttr, SetTime,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may keep what it was told: nobody else changes the image.
pub(crate) const LIFETIME: Duration = Duration::from_secs(86_400);

/// The image's number of a file. The kernel's root is 1, where the image has bad blocks.
pub(crate) fn number(ino: INodeNo) -> InodeNo {
    match ino {
        INodeNo::ROOT => ROOT_INO,
        INodeNo(other) => InodeNo(u32::try_from(other).unwrap_or(0)),
    }
}

/// The kernel's number of a file.
pub(crate) fn node(ino: InodeNo) -> INodeNo {
    if ino == ROOT_INO { INodeNo::ROOT } else { INodeNo(u64::from(ino.0)) }
}

pub(crate) fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// What `stat` shows; the number is the image's own but for a reply that names a node.
pub(crate) fn attributes(attr: &Attr, block_size: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(u64::from(attr.ino.0)),
        size: attr.size,
        blocks: attr.sectors,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.crtime.unwrap_or(attr.ctime)),
        kind: kind(attr.kind),
        perm: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device_word(attr.device),
        blksize: block_size,
        flags: 0,
    }
}

fn system_time(time: DiskTime) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    if time.seconds >= 0 { UNIX_EPOCH + seconds + nanos } else { UNIX_EPOCH - seconds + nanos }
}

/// A time of a request. Before 1970, the crate adds the part of a second on the wrong side.
fn disk_time(time: SystemTime) -> DiskTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => DiskTime { seconds: after.as_secs() as i64, nanos: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            DiskTime { seconds: -(before.as_secs() as i64), nanos: before.subsec_nanos() }
        }
    }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(disk_time(time)),
    }
}

/// What a request wants changed.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
    pub(crate) ctime: Option<SystemTime>,
}

impl Wanted {
    pub(crate) fn set(self) -> SetAttr {
        SetAttr {
            mode: self.mode.map(|mode| mode as u16 & 0o7777),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime.map(set_time),
            mtime: self.mtime.map(set_time),
            ctime: self.ctime.map(disk_time),
            ..SetAttr::default()
        }
    }
}

/// Who asks; the kernel has checked the permissions.
pub(crate) fn cred(request: &fuser::Request, umask: u32) -> Cred {
    let cred = Cred::user(request.uid(), request.gid(), Vec::new(), umask as u16 & 0o777);
    Cred { checked: true, ..cred }
}

/// Who asks for what the kernel passes on without a look.
pub(crate) fn unchecked(request: &fuser::Request) -> Cred {
    Cred::user(request.uid(), request.gid(), Vec::new(), 0)
}

/// A node's kind from a mode; `None` for kinds that are not made this way.
pub(crate) fn new_node(mode: u32, device: u32) -> Option<NewNode> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(NewNode::Regular),
        libc::S_IFIFO => Some(NewNode::Fifo),
        libc::S_IFSOCK => Some(NewNode::Socket),
        libc::S_IFCHR => Some(NewNode::CharDevice(device_no(device))),
        libc::S_IFBLK => Some(NewNode::BlockDevice(device_no(device))),
        _ => None,
    }
}

/// The kernel's 32-bit form of a device number: 12 bits of major between 8 and 12 of minor.
fn device_word(device: DeviceNo) -> u32 {
    device.minor & 0xff | device.major << 8 | (device.minor & !0xff) << 12
}

fn device_no(word: u32) -> DeviceNo {
    DeviceNo { major: word >> 8 & 0xfff, minor: word & 0xff | word >> 12 & 0xfff00 }
}

/// How a rename treats what is there; `None` for flags that mean nothing here.
pub(crate) fn rename_mode(flags: fuser::RenameFlags) -> Option<RenameMode> {
    if flags.is_empty() {
        Some(RenameMode::Replace)
    } else if flags == fuser::RenameFlags::RENAME_NOREPLACE {
        Some(RenameMode::NoReplace)
    } else if flags == fuser::RenameFlags::RENAME_EXCHANGE {
        Some(RenameMode::Exchange)
    } else {
        None
    }
}

/// What fallocate(2) is to do; `None` for combinations that it refuses.
pub(crate) fn fallocate_mode(mode: i32) -> Option<FallocateMode> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match mode {
        0 => Some(FallocateMode::Allocate),
        KEEP => Some(FallocateMode::KeepSize),
        PUNCH => Some(FallocateMode::PunchHole),
        ZERO => Some(FallocateMode::ZeroRange { keep_size: false }),
        ZERO_KEEP => Some(FallocateMode::ZeroRange { keep_size: true }),
        libc::FALLOC_FL_COLLAPSE_RANGE => Some(FallocateMode::CollapseRange),
        libc::FALLOC_FL_INSERT_RANGE => Some(FallocateMode::InsertRange),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970() {
        let time = DiskTime { seconds: -7, nanos: 250_000_000 };
        // As it is: 6.75 seconds before.
        assert_eq!(system_time(time), UNIX_EPOCH - Duration::from_millis(6750));
        // As the crate makes it of (-7, 250000000).
        assert_eq!(disk_time(UNIX_EPOCH - Duration::from_millis(7250)), time);
    }

    #[test]
    fn devices_come_back() {
        for (major, minor) in [(0, 0), (8, 1), (0xfff, 0xfffff), (1, 0x1ff)] {
            let device = DeviceNo { major, minor };
            assert_eq!(device_no(device_word(device)), device);
        }
    }

    #[test]
    fn the_root_has_two_numbers() {
        assert_eq!(number(INodeNo::ROOT), ROOT_INO);
        assert_eq!(node(ROOT_INO), INodeNo::ROOT);
        assert_eq!(number(node(InodeNo(12))), InodeNo(12));
    }
}
