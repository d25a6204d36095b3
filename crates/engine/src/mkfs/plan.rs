//! The layout of a whole volume, decided before a byte is written.

use std::collections::BTreeMap;
use std::fmt;

use nextent_num::{must_fit, to_usize};
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{
    BlockNo, DiskTime, FeatureBit, Geometry, GroupDesc, GroupNo, Inode, InodeNo, RoCompat,
    Superblock,
};

use super::error::MkfsError;
use super::files::Files;
use super::options::MkfsOptions;
use super::place::{self, Packing, Place};
use super::resolve;
use super::room::Room;
use super::space::{Run, Space};
use super::super_block;
use crate::ops::LARGE;

/// A volume ready to be written: see [`Plan::new`] and [`Plan::write`].
pub struct Plan {
    pub(super) sb: Superblock,
    pub(super) geometry: Geometry,
    pub(super) places: Vec<Place>,
    pub(super) space: Space,
    pub(super) inodes: Vec<(InodeNo, Inode)>,
    pub(super) blocks: Vec<(BlockNo, Vec<u8>)>,
    /// Runs of files that must read as zeros apart from `blocks`.
    pub(super) zeroed: Vec<Run>,
    /// The directories made first and their blocks, by inode.
    pub(super) directories: Vec<(InodeNo, Vec<BlockNo>)>,
    /// Directories of each group that has any.
    pub(super) used_dirs: BTreeMap<GroupNo, u32>,
    pub(super) clock: DiskTime,
    pub(super) highest_inode: u32,
    /// Inode tables are not written beyond the inodes in use.
    pub(super) lazy_tables: bool,
    pub(super) discard: bool,
    pub(super) prezeroed: bool,
    warnings: Vec<String>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("blocks", &self.geometry.blocks_count)
            .field("block_size", &self.geometry.block_size)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Decides the layout of a volume on a device of `device_bytes`.
    ///
    /// The same options, UUID, hash seed and clock give the same plan.
    ///
    /// # Errors
    ///
    /// Options out of range, at odds with each other or not supported, or too little room.
    pub fn new(options: &MkfsOptions, device_bytes: u64) -> Result<Self, MkfsError> {
        let resolved = resolve::resolve(options, device_bytes)?;
        let mut sb = super_block::build(options, &resolved);
        let geometry = sb.check(device_bytes)?;
        let mut space = Space::default();
        place::take_heads(&geometry, &mut space);
        let packing = Packing {
            stride: options.extended.stride,
            all_at_start: options.extended.packed_meta_blocks,
        };
        let places = place::place_all(&geometry, packing, &mut space)?;
        let mut warnings = resolved.warnings.clone();
        let clock = DiskTime::new(i64::try_from(resolved.clock).unwrap_or(i64::MAX), 0);
        let mut files = Files {
            geometry: &geometry,
            room: Room::new(&geometry, &mut space),
            clock,
            inodes: Vec::new(),
            zeroed: Vec::new(),
            directories: Vec::new(),
        };
        files.add_bad_blocks();
        let owner = options.extended.root_owner;
        files.add_directories((owner.uid, owner.gid), options.extended.root_mode)?;
        files.add_resize_inode()?;
        let journal = files.add_journal(options, &mut sb, &mut warnings)?;
        files.add_multi_mount(options, &mut sb)?;
        files.add_orphan_file(options, &mut sb)?;
        let highest_inode = files.highest_inode();
        let Files { mut inodes, room, zeroed, directories, .. } = files;
        let blocks = room.blocks;
        inodes.sort_by_key(|(ino, _)| *ino);
        set_large_file(&mut sb, &inodes);
        let geometry = sb.check(device_bytes)?;
        let mut plan = Self {
            lazy_tables: lazy_tables(options, &geometry),
            discard: options.extended.discard,
            prezeroed: options.extended.prezeroed,
            sb,
            geometry,
            places,
            space,
            inodes,
            blocks,
            zeroed,
            directories,
            used_dirs: BTreeMap::new(),
            clock,
            highest_inode,
            warnings,
        };
        for at in 0..plan.directories.len() {
            plan.count_directory(plan.directories[at].0)?;
        }
        plan.count_free();
        plan.count_overhead(journal);
        Ok(plan)
    }

    /// Counts a directory for its group.
    pub(super) fn count_directory(&mut self, ino: InodeNo) -> Result<(), MkfsError> {
        let (group, _) = self.geometry.inode_group(ino)?;
        *self.used_dirs.entry(group).or_default() += 1;
        Ok(())
    }

    /// The superblock, complete but for the checksum and what is counted while writing.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The geometry of the volume.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Warnings for people, one line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Sets a feature in the superblock that the caller did not ask for.
    pub(super) fn set_feature(&mut self, bit: impl FeatureBit) {
        if !self.geometry.features.has(bit) {
            self.geometry.features.set(bit, true);
            self.sb.set_features(self.geometry.features);
        }
    }

    /// Sets the superblock's counts of free blocks and inodes.
    pub(super) fn count_free(&mut self) {
        let geometry = &self.geometry;
        let all = geometry.blocks_count - geometry.first_data_block.0;
        let used = self.space.count_in(geometry.first_data_block.0, geometry.blocks_count);
        self.sb.set_free_blocks_count(all - used);
        self.sb.free_inodes_count.set(geometry.inodes_count - self.highest_inode);
    }

    /// Sets the superblock's count of blocks that no file can have.
    fn count_overhead(&mut self, journal_blocks: u64) {
        let geometry = &self.geometry;
        let per_group = 2 + u64::from(geometry.inode_table_blocks);
        let heads: u64 = geometry
            .groups()
            .map(|group| {
                let head = geometry.head_blocks(group);
                head.end - head.start.max(geometry.first_data_block.0)
            })
            .sum();
        let overhead = geometry.first_data_block.0
            + heads
            + per_group * u64::from(geometry.group_count)
            + journal_blocks;
        self.sb.overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
    }

    /// The blocks of a group, as numbers on the volume.
    pub(super) fn group_range(&self, group: GroupNo) -> (u64, u64) {
        let first = self.geometry.group_first_block(group).0;
        (first, first + u64::from(self.geometry.group_blocks(group)))
    }

    /// Inodes of a group that are in use, which are its first ones.
    pub(super) fn used_inodes(&self, group: GroupNo) -> u32 {
        let before = u64::from(group.0) * u64::from(self.geometry.inodes_per_group);
        let used = u64::from(self.highest_inode).saturating_sub(before);
        must_fit(used.min(u64::from(self.geometry.inodes_per_group)))
    }

    /// Whether the block bitmap follows from the geometry alone, so that it need not exist.
    fn is_block_uninit(&self, group: GroupNo) -> bool {
        let geometry = &self.geometry;
        if !geometry.features.group_csum() || group.0 + 1 == geometry.group_count {
            return false;
        }
        if self.used_inodes(group) > 0 {
            return false;
        }
        let (start, end) = self.group_range(group);
        // Readers take the head and what of the group's own metadata lies in it as used. All of
        // these are taken, so equal counts mean that nothing else is.
        let head = geometry.head_blocks(group);
        let mut implied = head.end - head.start;
        if geometry.flex_groups == 1 {
            let place = self.places[to_usize(group.0)];
            let inside = |first: BlockNo, len: u64| {
                (first.0 + len).min(end).saturating_sub(first.0.max(start))
            };
            implied += inside(place.block_bitmap, 1) + inside(place.inode_bitmap, 1);
            implied += inside(place.inode_table, u64::from(geometry.inode_table_blocks));
        }
        self.space.count_in(start, end) == implied
    }

    /// The descriptor of a group, without checksums.
    pub(super) fn descriptor(&self, group: GroupNo, tables_zeroed: bool) -> GroupDesc {
        let geometry = &self.geometry;
        let (start, end) = self.group_range(group);
        let place = self.places[to_usize(group.0)];
        let used_inodes = self.used_inodes(group);
        let mut desc = GroupDesc {
            block_bitmap: place.block_bitmap,
            inode_bitmap: place.inode_bitmap,
            inode_table: place.inode_table,
            free_clusters: must_fit(end - start - self.space.count_in(start, end)),
            free_inodes: geometry.inodes_per_group - used_inodes,
            used_dirs: self.used_dirs.get(&group).copied().unwrap_or(0),
            ..GroupDesc::default()
        };
        if geometry.features.group_csum() {
            desc.itable_unused = geometry.inodes_per_group - used_inodes;
            if used_inodes == 0 {
                desc.flags |= flags::INODE_UNINIT;
            }
            if self.is_block_uninit(group) {
                desc.flags |= flags::BLOCK_UNINIT;
            }
        }
        if tables_zeroed {
            desc.flags |= flags::INODE_ZEROED;
        }
        desc
    }
}

/// Sets the feature that the size of a planned file needs: the resize inode and the journal can be
/// so large.
fn set_large_file(sb: &mut Superblock, inodes: &[(InodeNo, Inode)]) {
    if inodes.iter().any(|(_, inode)| inode.size >= LARGE) {
        let mut features = sb.features();
        features.set(RoCompat::LARGE_FILE, true);
        sb.set_features(features);
    }
}

/// Lazy only where descriptors say how much of a table is in use.
fn lazy_tables(options: &MkfsOptions, geometry: &Geometry) -> bool {
    geometry.features.group_csum() && options.extended.lazy_itable_init.unwrap_or(true)
}
