//! Pass 0: the superblock, its features, and the journal, replayed in memory.

use nextent_device::{BlockDevice, Overlay};
use nextent_num::to_u64;
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE, state};
use nextent_ondisk::{
    BlockNo, Compat, Corrupt, Features, Geometry, Incompat, InodeNo, RoCompat, Structure,
    Superblock,
};
use nextent_store::{JournalRun, JournalSpec, JournalUse};
use nextent_sync::Arc;

use super::image::Image;
use super::report::{Findings, Problem, Totals};
use super::{CheckOptions, Peek, backups, walk};
use crate::error::{Cause, Error, Result};
use crate::mount;

/// Features whose structures are not understood at all.
const REFUSED_COMPAT: Compat = Compat::LAZY_BG.with(Compat::EXCLUDE_INODE);
const REFUSED_INCOMPAT: Incompat =
    Incompat::COMPRESSION.with(Incompat::JOURNAL_DEV).with(Incompat::DIRDATA);
const REFUSED_RO: RoCompat =
    RoCompat::BTREE_DIR.with(RoCompat::HAS_SNAPSHOT).with(RoCompat::REPLICA);
const KNOWN_COMPAT: u32 = 0x1fff;
const KNOWN_INCOMPAT: u32 = 0x3f7df;
const KNOWN_RO: u32 = 0x1ffff;

/// Features whose structures are followed, but not all of whose contents are compared.
const PARTLY: [(Incompat, &str); 2] = [
    (Incompat::ENCRYPT, "names and contents of encrypted files"),
    (Incompat::CASEFOLD, "hashes of names in directories that ignore case"),
];

/// The volume on `device`, its journal replayed into memory.
pub(super) fn open(device: Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<(Image, bool)> {
    let mut image = bare(device, options.limit, options.workers)?;
    let pending = journal(&mut image)?;
    image.unclean |= pending;
    notes(&image);
    backups::check(&image);
    Ok((image, pending))
}

/// The volume on `device` as it lies, nothing replayed, up to `limit` problems kept.
pub(super) fn bare(device: Arc<dyn BlockDevice>, limit: usize, workers: usize) -> Result<Image> {
    let found = Findings::new(limit);
    let (sb, geo) = superblock(&*device, &found)?;
    let workers = match workers {
        0 => nextent_sync::available_cores(),
        workers => workers,
    };
    let unclean = sb.state.get() & state::VALID == 0;
    Ok(Image { device, sb, geo, found, unclean, workers })
}

/// What the superblock alone says; see [`Peek`].
pub(super) fn peek(device: &dyn BlockDevice) -> Result<Peek> {
    let found = Findings::new(0);
    let (sb, geo) = superblock(device, &found)?;
    let sound = found.finish(|_| None).is_clean();
    let features = &geo.features;
    let waits = features.has(Incompat::RECOVER) || features.has(RoCompat::ORPHAN_PRESENT);
    let good = sb.state.get() & (state::VALID | state::ERROR) == state::VALID;
    let free_inodes = u64::from(sb.free_inodes_count.get());
    let totals = Totals {
        inodes: geo.inodes_count.into(),
        inodes_used: u64::from(geo.inodes_count).saturating_sub(free_inodes),
        blocks: geo.blocks_count,
        blocks_used: geo.blocks_count.saturating_sub(sb.free_blocks_count()),
        ..Totals::default()
    };
    Ok(Peek { clean: sound && good && !waits && sb.last_orphan.get() == 0, totals })
}

/// The first superblock that can be used; all others' places are tried when the first is damaged.
fn superblock(device: &dyn BlockDevice, found: &Findings) -> Result<(Superblock, Geometry)> {
    let first = read(device, SUPER_OFFSET).and_then(|sb| usable(device, sb));
    let error = match first {
        Ok(found) => return Ok(found),
        Err(error @ Error::Unsupported(_)) => return Err(error),
        Err(error) => error,
    };
    for bits in 10..=16u32 {
        let block = (8u64 << bits) + u64::from(bits == 10);
        let Ok(sb) = read(device, block << bits) else { continue };
        if sb.block_group_nr.get() == 0 || sb.log_block_size.get() + 10 != bits {
            continue;
        }
        if let Ok(usable) = usable(device, sb) {
            let text = format!("the superblock is damaged ({error}); a backup was used");
            found.push(Problem::error(0, "superblock", text).at_block(BlockNo(block)));
            return Ok(usable);
        }
    }
    Err(error)
}

pub(super) fn read(device: &dyn BlockDevice, at: u64) -> Result<Superblock> {
    let mut bytes = vec![0; SUPER_SIZE];
    if device.size() < at + to_u64(SUPER_SIZE) {
        return Err(Error::Corrupt(Cause::new("the device is too small for a superblock")));
    }
    device.read_at(at, &mut bytes).map_err(|e| Error::Io(Cause::new(e)))?;
    Ok(Superblock::read(&bytes)?)
}

fn usable(device: &dyn BlockDevice, sb: Superblock) -> Result<(Superblock, Geometry)> {
    sb.verify_checksum()?;
    refuse(sb.features())?;
    let geo = sb.check(device.size())?;
    let clusters = sb.clusters_per_group.get();
    if geo.cluster_bits == 0 && clusters != geo.blocks_per_group {
        let text = "s_clusters_per_group (not the blocks of a group)";
        return Err(Corrupt::field(Structure::Superblock, text, clusters).into());
    }
    Ok((sb, geo))
}

/// Refuses what is not known, by name.
fn refuse(features: Features) -> Result<()> {
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

/// Replays the journal into memory when it has to be; whether it had to.
fn journal(image: &mut Image) -> Result<bool> {
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
        image.push(Problem::note(0, "journal", "not checked: the external journal"));
        return Ok(false);
    }
    if image.sb.journal_dev.get() != 0 || image.sb.journal_uuid != [0; 16] {
        push(image, "journal", "names both a journal of its own and an external one");
    }
    let Some(spec) = spec(image) else {
        // Pass 1 says what is wrong with the inode itself.
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

/// Replays over the device and goes on with what that gives.
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
        match mount::fast_commits(&device, &recovery) {
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
    let (sb, geo) = superblock(&*image.device, &image.found)?;
    (image.sb, image.geo) = (sb, geo);
    Ok(())
}

fn notes(image: &Image) {
    for (feature, what) in PARTLY {
        if image.geo.features.has(feature) {
            image.push(Problem::note(0, "not-checked", format!("not checked: {what}")));
        }
    }
    if image.geo.features.has(RoCompat::QUOTA) {
        let text = "not checked: what the quota files count";
        image.push(Problem::note(0, "not-checked", text));
    }
    if image.sb.state.get() & state::ERROR != 0 {
        let text = "the volume is marked as having errors";
        image.push(Problem::note(0, "state", text));
    }
}
