//! Mounts images by the kernel's ext4, through a loop device.

use crate::{Skip, e2fs};
use nextent_sync::{Duration, now, thread};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The access of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The kernel may change the image.
    ReadWrite,
    /// The kernel may change the image only to replay the journal.
    ReadOnly,
}

/// Messages of mount(8) where loop devices, rights or the file system are missing.
const NOT_HERE: [&str; 7] = [
    "failed to setup loop device",
    "must be superuser",
    "only root can",
    "permission denied",
    "unknown filesystem type",
    "Operation not permitted",
    "mount failed: Success",
];

/// How long another namespace may keep a mount.
const DETACHED: Duration = Duration::from_secs(120);

/// An image mounted by the kernel until dropped.
#[derive(Debug)]
pub struct KernelMount {
    point: Option<TempDir>,
    /// The loop device.
    device: Option<LoopDevice>,
}

/// A loop device, and what it says about its file.
#[derive(Debug)]
struct LoopDevice {
    file: PathBuf,
    said: String,
}

impl LoopDevice {
    /// The loop device that is mounted at `point`.
    fn at(point: &Path) -> Option<Self> {
        let device = std::fs::metadata(point).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let file = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/loop/backing_file"));
        let said = std::fs::read_to_string(&file).ok()?;
        Some(Self { file, said })
    }

    fn is_in_use(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|said| said == self.said)
    }
}

impl KernelMount {
    /// Mounts `image` as ext4.
    ///
    /// # Errors
    /// [`Skip`] where root, loop devices or the kernel's ext4 are missing.
    ///
    /// # Panics
    /// If the kernel refuses the image.
    #[track_caller]
    pub fn new(image: &Path, access: Access) -> Result<Self, Skip> {
        Self::with_options(image, access, "")
    }

    /// Mounts `image` with more options, separated by commas.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn with_options(image: &Path, access: Access, more: &str) -> Result<Self, Skip> {
        match Self::try_new(image, access, more)? {
            Ok(mount) => Ok(mount),
            Err(text) => panic!("the kernel refuses {}:\n{text}", image.display()),
        }
    }

    /// Mounts `image`; the inner error is the kernel's reason to refuse it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn try_new(image: &Path, access: Access, more: &str) -> Result<Result<Self, String>, Skip> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skip::missing("root"));
        }
        if !Path::new("/dev/loop-control").exists() {
            return Err(Skip::missing("loop devices"));
        }
        let point = tempfile::Builder::new().prefix("nextent-mount-").tempdir();
        let point = point.expect("the temporary directory can be written");
        let access = if access == Access::ReadOnly { "ro" } else { "rw" };
        let comma = if more.is_empty() { "" } else { "," };
        let options = format!("loop,{access}{comma}{more}");
        let args = [OsStr::new("-t"), OsStr::new("ext4"), OsStr::new("-o"), options.as_ref()];
        let paths = [image.as_os_str(), point.path().as_os_str()];
        let output = e2fs::run("mount", args.into_iter().chain(paths))?;
        if output.status.success() {
            let device = LoopDevice::at(point.path());
            return Ok(Ok(Self { point: Some(point), device }));
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if NOT_HERE.iter().any(|word| text.contains(word)) {
            return Err(Skip::missing("loop mount"));
        }
        Ok(Err(text))
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.point.as_ref().expect("present until unmounted").path()
    }

    /// A path within the mount.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    /// Unmounts now, so that the image can be used.
    ///
    /// A mount namespace that another process made meanwhile has the mount too. The kernel writes
    /// the last changes, and the loop device ends, when the mount has ended in all of them; this
    /// waits for that.
    ///
    /// # Panics
    /// If the mount stays busy, or its loop device in use.
    #[track_caller]
    pub fn unmount(mut self) {
        let point = self.point.take().expect("unmounted once");
        if let Err(text) = unmount(point.path()) {
            let _ = e2fs::run("umount", [OsStr::new("-l"), point.path().as_os_str()]);
            panic!("{} cannot be unmounted: {text}", point.path().display());
        }
        if let Some(device) = self.device.take() {
            let began = now();
            while device.is_in_use() {
                let place = device.file.display();
                assert!(began.elapsed() < DETACHED, "{place}: {} is still in use", device.said);
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Unmounts, and waits for a while if the mount is busy.
fn unmount(point: &Path) -> Result<(), String> {
    let mut text = String::new();
    for _ in 0..40 {
        match e2fs::run("umount", [point]) {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => text = String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(skip) => return Err(skip.to_string()),
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(text)
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Some(point) = self.point.take()
            && unmount(point.path()).is_err()
        {
            let _ = e2fs::run("umount", [OsStr::new("-l"), point.path().as_os_str()]);
            // The directory may still be mounted, so it must not be emptied.
            let _ = point.keep();
        }
    }
}
