//! Inodes with nothing but attributes, over a store in memory.

use std::collections::BTreeSet;

use nextent_device::MemoryDevice;
use nextent_ondisk::{BlockNo, Geometry, InodeNo, xattr};
use nextent_store::{Handle, Store, StoreOptions};
use nextent_sync::{Arc, LockClass, Mutex};

use crate::map::{BlockKind, BlockRequest, BlockRun, Privilege, Space};
use crate::xattr::{AttrStorage, ShareCache, ValueReader, XattrCx, XattrName};
use crate::{Error, Result};

static BLOCKS: LockClass = LockClass::new("test.blocks", 410);

/// Hands out blocks and knows which are in use.
pub(super) struct FakeSpace {
    used: Mutex<(BTreeSet<u64>, u64)>,
    pub(super) limit: usize,
}

impl FakeSpace {
    pub(super) fn used(&self) -> BTreeSet<u64> {
        self.used.lock().0.clone()
    }
}

impl Space for FakeSpace {
    fn allocate(&self, _: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        assert_eq!((request.want, request.min, request.kind), (1, 1, BlockKind::Metadata));
        let mut used = self.used.lock();
        if used.0.len() >= self.limit {
            return Err(Error::NoSpace);
        }
        // Numbers come around again, as on a real volume.
        let no = (0..).map(|i| 100 + (used.1 + i) % 5000).find(|no| !used.0.contains(no)).unwrap();
        used.1 = no - 99;
        used.0.insert(no);
        Ok(BlockRun { start: BlockNo(no), len: 1 })
    }

    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        assert_eq!((len, kind), (1, BlockKind::Metadata));
        assert!(self.used.lock().0.remove(&start.get()), "block {start} was free");
        h.forget(start);
        Ok(())
    }

    fn overlaps_system_zone(&self, _: BlockNo, _: u32) -> bool {
        false
    }
}

struct NoValues;

impl ValueReader for NoValues {
    fn read_value(&self, _: InodeNo, _: u32) -> Result<Vec<u8>> {
        Err(Error::Invalid)
    }
}

pub(super) struct Fixture {
    pub(super) store: Store,
    pub(super) space: FakeSpace,
    pub(super) shares: ShareCache,
    pub(super) geometry: Geometry,
}

pub(super) struct FakeInode {
    pub(super) area: Vec<u8>,
    pub(super) block: BlockNo,
    pub(super) blocks: i64,
}

impl FakeInode {
    pub(super) fn new(area: usize) -> Self {
        Self { area: vec![0; area], block: BlockNo(0), blocks: 0 }
    }
}

pub(super) fn name(full: &str) -> XattrName<'_> {
    XattrName::new(full.as_bytes()).unwrap()
}

impl Fixture {
    pub(super) fn new(block_size: usize, csum: bool) -> Self {
        let mut sb = nextent_ondisk::Superblock::empty();
        sb.log_block_size.set(block_size.trailing_zeros() - 10);
        sb.log_cluster_size.set(block_size.trailing_zeros() - 10);
        sb.blocks_per_group.set(8192);
        sb.clusters_per_group.set(8192);
        sb.inodes_per_group.set(1024);
        sb.set_blocks_count(8192);
        sb.inodes_count.set(1024);
        sb.first_data_block.set(u32::from(block_size == 1024));
        sb.first_ino.set(11);
        sb.inode_size.set(256);
        let mut geometry = sb.check(u64::MAX).unwrap();
        if csum {
            geometry.features.apply("metadata_csum").unwrap();
        }
        let device = Arc::new(MemoryDevice::new(8192 * block_size as u64));
        let options = StoreOptions { block_size, ..Default::default() };
        let store = Store::without_journal(device, &options).unwrap();
        let used = Mutex::new(&BLOCKS, (BTreeSet::new(), 0));
        let space = FakeSpace { used, limit: usize::MAX };
        Self { store, space, shares: ShareCache::new(), geometry }
    }

    pub(super) fn cx(&self) -> XattrCx<'_> {
        XattrCx {
            store: &self.store,
            space: &self.space,
            shares: &self.shares,
            geometry: &self.geometry,
            ino: InodeNo(12),
            goal: None,
            privilege: Privilege::User,
            values: &NoValues,
        }
    }

    /// Runs a verb that changes in a handle of its own.
    pub(super) fn change(
        &self,
        inode: &mut FakeInode,
        f: impl FnOnce(&XattrCx<'_>, &Handle<'_>, &mut AttrStorage<'_>) -> Result<i64>,
    ) -> Result<()> {
        let h = self.store.start(8).unwrap();
        let mut storage = AttrStorage { area: &mut inode.area, block: &mut inode.block };
        let blocks = f(&self.cx(), &h, &mut storage)?;
        inode.blocks += blocks;
        assert_eq!(inode.blocks, i64::from(inode.block != BlockNo(0)));
        Ok(())
    }

    pub(super) fn put(&self, inode: &mut FakeInode, full: &str, value: &[u8]) -> Result<()> {
        self.change(inode, |cx, h, storage| crate::xattr::put(cx, h, storage, name(full), value))
    }

    pub(super) fn remove(&self, inode: &mut FakeInode, full: &str) -> Result<()> {
        self.change(inode, |cx, h, storage| crate::xattr::remove(cx, h, storage, name(full)))
    }

    pub(super) fn get(&self, inode: &FakeInode, full: &str) -> Result<Vec<u8>> {
        crate::xattr::get(&self.cx(), &inode.area, inode.block, name(full))
    }

    pub(super) fn refcount(&self, no: BlockNo) -> u32 {
        let image = self.cx().block(no).unwrap().image();
        xattr::in_block(&self.geometry, &image).unwrap().0.refcount
    }

    /// Every block in use has as many references as inodes point to it.
    pub(super) fn check_references(&self, inodes: &[FakeInode]) {
        let mut pointed = BTreeSet::new();
        for inode in inodes.iter().filter(|inode| inode.block != BlockNo(0)) {
            pointed.insert(inode.block.get());
            let users = inodes.iter().filter(|other| other.block == inode.block).count();
            assert_eq!(self.refcount(inode.block) as usize, users);
        }
        assert_eq!(pointed, self.space.used());
    }
}
