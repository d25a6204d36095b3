//! The device that an image is made on: a file, which may get another size, or another device.

use super::BuildError;
use nextent_device::{BlockDevice, FileDevice};
use nextent_sync::Arc;
use std::io;

/// The device of an image that is being made.
pub(crate) enum ImageDevice {
    File(Arc<FileDevice>),
    Other(Arc<dyn BlockDevice>),
}

impl ImageDevice {
    pub(crate) fn get(&self) -> &dyn BlockDevice {
        match self {
            Self::File(file) => &**file,
            Self::Other(device) => &**device,
        }
    }

    /// The device as a volume uses it.
    pub(crate) fn share(&self) -> Arc<dyn BlockDevice> {
        match self {
            Self::File(file) => Arc::<FileDevice>::clone(file),
            Self::Other(device) => Arc::clone(device),
        }
    }

    /// Gives a file another size. It is not closed and opened again, so that no other program can
    /// lock it meanwhile.
    pub(crate) fn set_len(&mut self, bytes: u64) -> Result<(), BuildError> {
        let Self::File(file) = self else { return Err(BuildError::FixedSize) };
        let in_use = || io::Error::other("the image is still in use");
        Ok(Arc::get_mut(file).ok_or_else(in_use)?.set_len(bytes)?)
    }
}
