//! The time that goes into inodes.

use std::time::{SystemTime, UNIX_EPOCH};

use nextent_ondisk::DiskTime;

/// The real clock, or one that stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Option<DiskTime>);

impl Clock {
    pub(crate) fn new(fixed: Option<DiskTime>) -> Self {
        Self(fixed)
    }

    /// The present.
    pub(crate) fn now(&self) -> DiskTime {
        self.0.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            DiskTime::new(since.as_secs() as i64, since.subsec_nanos())
        })
    }
}
