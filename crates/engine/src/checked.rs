//! Marks a volume as checked, as e2fsck does at the end of a check that left no errors.

use nextent_device::BlockDevice;
use nextent_ondisk::superblock::state;
use nextent_ondisk::{Incompat, RoCompat};
use nextent_sync::{Arc, unix_time};

use crate::error::Result;
use crate::open::{read_super, write_super};

/// Marks the volume on `device` clean and checked now: its mounts count from zero, and no errors
/// are recorded. The caller has checked it and found no error, and no other program has it open.
/// Leaves a volume as it is whose journal or orphans wait for recovery. Returns whether the volume
/// was not marked clean before.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io); [`Error::Foreign`](crate::Error::Foreign) if there is no
/// volume.
pub fn mark_checked(device: &Arc<dyn BlockDevice>) -> Result<bool> {
    let mut sb = read_super(&**device)?;
    let features = sb.features();
    let waits = features.has(Incompat::RECOVER)
        || features.has(RoCompat::ORPHAN_PRESENT)
        || sb.last_orphan.get() != 0;
    if waits {
        return Ok(false);
    }
    let was_unclean = sb.state.get() & state::VALID == 0;
    sb.state.set(state::VALID);
    sb.set_checked_at(unix_time().as_secs());
    sb.mnt_count.set(0);
    sb.clear_errors();
    write_super(&**device, &mut sb)?;
    Ok(was_unclean)
}
