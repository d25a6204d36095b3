//! Opening images.

use crate::failure::{Context, Failure, Result};
use crate::location::Inside;
use crate::show;
use nextent::inodes::Inodes;
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{FileDevice, FileOptions};
use nextent_num::must_fit;
use nextent_sync::{Arc, thread};
use std::path::Path;

/// An open image and its name, for messages.
pub(crate) struct Image {
    pub(crate) volume: Inodes,
    name: String,
}

/// Whether an image is opened to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing is written; a log that needs replay is replayed in memory.
    Look,
    /// Changes, after recovery.
    Change,
}

impl Image {
    /// Opens the image at `path`.
    pub(crate) fn open(path: &Path, purpose: Purpose) -> Result<Self> {
        let look = purpose == Purpose::Look;
        let file = FileOptions::new().read_only(look);
        let device = FileDevice::open(path, &file).map_err(|e| Failure::new(e.to_string()))?;
        let options = OpenOptions::new().read_only(look);
        let name = show::path(path);
        let volume = Inodes::open(Arc::new(device), &options).context(|| name.clone())?;
        if !look && volume.is_read_only() {
            let why = volume.read_only_reason().unwrap_or("it is read-only").to_owned();
            return Err(Failure::new(format!("{name}: cannot be changed: {why}")));
        }
        Ok(Self { volume, name })
    }

    /// Opens the image that `inside` names.
    pub(crate) fn of(inside: &Inside, purpose: Purpose) -> Result<Self> {
        Self::open(&inside.image, purpose)
    }

    /// Makes all changes durable and marks the image clean.
    pub(crate) fn close(self) -> Result<()> {
        self.volume.close().context(|| format!("{}: close", self.name))
    }

    /// Runs `change` and closes, whether or not it worked: what it did before an
    /// error stays, whole operation by whole operation.
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
    /// On every way out, also after an error: what was done is whole, and nothing is left to
    /// recover. Does nothing after [`close`](Self::close), which tells what the close met.
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = self.volume.close();
        }
    }
}

/// Who acts: root of the image.
pub(crate) fn cred() -> Cred {
    Cred::root()
}

/// The same, with this process's umask: for files that a command makes with a mode of its own.
pub(crate) fn creator() -> Cred {
    Cred { umask: umask(), ..Cred::root() }
}

/// This process's umask, which can only be read by setting it: files that other threads make in
/// that moment would not be masked.
pub(crate) fn umask() -> u16 {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    must_fit(umask.as_raw_mode())
}

/// Names the operation and the path in an error of the library. Where no change can succeed any
/// more, the failure ends the command.
pub(crate) fn at<T>(what: &str, inside: &Inside, result: nextent::Result<T>) -> Result<T> {
    result.map_err(|error| {
        let failure = Failure::new(format!("{what} {inside}: {error}"));
        match error {
            Error::Aborted(_) | Error::ReadOnly => failure.fatal(),
            _ => failure,
        }
    })
}
