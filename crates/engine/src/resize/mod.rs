//! Grows and shrinks a volume that is not open.
//!
//! | step | what | module |
//! |---|---|---|
//! | 1 | the new layout; the blocks that it does not have or needs for descriptors | `target`, `vacate` |
//! | 2 | a trial: whether everything has room elsewhere | `minimum` |
//! | 3 | blocks of files leave these blocks, and the new places of inode tables | `files`, `contiguous` |
//! | 4 | the journal leaves them | `journal` |
//! | 5 | bitmaps and inode tables leave them | `group_metadata` |
//! | 6 | inodes with numbers that the new layout does not have get others | `inodes` |
//! | 7 | the superblock gets the new size | `switch`, `new_groups`, `resize_inode` |
//!
//! `volume` is the volume with its changes, `commit` makes them durable.
//!
//! Invariants:
//! - After each commit of steps 3 to 6 the volume is consistent, with the old size.
//! - The size changes by one write of one sector. A crash leaves the old size or the new one (or,
//!   of a full volume, one between them), at most with blocks in use without an owner. Then the
//!   superblock asks for a check, and `e2fsck -p` frees them.
//! - Without a journal, and where one step does not fit into the log (a directory of many blocks
//!   that gets another number), a crash may need more of e2fsck.

mod commit;
mod contiguous;
mod files;
mod free_runs;
mod group_metadata;
mod inode_size;
mod inodes;
mod journal;
mod map;
mod minimum;
mod new_groups;
mod references;
mod resize_inode;
mod switch;
mod target;
mod vacate;
mod volume;

use nextent_device::BlockDevice;
use nextent_ondisk::superblock::state;
use nextent_ondisk::{Compat, Geometry, Incompat, RoCompat, Superblock};
use nextent_sync::Arc;

use crate::check::{self, CheckClaim, CheckOptions};
use crate::error::{Cause, Error, Result};
use crate::open::{OpenOptions, read_super};
use crate::ops::Inodes;

pub use inode_size::enlarge_inodes;

use files::MovedAttributes;
use target::Target;
use vacate::Vacated;
use volume::Volume;

/// How to resize.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ResizeOptions {
    /// Whether group descriptors get (or lose) the fields for 64-bit block numbers, the feature
    /// `64bit`; `None` leaves them.
    pub wide: Option<bool>,
    /// Does not check the volume before blocks or inodes are moved, or when its superblock asks
    /// for a check.
    pub unchecked: bool,
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizePhase {
    /// The volume is checked.
    Check,
    /// Bitmaps, inode tables and blocks of files move.
    Blocks,
    /// Inodes move.
    Inodes,
    /// New groups are made.
    Groups,
}

/// The progress of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeProgress {
    /// The part.
    pub phase: ResizePhase,
    /// Steps of the part done.
    pub done: u64,
    /// Steps of the part.
    pub steps: u64,
}

/// The result of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Blocks of the volume before.
    pub before: u64,
    /// Blocks of the volume now.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks that moved.
    pub moved_blocks: u64,
    /// Inodes that got another number.
    pub moved_inodes: u64,
}

/// The fewest blocks that the volume on `device` can have. Writes nothing, except that a volume
/// that was not closed is recovered.
///
/// # Errors
/// As [`resize`].
pub fn minimum_blocks(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    let claim = check::claim(device)?;
    let sb = begin(device, claim.as_ref())?;
    minimum::find(device, &sb, &ResizeOptions::default())
}

/// The size that a resize to `blocks` results in: fewer where the last group would be too small for
/// its own metadata. Writes nothing.
///
/// # Errors
/// As [`resize`].
pub fn resized_blocks(
    device: &dyn BlockDevice,
    blocks: u64,
    options: &ResizeOptions,
) -> Result<u64> {
    let sb = read_super(device)?;
    let geo = sb.check(u64::MAX)?;
    Ok(Target::new(&sb, &geo, blocks, options)?.geo.blocks_count)
}

/// Makes the volume on `device` one of `blocks` blocks, or fewer where the last group would be too
/// small for its own metadata. The device must be that large. The caller cuts off the rest of the
/// device after shrinking.
///
/// ```
/// use nextent::mkfs::{self, MkfsOptions};
/// use nextent::resize::{ResizeOptions, resize};
/// # use std::sync::Arc;
///
/// let device: Arc<dyn nextent::BlockDevice> = Arc::new(nextent::MemoryDevice::new(64 << 20));
/// let mut options = MkfsOptions::default();
/// options.size = Some(32 << 20);
/// mkfs::make(&*device, &options)?;
/// let resized = resize(&device, 65536, &ResizeOptions::default(), &|_| ())?;
/// assert_eq!((resized.before, resized.blocks), (32768, 65536));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::NoSpace`] and [`Error::NoInodes`] for a size that is too small for the contents;
/// [`Error::Unsupported`]; [`Error::Corrupt`] for a volume that a check finds damaged. In these
/// cases the volume has not changed, except that one that was not closed is recovered, and that
/// descriptors have the new width if [`ResizeOptions::wide`] asks for one. As [`Inodes::open`].
pub fn resize(
    device: &Arc<dyn BlockDevice>,
    blocks: u64,
    options: &ResizeOptions,
    progress: &dyn Fn(ResizeProgress),
) -> Result<Resized> {
    let claim = check::claim(device)?;
    let mut sb = begin(device, claim.as_ref())?;
    let geo = sb.check(device.size())?;
    let mut resized = Resized {
        before: geo.blocks_count,
        blocks: geo.blocks_count,
        block_size: geo.block_size,
        moved_blocks: 0,
        moved_inodes: 0,
    };
    if options.wide.is_some_and(|wide| wide != geo.features.has(Incompat::BIT64)) {
        let target = Target::new(&sb, &geo, geo.blocks_count, options)?;
        run(device, sb, &target, (options, progress), &mut resized)?;
        sb = read_super(&**device)?;
    }
    let geo = sb.check(device.size())?;
    let target = Target::new(&sb, &geo, blocks, options)?;
    let available = device.size() >> geo.block_bits;
    if target.geo.blocks_count > available {
        let text = format!("{blocks} blocks on a device of {available}");
        return Err(Error::unsupported(text));
    }
    if target.geo == geo {
        return Ok(resized);
    }
    match run(device, sb.clone(), &target, (options, progress), &mut resized) {
        Err(Error::NoSpace) if target.geo.blocks_count > geo.blocks_count => {
            grow_twice(device, &sb, &target, (options, progress), &mut resized)?;
        }
        done => done?,
    }
    Ok(resized)
}

/// Grows a full volume whose heads of groups need blocks that are in use: first as far as the
/// descriptors that it has blocks for, then with the room that this gave.
fn grow_twice(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    target: &Target,
    (options, progress): (&ResizeOptions, &dyn Fn(ResizeProgress)),
    resized: &mut Resized,
) -> Result<()> {
    let old = sb.check(device.size())?;
    let descs = u64::from(old.gdt_blocks() + old.reserved_gdt_blocks);
    let groups = descs * u64::from(old.descs_per_block);
    let most = old.first_data_block.0 + groups * u64::from(old.blocks_per_group);
    let first = Target::new(sb, &old, most.min(target.geo.blocks_count), options)?;
    let gains = first.geo.blocks_count > old.blocks_count;
    if !gains || !Vacated::new(&old, &first.geo).is_empty() {
        return Err(Error::NoSpace);
    }
    run(device, sb.clone(), &first, (options, progress), resized)?;
    let sb = read_super(&**device)?;
    let geo = sb.check(device.size())?;
    let second = Target::new(&sb, &geo, target.geo.blocks_count, options)?;
    match run(device, sb.clone(), &second, (options, progress), resized) {
        Err(Error::NoSpace) => {
            let back = Target::new(&sb, &geo, old.blocks_count, options)?;
            run(device, sb, &back, (options, progress), resized)?;
            Err(Error::NoSpace)
        }
        done => done,
    }
}

/// Gives the volume the layout of `target`.
fn run(
    device: &Arc<dyn BlockDevice>,
    sb: Superblock,
    target: &Target,
    (options, progress): (&ResizeOptions, &dyn Fn(ResizeProgress)),
    resized: &mut Resized,
) -> Result<()> {
    let geo = sb.check(device.size())?;
    let moves = !Vacated::new(&geo, &target.geo).is_empty();
    // An interrupted resize may have left blocks without an owner where the volume grows.
    let doubtful = sb.state.get() & (state::VALID | state::ERROR) != state::VALID;
    if (moves || doubtful) && !options.unchecked {
        check_first(device, progress)?;
    }
    if moves {
        attempt(device, &sb, target)?;
    }
    let mut volume = Volume::read(device, sb, false)?;
    evacuate(&mut volume, target, progress)?;
    let prepared = volume.prepare_switch(target)?;
    volume.switch(target, prepared, &mut |done, steps| {
        progress(ResizeProgress { phase: ResizePhase::Groups, done, steps });
    })?;
    resized.blocks = target.geo.blocks_count;
    resized.moved_blocks += volume.moved_blocks;
    resized.moved_inodes += volume.moved_inodes;
    Ok(())
}

/// Recovers the volume if it was not closed, and refuses it if it cannot be resized.
fn begin(device: &Arc<dyn BlockDevice>, claim: Option<&CheckClaim>) -> Result<Superblock> {
    let before = read_super(&**device)?;
    if device.is_read_only() {
        return Err(Error::ReadOnly);
    }
    refuse(&before)?;
    let features = before.features();
    let waits = features.has(Incompat::RECOVER)
        || features.has(RoCompat::ORPHAN_PRESENT)
        || before.last_orphan.get() != 0;
    let mut open = OpenOptions::new().read_only(!waits);
    if let Some(claim) = claim {
        open = open.claimed(claim);
    }
    let volume = Inodes::open(Arc::clone(device), &open)?;
    if waits && let Some(why) = volume.read_only_reason() {
        let text = format!("recovery before a resize: {why}");
        return Err(Error::unsupported(text));
    }
    volume.close()?;
    let mut sb = read_super(&**device)?;
    // A recovery is no mount.
    sb.mnt_count = before.mnt_count;
    sb.set_mounted_at(before.mounted_at());
    Ok(sb)
}

/// Refuses what no resize supports.
fn refuse(sb: &Superblock) -> Result<()> {
    let features = sb.features();
    let refused = [
        (features.has(RoCompat::BIGALLOC), "bigalloc"),
        (features.has(RoCompat::SHARED_BLOCKS), "shared_blocks"),
        (features.has(Compat::EXCLUDE_INODE), "exclude_inode"),
        (features.has(Compat::EXCLUDE_BITMAP), "exclude_bitmap"),
        (features.has(Compat::LAZY_BG), "lazy_bg"),
    ];
    match refused.into_iter().find(|(has, _)| *has) {
        Some((_, name)) => Err(Error::unsupported(format!("a resize with the feature {name}"))),
        None => Ok(()),
    }
}

/// Checks the volume before anything moves.
fn check_first(device: &Arc<dyn BlockDevice>, progress: &dyn Fn(ResizeProgress)) -> Result<()> {
    progress(ResizeProgress { phase: ResizePhase::Check, done: 0, steps: 0 });
    // Multiple mount protection was claimed, if the volume has it.
    let options = CheckOptions { limit: 1, claimed: true, ..CheckOptions::default() };
    let report = check::check(Arc::clone(device), &options, &|_| ())?;
    if report.is_clean() {
        return Ok(());
    }
    let first = report.problems.first().map_or_else(String::new, ToString::to_string);
    let text = format!("the volume must be repaired before a resize: {first}");
    Err(Error::Corrupt(Cause::new(text)))
}

/// Finds out whether everything has room in the new layout. Writes nothing.
fn attempt(device: &Arc<dyn BlockDevice>, sb: &Superblock, target: &Target) -> Result<()> {
    let mut volume = Volume::read(device, sb.clone(), true)?;
    evacuate(&mut volume, target, &|_| ())?;
    volume.prepare_switch(target)?;
    Ok(())
}

/// Steps 3 to 6.
fn evacuate(volume: &mut Volume, target: &Target, progress: &dyn Fn(ResizeProgress)) -> Result<()> {
    let old = volume.geo.clone();
    let new = &target.geo;
    let mut vacated = Vacated::new(&old, new);
    if vacated.is_empty() {
        return Ok(());
    }
    let moves = volume.plan_group_metadata(new, &vacated)?;
    vacated.add(moves.iter().map(group_metadata::Move::to));
    volume.begin_moves(vacated, new.blocks_count.min(old.blocks_count))?;
    volume.refuse_fixed_blocks()?;
    move_files(volume, progress)?;
    volume.move_journal()?;
    volume.move_group_metadata(moves)?;
    move_inodes(volume, &old, new, progress)
}

/// Step 3.
fn move_files(volume: &mut Volume, progress: &dyn Fn(ResizeProgress)) -> Result<()> {
    let mut attributes = MovedAttributes::default();
    let steps = u64::from(volume.geo.group_count);
    for group in volume.geo.groups() {
        progress(ResizeProgress { phase: ResizePhase::Blocks, done: group.0.into(), steps });
        for ino in volume.used_inodes(group)? {
            volume.move_blocks(ino, &mut attributes)?;
            volume.commit_if_full()?;
        }
    }
    volume.commit()
}

/// Step 6.
fn move_inodes(
    volume: &mut Volume,
    old: &Geometry,
    new: &Geometry,
    progress: &dyn Fn(ResizeProgress),
) -> Result<()> {
    if new.inodes_count >= old.inodes_count {
        return Ok(());
    }
    if volume.trial {
        let (to_move, free) = volume.inodes_to_move(new.inodes_count)?;
        return if to_move <= free { Ok(()) } else { Err(Error::NoInodes) };
    }
    volume.move_inodes(new.inodes_count, &mut |done, steps| {
        progress(ResizeProgress { phase: ResizePhase::Inodes, done, steps });
    })
}

#[cfg(test)]
mod tests;
