//! The clock for inode times.

use nextent_ondisk::DiskTime;
use nextent_sync::coarse_unix_time;

/// The real clock, or a fixed time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Option<DiskTime>);

impl Clock {
    pub(crate) fn new(fixed: Option<DiskTime>) -> Self {
        Self(fixed)
    }

    /// The present time.
    pub(crate) fn now(&self) -> DiskTime {
        self.0.unwrap_or_else(|| {
            let since = coarse_unix_time();
            DiskTime::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
        })
    }
}
