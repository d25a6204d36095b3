//! State that all parts of the allocator share, with a summary of each group that is not loaded.
//!
//! - The counts of a group (`free_clusters`, `free_inodes`, `used_dirs`) are those of the last
//!   commit. Only commits store them, so that searches read unchanging cache lines.
//! - Objects that a commit renders hold a [`Core`], never the store. Otherwise unwritten changes
//!   would keep a dropped store alive.

use super::buddy::Run;
use super::descriptors::Totals;
use super::error::{Error, Result};
use super::layout::{Layout, RegionNo};
use super::region_state::RegionState;
use super::request::BlockRun;
use super::system::SystemZone;
use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{BlockNo, Corrupt, Geometry, GroupDesc, GroupNo, Structure, group_desc};
use nextent_sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Arc, LockClass, Mutex};

/// Bytes of descriptors in one read.
const READ_BYTES: usize = 256 << 10;
/// Errors kept for reports. Later ones only exclude their group.
const MAX_DAMAGES: usize = 64;
/// The errors kept for reports.
static DAMAGE: LockClass = LockClass::new("alloc.damage", 445);

/// The fields of a group's descriptor that searches need.
pub struct GroupInfo {
    pub(crate) block_bitmap: BlockNo,
    pub(crate) inode_table: BlockNo,
    /// As of the last commit. Relaxed: a hint.
    pub free_clusters: AtomicU32,
    /// As of the last commit. Relaxed: a hint.
    pub(crate) free_inodes: AtomicU32,
    /// As of the last commit. Relaxed: a hint.
    pub(crate) used_dirs: AtomicU32,
    /// Inodes at the start of the table whose blocks are initialised. The blocks after them hold
    /// bytes from before the file system was made. Grows under `[alloc.inode-table]`: Release after
    /// zeros are written, Acquire before a reader uses the table.
    pub(crate) initialised: AtomicU32,
    /// The group is damaged, and nothing is allocated in it. Relaxed, set once.
    bad: AtomicBool,
}

/// Sums over all descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) free_clusters: u64,
    pub(crate) free_inodes: u64,
    pub(crate) used_dirs: u64,
}

/// State shared by all parts of the allocator.
pub struct Core {
    /// The geometry of the volume.
    pub geo: Arc<Geometry>,
    /// How groups are divided into regions.
    pub layout: Layout,
    pub(crate) system: SystemZone,
    pub(crate) groups: Box<[GroupInfo]>,
    pub(crate) totals: Arc<Totals>,
    /// The device of the volume.
    pub device: Arc<dyn BlockDevice>,
    /// For each region, the per-thread slot that leases it, plus one; 0 for none. Relaxed: a hint
    /// that other slots search elsewhere. Stored only when a lease moves. The region's lock
    /// excludes.
    pub(crate) owners: Box<[AtomicU16]>,
    /// See [`summary`]. Relaxed: a hint.
    summaries: Box<[AtomicU32]>,
    /// How often a commit made clusters of a region allocatable. Relaxed: changed under the
    /// region's lock.
    pub(crate) releases: AtomicU64,
    /// Whether freed clusters are discarded once their release is durable.
    pub discard: AtomicBool,
    /// The errors, and how many of them [`take_damage`](Self::take_damage) has returned.
    /// [alloc.damage]
    damage: Mutex<(Vec<Error>, usize)>,
    /// [`take_damage`](Self::take_damage) has errors to return. Relaxed: read after each operation.
    has_new_damage: AtomicBool,
}

/// A region's free clusters and largest free order in one word. `KNOWN` is set once the region was
/// loaded.
pub(crate) mod summary {
    use nextent_num::must_fit;

    pub(crate) const KNOWN: u32 = 1 << 31;

    pub(crate) fn pack(free: u32, largest: Option<usize>) -> u32 {
        KNOWN | free << 8 | largest.map_or(0, |order| must_fit::<u32, _>(order) + 1)
    }

    /// Whether the region may have `n` free clusters.
    pub(crate) fn may_hold(word: u32, n: u32) -> bool {
        word & KNOWN == 0 || (word & !KNOWN) >> 8 >= n
    }

    /// Whether the region may have `n` contiguous free clusters. Such a run contains an aligned
    /// chunk of at least a quarter of its length.
    pub(crate) fn may_have_run(word: u32, n: u32) -> bool {
        may_hold(word, n) && may_have(word, n.max(1).ilog2().saturating_sub(1))
    }

    /// Whether the region may have a free chunk of `order`.
    pub(crate) fn may_have(word: u32, order: u32) -> bool {
        word & KNOWN == 0 || word & 0xff > order
    }
}

impl Core {
    /// Reads all descriptors of the volume on `device`. `extra` lists the blocks of the journal.
    ///
    /// # Errors
    /// A failed read; `Corrupt` if the journal overlaps other blocks of the system zone. A damaged
    /// descriptor is no error: its group is excluded.
    pub(crate) fn load(
        device: Arc<dyn BlockDevice>,
        geo: Arc<Geometry>,
        totals: impl FnOnce(Sums) -> Arc<Totals>,
        extra: &[BlockRun],
    ) -> Result<(Self, Sums)> {
        let layout = Layout::new(geo.clone());
        let mut loading = DescriptorLoader::new(&geo);
        read_descriptors(&*device, &geo, |group, bytes| loading.add(&geo, group, bytes))?;
        let DescriptorLoader { groups, sums, mut zone, damage } = loading;
        for run in extra {
            check_journal_run(&geo, &zone, run)?;
        }
        zone.extend(extra.iter().map(|run| (run.start, run.len)));
        let regions = to_usize(layout.count());
        let core = Self {
            system: SystemZone::new(geo.clone(), zone),
            groups: groups.into(),
            totals: totals(sums),
            device,
            releases: AtomicU64::new(0),
            owners: (0..regions).map(|_| AtomicU16::new(0)).collect(),
            summaries: (0..regions).map(|_| AtomicU32::new(0)).collect(),
            discard: AtomicBool::new(false),
            has_new_damage: AtomicBool::new(!damage.is_empty()),
            damage: Mutex::new(&DAMAGE, (damage, 0)),
            geo,
            layout,
        };
        Ok((core, sums))
    }

    /// The summary of a group.
    pub fn group(&self, group: GroupNo) -> &GroupInfo {
        &self.groups[to_usize(group.0)]
    }

    /// Whether a group is excluded from allocation.
    pub fn is_bad(&self, group: GroupNo) -> bool {
        self.group(group).bad.load(Ordering::Relaxed)
    }

    /// Excludes a group from allocation and keeps the reason.
    pub fn exclude(&self, group: GroupNo, why: Error) {
        if !self.group(group).bad.swap(true, Ordering::Relaxed) {
            let mut damage = self.damage.lock();
            if damage.0.len() < MAX_DAMAGES {
                damage.0.push(why);
                self.has_new_damage.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether [`take_damage`](Self::take_damage) has errors to return.
    pub(crate) fn has_damage(&self) -> bool {
        self.has_new_damage.load(Ordering::Relaxed)
    }

    /// The errors that excluded groups since the last call.
    pub(crate) fn take_damage(&self) -> Vec<Error> {
        let mut damage = self.damage.lock();
        self.has_new_damage.store(false, Ordering::Relaxed);
        let (all, taken) = &mut *damage;
        let from = std::mem::replace(taken, all.len());
        all[from..].to_vec()
    }

    /// The first errors that excluded groups.
    #[cfg(any(all(test, not(feature = "model-shuttle")), feature = "lab"))]
    pub(crate) fn damage(&self) -> Vec<Error> {
        self.damage.lock().0.clone()
    }

    pub(crate) fn summary(&self, region: RegionNo) -> u32 {
        self.summaries[to_usize(region.0)].load(Ordering::Relaxed)
    }

    /// Publishes a region's summary to searches if it changed.
    pub(crate) fn publish(&self, region: RegionNo, state: &RegionState) {
        let word = summary::pack(state.buddy().free(), state.buddy().largest_order());
        let slot = &self.summaries[to_usize(region.0)];
        if slot.load(Ordering::Relaxed) != word {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// The slot that leases a region, plus one; 0 for none.
    pub(crate) fn owner(&self, region: RegionNo) -> u16 {
        self.owners[to_usize(region.0)].load(Ordering::Relaxed)
    }

    /// The clusters of the system zone among the `len` from `first_bit` of a group. Each range is
    /// (first, end), relative to `first_bit`.
    pub fn system_clusters(&self, group: GroupNo, first_bit: u32, len: u32) -> Box<[Run]> {
        let group_start = self.geo.group_first_block(group).0;
        let clusters = self.system.of_group(group).map(|(start, end)| {
            let from: u32 = must_fit((start - group_start) >> self.geo.cluster_bits);
            let to: u32 =
                must_fit((end - group_start).div_ceil(u64::from(self.geo.cluster_blocks)));
            (from.saturating_sub(first_bit).min(len), to.saturating_sub(first_bit).min(len))
        });
        clusters.filter(|own| own.0 < own.1).collect()
    }

    /// The block bitmap of a group in which only blocks of the system zone are in use.
    pub(crate) fn uninit_bitmap(&self, group: GroupNo) -> Vec<u8> {
        let mut bytes = vec![0; self.geo.block_len()];
        let first = self.geo.group_first_block(group).0;
        for (start, end) in self.system.of_group(group) {
            let bit = must_fit((start - first) >> self.geo.cluster_bits);
            let stop: u32 = must_fit((end - first).div_ceil(u64::from(self.geo.cluster_blocks)));
            nextent_ondisk::bitmap::set_run(&mut bytes, bit, stop - bit);
        }
        nextent_ondisk::bitmap::pad(&mut bytes, self.geo.group_clusters(group));
        bytes
    }
}

struct DescriptorLoader {
    groups: Vec<GroupInfo>,
    sums: Sums,
    zone: Vec<(BlockNo, u32)>,
    damage: Vec<Error>,
}

impl DescriptorLoader {
    fn new(geo: &Geometry) -> Self {
        let groups = Vec::with_capacity(to_usize(geo.group_count));
        Self { groups, sums: Sums::default(), zone: Vec::new(), damage: Vec::new() }
    }

    fn add(&mut self, geo: &Geometry, group: GroupNo, bytes: &[u8]) {
        let checked = group_desc::verify(geo, group, bytes)
            .and_then(|()| GroupDesc::read(bytes))
            .and_then(|desc| desc.check(geo, group).map(|()| desc))
            .and_then(|desc| check_outside_head(geo, group, &desc).map(|()| desc));
        let (desc, bad) = match checked {
            Ok(desc) => (desc, false),
            Err(error) => {
                if self.damage.len() < MAX_DAMAGES {
                    self.damage.push(error.into());
                }
                (GroupDesc::default(), true)
            }
        };
        if !bad {
            self.sums.free_clusters += u64::from(desc.free_clusters);
            self.sums.free_inodes += u64::from(desc.free_inodes);
            self.sums.used_dirs += u64::from(desc.used_dirs);
            self.add_system_range(desc.block_bitmap, 1);
            self.add_system_range(desc.inode_bitmap, 1);
            self.add_system_range(desc.inode_table, geo.inode_table_blocks);
        }
        self.groups.push(GroupInfo {
            block_bitmap: desc.block_bitmap,
            inode_table: desc.inode_table,
            free_clusters: AtomicU32::new(desc.free_clusters),
            free_inodes: AtomicU32::new(desc.free_inodes),
            used_dirs: AtomicU32::new(desc.used_dirs),
            initialised: AtomicU32::new(initialised(geo, &desc)),
            bad: AtomicBool::new(bad),
        });
    }

    /// Adds a range to the system zone. Flex groups place their structures next to each other, so
    /// most ranges continue one of the last three.
    fn add_system_range(&mut self, start: BlockNo, len: u32) {
        let from = self.zone.len().saturating_sub(3);
        let end = |range: &(BlockNo, u32)| range.0.0 + u64::from(range.1);
        match self.zone[from..].iter_mut().find(|range| end(range) == start.0) {
            Some(range) => range.1 = range.1.saturating_add(len),
            None => self.zone.push((start, len)),
        }
    }
}

/// How many inodes of a group's table are initialised, rounded up to whole blocks.
fn initialised(geo: &Geometry, desc: &GroupDesc) -> u32 {
    if !geo.features.group_csum() || desc.has_flag(&geo.features, flags::INODE_ZEROED) {
        return geo.inodes_per_group;
    }
    desc.inodes_touched(geo).next_multiple_of(geo.inodes_per_block).min(geo.inodes_per_group)
}

/// Checks that no structure of a group overlaps the superblock or the descriptors after it.
fn check_outside_head(geo: &Geometry, group: GroupNo, desc: &GroupDesc) -> Result<(), Corrupt> {
    let start = geo.super_location().0.0;
    let head = start..start + 1 + u64::from(geo.contiguous_gdt_blocks());
    let places = [
        ("bg_block_bitmap", desc.block_bitmap.0, 1),
        ("bg_inode_bitmap", desc.inode_bitmap.0, 1),
        ("bg_inode_table", desc.inode_table.0, u64::from(geo.inode_table_blocks)),
    ];
    for (name, first, len) in places {
        if first < head.end && head.start < first + len {
            return Err(Corrupt::field(Structure::GroupDescriptor, name, first).at_group(group));
        }
    }
    Ok(())
}

/// Checks that a run of the journal overlaps neither `zone` nor the head of a group.
fn check_journal_run(
    geo: &Geometry,
    zone: &[(BlockNo, u32)],
    run: &BlockRun,
) -> Result<(), Corrupt> {
    let (start, end) = (run.start.0, run.end().0);
    let meets = |first: u64, stop: u64| first < end && start < stop;
    let last = geo.group_of(BlockNo(end.saturating_sub(1))).map_or(0, |group| group.0);
    let groups = geo.group_of(run.start).map_or(0, |group| group.0)..=last;
    let heads = groups.map(|group| geo.head_blocks(GroupNo(group)));
    let on_head = heads.into_iter().any(|head| !head.is_empty() && meets(head.start, head.end));
    if on_head || zone.iter().any(|own| meets(own.0.0, own.0.0 + u64::from(own.1))) {
        let name = "journal block (in the system zone)";
        return Err(Corrupt::field(Structure::JournalSuperblock, name, start));
    }
    Ok(())
}

/// Passes the bytes of every descriptor to `each`, in order.
fn read_descriptors(
    device: &dyn BlockDevice,
    geo: &Geometry,
    mut each: impl FnMut(GroupNo, &[u8]),
) -> Result<()> {
    let block = geo.block_len();
    let mut buffer = vec![0; READ_BYTES.max(block)];
    let mut group = 0;
    let mut index = 0;
    while index < geo.gdt_blocks() {
        let first = geo.gdt_block(index);
        let mut run = 1;
        while run < must_fit::<u32, _>(buffer.len() / block)
            && index + run < geo.gdt_blocks()
            && geo.gdt_block(index + run).0 == first.0 + u64::from(run)
        {
            run += 1;
        }
        let bytes = &mut buffer[..to_usize(run) * block];
        device
            .read_at(first.0 << geo.block_bits, bytes)
            .map_err(|error| read_error(first, error))?;
        let last = geo.group_count.min((index + run) * geo.descs_per_block);
        let size = usize::from(geo.desc_size);
        for (i, no) in (group..last).enumerate() {
            let at = i / to_usize(geo.descs_per_block) * block
                + i % to_usize(geo.descs_per_block) * size;
            each(GroupNo(no), &bytes[at..at + size]);
        }
        group = last;
        index += run;
    }
    Ok(())
}

fn read_error(block: BlockNo, error: std::io::Error) -> Error {
    nextent_store::Error::Io { op: "read", block, source: Arc::new(error) }.into()
}

/// An error in the block bitmap of `group`; `name` says what is wrong with `value`.
pub fn bitmap_error(name: &'static str, value: u64, group: GroupNo) -> Corrupt {
    Corrupt::field(Structure::BlockBitmap, name, value).at_group(group)
}
