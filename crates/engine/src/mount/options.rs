//! How a volume is to be opened.

use nextent_ondisk::DiskTime;
use nextent_sync::Duration;

use crate::design::Design;
use crate::policy::ErrorPolicy;

/// Bounds of the caches where nobody chose one.
const LEAST_CACHE: u64 = 4 << 20;
const MOST_CACHE: u64 = 96 << 20;

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
    /// Bytes of inodes and metadata blocks that are kept in memory without need; `None` for an
    /// eighth of the memory that is available, at most 96 MiB. What is open or waits for a commit
    /// comes on top, and 13 to 27 bytes for each inode that is [pinned](crate::Volume::pin).
    pub cache_bytes: Option<u64>,
    /// How blocks are allocated and freed. Changes nothing on the disk.
    pub design: Design,
    /// The volume is thrown away after use: designs that are for measuring only are allowed.
    pub throwaway: bool,
}

impl OpenOptions {
    /// Bytes of metadata blocks, and of inodes with the blocks that these keep, that stay in memory
    /// without need. A block that is dropped is read again; an inode is only taken apart again.
    pub(super) fn cache_parts(&self) -> (usize, usize) {
        let available = nextent_sync::available_memory().unwrap_or(u64::MAX);
        let wish = self.cache_bytes.unwrap_or((available / 8).clamp(LEAST_CACHE, MOST_CACHE));
        let third = usize::try_from(wish / 3).unwrap_or(usize::MAX / 2);
        (2 * third, third)
    }
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
            cache_bytes: None,
            design: Design::default(),
            throwaway: false,
        }
    }
}
