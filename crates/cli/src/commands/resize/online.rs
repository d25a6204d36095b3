//! Grows a volume that the kernel has mounted, by an ioctl of its file system.

use crate::failure::{Failure, Result};
use crate::show;
use crate::target::ImageSpec;
use nextent::check::{CheckOptions, Overview};
use nextent_device::{FileOptions, MountedVolume};
use nextent_sync::Arc;
use std::io;
use std::path::Path;

/// What is at a directory: a volume that the kernel has mounted.
///
/// # Errors
/// The reason why it cannot be resized.
pub(super) fn at(point: &Path) -> std::result::Result<MountedVolume, String> {
    match MountedVolume::at(point) {
        Ok(Some(mount)) => Ok(mount),
        Ok(None) => Err("is a directory, and no mount point".into()),
        Err(kind) if kind.ends_with(".nextent") => {
            Err("a mount by nextent cannot be resized; unmount it and resize the image".into())
        }
        Err(kind) => Err(format!("is a file system of type {kind}, not ext4")),
    }
}

/// Blocks and bytes of a block of a mounted volume.
///
/// # Errors
/// The device cannot be read.
pub(super) fn size(mount: &MountedVolume) -> Result<(u64, u64)> {
    let image = ImageSpec::whole(mount.device());
    let device = image.open(FileOptions::new().read_only(true).unlocked(true))?;
    let read = Overview::read(Arc::new(device), &CheckOptions::default());
    let read = read.map_err(|error| Failure::new(format!("{image}: {}", image.explain(&error))))?;
    let geometry = read.geometry();
    Ok((geometry.blocks_count, geometry.block_size.into()))
}

/// The kernel's reason not to grow a mounted volume.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "the kernel refuses it: this needs root (CAP_SYS_RESOURCE), and a \
                              volume on which it has met no error"
            .into(),
        Some(libc::ENOTTY) => "this kernel cannot grow mounted volumes".into(),
        Some(libc::EOPNOTSUPP) => {
            "the kernel cannot grow this volume while it is mounted; unmount it".into()
        }
        _ => plain(error),
    }
}

/// The system's text of an error, without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    show::line(text.split(" (os error").next().unwrap_or_default()).to_string()
}
