//! What is known of a file besides its contents.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nextent_ondisk::DiskTime;

use crate::{Attr, DeviceNo, FileType, SetAttr, SetTime};

/// What is known of a file besides its contents, as [`std::fs::Metadata`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(pub(super) Attr);

impl Metadata {
    /// The type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.0.kind
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.kind.is_dir()
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.kind.is_file()
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.kind.is_symlink()
    }

    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // as in std
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// The permission bits.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        Permissions { bits: self.0.mode }
    }

    /// Last change of the contents.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Last read, as far as it was noted.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Last change of contents or metadata (`st_ctime`).
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Creation; `None` on volumes whose inodes have no room for it.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.0.crtime.map(system_time)
    }

    /// The number of the inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.ino.0.into()
    }

    /// Type and permission bits (`st_mode`).
    #[must_use]
    pub fn mode(&self) -> u32 {
        u32::from(self.0.kind.mode_bits() | self.0.mode)
    }

    /// The number of names.
    #[must_use]
    pub fn nlink(&self) -> u64 {
        self.0.links.into()
    }

    /// The user that owns it.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group that owns it.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The device that a device node stands for.
    #[must_use]
    pub fn rdev(&self) -> DeviceNo {
        self.0.device
    }

    /// Space used, in units of 512 bytes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.sectors
    }

    /// All attributes, as the inode level has them.
    #[must_use]
    pub fn attr(&self) -> &Attr {
        &self.0
    }
}

/// Permission bits, as [`std::fs::Permissions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub(super) bits: u16,
}

impl Permissions {
    /// Permissions of the bits `07777` of `mode`; other bits are ignored.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        Self { bits: u16::try_from(mode & 0o7777).unwrap_or_default() }
    }

    /// The bits.
    #[must_use]
    pub fn mode(self) -> u32 {
        self.bits.into()
    }

    /// Sets the bits to the bits `07777` of `mode`.
    pub fn set_mode(&mut self, mode: u32) {
        *self = Self::from_mode(mode);
    }

    /// Whether no write bit is set.
    #[must_use]
    pub fn readonly(self) -> bool {
        self.bits & 0o222 == 0
    }

    /// Takes all write bits away, or sets all three.
    pub fn set_readonly(&mut self, readonly: bool) {
        self.bits = if readonly { self.bits & !0o222 } else { self.bits | 0o222 };
    }
}

/// Times to set, as [`std::fs::FileTimes`]. What is not set stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct FileTimes {
    accessed: Option<DiskTime>,
    modified: Option<DiskTime>,
}

impl FileTimes {
    /// No time to set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time of the last read.
    pub fn set_accessed(mut self, time: SystemTime) -> Self {
        self.accessed = Some(disk_time(time));
        self
    }

    /// Sets the time of the last change of the contents.
    pub fn set_modified(mut self, time: SystemTime) -> Self {
        self.modified = Some(disk_time(time));
        self
    }

    pub(super) fn changes(self) -> SetAttr {
        let (atime, mtime) = (self.accessed.map(SetTime::At), self.modified.map(SetTime::At));
        SetAttr { atime, mtime, ..SetAttr::default() }
    }
}

fn system_time(time: DiskTime) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let start = if time.seconds < 0 { UNIX_EPOCH - seconds } else { UNIX_EPOCH + seconds };
    start + Duration::from_nanos(time.nanos.into())
}

/// The nearest time that the format has; inodes keep 1901 to 2446.
fn disk_time(time: SystemTime) -> DiskTime {
    let seconds = |past: Duration| i64::try_from(past.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => DiskTime::new(seconds(after), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => DiskTime::new(-seconds(before), 0),
                nanos => DiskTime::new(-seconds(before) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_survive() {
        for (seconds, nanos) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-7, 1), (1 << 33, 3)]
        {
            let time = DiskTime::new(seconds, nanos);
            assert_eq!(disk_time(system_time(time)), time);
        }
    }

    #[test]
    fn read_only_is_no_write_bit() {
        let mut permissions = Permissions::from_mode(0o100_644);
        assert_eq!((permissions.mode(), permissions.readonly()), (0o644, false));
        permissions.set_readonly(true);
        assert_eq!((permissions.mode(), permissions.readonly()), (0o444, true));
        permissions.set_readonly(false);
        assert_eq!(permissions.mode(), 0o666);
    }
}
