//! Opens images, and closes them on every path.

use crate::failure::{Context, Failure, Result};
use crate::location::Inside;
use crate::target::ImageSpec;
use nextent::inodes::Inodes;
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{BlockDevice, FileOptions};
pub(crate) use nextent_image::{creator, umask};
use nextent_sync::{Arc, thread};

/// An open image and its name, for messages.
pub(crate) struct Image {
    pub(crate) volume: Inodes,
    name: String,
}

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading: nothing is written, and a journal that needs replay is replayed in memory.
    Read,
    /// Changes, after recovery.
    Change,
}

/// Opens the device of an image, locked against other programs as `purpose` needs it.
pub(crate) fn device(spec: &ImageSpec, purpose: Purpose) -> Result<Arc<dyn BlockDevice>> {
    let device = spec.open(FileOptions::new().read_only(purpose == Purpose::Read))?;
    Ok(Arc::new(device))
}

impl Image {
    /// Opens an image.
    pub(crate) fn open(spec: &ImageSpec, purpose: Purpose) -> Result<Self> {
        let reads = purpose == Purpose::Read;
        let device = device(spec, purpose)?;
        let options = OpenOptions::new().read_only(reads);
        let name = spec.to_string();
        let volume = Inodes::open(device, &options)
            .map_err(|error| Failure::new(format!("{name}: {}", spec.explain(&error))))?;
        if !reads && volume.is_read_only() {
            let why = volume.read_only_reason().unwrap_or("it is read-only").to_owned();
            return Err(Failure::new(format!("{name}: cannot be changed: {why}")));
        }
        Ok(Self { volume, name })
    }

    /// Opens the image that `inside` names.
    pub(crate) fn of(inside: &Inside, purpose: Purpose) -> Result<Self> {
        Self::open(&inside.image, purpose)
    }

    /// Makes all changes durable and marks the image as clean.
    pub(crate) fn close(self) -> Result<()> {
        self.volume.close().context(|| format!("{}: close", self.name))
    }

    /// Runs `change` and closes the image, also after an error: the operations that were complete
    /// before the error stay.
    pub(crate) fn change<T>(
        inside: &Inside,
        change: impl FnOnce(&Inodes) -> Result<T>,
    ) -> Result<T> {
        let image = Self::of(inside, Purpose::Change)?;
        let done = change(&image.volume);
        let closed = image.close();
        done.and_then(|value| closed.map(|()| value))
    }
}

impl Drop for Image {
    /// Closes the image on every path, also after an error, so that it needs no recovery. Does
    /// nothing after [`close`](Self::close), which returns the error of closing.
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = self.volume.close();
        }
    }
}

/// Root's rights in the image.
pub(crate) fn cred() -> Cred {
    Cred::root()
}

/// Adds the operation and the path to an error of the library. If no change can succeed any more,
/// the failure ends the command.
pub(crate) fn at<T>(what: &str, inside: &Inside, result: nextent::Result<T>) -> Result<T> {
    result.map_err(|error| {
        let failure = Failure::new(format!("{what} {inside}: {error}"));
        match error {
            Error::Aborted(_) | Error::ReadOnly => failure.fatal(),
            _ => failure,
        }
    })
}
