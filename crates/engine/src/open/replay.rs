//! Recovery of a volume that was not closed: its log, then the fast commits that continue it.
//!
//! The log's images go home as they are, which may be done any number of times. Fast commits say
//! what to change and are applied by the engine itself, in memory; what that comes to is put into
//! the log as one transaction before any of it goes home. At every moment a crash leaves either
//! all that is needed to do this again, or its outcome.

use nextent_device::{BlockDevice, Overlay};
use nextent_num::to_u64;
use nextent_ondisk::superblock::state;
use nextent_ondisk::{BlockNo, Geometry, Incompat, Superblock};
use nextent_store::{Recovery, Store, StoreOptions};
use nextent_sync::{Arc, Duration};

use super::lifecycle::{Found, floors, geometry_of, read_super, write_super};
use super::{OpenOptions, fast_commit, journal, orphans};
use crate::error::{Cause, Error, Result};
use crate::recovered::Recovered;

/// A device, and in memory what is changed of it.
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
        // The journal stopped by an error that nothing else may tell of.
        sb.state.set(sb.state.get() | state::ERROR);
    }
    let mut features = sb.features();
    features.set(Incompat::RECOVER, false);
    sb.set_features(features);
    write_super(&*found.device, &mut sb)?;
    if replayed.errno != 0 {
        // The superblock has the note by now, so a power cut cannot lose it.
        journal.clear_error(&found.device, &found.geometry)?;
    }
    found.geometry = Arc::new(sb.check(found.device.size())?);
    found.sb = sb;
    Ok(report)
}

/// Whether the superblock `sb`, whose checksum is wrong, is whole again after the log's replay: a
/// power cut may have torn the write that brought it home. Tried in memory.
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
/// Records that contradict the volume, and what the lower floors say.
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
    let found = Found { device: over, sb, geometry, read_only: None, overlaid: true };
    let fs = floors(&found, store, journal.as_ref(), &OpenOptions::default())?;
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
