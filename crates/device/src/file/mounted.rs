//! ext file systems that the kernel has mounted.

use super::exclusive::{Loop, Mounted, Node, device_path, sys_path};
use super::sys;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An ext file system that the kernel has mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    point: PathBuf,
    /// The number of its block device.
    device: u64,
}

impl MountedVolume {
    /// The mount of a block device, or of a file through a loop device over all of it.
    pub fn of(path: impl AsRef<Path>) -> Option<Self> {
        let node = Node::of(&std::fs::metadata(path).ok()?);
        let devices = match node {
            Node::Block(device) => vec![device],
            Node::File(..) => {
                let over = Loop::all().into_iter();
                let over = over.filter(|over| over.backing == Some(node) && over.start == 0);
                over.map(|over| over.device).collect()
            }
        };
        let is_it = |mount: &Mounted| is_ext(mount) && devices.contains(&mount.device);
        let found = Mounted::all().into_iter().find(is_it)?;
        Some(Self { point: found.point, device: found.device })
    }

    /// The mount at a directory. `None` if nothing is mounted there.
    ///
    /// # Errors
    ///
    /// The type of the file system, if it is none of the kernel's ext file systems.
    pub fn at(point: impl AsRef<Path>) -> Result<Option<Self>, String> {
        let Ok(point) = std::fs::canonicalize(point) else { return Ok(None) };
        // The last one is on top of the others.
        let found = Mounted::all().into_iter().rfind(|mount| mount.point == point);
        match found {
            None => Ok(None),
            Some(mount) if is_ext(&mount) => Ok(Some(Self { point, device: mount.device })),
            Some(mount) => Err(mount.kind),
        }
    }

    /// The mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The usual path of its block device.
    pub fn device(&self) -> PathBuf {
        device_path(self.device)
    }

    /// Bytes of its block device.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn device_size(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string(sys_path(self.device).join("size"))?;
        // In units of 512 bytes, whatever the sectors of the device are.
        let bytes = text.trim().parse().ok().and_then(|count: u64| count.checked_mul(512));
        bytes.ok_or_else(|| io::Error::other("the size of the device is unknown"))
    }

    /// Grows it to `blocks`, or to fewer where the last group would be too small.
    ///
    /// # Errors
    ///
    /// The kernel's error. It needs the capability `CAP_SYS_RESOURCE`.
    pub fn grow(&self, blocks: u64) -> io::Result<()> {
        let dir = File::open(&self.point)?;
        // Another file system may have been mounted there since.
        if dir.metadata()?.dev() != self.device {
            return Err(io::Error::other("it was unmounted meanwhile"));
        }
        sys::grow_mounted(&dir, blocks)
    }
}

fn is_ext(mount: &Mounted) -> bool {
    matches!(mount.kind.as_str(), "ext2" | "ext3" | "ext4")
}

/// Writes and empties the kernel's cache of a block device.
///
/// # Errors
///
/// The kernel's error: the path is no block device, or root's rights are missing.
pub fn drop_device_cache(path: impl AsRef<Path>) -> io::Result<()> {
    sys::drop_cache(&File::open(path)?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_ext_mount_is_not_taken_for_one() {
        assert_eq!(MountedVolume::at("/proc"), Err("proc".to_owned()));
        assert_eq!(MountedVolume::at("/proc/self"), Ok(None));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(MountedVolume::at(dir.path()), Ok(None));
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(MountedVolume::of(&file), None);
        assert_eq!(MountedVolume::of(dir.path().join("none")), None);
        let refused = drop_device_cache(&file).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTTY));
    }

    /// The kernel reads the number, and refuses a file system that cannot grow.
    #[test]
    fn the_kernel_refuses_other_file_systems() {
        let volume = MountedVolume { point: "/proc".into(), device: device_of("/proc") };
        assert_eq!(volume.grow(1 << 20).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        let other = MountedVolume { device: 0, ..volume };
        assert!(other.grow(1).unwrap_err().to_string().contains("unmounted"));
    }

    fn device_of(path: &str) -> u64 {
        std::fs::metadata(path).unwrap().dev()
    }
}
