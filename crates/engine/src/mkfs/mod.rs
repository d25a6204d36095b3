//! Makes file systems, with the options and the layout of mke2fs.
//!
//! ```text
//! MkfsOptions -> resolve (defaults, ranges) -> shape (counts) -> place (bitmaps, tables)
//!             -> files (root, lost+found, resize inode, journal, MMP block, orphan file)
//!             -> Plan -> write
//! ```
//!
//! A caller writes a plan as it is, or turns it into a [`Filling`], which adds files and then
//! writes everything.
//!
//! The size of a volume can follow from its contents: see [`Plan::fit`].
//!
//! A [`Plan`] is made without I/O and its size follows the metadata that must exist, not the
//! volume: a sparse 16 TiB image is planned and written in well under a second. The counts, the
//! place of every bitmap and table and the journal's size are those that mke2fs 1.47 chooses for
//! the same options, because people compare them; where this differs, the module says so.
//!
//! The same options, UUID, hash seed and clock give the same bytes on a device that reads as zeros.

mod block_map;
mod directories;
mod error;
mod files;
mod fill;
mod fit;
mod journal;
mod journal_device;
mod multi_mount;
mod options;
mod orphan;
mod place;
mod plan;
mod profile;
mod resize;
mod resolve;
mod room;
mod shape;
mod space;
mod super_block;
mod tables;
mod void;
mod write;

pub use error::MkfsError;
pub use fill::{Added, Contents, FillBytes, Filling, NewAttrs, OpenDir};
pub use fit::{Fit, Free, MEASURED_BLOCKS, Needs};
pub use journal::journal_blocks;
pub use journal_device::{JournalPlan, is_journal};
pub use options::{
    CreatorOs, ExtendedOptions, FsType, JournalOptions, MkfsOptions, NameHash, OnError, Owner,
    Usage,
};
pub use plan::Plan;
pub use profile::written_features;

// For a volume that gets more groups.
pub(crate) use place::{Place, place_group, place_inside};
pub(crate) use space::Space;
pub(crate) use super_block::copy_for as backup_superblock;

use nextent_device::BlockDevice;

/// Makes a volume on the device.
///
/// # Errors
///
/// As [`Plan::new`] and [`Plan::write`].
pub fn make(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<Plan, MkfsError> {
    let plan = Plan::new(options, device.size())?;
    plan.write(device)?;
    Ok(plan)
}
