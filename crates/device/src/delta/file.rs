//! Opens or makes the file of a delta.

use super::DeltaDevice;
use crate::{BlockDevice, FileDevice, FileOptions, OpenError};
use std::fs::File;
use std::io;
use std::path::Path;

/// The delta in a file.
pub type DeltaFile<B> = DeltaDevice<B, FileDevice>;

/// Whether there is no delta at `path` yet: no file, or one that holds no data. An interrupted
/// creation leaves such a file.
pub fn is_unused_delta(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => {
            let how = FileOptions::new().read_only(true).unlocked(true);
            FileDevice::open(path, &how).is_ok_and(|file| holds_nothing(&file).unwrap_or(false))
        }
        Ok(_) => false,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn holds_nothing(file: &FileDevice) -> io::Result<bool> {
    Ok(file.next_data(0)?.is_none())
}

impl<B: BlockDevice> DeltaFile<B> {
    /// Opens the delta at `path`. If there is none yet and the options are for writing, it is made;
    /// `samples` are then called for the offsets of the bytes that identify the base.
    ///
    /// # Errors
    ///
    /// As [`FileDevice::open`], or a [`DeltaError`](super::DeltaError) as the source of
    /// [`OpenError::Io`].
    pub fn open_file(
        base: B,
        path: &Path,
        options: &FileOptions,
        samples: impl FnOnce(&B) -> Vec<u64>,
    ) -> Result<Self, OpenError> {
        let writes = !options.is_read_only();
        let mut file = FileDevice::open(path, &options.clone().create(writes))?;
        let fail = |source: io::Error| OpenError::Io { path: path.into(), source };
        if file.is_block_device() {
            return Err(fail(io::Error::other("is a block device; a delta is a regular file")));
        }
        if file.is_read_only() || !holds_nothing(&file).map_err(fail)? {
            return Self::open(base, file).map_err(|error| fail(error.into()));
        }
        let samples = samples(&base);
        let Some(len) = Self::file_len(base.size()) else {
            return Err(fail(io::ErrorKind::FileTooLarge.into()));
        };
        file.set_len(len).map_err(fail)?;
        let device = Self::create(base, file, samples).map_err(|error| fail(error.into()))?;
        sync_directory(path).map_err(fail)?;
        Ok(device)
    }
}

/// Makes the name of a new file stable.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.canonicalize()?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
