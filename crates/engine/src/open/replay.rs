//! Recovers a volume that was not closed: its log, then the fast commits that continue it.
//!
//! 1. The blocks in the log are written in place. This may be repeated any number of times.
//! 2. Fast commits describe changes. The engine applies them in memory.
//! 3. The changed blocks become one transaction in the log. Then they are written in place.
//!
//! Invariant: at every moment a crash leaves either all that recovery needs, or its result.

use nextent_device::{BlockDevice, Overlay};
use nextent_num::to_u64;
use nextent_ondisk::superblock::state;
use nextent_ondisk::{BlockNo, Geometry, Incompat, Superblock};
use nextent_store::{Recovery, Store, StoreOptions};
use nextent_sync::{Arc, Duration};

use super::lifecycle::{Found, build_layers, geometry_of, read_super, write_super};
use super::{OpenOptions, fast_commit, journal, orphans};
use crate::error::{Cause, Error, Result};
use crate::recovered::Recovered;

/// A device with its changes in memory.
type Memory = Overlay<Arc<dyn BlockDevice>>;

/// Recovers in place, or in memory when nothing may be written.
pub(super) fn recover(found: &mut Found, journal: Option<&journal::Located>) -> Result<Recovered> {
    let Some(journal) = journal else {
        return Err(Error::Corrupt(Cause::new("the volume needs recovery but has no journal")));
    };
    if found.read_only.is_some() {
        let overlay = Overlay::new(Arc::clone(&found.device));
        found.device = Arc::new(overlay);
        found.overlaid = true;
    }
    let mut report = Recovered::default();
    let replayed = journal.replay(&found.device, &found.geometry)?;
    report.take(&replayed);
    if !replayed.fast_commits.is_empty() {
        let (memory, records) = fast_commits(&found.device, &replayed)?;
        let images = images(&memory, found.geometry.block_len())?;
        journal.supersede(&found.device, &found.geometry, replayed.next, &images)?;
        report.fast_commits = records;
    }
    // The superblock may have been in the log.
    let mut sb = read_super(&*found.device)?;
    sb.verify_checksum()?;
    sb.keep_errors(&found.sb);
    if replayed.errno != 0 {
        // Perhaps only the journal has recorded this error.
        sb.state.set(sb.state.get() | state::ERROR);
    }
    let mut features = sb.features();
    features.set(Incompat::RECOVER, false);
    sb.set_features(features);
    write_super(&*found.device, &mut sb)?;
    if replayed.errno != 0 {
        // The superblock has recorded the error by now, so a power cut cannot lose it.
        journal.clear_error(&found.device, &found.geometry)?;
    }
    found.geometry = Arc::new(sb.check(found.device.size())?);
    found.sb = sb;
    Ok(report)
}

/// Whether replaying the log repairs the superblock `sb`, whose checksum is wrong: a power cut may
/// have torn its in-place write. The replay happens in memory.
pub(super) fn mends_super(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    geometry: &Arc<Geometry>,
) -> bool {
    let mended = || -> Result<bool> {
        let Some(journal) = journal::locate(device, sb, geometry)? else { return Ok(false) };
        let over: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(device)));
        journal.replay(&over, geometry)?;
        let mended = read_super(&*over)?;
        Ok(mended.verify_checksum().is_ok() && mended.check(over.size())? == **geometry)
    };
    sb.features().has(Incompat::RECOVER) && mended().unwrap_or(false)
}

/// Applies in memory the fast commits that `log`, which was replayed onto `device`, found; returns
/// the volume as it is then, and the number of records.
///
/// # Errors
/// Records that contradict the volume, and the errors of lower layers.
pub(crate) fn fast_commits(
    device: &Arc<dyn BlockDevice>,
    log: &Recovery,
) -> Result<(Arc<Memory>, u64)> {
    let sb = read_super(&**device)?;
    sb.verify_checksum()?;
    let geometry = Arc::new(geometry_of(&sb, device.size())?);
    let journal = journal::locate(device, &sb, &geometry)?;
    let memory = Arc::new(Overlay::new(Arc::clone(device)));
    let over: Arc<dyn BlockDevice> = Arc::<Memory>::clone(&memory);
    let options = StoreOptions {
        block_size: geometry.block_len(),
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let store = Arc::new(Store::without_journal(Arc::clone(&over), &options)?);
    let found = Found {
        device: over,
        sb,
        geometry,
        read_only: None,
        stays: None,
        overlaid: true,
        needs_check: false,
    };
    let fs = build_layers(&found, store, journal.as_ref(), &OpenOptions::default())?;
    orphans::prepare(&fs, true)?;
    let records = fast_commit::replay(&fs, log.next, &log.fast_commits)?;
    fs.store.close()?;
    Ok((memory, records))
}

/// The blocks that were changed in memory.
fn images(memory: &Memory, block_len: usize) -> Result<Vec<(BlockNo, Vec<u8>)>> {
    let changes = memory.changes(block_len).map_err(|error| Error::Io(Cause::new(error)))?;
    let numbered = |(at, bytes): (u64, Vec<u8>)| (BlockNo(at / to_u64(block_len)), bytes);
    Ok(changes.into_iter().map(numbered).collect())
}
