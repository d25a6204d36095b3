//! Pass 0: the superblock, its features, and the journal, replayed in memory.

use nextent_device::{BlockDevice, Overlay};
use nextent_num::to_u64;
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE, state};
use nextent_ondisk::{
    BlockNo, Compat, Corrupt, Features, Geometry, GroupNo, Incompat, InodeNo, RoCompat, Structure,
    Superblock,
};
use nextent_store::{JournalRun, JournalSpec, JournalUse};
use nextent_sync::Arc;

use super::image::Image;
use super::report::{Findings, Problem, Totals};
use super::{At, CheckOptions, Peek, backups, descriptors, external as journal_device, walk};
use crate::error::{Cause, Error, Result, Truncated};
use crate::mmp::CheckClaim;
use crate::open;

/// Features whose structures this crate does not know.
const REFUSED_COMPAT: Compat = Compat::LAZY_BG.with(Compat::EXCLUDE_INODE);
const REFUSED_INCOMPAT: Incompat =
    Incompat::COMPRESSION.with(Incompat::JOURNAL_DEV).with(Incompat::DIRDATA);
const REFUSED_RO: RoCompat =
    RoCompat::BTREE_DIR.with(RoCompat::HAS_SNAPSHOT).with(RoCompat::REPLICA);
const KNOWN_COMPAT: u32 = 0x1fff;
const KNOWN_INCOMPAT: u32 = 0x3f7df;
const KNOWN_RO: u32 = 0x1ffff;

/// Volumes of at most so many blocks are checked however much of them is missing: 32 MiB of bits.
const CHECKED_BLOCKS: u64 = 1 << 28;

/// The volume on `device`, its journal replayed into memory.
pub(super) fn open(
    device: Arc<dyn BlockDevice>,
    external: Option<&dyn BlockDevice>,
    options: &CheckOptions,
) -> Result<(Image, bool)> {
    let (image, pending) = replayed(device, external, options)?;
    notes(&image);
    super::superblock::check(&image);
    backups::check(&image);
    Ok((image, pending))
}

/// As [`open`], without a check of the superblock.
pub(super) fn replayed(
    device: Arc<dyn BlockDevice>,
    external: Option<&dyn BlockDevice>,
    options: &CheckOptions,
) -> Result<(Image, bool)> {
    let mut image = bare(device, options)?;
    descriptors::replace(&mut image);
    let pending = journal(&mut image, external)?;
    image.unclean |= pending;
    Ok((image, pending))
}

/// The volume on `device` without replay.
pub(super) fn bare(device: Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<Image> {
    let found = Findings::new(options.limit);
    let (sb, geo) = superblock(&*device, options, &found)?;
    let workers = match options.workers {
        0 => nextent_sync::available_cores(),
        workers => workers,
    };
    let unclean = sb.state.get() & state::VALID == 0;
    let claimed = options.claimed;
    Ok(Image { device, sb, geo, found, unclean, workers, claimed })
}

/// The state by the superblock alone; see [`Peek`].
pub(super) fn peek(device: &dyn BlockDevice, options: &CheckOptions) -> Result<Peek> {
    let found = Findings::new(0);
    let (sb, geo) = superblock(device, options, &found)?;
    let sound = found.finish(|_| None).is_clean();
    let features = &geo.features;
    let waits = features.has(Incompat::RECOVER)
        || features.has(RoCompat::ORPHAN_PRESENT)
        || sb.last_orphan.get() != 0;
    let good = sb.state.get() & (state::VALID | state::ERROR) == state::VALID;
    let free_inodes = u64::from(sb.free_inodes_count.get());
    let totals = Totals {
        inodes: geo.inodes_count.into(),
        inodes_used: u64::from(geo.inodes_count).saturating_sub(free_inodes),
        blocks: geo.blocks_count,
        blocks_used: geo.blocks_count.saturating_sub(sb.free_blocks_count()),
        ..Totals::default()
    };
    let outside = features.has(Compat::HAS_JOURNAL) && sb.journal_inum.get() == 0;
    let external_journal = outside.then_some(sb.journal_uuid);
    let multi_mount = features.has(Incompat::MMP);
    Ok(Peek { clean: sound && good && !waits, external_journal, multi_mount, waits, totals })
}

/// The claim of a check; see [`super::claim`].
pub(super) fn claim(device: &Arc<dyn BlockDevice>) -> Result<Option<CheckClaim>> {
    let (sb, geometry) = superblock(&**device, &CheckOptions::default(), &Findings::new(0))?;
    CheckClaim::take(device, &Arc::new(geometry), &sb)
}

/// The superblock that the caller chose, else the first valid one: if the superblock at the start
/// of the volume is damaged, its backups are tried.
fn superblock(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    found: &Findings,
) -> Result<(Superblock, Geometry)> {
    let usable = some_superblock(device, options, found)?;
    truncated(&usable.1, device, found)?;
    Ok(usable)
}

/// Reports that the device ends before the volume. The check continues with what exists, unless
/// that is a small part, since memory grows with the volume.
fn truncated(geo: &Geometry, device: &dyn BlockDevice, found: &Findings) -> Result<()> {
    let Some(truncated) = Truncated::of(geo, device.size()) else { return Ok(()) };
    if geo.blocks_count > CHECKED_BLOCKS && truncated.missing() > device.size() {
        return Err(Error::Truncated(truncated));
    }
    found.push(Problem::error(0, "truncated", truncated.to_string()));
    Ok(())
}

fn some_superblock(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    found: &Findings,
) -> Result<(Superblock, Geometry)> {
    let told = |error: String, block| {
        let text = format!("the superblock is {error}; the copy in this block was used");
        found.push(Problem::error(0, "superblock", text).at_block(BlockNo(block)));
    };
    let first = open::read_super(device).and_then(usable);
    if let Some(At { block, block_size }) = options.superblock {
        if let Err(error) = first {
            told(format!("damaged ({error})"), block);
        }
        return asked_for(device, block, block_size);
    }
    let error = match first {
        Ok(found) => return Ok(found),
        Err(error @ Error::Unsupported(_)) => return Err(error),
        // The rest of an old volume behind another format's magic number is no damaged volume.
        Err(Error::Foreign(foreign)) if !foreign.may_be_damage() => {
            return Err(Error::Foreign(foreign));
        }
        Err(error) => error,
    };
    match copy(device) {
        Some((block, usable)) => {
            told(format!("damaged ({error})"), block);
            Ok(usable)
        }
        None => Err(error),
    }
}

/// The superblock in `block`, for the block size with which it is valid.
fn asked_for(
    device: &dyn BlockDevice,
    block: u64,
    block_size: Option<u32>,
) -> Result<(Superblock, Geometry)> {
    let all = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];
    let sizes = block_size.map_or(all.to_vec(), |size| vec![size]);
    let mut result = Err(Error::Corrupt(Cause::new("no superblock lies there")));
    for size in sizes {
        // The first one lies 1024 bytes into a block that is larger.
        let at = block.saturating_mul(size.into()).max(SUPER_OFFSET);
        let found = read(device, at).and_then(usable);
        match found {
            Ok((sb, geo)) if geo.block_size == size => return Ok((sb, geo)),
            Ok(_) => {}
            Err(error) => result = Err(error),
        }
    }
    result
}

/// How far backups in unusual locations are searched.
const SEARCH: u64 = 256 << 20;

/// The first valid backup and its block: first where groups of the usual size begin, then in every
/// block that identifies itself as one.
fn copy(device: &dyn BlockDevice) -> Option<(u64, (Superblock, Geometry))> {
    let usual = (10..=16u32).map(|bits| (8u64 << (2 * bits)) + if bits == 10 { 1024 } else { 0 });
    let step = 1 << 20;
    let all = usual.chain((0..SEARCH.min(device.size())).step_by(step).flat_map(|from| {
        let mut bytes = vec![0; step];
        let len = (device.size() - from).min(to_u64(step));
        bytes.truncate(usize::try_from(len).unwrap_or(step));
        let read = device.read_at(from, &mut bytes).is_ok();
        let places = bytes.chunks_exact(SUPER_SIZE).enumerate();
        let magic = places.filter(|(_, bytes)| read && Superblock::read(bytes).is_ok());
        magic.map(|(n, _)| from + to_u64(n * SUPER_SIZE)).collect::<Vec<_>>()
    }));
    all.filter(|at| *at != SUPER_OFFSET).find_map(|at| {
        let sb = read(device, at).ok()?;
        let group = GroupNo(sb.block_group_nr.get().into());
        let (sb, geo) = usable(sb).ok()?;
        let block = at >> geo.block_bits;
        let there = group.0 > 0 && geo.super_block_of(group) == Some(BlockNo(block));
        there.then_some((block, (sb, geo)))
    })
}

pub(super) fn read(device: &dyn BlockDevice, at: u64) -> Result<Superblock> {
    let mut bytes = vec![0; SUPER_SIZE];
    if device.size() < at + to_u64(SUPER_SIZE) {
        return Err(Error::Corrupt(Cause::new("the device is too small for a superblock")));
    }
    device.read_at(at, &mut bytes).map_err(|e| Error::Io(Cause::new(e)))?;
    Ok(Superblock::read(&bytes)?)
}

fn usable(sb: Superblock) -> Result<(Superblock, Geometry)> {
    sb.verify_checksum()?;
    refuse(sb.features())?;
    let geo = sb.check(u64::MAX)?;
    let clusters = sb.clusters_per_group.get();
    if geo.cluster_bits == 0 && clusters != geo.blocks_per_group {
        let text = "s_clusters_per_group (not the blocks of a group)";
        return Err(Corrupt::field(Structure::Superblock, text, clusters).into());
    }
    Ok((sb, geo))
}

/// Refuses unknown features by name.
fn refuse(features: Features) -> Result<()> {
    if features.has(Incompat::JOURNAL_DEV) {
        return Err(Error::unsupported("this is an external journal, not a file system"));
    }
    let compat = REFUSED_COMPAT.bits() | !KNOWN_COMPAT;
    let incompat = REFUSED_INCOMPAT.bits() | !KNOWN_INCOMPAT;
    let ro_compat = REFUSED_RO.bits() | !KNOWN_RO;
    let unknown = Features {
        compat: Compat::from_bits(features.compat.bits() & compat),
        incompat: Incompat::from_bits(features.incompat.bits() & incompat),
        ro_compat: RoCompat::from_bits(features.ro_compat.bits() & ro_compat),
    };
    match unknown.names().first() {
        Some(name) => Err(Error::unsupported(format!("feature {name}"))),
        None => Ok(()),
    }
}

fn push(image: &Image, code: &'static str, text: impl Into<String>) {
    image.push(Problem::error(0, code, text));
}

/// Replays the journal into memory if it needs replay; returns whether it did.
fn journal(image: &mut Image, external: Option<&dyn BlockDevice>) -> Result<bool> {
    let wanted = image.geo.features.has(Incompat::RECOVER);
    if !image.geo.features.has(Compat::HAS_JOURNAL) {
        if wanted {
            push(image, "journal", "needs recovery, but has no journal");
        }
        return Ok(false);
    }
    if image.sb.journal_inum.get() == 0 {
        if wanted {
            return Err(Error::unsupported("recovery from an external journal"));
        }
        match external {
            Some(device) => journal_device::check(image, device),
            None => image.push(Problem::not_checked(0, "the external journal")),
        }
        return Ok(false);
    }
    if image.sb.journal_dev.get() != 0 || image.sb.journal_uuid != [0; 16] {
        push(image, "journal", "names both a journal of its own and an external one");
    }
    let Some(spec) = spec(image) else {
        // Pass 1 reports the problems of the inode itself.
        push(image, "journal", "the journal cannot be found");
        return Ok(false);
    };
    let block_size = image.geo.block_len();
    let state = match nextent_store::inspect_journal(&image.device, block_size, &spec) {
        Ok(state) => state,
        Err(error) => {
            push(image, "journal", error.to_string());
            return Ok(false);
        }
    };
    if !wanted {
        if state.needs_recovery {
            push(image, "journal", "the journal holds data, but recovery is not asked for");
        }
        return Ok(false);
    }
    replay(image, &spec)?;
    Ok(true)
}

fn spec(image: &Image) -> Option<JournalSpec> {
    let ino = InodeNo(image.sb.journal_inum.get());
    let (inode, _) = image.inode(0, ino)?;
    let found = walk::runs(image, 0, ino, &inode);
    let mut next = 0;
    for run in &found.runs {
        if u64::from(run.block.0) != next {
            return None;
        }
        next = run.end();
    }
    let runs = found.runs.iter().map(|run| JournalRun { start: run.start, len: run.len });
    let runs: Vec<_> = runs.collect();
    if found.damaged || runs.is_empty() {
        return None;
    }
    let form = JournalUse {
        checksums: image.geo.features.metadata_csum(),
        wide: image.geo.features.has(Incompat::BIT64),
        fast: false,
    };
    Some(JournalSpec { runs, form, volume_blocks: image.geo.blocks_count })
}

/// Replays over the device and continues with the result.
fn replay(image: &mut Image, spec: &JournalSpec) -> Result<()> {
    let over: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(&image.device)));
    let recovery = match nextent_store::recover(&over, image.geo.block_len(), spec) {
        Ok(recovery) => recovery,
        Err(error) => {
            push(image, "journal", format!("the journal cannot be replayed: {error}"));
            return Ok(());
        }
    };
    let mut text = format!(
        "recovery is pending: judged as after the replay of {} transactions ({} blocks)",
        recovery.transactions, recovery.replayed
    );
    let mut device = over;
    if !recovery.fast_commits.is_empty() {
        match open::fast_commits(&device, &recovery) {
            Ok((memory, records)) => {
                device = memory;
                text = format!("{text} and {records} records of fast commits");
            }
            Err(error) => {
                push(image, "fast-commit", format!("fast commits cannot be replayed: {error}"));
            }
        }
    }
    image.push(Problem::note(0, "recovery", text));
    image.device = device;
    let (sb, geo) = superblock(&*image.device, &CheckOptions::default(), &image.found)?;
    (image.sb, image.geo) = (sb, geo);
    Ok(())
}

fn notes(image: &Image) {
    if image.sb.state.get() & state::ERROR != 0 {
        let text = "the volume is marked as having errors";
        image.push(Problem::note(0, "state", text));
    }
}
