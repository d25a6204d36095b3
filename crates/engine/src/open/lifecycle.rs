//! The steps of opening and of closing.

use nextent_device::BlockDevice;
use nextent_num::to_u64;
use nextent_ondisk::superblock::{SECTOR, SUPER_OFFSET, SUPER_SIZE, state};
use nextent_ondisk::{Compat, DiskTime, Geometry, Incompat, RoCompat, Superblock};
use nextent_store::{Store, StoreOptions};
use nextent_sync::Arc;

use super::{OpenOptions, backup, journal, orphans, replay, supported};
use crate::alloc::{BlockAlloc, InodeAlloc};
use crate::error::{Cause, Error, Result, Truncated};
use crate::inode::clock::Clock;
use crate::inode::superblock::SuperObject;
use crate::inode::{Fs, FsParts};
use crate::mmp::{Claim, Heartbeat};
use crate::ops::{DEVICE_READ_ONLY, Inodes, ReadOnlyReasons};
use crate::policy::ErrorPolicy;
use crate::recovered::Recovered;

/// Why a volume with a backup of the superblock is open for reading only.
const USES_BACKUP: &str =
    "it is opened with a backup of the superblock, with which fsck can repair it";

const NOT_REPLAYED: &str = "its journal was not replayed; unmount it, and mount it read-write";
const REPLAYED_IN_MEMORY: &str =
    "its journal was replayed in memory only; unmount it, and mount it read-write";

impl Inodes {
    /// Opens the volume on `device`. Unless `options` say otherwise this replays the journal and
    /// frees the orphans that the last use left.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for unknown features, [`Error::Foreign`] without an ext superblock,
    /// [`Error::Truncated`] when the device is too small, [`Error::Corrupt`], [`Error::Io`].
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        open(device, options)
    }

    /// Makes all changes durable, checkpoints them and marks the volume clean. Later changes fail
    /// with [`Error::ReadOnly`]. The next open frees files that are still open and have no name.
    ///
    /// A concurrent operation either succeeds and becomes durable too, or fails with `ReadOnly`. A
    /// second call only waits until the first has ended.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Aborted`]: the next open recovers the image.
    pub fn close(&self) -> Result<()> {
        self.close_once(|| close(&self.fs).map_err(|error| self.fs.report_error(error)))
    }
}

/// What is known of a volume before its layers are built.
pub(super) struct Found {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: Superblock,
    pub(super) geometry: Arc<Geometry>,
    /// Why the volume can only be read, if it can only be read.
    pub(super) read_only: Option<String>,
    /// Why it cannot be made writable while it is open, if it cannot.
    pub(super) stays: Option<String>,
    /// Changes go to memory: the journal of a read-only volume was replayed there.
    pub(super) overlaid: bool,
    /// The volume is not marked clean: it was damaged, or it has no journal and was in use when the
    /// system crashed.
    pub(super) needs_check: bool,
}

/// Opens the file system on `device`.
fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Inodes> {
    let device = match options.superblock {
        Some(block) => backup::overlay(device, block)?,
        None => device,
    };
    let mut found = examine(&device, options).map_err(|error| name_copy(&*device, error))?;
    let claim = match found.read_only.is_none() && !options.bypass_journal && !options.claimed {
        true => Claim::take(&found.device, &found.geometry, &found.sb)?,
        false => None,
    };
    if claim.is_some() {
        // Another node may have changed the volume before the claim.
        found = examine(&device, options)?;
    }
    let journal = journal::locate(&found.device, &found.sb, &found.geometry)?;
    let dirty = found.sb.features().has(Incompat::RECOVER);
    let skip = options.read_only && options.no_recovery;
    let mut report = Recovered::default();
    if dirty && !skip {
        report = replay::recover(&mut found, journal.as_ref())?;
    }
    found.needs_check = found.sb.state.get() & state::VALID == 0;
    let writable = found.read_only.is_none();
    if writable {
        let journal = journal.as_ref().filter(|_| !options.bypass_journal);
        if let Some(journal) = journal {
            journal.check_size(&found.device, &found.geometry)?;
        }
        mark_mounted(&mut found, options, journal.is_some())?;
    } else if dirty && found.stays.is_none() {
        let text = if skip { NOT_REPLAYED } else { REPLAYED_IN_MEMORY };
        found.stays = Some(text.to_owned());
    }
    let store = store(&mut found, journal.as_ref(), options)?;
    let fs = build_layers(&found, store, journal.as_ref(), options)?;
    fs.blocks.set_discard(options.discard);
    if let Some(claim) = claim {
        *fs.heartbeat.lock() = Some(claim.start(&fs.store)?);
    }
    orphans::prepare(&fs, writable)?;
    if writable {
        report.orphans = orphans::finish(&fs)?;
    }
    let journal_blocks = journal.map_or(0, |journal| journal.blocks());
    let reasons = ReadOnlyReasons { opened: found.read_only, stays: found.stays };
    Ok(Inodes::new(fs, reasons, journal_blocks, report))
}

/// Adds to the error about a damaged superblock which backup the check can use.
fn name_copy(device: &dyn BlockDevice, error: Error) -> Error {
    match (&error, copy(device)) {
        (Error::Corrupt(cause), Some(block)) => {
            let text = format!("{cause}; block {block} holds a backup, with which fsck checks");
            Error::Corrupt(Cause::new(text))
        }
        _ => error,
    }
}

/// The block of a valid backup of the superblock at the usual start of the second group.
fn copy(device: &dyn BlockDevice) -> Option<u64> {
    (10..=16u32).find_map(|bits| {
        let block = (8u64 << bits) + u64::from(bits == 10);
        let (at, mut bytes) = (block << bits, [0; SUPER_SIZE]);
        if at + to_u64(SUPER_SIZE) > device.size() {
            return None;
        }
        device.read_at(at, &mut bytes).ok()?;
        let sb = Superblock::read(&bytes).ok()?;
        let there = sb.log_block_size.get() + 10 == bits && sb.block_group_nr.get() != 0;
        (there && sb.verify_checksum().is_ok()).then_some(block)
    })
}

fn examine(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Found> {
    let device = Arc::clone(device);
    let sb = read_super(&*device)?;
    let reason = supported::check(&sb.features(), sb.creator_os.get())?;
    let geometry = Arc::new(geometry_of(&sb, device.size())?);
    if let Err(error) = sb.verify_checksum()
        && (options.no_recovery || !replay::mends_super(&device, &sb, &geometry))
    {
        return Err(error.into());
    }
    let backup = options.superblock.is_some();
    let read_only = match &reason {
        Some(reason) => Some(reason.clone()),
        None if options.read_only => Some("opened for reading only".to_owned()),
        None if backup => Some(USES_BACKUP.to_owned()),
        None if device.is_read_only() => Some(DEVICE_READ_ONLY.to_owned()),
        None => None,
    };
    let stays = reason.or_else(|| backup.then(|| USES_BACKUP.to_owned()));
    let (overlaid, needs_check) = (false, false);
    Ok(Found { device, sb, geometry, read_only, stays, overlaid, needs_check })
}

pub(crate) fn read_super(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPER_SIZE];
    if device.size() < SUPER_OFFSET + to_u64(SUPER_SIZE) {
        return Err(Error::foreign(device));
    }
    device.read_at(SUPER_OFFSET, &mut bytes).map_err(|source| io("read", &source))?;
    // Only the magic number is checked here.
    Superblock::read(&bytes).map_err(|_| Error::foreign(device))
}

/// The geometry of the volume on a device of `bytes`.
pub(super) fn geometry_of(sb: &Superblock, bytes: u64) -> Result<Geometry> {
    let geometry = sb.check(u64::MAX)?;
    match Truncated::of(&geometry, bytes) {
        Some(truncated) => Err(Error::Truncated(truncated)),
        None => Ok(geometry),
    }
}

/// Writes the superblock in place and flushes the device.
///
/// The journal holds no copy of it at this point. If one sector can hold all changes only that
/// sector is written, so that a power cut leaves either the old superblock or the new one.
pub(crate) fn write_super(device: &dyn BlockDevice, sb: &mut Superblock) -> Result<()> {
    let alike = sb.seal_like(&read_super(device)?);
    if !alike {
        sb.seal();
    }
    let bytes = &sb.bytes()[..if alike { SECTOR } else { SUPER_SIZE }];
    device.write_at(SUPER_OFFSET, bytes).map_err(|source| io("write", &source))?;
    device.flush().map_err(|source| io("flush", &source))
}

fn io(op: &str, source: &std::io::Error) -> Error {
    Error::Io(Cause::new(format!("{op} of the superblock: {source}")))
}

/// Marks the volume in use on the device, so that the next open detects a crash.
fn mark_mounted(found: &mut Found, options: &OpenOptions, journaled: bool) -> Result<()> {
    let now = Clock::new(options.now).now();
    let counts = (found.sb.mnt_count.get(), found.sb.mounted_at());
    mark_in_use(&mut found.sb, now, journaled);
    if options.bypass_journal {
        found.sb.mnt_count.set(counts.0);
        found.sb.set_mounted_at(counts.1);
    }
    write_super(&*found.device, &mut found.sb)
}

/// Changes the fields of a superblock that is about to be in use.
pub(super) fn mark_in_use(sb: &mut Superblock, now: DiskTime, journaled: bool) {
    let now = now.seconds.max(0).cast_unsigned();
    let mut features = sb.features();
    if journaled {
        features.set(Incompat::RECOVER, true);
    } else {
        sb.state.set(sb.state.get() & !state::VALID);
    }
    if features.has(Compat::ORPHAN_FILE) {
        features.set(RoCompat::ORPHAN_PRESENT, true);
    }
    sb.set_features(features);
    sb.mnt_count.set(sb.mnt_count.get().saturating_add(1));
    sb.set_mounted_at(now);
    sb.set_written_at(now);
}

/// Opens the store. That of a volume which is read-only for now is suspended.
fn store(
    found: &mut Found,
    journal: Option<&journal::Located>,
    options: &OpenOptions,
) -> Result<Arc<Store>> {
    let store_options = StoreOptions {
        block_size: found.geometry.block_len(),
        cache_bytes: options.cache_parts().0,
        commit_interval: options.commit_interval,
        admission: options.replacements.admission.clone(),
    };
    let device = Arc::clone(&found.device);
    if found.overlaid {
        // A journal replayed into memory: changes go to memory, too.
        return Ok(Arc::new(Store::without_journal(device, &store_options)?));
    }
    let journal = journal.filter(|_| !options.bypass_journal);
    if found.read_only.is_none() {
        return Ok(Arc::new(match journal {
            Some(journal) => journal.open_store(device, &found.geometry, &store_options)?,
            None => Store::without_journal(device, &store_options)?,
        }));
    }
    if found.stays.is_none() {
        let suspended = match journal {
            Some(journal) => {
                journal.suspended_store(Arc::clone(&device), &found.geometry, &store_options)
            }
            None => Ok(Store::suspended_without_journal(Arc::clone(&device), &store_options)),
        };
        match suspended {
            Ok(store) => return Ok(Arc::new(store)),
            // A damaged journal does not keep the volume from being read.
            Err(error) => found.stays = Some(error.to_string()),
        }
    }
    Ok(Arc::new(Store::read_only(device, &store_options)))
}

pub(super) fn build_layers(
    found: &Found,
    store: Arc<Store>,
    journal: Option<&journal::Located>,
    options: &OpenOptions,
) -> Result<Fs> {
    let geometry = Arc::clone(&found.geometry);
    let (super_block, _) = geometry.super_location();
    let block = store.read::<Error>(super_block, |_| Ok(()))?;
    let sup = SuperObject::new(&geometry, block, found.sb.clone(), found.needs_check);
    let own = || ErrorPolicy::of_superblock(found.sb.errors.get());
    let policy = options.errors.unwrap_or_else(own);
    let reserved = found.sb.reserved_blocks_count();
    let own = journal.map_or(&[][..], journal::Located::runs);
    let (data, choice) = (Arc::clone(&store), &options.replacements.blocks);
    let blocks = BlockAlloc::open_as(data, Arc::clone(&geometry), reserved, own, choice)?;
    Ok(Fs::new(FsParts {
        inodes: InodeAlloc::new(&blocks),
        blocks,
        geometry,
        store,
        sup,
        clock: Clock::new(options.now),
        #[cfg(feature = "lab")]
        direct: options.replacements.direct,
        policy,
        observer: options.observer.clone(),
        commit_interval: options.commit_interval,
        read_only: found.read_only.is_some(),
        fills: options.bypass_journal,
        inode_bytes: options.cache_parts().1,
    }))
}

/// Commits, checkpoints, marks the volume clean and flushes the device.
fn close(fs: &Fs) -> Result<()> {
    if fs.store.is_read_only() {
        return Ok(());
    }
    // A frozen volume would hold the last changes back forever.
    fs.store.end_freezes();
    fs.deferred_files.stop();
    // Most deferred conversions complete while operations are still allowed; the rest once no
    // operation can defer another.
    let mut completed = fs.complete_all_deferred();
    fs.begin_closing();
    completed = completed.and(fs.complete_all_deferred());
    if let Ok(h) = fs.store.start(1) {
        fs.sup.change(&h, |sb| sb.set_written_at(fs.now().seconds.max(0).unsigned_abs()));
    }
    // Running handles join the last commit; later handles are refused.
    fs.store.close()?;
    fs.set_read_only();
    mark_clean(fs)?;
    end_heartbeat(fs)?;
    completed
}

/// Gives the volume back to other nodes, if it was claimed.
pub(super) fn end_heartbeat(fs: &Fs) -> Result<()> {
    fs.heartbeat.lock().take().map_or(Ok(()), Heartbeat::end)
}

/// Marks the volume clean on the device. The log is empty.
pub(super) fn mark_clean(fs: &Fs) -> Result<()> {
    let mut sb = fs.sup.snapshot();
    let mut features = sb.features();
    features.set(Incompat::RECOVER, false);
    let orphans = fs.orphans.file().is_some_and(|file| !file.entries().is_empty());
    if !orphans {
        features.set(RoCompat::ORPHAN_PRESENT, false);
    }
    sb.set_features(features);
    if sb.state.get() & state::ERROR == 0 && !fs.sup.needs_check() {
        sb.state.set(sb.state.get() | state::VALID);
    }
    write_super(&**fs.store.device(), &mut sb)
}
