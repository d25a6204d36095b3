//! The groups that have been used, loaded one at a time on first use.
//!
//! Loading reads a bitmap without any lock of the allocator; two threads may
//! load the same group at once, and the first to finish wins. A bitmap that
//! does not agree with its checksum, its descriptor or the volume's own blocks
//! excludes its group from allocation; the error names the group.

use super::bits;
use super::core::{Core, bitmap_error};
use super::error::{Error, Result};
use super::home::Home;
use super::inode_region::InodeRegion;
use super::layout::RegionNo;
use super::region::Region;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{BlockNo, Corrupt, GroupDesc, GroupNo, Structure, bitmap};
use nextent_store::{BlockRef, Store};
use nextent_sync::atomic::AtomicU16;
use nextent_sync::{Arc, Mutex, OnceLock};

/// What is loaded of one group.
#[derive(Default)]
struct Loaded {
    home: OnceLock<Arc<Home>>,
    /// The group's regions; shorter than others' at the volume's end.
    blocks: OnceLock<Box<[Arc<Region>]>>,
    inodes: OnceLock<Box<InodeGroup>>,
}

/// The inode numbers of one group.
pub(crate) struct InodeGroup {
    pub(crate) regions: Box<[Arc<InodeRegion>]>,
    /// Slot that leases each region, plus one; 0 for none. Relaxed: a hint, as for blocks.
    pub(crate) owners: Box<[AtomicU16]>,
    /// One at a time initialises the table, see [`GroupInfo`](super::core::GroupInfo).
    /// `[alloc.inode-table]`
    pub(crate) initialising: Mutex<()>,
}

/// All groups.
pub(crate) struct Groups {
    pub(crate) store: Arc<Store>,
    pub(crate) core: Arc<Core>,
    loaded: Box<[Loaded]>,
}

impl Groups {
    pub(crate) fn new(store: Arc<Store>, core: Arc<Core>) -> Self {
        let loaded = core.groups.iter().map(|_| Loaded::default()).collect();
        Self { store, core, loaded }
    }

    /// The error for a group whose descriptor is unusable.
    fn check_usable(&self, group: GroupNo) -> Result<()> {
        if self.core.group(group).block_bitmap == BlockNo(0) {
            let error = Corrupt::field(Structure::GroupDescriptor, "usable", 0u32);
            return Err(error.at_group(group).into());
        }
        Ok(())
    }

    /// Where a group's changes go. Reads the descriptor's block.
    fn home(&self, group: GroupNo) -> Result<&Arc<Home>> {
        let slot = &self.loaded[to_usize(group.0)].home;
        if let Some(home) = slot.get() {
            return Ok(home);
        }
        self.check_usable(group)?;
        let (no, at) = self.core.geo.desc_location(group);
        let block = self.store.read(no, |_| Ok::<(), Error>(()))?;
        let size = usize::from(self.core.geo.desc_size);
        let desc = GroupDesc::read(&block.image()[at..at + size])?;
        let home = Home::new(group, self.core.clone(), block, at, desc);
        Ok(slot.get_or_init(|| Arc::new(home)))
    }

    /// The regions of a group's blocks, loaded if need be.
    ///
    /// # Errors
    /// A failed read, or a bitmap that contradicts its descriptor.
    pub(crate) fn blocks(&self, group: GroupNo) -> Result<&[Arc<Region>]> {
        let slot = &self.loaded[to_usize(group.0)].blocks;
        if let Some(regions) = slot.get() {
            return Ok(regions);
        }
        match self.load_blocks(group) {
            Ok(regions) => Ok(slot.get_or_init(|| regions)),
            // Another thread may have loaded and changed the group while this one was reading.
            Err(error) => slot.get().map(|regions| &**regions).ok_or(error),
        }
    }

    /// The regions of a group's blocks, if they are loaded.
    pub(crate) fn loaded_blocks(&self, group: GroupNo) -> Option<&[Arc<Region>]> {
        self.loaded[to_usize(group.0)].blocks.get().map(|regions| &**regions)
    }

    /// A region, loaded if need be; nothing past the end of the volume.
    pub(crate) fn region(&self, no: RegionNo) -> Result<Option<&Arc<Region>>> {
        let layout = &self.core.layout;
        let regions = self.blocks(layout.group(no))?;
        Ok(regions.get(to_usize(layout.index(no))))
    }

    /// The free runs of a group, as cluster in the group and length, without loading it. None
    /// for a damaged group.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn free_runs(&self, group: GroupNo) -> Result<Vec<(u32, u32)>> {
        let core = &self.core;
        if let Some(regions) = self.loaded_blocks(group) {
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for (index, region) in regions.iter().enumerate() {
                let first = core.layout.first_bit(must_fit(index));
                for (at, n) in region.lock().free_runs(0, core.layout.size()) {
                    match runs.last_mut() {
                        Some(last) if last.0 + last.1 == first + at => last.1 += n,
                        _ => runs.push((first + at, n)),
                    }
                }
            }
            return Ok(runs);
        }
        if core.is_bad(group) {
            return Ok(Vec::new());
        }
        let (no, at) = core.geo.desc_location(group);
        let block = self.store.read(no, |_| Ok::<(), Error>(()))?;
        let size = usize::from(core.geo.desc_size);
        let desc = GroupDesc::read(&block.image()[at..at + size])?;
        let bytes = if desc.has_flag(&core.geo.features, flags::BLOCK_UNINIT) {
            core.uninit_bitmap(group)
        } else {
            let mut bytes = vec![0; core.geo.block_len()];
            let offset = desc.block_bitmap.0 << core.geo.block_bits;
            core.device.read_at(offset, &mut bytes).map_err(|error| nextent_store::Error::Io {
                op: "read",
                block: desc.block_bitmap,
                source: Arc::new(error),
            })?;
            bytes
        };
        let clusters = core.geo.group_clusters(group);
        let mut words = vec![0; bits::word_count(clusters)];
        bits::load(&mut words, &bytes);
        words.iter_mut().for_each(|word| *word = !*word);
        Ok(bits::runs(&words, 0, clusters).collect())
    }

    /// A group's block bitmap as the disk has it: where its changes go, its block, its bytes.
    ///
    /// # Errors
    /// A failed read, or a bitmap that contradicts its descriptor.
    pub(crate) fn read_blocks(&self, group: GroupNo) -> Result<(Arc<Home>, BlockRef, Vec<u8>)> {
        let core = &self.core;
        let home = self.home(group)?;
        let desc = home.desc();
        let uninit = desc.has_flag(&core.geo.features, flags::BLOCK_UNINIT);
        let block = self.read_bitmap(desc.block_bitmap, |bytes| {
            if uninit {
                Ok(())
            } else {
                bitmap::verify_block_bitmap(&core.geo, group, &desc, bytes)
            }
        })?;
        let bytes = if uninit { core.uninit_bitmap(group) } else { block.image().to_vec() };
        self.check_blocks(group, &desc, &bytes)?;
        Ok((home.clone(), block, bytes))
    }

    fn load_blocks(&self, group: GroupNo) -> Result<Box<[Arc<Region>]>> {
        let core = &self.core;
        let (home, block, bytes) = self.read_blocks(group)?;
        let layout = &core.layout;
        let first = layout.first(group);
        let lens = (0..layout.per_group()).map(|index| (index, layout.len(group, index)));
        let region = |(index, len): (u32, u32)| {
            let from = to_usize(layout.first_bit(index) / 8);
            let mut used = vec![0; bits::word_count(len)].into_boxed_slice();
            bits::load(&mut used, &bytes[from..]);
            let no = RegionNo(first.0 + index);
            Arc::new(Region::new(no, len, used, core.clone(), home.clone(), block.clone()))
        };
        Ok(lens.take_while(|&(_, len)| len > 0).map(region).collect())
    }

    fn read_bitmap(
        &self,
        no: BlockNo,
        check: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
    ) -> Result<BlockRef> {
        self.store.read(no, |bytes| check(bytes).map_err(|error| Error::from(error.at_block(no))))
    }

    /// Compares a block bitmap with the descriptor and the volume's own blocks.
    fn check_blocks(&self, group: GroupNo, desc: &GroupDesc, bytes: &[u8]) -> Result<()> {
        let geo = &self.core.geo;
        let free = bitmap::count_clear(bytes, geo.group_clusters(group));
        if free != desc.free_clusters {
            let error = bitmap_error("number of free clusters", u64::from(free), group);
            return Err(error.at_block(desc.block_bitmap).into());
        }
        let first = geo.group_first_block(group).0;
        for (start, end) in self.core.system.of_group(group) {
            let bit = must_fit((start - first) >> geo.cluster_bits);
            let stop = must_fit((end - first).div_ceil(u64::from(geo.cluster_blocks)));
            if let Some(clear) = bitmap::find_clear(bytes, bit, stop) {
                let block = first + (u64::from(clear) << geo.cluster_bits);
                let error = bitmap_error("free, though the volume's own, block", block, group);
                return Err(error.at_block(desc.block_bitmap).into());
            }
        }
        Ok(())
    }

    /// The inode numbers of a group, loaded if need be.
    ///
    /// # Errors
    /// A failed read, or a bitmap that contradicts its descriptor.
    pub(crate) fn inodes(&self, group: GroupNo) -> Result<&InodeGroup> {
        let slot = &self.loaded[to_usize(group.0)].inodes;
        if let Some(inodes) = slot.get() {
            return Ok(inodes);
        }
        match self.load_inodes(group) {
            Ok(inodes) => Ok(slot.get_or_init(|| Box::new(inodes))),
            Err(error) => slot.get().map(|inodes| &**inodes).ok_or(error),
        }
    }

    fn load_inodes(&self, group: GroupNo) -> Result<InodeGroup> {
        let core = &self.core;
        let geo = &core.geo;
        let home = self.home(group)?;
        let desc = home.desc();
        let uninit = desc.has_flag(&geo.features, flags::INODE_UNINIT);
        let block = self.read_bitmap(desc.inode_bitmap, |bytes| {
            if uninit { Ok(()) } else { bitmap::verify_inode_bitmap(geo, group, &desc, bytes) }
        })?;
        let bytes = if uninit { vec![0; geo.block_len()] } else { block.image().to_vec() };
        let free = bitmap::count_clear(&bytes, geo.inodes_per_group);
        if free != desc.free_inodes {
            let error = Corrupt::field(Structure::InodeBitmap, "number of free inodes", free);
            return Err(error.at_group(group).at_block(desc.inode_bitmap).into());
        }
        let regions = InodeRegion::cut(group, core, home, &block, &bytes);
        Ok(InodeGroup {
            owners: regions.iter().map(|_| AtomicU16::new(0)).collect(),
            regions,
            initialising: Mutex::new(&super::locks::TABLE, ()),
        })
    }
}
