//! How a volume is opened.

use nextent_ondisk::DiskTime;
use nextent_sync::Duration;

use super::Replacements;
use crate::error::Error;
use crate::mmp::CheckClaim;
use crate::observer::DamageObserver;
use crate::policy::ErrorPolicy;

/// Bounds of the default cache size.
const LEAST_CACHE: u64 = 4 << 20;
const MOST_CACHE: u64 = 64 << 20;

/// How a volume is opened: a builder, as [`std::fs::OpenOptions`].
///
/// The defaults open the volume for reading and writing, recover its journal, follow the
/// superblock's policy for errors and commit at least every five seconds.
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(super) read_only: bool,
    pub(super) no_recovery: bool,
    pub(super) errors: Option<ErrorPolicy>,
    pub(super) observer: DamageObserver,
    pub(super) commit_interval: Duration,
    pub(super) now: Option<DiskTime>,
    pub(super) bypass_journal: bool,
    pub(super) discard: bool,
    pub(super) superblock: Option<u64>,
    pub(super) cache_bytes: Option<u64>,
    /// The caller has claimed the volume.
    pub(super) claimed: bool,
    /// Of no size without the feature `lab`.
    pub(super) replacements: Replacements,
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes nothing on the device. A journal that needs recovery is replayed into memory.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// With [`read_only`](Self::read_only): ignores the journal, even one that needs recovery.
    /// What the volume shows then may be inconsistent.
    pub fn no_recovery(mut self, yes: bool) -> Self {
        self.no_recovery = yes;
        self
    }

    /// The caller has claimed the volume, so the open takes no claim of multiple mount protection.
    /// The claim must outlive the open volume.
    pub fn claimed(mut self, _by: &CheckClaim) -> Self {
        self.claimed = true;
        self
    }

    /// What to do about damage. `None`, the default, is the superblock's policy.
    pub fn errors(mut self, policy: impl Into<Option<ErrorPolicy>>) -> Self {
        self.errors = policy.into();
        self
    }

    /// A function that gets each error that reports damage of the volume, or that the journal has
    /// stopped, for a log. The thread that found the damage calls it, and may hold locks of files,
    /// so the function must not call the volume.
    pub fn on_damage(mut self, observe: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.observer = DamageObserver::new(observe);
        self
    }

    /// The longest time that a change waits for its commit; 5 seconds by default. With zero the
    /// journal commits only when a caller syncs or when it is full.
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    /// The time that all changes get, so that an image comes out the same each time. `None`, the
    /// default, is the system's clock.
    pub fn now(mut self, now: impl Into<Option<DiskTime>>) -> Self {
        self.now = now.into();
        self
    }

    /// Writes changes in place without the journal, which stays empty. After a crash the volume is
    /// of no use. This is for filling a new volume: its journal then has the same bytes each time.
    pub fn bypass_journal(mut self, yes: bool) -> Self {
        self.bypass_journal = yes;
        self
    }

    /// Discards freed blocks on the device after the commit that freed them is durable. Ignores
    /// errors of the device, which then keeps the bytes.
    pub fn discard(mut self, yes: bool) -> Self {
        self.discard = yes;
        self
    }

    /// Uses the backup of the superblock at `block`, in units of 1 KiB as `mount -o sb=` counts,
    /// and the group descriptors behind it; `None`, the default, is the superblock itself, and so
    /// is 1.
    ///
    /// The volume is then open for reading only. Backups have outdated counts, and may say that
    /// a bitmap was never written, so a writer would allocate blocks that are in use. Check the
    /// volume with the backup to repair it.
    pub fn superblock(mut self, block: impl Into<Option<u64>>) -> Self {
        self.superblock = block.into().filter(|block| *block != 1);
        self
    }

    /// Bytes of inodes and metadata blocks that the caches keep when nothing uses them. `None`, the
    /// default, is an eighth of the available memory, from 4 to 64 MiB. What is open or waits for a
    /// commit comes on top, and 13 to 27 bytes for each
    /// [pinned](crate::inodes::Inodes::pin) inode.
    pub fn cache_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.cache_bytes = bytes.into();
        self
    }

    /// Replaces parts of the engine.
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn replacements(mut self, replacements: Replacements) -> Self {
        self.replacements = replacements;
        self
    }

    /// Whether the volume is opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.superblock.is_some()
    }

    /// Bytes of metadata blocks, and of inodes with the blocks that these keep, that the caches
    /// keep when nothing uses them. A dropped block costs a read, a dropped inode only decoding.
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
            observer: DamageObserver::default(),
            commit_interval: Duration::from_secs(5),
            now: None,
            bypass_journal: false,
            discard: false,
            superblock: None,
            cache_bytes: None,
            claimed: false,
            replacements: Replacements::default(),
        }
    }
}
