//! Checks whole volumes: what e2fsck's five passes verify, in parallel and without changes.
//!
//! - pass 0 (`open`, `descriptors`, `superblock`, `external`, `orphans`): superblock, features,
//!   journal (replayed in memory), orphans
//! - pass 1 (`groups`, `inode`, `contents`, `attrs`, `special`, `shared`): descriptors, every
//!   inode in use, the owner of each block
//! - pass 2 (`directory`, `htree`): entries and hash indexes
//! - pass 3 and 4 (`tree`): every directory hangs from the root, link counts
//! - pass 5 (`quota`, `bitmaps`): counts of quota files, bitmaps, counts, totals
//!
//! Apart from the passes, `survey` reads what a volume says of itself without checking it, and
//! `block_usage` what each block is used for. `checksummed` finds the blocks that have checksums.
//!
//! Invariants:
//! - The device may hold any bytes.
//! - Memory grows only with what is in use on the volume: a bit for each block (`bits`), eight
//!   bytes for an inode (`inodes`), a hash for each name of the directory that a thread checks.
//! - Walks keep their own stacks and visit each node once.
//! - A problem never stops the check. Problems beyond the caller's limit are only counted.

mod attrs;
mod backups;
mod bitmaps;
mod bits;
mod block_usage;
mod checksummed;
mod claims;
mod contents;
mod descriptors;
mod directory;
mod external;
mod groups;
mod htree;
mod image;
mod inode;
mod inodes;
mod locks;
mod names;
mod open;
mod orphans;
mod overview;
mod quota;
mod report;
mod shared;
mod special;
mod superblock;
mod survey;
mod tree;
mod walk;

pub use crate::mmp::CheckClaim;
pub use block_usage::{BlockUsage, BlockUse, FileLayout, UseCounts, block_usage};
pub(crate) use checksummed::{Checksummed, InodeMetadata};
pub use external::{is_journal, read_journal};
pub use overview::Overview;
pub use report::{CheckReport, Problem, Severity, Totals};
pub use survey::{FreeSpace, LENGTHS, Survey, survey};

use nextent_device::BlockDevice;
use nextent_num::to_u64;
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckOptions {
    /// The most problems and notes to keep; further ones are only counted.
    pub limit: usize,
    /// Threads; 0 for one on each core.
    pub workers: usize,
    /// The backup superblock to use instead of the first.
    pub superblock: Option<At>,
    /// The caller has the volume by a [`CheckClaim`], which is then no problem.
    pub claimed: bool,
}

/// The location of a backup of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The block.
    pub block: u64,
    /// The bytes of a block; `None` tries all sizes.
    pub block_size: Option<u32>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { limit: 1000, workers: 0, superblock: None, claimed: false }
    }
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The pass, 0 to 5.
    pub pass: u8,
    /// Steps of the pass done (groups, or directories in pass 2).
    pub done: u64,
    /// Steps of the pass; 0 if unknown.
    pub steps: u64,
}

/// The state of a volume by its superblock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The volume was closed cleanly, has no known errors and needs no recovery: a check may be
    /// skipped.
    pub clean: bool,
    /// The UUID of the journal, if it lies on another device.
    pub external_journal: Option<[u8; 16]>,
    /// The volume has multiple mount protection: see [`claim`].
    pub multi_mount: bool,
    /// The journal holds changes, or there are orphans: opening the volume for writing recovers it.
    pub waits: bool,
    /// Files and blocks by the superblock's counts.
    pub totals: Totals,
}

/// Claims the volume on `device` for a check that changes it, if it has multiple mount protection.
/// Waits up to about two minutes if another node may have it. Open the volume with
/// [`OpenOptions::claimed`](crate::OpenOptions::claimed) then.
///
/// # Errors
///
/// [`Error::OtherNode`](crate::Error::OtherNode) if another node or another check has the volume;
/// otherwise as [`check`].
pub fn claim(device: &Arc<dyn BlockDevice>) -> Result<Option<CheckClaim>> {
    open::claim(device)
}

/// Reads the superblock of the volume on `device`.
///
/// # Errors
///
/// As [`check`].
pub fn peek(device: &dyn BlockDevice, options: &CheckOptions) -> Result<Peek> {
    open::peek(device, options)
}

/// Checks the volume on `device` without writing: a journal that needs replay is replayed into
/// memory. Calls `progress` now and then, from any thread.
///
/// ```
/// use std::sync::Arc;
///
/// use nextent::check::{CheckOptions, check};
/// use nextent::mkfs::{self, MkfsOptions};
/// use nextent::MemoryDevice;
///
/// let device = Arc::new(MemoryDevice::new(16 << 20));
/// mkfs::make(&*device, &MkfsOptions::default())?;
/// let report = check(device, &CheckOptions::default(), &|_| ())?;
/// assert!(report.is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Only what keeps the check from starting: no superblock, an unknown feature, a device that fails.
/// Everything else is a problem in the report.
pub fn check(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<CheckReport> {
    check_with(device, None, options, progress)
}

/// As [`check`], with the device of an external journal.
///
/// # Errors
///
/// As [`check`].
pub fn check_with(
    device: Arc<dyn BlockDevice>,
    journal: Option<&dyn BlockDevice>,
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<CheckReport> {
    progress(Progress { pass: 0, done: 0, steps: 0 });
    let (image, pending) = open::open(device, journal, options)?;
    let orphans = orphans::collect(&image);
    let claims = claims::Claims::new(&image.geo);
    groups::check(&image, &claims);
    let groups = u64::from(image.geo.group_count);
    let step = Step::new(1, groups, progress);
    let quotas = quota::Quotas::new(&image);
    let inodes = inode::check(&image, &claims, &orphans, &quotas, &|| step.done());
    shared::check(&image, &claims, &inodes);
    let names = names::Names::new(image.found.inodes());
    let dirs = inodes.groups().map(|(_, group)| to_u64(group.dirs().count())).sum();
    let step = Step::new(2, dirs, progress);
    directory::check(&image, &inodes, &names, &|| step.done());
    progress(Progress { pass: 3, done: 0, steps: 0 });
    tree::connected(&image, &inodes);
    progress(Progress { pass: 4, done: 0, steps: 0 });
    tree::links(&image, &inodes);
    quotas.check(&image);
    let step = Step::new(5, groups, progress);
    let totals = bitmaps::check(&image, &claims, &inodes, &|| step.done());
    let named = image.found.inodes();
    let paths: nextent_sync::HashMap<_, _> = named
        .into_iter()
        .filter_map(|ino| Some((ino, names.path(&image, &inodes, ino)?)))
        .collect();
    let mut report = image.found.finish(|ino| paths.get(&ino).cloned());
    report.recovery_pending = pending;
    report.totals = totals;
    Ok(report)
}

/// Counts the steps of one pass and reports every 64th.
struct Step<'a> {
    pass: u8,
    done: AtomicU64,
    steps: u64,
    report: &'a (dyn Fn(Progress) + Sync),
}

impl<'a> Step<'a> {
    fn new(pass: u8, steps: u64, report: &'a (dyn Fn(Progress) + Sync)) -> Self {
        report(Progress { pass, done: 0, steps });
        Self { pass, done: AtomicU64::new(0), steps, report }
    }

    fn done(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(64) || done == self.steps {
            (self.report)(Progress { pass: self.pass, done, steps: self.steps });
        }
    }
}
