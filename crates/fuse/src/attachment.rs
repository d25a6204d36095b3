//! Where a mount is attached: unmounts it, makes the kernel write its changes, aborts it.
//!
//! The path of the mount point may lead to another mount later. Each operation first compares the
//! device number, so that it never unmounts another mount.

use std::io;
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
    /// The new mount at the absolute path `point`.
    pub(crate) fn new(point: PathBuf) -> Self {
        let device = Mounted::at(&point).map(|mounted| mounted.device);
        Self { control: device.and_then(Control::open), device, point }
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
