//! What each block of a volume is used for, and how files and free space are spread over it.
//!
//! The journal is replayed in memory if that is possible, as for a check.
//!
//! Invariants:
//! - The device may hold any bytes.
//! - Every block counts once, for the first owner found, so the uses add up to the volume.
//! - The result does not depend on the number of threads. Owners are found in order only if blocks
//!   have several (a damaged volume, or files that share blocks): then one thread starts again.
//! - Memory: a bit for each block in use, two for blocks of attributes, and the cells.
//!
//! | step | finds |
//! |---|---|
//! | `fixed` | superblocks, descriptors, bitmaps, inode tables |
//! | `owners` | the blocks of every inode in use |
//! | `rest` | free blocks, and blocks in use without an owner, by the block bitmaps |

mod fixed;
mod owners;
mod rest;

use std::ops::Range;

use nextent_device::BlockDevice;
use nextent_num::to_usize;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{BlockNo, GroupDesc, GroupNo};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Mutex};

use super::bits::Bits;
use super::image::Image;
use super::survey::{self, LENGTHS, Survey};
use super::{CheckOptions, locks, open};
use crate::error::{Error, Result};

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockUse {
    /// The superblock, its backups, and a boot block before them.
    Superblocks,
    /// Group descriptors and their backups.
    Descriptors,
    /// Reserved for more group descriptors.
    DescriptorGrowth,
    /// Block and inode bitmaps.
    Bitmaps,
    /// Blocks of inode tables with an inode in use.
    InodesUsed,
    /// Blocks of inode tables without an inode in use.
    InodesUnused,
    /// The journal.
    Journal,
    /// Directories.
    Directories,
    /// Extent trees and indirect blocks of files and directories.
    Maps,
    /// Extended attributes.
    Attributes,
    /// Quota files, the orphan file, bad blocks, multi-mount protection, the boot loader.
    Special,
    /// Contents of files, and long symbolic links.
    Files,
    /// Allocated to files, but not written.
    Unwritten,
    /// The rest of clusters that are in use.
    ClusterRest,
    /// In use by the bitmap, but no owner was found.
    Unowned,
    /// The bitmap cannot be read, and no owner was found.
    Unreadable,
    /// Free.
    Free,
}

impl BlockUse {
    /// All uses, in their order.
    pub const ALL: [Self; 17] = [
        Self::Superblocks,
        Self::Descriptors,
        Self::DescriptorGrowth,
        Self::Bitmaps,
        Self::InodesUsed,
        Self::InodesUnused,
        Self::Journal,
        Self::Directories,
        Self::Maps,
        Self::Attributes,
        Self::Special,
        Self::Files,
        Self::Unwritten,
        Self::ClusterRest,
        Self::Unowned,
        Self::Unreadable,
        Self::Free,
    ];

    const fn index(self) -> usize {
        match self {
            Self::Superblocks => 0,
            Self::Descriptors => 1,
            Self::DescriptorGrowth => 2,
            Self::Bitmaps => 3,
            Self::InodesUsed => 4,
            Self::InodesUnused => 5,
            Self::Journal => 6,
            Self::Directories => 7,
            Self::Maps => 8,
            Self::Attributes => 9,
            Self::Special => 10,
            Self::Files => 11,
            Self::Unwritten => 12,
            Self::ClusterRest => 13,
            Self::Unowned => 14,
            Self::Unreadable => 15,
            Self::Free => 16,
        }
    }
}

/// Blocks by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseCounts([u64; BlockUse::ALL.len()]);

impl UseCounts {
    /// The blocks with this use.
    #[must_use]
    pub fn of(&self, of: BlockUse) -> u64 {
        self.0[of.index()]
    }

    /// All blocks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// How the blocks of regular files are spread. Blocks of a file that follow each other in the file
/// and on the volume are one extent, whatever its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices, sockets and pipes.
    pub others: u64,
    /// Regular files that have blocks.
    pub with_blocks: u64,
    /// Regular files of more than one extent.
    pub fragmented: u64,
    /// Extents of regular files.
    pub extents: u64,
    /// The most extents of one file.
    pub most_extents: u64,
    /// Extents and blocks by the power of two of the extent's length, as [`LENGTHS`] says.
    pub lengths: [(u64, u64); LENGTHS],
    /// Files by the power of two of their number of extents.
    pub extents_of_files: [u64; LENGTHS],
}

impl FileLayout {
    const fn new() -> Self {
        Self {
            files: 0,
            directories: 0,
            others: 0,
            with_blocks: 0,
            fragmented: 0,
            extents: 0,
            most_extents: 0,
            lengths: [(0, 0); LENGTHS],
            extents_of_files: [0; LENGTHS],
        }
    }

    fn merge(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.others += other.others;
        self.with_blocks += other.with_blocks;
        self.fragmented += other.fragmented;
        self.extents += other.extents;
        self.most_extents = self.most_extents.max(other.most_extents);
        for (sum, more) in self.lengths.iter_mut().zip(other.lengths) {
            (sum.0, sum.1) = (sum.0 + more.0, sum.1 + more.1);
        }
        for (sum, more) in self.extents_of_files.iter_mut().zip(other.extents_of_files) {
            *sum += more;
        }
    }
}

/// What the blocks of a volume are used for.
#[derive(Clone, Debug)]
pub struct BlockUsage {
    /// What the volume says of itself, after replay of its journal.
    pub survey: Survey,
    /// The journal held changes, which were replayed in memory.
    pub replayed: bool,
    /// Blocks of a cell, a power of two.
    pub cell_blocks: u64,
    /// The uses of each cell: the volume in parts of [`Self::cell_blocks`] from block 0.
    pub cells: Vec<UseCounts>,
    /// How files are spread.
    pub files: FileLayout,
    /// Inodes in use by the inode bitmaps.
    pub inodes_used: u64,
    /// Blocks that a second owner claims.
    pub shared: u64,
    /// Blocks with an owner that the bitmap has as free.
    pub marked_free: u64,
    /// Inodes that could not be read, or whose map is damaged.
    pub damaged_inodes: u64,
}

impl BlockUsage {
    /// The uses of all blocks.
    #[must_use]
    pub fn total(&self) -> UseCounts {
        let mut total = UseCounts::default();
        for cell in &self.cells {
            for (sum, more) in total.0.iter_mut().zip(cell.0) {
                *sum += more;
            }
        }
        total
    }
}

/// Finds what each block of the volume on `device` is used for, with `workers` threads (0: one for
/// each core). The volume is divided into at most `most_cells` cells.
///
/// ```
/// use std::sync::Arc;
///
/// use nextent::check::{BlockUse, block_usage};
/// use nextent::mkfs::{self, MkfsOptions};
/// use nextent::MemoryDevice;
///
/// let device = Arc::new(MemoryDevice::new(16 << 20));
/// mkfs::make(&*device, &MkfsOptions::default())?;
/// let usage = block_usage(device, 0, 100)?;
/// let geo = &usage.survey.geo;
/// assert_eq!(usage.total().total(), geo.blocks_count);
/// assert_eq!(usage.total().of(BlockUse::Free), usage.survey.free.blocks);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// No superblock, an unknown feature, a device that fails. Damaged parts are counted.
pub fn block_usage(
    device: Arc<dyn BlockDevice>,
    workers: usize,
    most_cells: u64,
) -> Result<BlockUsage> {
    let options = CheckOptions { limit: 1, workers, ..CheckOptions::default() };
    let (mut image, replayed) = match open::replayed(Arc::clone(&device), None, &options) {
        Ok(found) => found,
        // The journal lies on another device.
        Err(Error::Unsupported(_)) => (open::bare(device, &options)?, false),
        Err(error) => return Err(error),
    };
    let survey = survey::of(&image);
    let mut found = Scan::new(&image, most_cells).run();
    if found.shared > 0 {
        image.workers = 1;
        found = Scan::new(&image, most_cells).run();
    }
    Ok(BlockUsage {
        survey,
        replayed,
        cell_blocks: found.cell_blocks,
        cells: found.cells,
        files: found.files,
        inodes_used: found.inodes_used,
        shared: found.shared,
        marked_free: found.marked_free,
        damaged_inodes: found.damaged_inodes,
    })
}

/// The result of a scan; see [`BlockUsage`].
struct Found {
    cell_blocks: u64,
    cells: Vec<UseCounts>,
    files: FileLayout,
    inodes_used: u64,
    shared: u64,
    marked_free: u64,
    damaged_inodes: u64,
}

type Cell = [AtomicU64; BlockUse::ALL.len()];

/// The state of a scan. Members of `Bits` are blocks, counted from the first data block.
struct Scan<'a> {
    image: &'a Image,
    /// Blocks with an owner.
    owned: Bits,
    /// Attribute blocks, which inodes share.
    attributes: Bits,
    cell_bits: u32,
    cells: Vec<Cell>,
    files: Mutex<FileLayout>,
    inodes_used: AtomicU64,
    shared: AtomicU64,
    marked_free: AtomicU64,
    damaged_inodes: AtomicU64,
}

fn count(sum: &AtomicU64, more: impl Into<u64>) {
    sum.fetch_add(more.into(), Ordering::Relaxed);
}

impl<'a> Scan<'a> {
    fn new(image: &'a Image, most_cells: u64) -> Self {
        let blocks = image.geo.blocks_count;
        let cells = |bits: &u32| blocks.div_ceil(1 << bits);
        let cell_bits = (0..63).find(|bits| cells(bits) <= most_cells.max(1)).unwrap_or(63);
        let empty = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            image,
            owned: Bits::new(),
            attributes: Bits::new(),
            cell_bits,
            cells: (0..cells(&cell_bits)).map(|_| empty()).collect(),
            files: Mutex::new(&locks::FOUND, FileLayout::new()),
            inodes_used: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            marked_free: AtomicU64::new(0),
            damaged_inodes: AtomicU64::new(0),
        }
    }

    fn run(self) -> Found {
        self.fixed();
        self.owners();
        self.rest();
        let get = |sum: AtomicU64| sum.load(Ordering::Relaxed);
        let plain = |cell: Cell| UseCounts(cell.map(get));
        Found {
            cell_blocks: 1 << self.cell_bits,
            cells: self.cells.into_iter().map(plain).collect(),
            files: self.files.into_inner(),
            inodes_used: get(self.inodes_used),
            shared: get(self.shared),
            marked_free: get(self.marked_free),
            damaged_inodes: get(self.damaged_inodes),
        }
    }

    /// Calls `each` with the counter of every cell that `run` touches, and its blocks there.
    fn each_cell(&self, run: Range<u64>, of: BlockUse, each: impl Fn(&AtomicU64, u64)) {
        let mut at = run.start;
        while at < run.end {
            let number = at >> self.cell_bits;
            let end = ((number + 1) << self.cell_bits).min(run.end);
            if let Some(cell) = self.cells.get(to_usize(number)) {
                each(&cell[of.index()], end - at);
            }
            at = end;
        }
    }

    /// Counts blocks.
    fn add(&self, run: Range<u64>, of: BlockUse) {
        self.each_cell(run, of, count);
    }

    /// Takes those blocks of a run for a use that have no owner yet. Returns the others.
    fn take(&self, start: BlockNo, len: u64, of: BlockUse) -> u64 {
        let base = self.image.geo.first_data_block.0;
        self.add(start.0..start.0 + len, of);
        let mut others = 0;
        let from = start.0 - base;
        self.owned.insert(from..from + len, &mut |part| {
            others += part.end - part.start;
            self.each_cell(part.start + base..part.end + base, of, |sum, blocks| {
                sum.fetch_sub(blocks, Ordering::Relaxed);
            });
        });
        others
    }

    /// As [`Self::take`], for blocks that only one owner may have; whether that is so.
    fn claim(&self, start: BlockNo, len: u64, of: BlockUse) -> bool {
        let others = self.take(start, len, of);
        count(&self.shared, others);
        others == 0
    }

    /// The inode bitmap of a group; `None` if it cannot be read.
    fn inode_bits(&self, desc: &GroupDesc) -> Option<Vec<u8>> {
        let geo = &self.image.geo;
        match desc.has_flag(&geo.features, flags::INODE_UNINIT) {
            true => Some(vec![0; geo.inode_bitmap_bytes()]),
            false => self.image.block(1, desc.inode_bitmap),
        }
    }

    /// Calls `each` for every group, in parallel, with its descriptor if that is possible.
    fn each_group(&self, each: impl Fn(GroupNo, Option<GroupDesc>) + Sync) {
        let geo = &self.image.geo;
        nextent_sync::parallel_for(self.image.workers, geo.groups(), |group| {
            let desc = self.image.desc(1, group);
            each(group, desc.filter(|desc| desc.check(geo, group).is_ok()));
        });
    }
}

/// The place of a number in a histogram by powers of two.
fn power(number: u64) -> usize {
    to_usize(number.max(1).ilog2()).min(LENGTHS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_numbered_in_order() {
        for (number, of) in BlockUse::ALL.into_iter().enumerate() {
            assert_eq!(of.index(), number);
        }
        assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(power), [0, 0, 1, 1, 2, LENGTHS - 1]);
    }
}
