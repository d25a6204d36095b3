//! Reads what a volume says of itself, and the layout of its free space, without check or replay.
//!
//! Free runs are counted across groups. Each group reports the runs inside it and the runs at its
//! two ends, which are joined in order afterwards.

use std::fmt;

use nextent_device::BlockDevice;
use nextent_num::to_usize;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::mmp::MmpBlock;
use nextent_ondisk::{
    BlockNo, Compat, Geometry, GroupDesc, GroupNo, Incompat, InodeNo, Superblock, bitmap,
};
use nextent_sync::{Arc, Mutex};

use super::CheckOptions;
use super::claims::Claims;
use super::image::Image;
use super::{groups, locks, open, walk};
use crate::error::Result;

/// Free runs by length: entry `n` counts those of at least 2^n blocks and fewer than twice that.
pub const LENGTHS: usize = 48;

/// The layout of the free space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Free blocks by the bitmaps.
    pub blocks: u64,
    /// Runs of free blocks.
    pub runs: u64,
    /// Blocks of the longest run.
    pub longest: u64,
    /// Runs and blocks by the power of two of the run's length.
    pub lengths: [(u64, u64); LENGTHS],
}

impl FreeSpace {
    fn add(&mut self, blocks: u64) {
        if blocks > 0 {
            let place = &mut self.lengths[to_usize(blocks.ilog2()).min(LENGTHS - 1)];
            (place.0, place.1) = (place.0 + 1, place.1 + blocks);
            self.blocks += blocks;
            self.runs += 1;
            self.longest = self.longest.max(blocks);
        }
    }
}

/// What a volume says of itself.
#[derive(Clone)]
pub struct Survey {
    /// The superblock, or the backup that replaces a damaged one.
    pub sb: Superblock,
    /// The geometry.
    pub geo: Geometry,
    /// Every group's descriptor, in order.
    pub groups: Vec<(GroupNo, GroupDesc)>,
    /// The superblock of the journal inside the volume, when there is one that can be read.
    pub journal: Option<JournalSuperblock>,
    /// The block of multiple mount protection, if the volume has one that can be read.
    pub multi_mount: Option<MmpBlock>,
    /// The layout of the free space.
    pub free: FreeSpace,
}

impl fmt::Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey")
            .field("geo", &self.geo)
            .field("free", &self.free)
            .finish_non_exhaustive()
    }
}

/// One group's part: runs inside it, and the runs at its ends.
struct Part {
    group: GroupNo,
    desc: GroupDesc,
    inner: Vec<u64>,
    lead: u64,
    tail: u64,
    /// All of it is free.
    whole: bool,
}

/// Reads what the volume on `device` says of itself, with `workers` threads (0: one for each core).
///
/// # Errors
///
/// No superblock, an unknown feature, a device that fails.
pub fn survey(device: Arc<dyn BlockDevice>, workers: usize) -> Result<Survey> {
    open::bare(device, &CheckOptions { limit: 1, workers, ..CheckOptions::default() })
        .map(|image| of(&image))
}

/// What the volume says of itself.
pub(super) fn of(image: &Image) -> Survey {
    let claims = Claims::new(&image.geo);
    groups::check(image, &claims);
    let parts = Mutex::new(&locks::FOUND, Vec::new());
    image.each_desc(5, |group, desc, _| {
        let part = part(image, &claims, group, desc);
        parts.lock().push(part);
    });
    let mut parts = parts.into_inner();
    parts.sort_unstable_by_key(|part| part.group);
    let free = join(&parts);
    let groups = parts.into_iter().map(|part| (part.group, part.desc)).collect();
    let journal = journal(image);
    let multi_mount = multi_mount(image);
    let (sb, geo) = (image.sb.clone(), image.geo.clone());
    Survey { sb, geo, groups, journal, multi_mount, free }
}

fn part(image: &Image, claims: &Claims, group: GroupNo, desc: GroupDesc) -> Part {
    let geo = &image.geo;
    let clusters = geo.group_clusters(group);
    let mut part = Part { group, desc, inner: Vec::new(), lead: 0, tail: 0, whole: false };
    let mut bits = vec![0; geo.block_len()];
    if desc.has_flag(&geo.features, flags::BLOCK_UNINIT) {
        bits.truncate(geo.block_bitmap_bytes());
        let first = u64::from(group.0) * u64::from(geo.clusters_per_group);
        claims.used.copy_to(first, &mut bits);
    } else if desc.check(geo, group).is_err() || !image.read(5, desc.block_bitmap, &mut bits) {
        return part;
    }
    let mut at = 0;
    while let Some(start) = bitmap::find_clear(&bits, at, clusters) {
        let end = bitmap::find_set(&bits, start, clusters).unwrap_or(clusters);
        let blocks = u64::from(end - start) << geo.cluster_bits;
        match (start == 0, end == clusters) {
            (true, true) => (part.lead, part.whole) = (blocks, true),
            (true, false) => part.lead = blocks,
            (false, true) => part.tail = blocks,
            (false, false) => part.inner.push(blocks),
        }
        at = end;
    }
    part
}

fn join(parts: &[Part]) -> FreeSpace {
    let mut free = FreeSpace { blocks: 0, runs: 0, longest: 0, lengths: [(0, 0); LENGTHS] };
    let mut open = 0;
    for part in parts {
        open += part.lead;
        if !part.whole {
            free.add(open);
            part.inner.iter().for_each(|run| free.add(*run));
            open = part.tail;
        }
    }
    free.add(open);
    free
}

pub(super) fn multi_mount(image: &Image) -> Option<MmpBlock> {
    if !image.geo.features.has(Incompat::MMP) {
        return None;
    }
    let bytes = image.block(0, BlockNo(image.sb.mmp_block.get()))?;
    MmpBlock::read(&image.geo, &bytes).ok()
}

pub(super) fn journal(image: &Image) -> Option<JournalSuperblock> {
    if !image.geo.features.has(Compat::HAS_JOURNAL) {
        return None;
    }
    let ino = InodeNo(image.sb.journal_inum.get());
    let (inode, _) = image.inode(0, ino)?;
    let runs = walk::runs(image, 0, ino, &inode).runs;
    let blocks = runs.last()?.end();
    let bytes = image.block(0, runs.first()?.start)?;
    JournalSuperblock::parse(&bytes, image.geo.block_size, blocks).ok()
}
