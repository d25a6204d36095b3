//! Makes the inodes of a volume larger.
//!
//! Each group gets a new, longer table. Times then reach beyond 2038, with nanoseconds.
//!
//! | step | action | a crash after it leaves |
//! |---|---|---|
//! | 1 | files leave the places of the new tables | the volume, consistent |
//! | 2 | the new places are in use; the superblock asks for a check; commit | blocks that e2fsck -p frees |
//! | 3 | the new tables are written; flush | the same |
//! | 4 | the superblock has the new size, all descriptors name the new tables; commit | larger inodes; blocks that e2fsck -p frees |
//! | 5 | the old tables are free; backups; the superblock asks for no check | larger inodes |
//!
//! Between the commit block of step 4 and its checkpoint, `e2fsck` must replay the log: Linux would
//! go on with the old size of inodes.

use std::ops::Range;

use nextent_device::BlockDevice;
use nextent_num::to_usize;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::inode::{self as format, EXTRA_SIZE};
use nextent_ondisk::{BlockNo, Geometry, GroupNo, RoCompat, Superblock};
use nextent_sync::Arc;

use super::ResizeProgress;
use super::contiguous::Fixed;
use super::vacate::Vacated;
use super::volume::Volume;
use crate::check;
use crate::error::{Error, Result};

/// Gives the inodes of the volume on `device` a size of `size` bytes, a power of two that is larger
/// than the present one.
///
/// # Errors
/// [`Error::Invalid`] for another size, or more than a block; [`Error::NoSpace`];
/// [`Error::Unsupported`]; [`Error::Corrupt`] for a volume that a check finds damaged. In these
/// cases the volume has not changed, except that one that was not closed is recovered.
pub fn enlarge_inodes(
    device: &Arc<dyn BlockDevice>,
    size: u16,
    progress: &dyn Fn(ResizeProgress),
) -> Result<()> {
    let claim = check::claim(device)?;
    let sb = super::begin(device, claim.as_ref())?;
    let old = sb.check(device.size())?;
    let fits = size.is_power_of_two() && u32::from(size) <= old.block_size;
    if !fits || size <= old.inode_size {
        return Err(Error::Invalid);
    }
    super::check_first(device, progress)?;
    let mut trial = Volume::read(device, sb.clone(), true)?;
    evacuate(&mut trial, size, &|_| ())?;
    let mut volume = Volume::read(device, sb, false)?;
    let places = evacuate(&mut volume, size, progress)?;
    volume.replace_tables(size, &places)
}

/// Step 1. Returns the place of each group's new table.
fn evacuate(
    volume: &mut Volume,
    size: u16,
    progress: &dyn Fn(ResizeProgress),
) -> Result<Vec<Range<u64>>> {
    let len = table_blocks(&volume.geo, size);
    let geo = volume.geo.clone();
    let mut fixed = Fixed::new(volume, &geo, &Vacated::default());
    let mut places = Vec::with_capacity(to_usize(geo.group_count));
    for group in geo.groups() {
        places.push(volume.choose_place(group, len, &mut fixed)?);
    }
    volume.begin_moves(Vacated::of(places.clone()), geo.blocks_count)?;
    volume.refuse_fixed_blocks()?;
    super::move_files(volume, progress)?;
    volume.move_journal()?;
    Ok(places)
}

/// Blocks of a table of inodes of `size` bytes.
fn table_blocks(geo: &Geometry, size: u16) -> u64 {
    u64::from(geo.inodes_per_group / (geo.block_size / u32::from(size)))
}

impl Volume {
    /// Steps 2 to 5.
    fn replace_tables(&mut self, size: u16, places: &[Range<u64>]) -> Result<()> {
        for place in places {
            self.mark(place.clone(), true)?;
        }
        self.require_check();
        self.commit()?;
        let mut sb = self.sb.clone();
        set_size(&mut sb, size);
        let new = sb.check(u64::MAX)?;
        for (group, place) in self.geo.groups().zip(places) {
            self.write_table(&new, group, place.start)?;
        }
        self.flush()?;
        let old: Vec<_> = self.geo.groups().map(|group| self.metadata_runs(group)).collect();
        (self.sb, self.geo) = (sb, new);
        for (group, place) in self.geo.groups().zip(places) {
            let desc = &mut self.descs[to_usize(group.0)];
            desc.inode_table = BlockNo(place.start);
            desc.flags |= if self.geo.features.group_csum() { flags::INODE_ZEROED } else { 0 };
            self.changed.insert(group.0);
        }
        self.commit()?;
        for [_, _, table] in old {
            self.free(table)?;
        }
        self.commit()?;
        self.finish()
    }

    /// Writes the new table of a group, with the inodes of the old one.
    fn write_table(&mut self, new: &Geometry, group: GroupNo, start: u64) -> Result<()> {
        let bits = new.block_bits;
        let len = u64::from(new.inode_table_blocks);
        let zeroed = self.device.write_zeroes(start << bits, len << bits);
        zeroed.map_err(|error| self.io("write", BlockNo(start), &error))?;
        let size = usize::from(new.inode_size);
        let mut pending: Option<(u64, Vec<u8>)> = None;
        for ino in self.used_inodes(group)? {
            let (mut inode, raw) = self.inode(ino)?;
            let mut larger = raw;
            larger.resize(size, 0);
            // Reserved inodes that have no use stay empty.
            if self.geo.inode_size == 128 && inode.mode != 0 {
                inode.extra_isize = EXTRA_SIZE;
                inode.write(new, &mut larger);
            }
            format::seal(new, ino, &mut larger);
            let place = new.inode_location(ino)?;
            let block = start + u64::from(place.table_block);
            if let Some((at, bytes)) = pending.take_if(|(at, _)| *at != block) {
                self.write(BlockNo(at), &bytes)?;
            }
            let (_, bytes) = pending.get_or_insert_with(|| (block, vec![0; new.block_len()]));
            bytes[place.offset..place.offset + size].copy_from_slice(&larger);
        }
        match pending {
            Some((at, bytes)) => self.write(BlockNo(at), &bytes),
            None => Ok(()),
        }
    }
}

fn set_size(sb: &mut Superblock, size: u16) {
    sb.inode_size.set(size);
    sb.become_dynamic();
    if sb.features().has(RoCompat::EXTRA_ISIZE) {
        sb.min_extra_isize.set(EXTRA_SIZE);
        sb.want_extra_isize.set(EXTRA_SIZE);
    }
}
