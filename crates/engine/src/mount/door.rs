//! The first and the last call on a volume.

use nextent_device::BlockDevice;
use nextent_sync::Arc;

use super::OpenOptions;
use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Opens the file system on `device`: replays its journal and finishes what the last mount
    /// left, unless `options` say otherwise.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) names the feature that is not built,
    /// [`Error::Corrupt`](crate::Error::Corrupt) what is damaged.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        super::open::open(device, options)
    }

    /// Makes everything durable and in place, marks the volume clean. Later changes fail with
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). Files still open without a name are left to
    /// the next open. Operations that run beside it either succeed and are part of what it makes
    /// durable, or fail with `ReadOnly`. Does nothing when called again, but for waiting until the
    /// first call has ended.
    ///
    /// # Errors
    /// What the device or the journal says; the image is then recovered by the next open.
    pub fn close(&self) -> Result<()> {
        self.close_once(|| super::open::close(&self.fs).map_err(|error| self.fs.met(error)))
    }
}
