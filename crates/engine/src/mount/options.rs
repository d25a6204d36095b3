//! How a volume is to be opened.

use nextent_ondisk::DiskTime;
use nextent_sync::Duration;

use crate::design::Design;
use crate::policy::ErrorPolicy;

/// How a volume is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Change nothing. A journal that needs recovery is replayed into memory.
    pub read_only: bool,
    /// With `read_only`: look at the volume as it lies, without its journal.
    pub no_recovery: bool,
    /// What to do about damage; `None` for what the superblock says.
    pub errors: Option<ErrorPolicy>,
    /// The longest time a change waits for its commit; zero: only when asked or when full.
    pub commit_interval: Duration,
    /// A clock that stands still, for images that must come out the same each time.
    pub now: Option<DiskTime>,
    /// Write changes home without a log, which stays empty. A crash leaves nothing of use, so
    /// this is for filling volumes that were just made: their journals come out the same.
    pub bypass_journal: bool,
    /// How blocks are allocated and freed. Changes nothing on the disk.
    pub design: Design,
    /// The volume is thrown away after use: designs that are for measuring only are allowed.
    pub throwaway: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            errors: None,
            commit_interval: Duration::from_secs(5),
            now: None,
            bypass_journal: false,
            design: Design::default(),
            throwaway: false,
        }
    }
}
