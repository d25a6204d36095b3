//! The mounts that are compared, each on an image of its own.

use crate::bench::measure::seconds;
use crate::bench::shipped;
use crate::shell::command;
use std::fs;
use std::path::{Path, PathBuf};

/// The size of an image; it is sparse.
const SIZE: &str = "3g";

/// A server, or the kernel's own implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `nextent mount -o no_io_uring`.
    Device,
    /// `nextent mount -o io_uring`.
    Rings,
    /// `fuse2fs`.
    Fuse2fs,
    /// `mount -o loop`.
    Linux,
}

const KINDS: [Kind; 4] = [Kind::Device, Kind::Rings, Kind::Fuse2fs, Kind::Linux];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Rings => "rings",
            Self::Fuse2fs => "fuse2fs",
            Self::Linux => "Linux",
        }
    }
}

/// All mounts, until dropped.
pub(super) struct Mounts {
    dir: PathBuf,
}

impl Mounts {
    /// Makes the images and mounts them.
    pub(super) fn new(dir: &Path) -> Result<Self, String> {
        let mounts = Self { dir: dir.into() };
        for kind in KINDS {
            mounts.mount(kind)?;
        }
        Ok(mounts)
    }

    /// Where `kind` is mounted.
    pub(super) fn point(&self, kind: Kind) -> PathBuf {
        self.dir.join(kind.name())
    }

    fn image(&self, kind: Kind) -> String {
        self.dir.join(format!("{}.img", kind.name())).display().to_string()
    }

    fn mount(&self, kind: Kind) -> Result<(), String> {
        let (image, point) = (self.image(kind), self.point(kind));
        fs::create_dir_all(&point).map_err(|error| error.to_string())?;
        let point = point.display().to_string();
        let nextent = shipped().join("nextent").display().to_string();
        seconds(command(&nextent, ["mkfs", "-q", &image, SIZE]))?;
        seconds(match kind {
            Kind::Device => command(&nextent, ["mount", &image, &point, "-o", "no_io_uring"]),
            Kind::Rings => command(&nextent, ["mount", &image, &point, "-o", "io_uring"]),
            Kind::Fuse2fs => command("fuse2fs", [&image, &point]),
            Kind::Linux => command("mount", ["-o", "loop", &image, &point]),
        })
        .map(|_| ())
    }

    /// Unmounts all, and checks the images of this program.
    pub(super) fn unmount(self) -> Result<(), String> {
        for kind in KINDS {
            seconds(command("umount", [self.point(kind)]))?;
        }
        for kind in [Kind::Device, Kind::Rings] {
            // The server may still be closing the image.
            let image = self.image(kind);
            seconds(command("flock", [&image, "e2fsck", "-fn", &image]))?;
        }
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for kind in KINDS {
            // Those that are left after an error.
            let _ = command("umount", ["-l".into(), self.point(kind)]).output();
        }
    }
}
