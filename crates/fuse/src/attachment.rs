//! Where a mount is attached: unmounts it, makes the kernel write its changes, aborts it.
//!
//! The path of the mount point may lead to another mount later. Each operation first compares the
//! device number, so that it never unmounts another mount.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::control::Control;
use crate::mount_table::{self, Mounted};
use crate::mounting::{self, Detach};

/// The mount point and the connection of a mount.
#[derive(Debug)]
pub struct Attachment {
    point: PathBuf,
    /// The device number of all mounts of the connection; none without a table of mounts.
    device: Option<(u64, u64)>,
    control: Option<Control>,
}

impl Attachment {
    /// The new mount of the open `/dev/fuse` at the absolute path `point`. Another process may have
    /// mounted above it already.
    pub(crate) fn new(point: PathBuf, connection: &File) -> Self {
        let by_path = || Mounted::of_this_crate(&point).map(|mounted| mounted.device);
        let device = device_of(connection).or_else(by_path);
        Self { control: device.and_then(Control::open), device, point }
    }

    /// The device number of the mount; none without a table of mounts.
    #[must_use]
    pub fn device(&self) -> Option<(u64, u64)> {
        self.device
    }

    /// The mount point.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts it from its mount point. Other mounts of the connection stay.
    ///
    /// # Errors
    /// Files are in use.
    pub fn unmount(&self) -> io::Result<()> {
        if self.is_at_point() { mounting::unmount(&self.point, Detach::Unused) } else { Ok(()) }
    }

    /// Removes the mount from its mount point although files are in use.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn detach(&self) -> io::Result<()> {
        if self.is_at_point() { mounting::unmount(&self.point, Detach::Lazy) } else { Ok(()) }
    }

    /// Sends changes that the kernel caches to the server, as far as this process sees a mount of
    /// the connection. Other threads must answer requests.
    pub fn flush(&self) {
        let Some(device) = self.device else { return };
        for point in mount_table::points_of(device) {
            let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(file) = rustix::fs::open(&point, how, Mode::empty()) else { continue };
            let number = rustix::fs::fstat(&file).map(|stat| stat.st_dev);
            let is_ours = number.is_ok_and(|number| {
                let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
                (u64::from(major), u64::from(minor)) == device
            });
            if is_ours && rustix::fs::syncfs(&file).is_ok() {
                return;
            }
        }
    }

    /// Makes the kernel fail all requests from now on, and detaches the mount. Whether this process
    /// could; its server ends then.
    pub fn abort(&self) -> bool {
        let aborted = self.control.as_ref().is_some_and(Control::abort);
        let here = self.is_at_point();
        let forced = here && mounting::unmount(&self.point, Detach::Forced).is_ok();
        aborted || forced
    }

    fn is_at_point(&self) -> bool {
        self.device.is_none_or(|device| {
            Mounted::at(&self.point).is_some_and(|mounted| mounted.device == device)
        })
    }
}

/// The device number of the mounts of an open `/dev/fuse`; none if the kernel does not say it
/// (before Linux 6.16).
fn device_of(connection: &File) -> Option<(u64, u64)> {
    let place = format!("/proc/self/fdinfo/{}", connection.as_raw_fd());
    number_in(&std::fs::read_to_string(place).ok()?)
}

/// The device number in the text of a descriptor, where it is one decimal number.
fn number_in(text: &str) -> Option<(u64, u64)> {
    let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    let number: u64 = number.trim().parse().ok()?;
    Some((number >> 20, number & 0xf_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::setup::Setup;
    use nextent_testkit::Skip;
    use rustix::mount::{MountFlags, UnmountFlags, unmount};

    #[test]
    fn a_mount_is_known_although_another_one_is_above_it() {
        if !rustix::process::geteuid().is_root() || mounting::check(Path::new("/")).is_err() {
            return Skip::missing("root and /dev/fuse").note();
        }
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let setup = Setup {
            source: "name".into(),
            threads: None,
            insist: false,
            read_only: false,
            acl: false,
            block_device: None,
            flags: Vec::new(),
        };
        let file = mounting::mount(&point, &setup, Admission::default()).unwrap();
        let above = rustix::mount::mount("none", &point, "tmpfs", MountFlags::empty(), None);
        let attachment = Attachment::new(point.clone(), &file);
        let done = (attachment.detach(), above);
        let left = Mounted::at(&point);
        for _ in 0..2 {
            let _ = unmount(&point, UnmountFlags::DETACH);
        }
        done.0.unwrap();
        done.1.unwrap();
        assert!(
            left.is_some_and(|left| !left.is_nextent() && Some(left.device) != attachment.device)
        );
        let by_path = Mounted::of_this_crate(&point);
        assert_eq!(by_path, None, "all mounts are gone");
    }

    #[test]
    fn the_number_of_a_connection_is_read() {
        let text = "pos:\t0\nflags:\t02\nfuse_connection:\t7340033\n";
        assert_eq!(number_in(text), Some((7, 1)));
        assert_eq!(number_in("pos:\t0\n"), None);
    }
}
