//! Images, shadow maps and variants for the allocator tests.

use super::{
    AllocatorChoice, BlockAlloc, BlockKind, BlockRequest, BlockRun, InodeAlloc, Privilege, Result,
};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::{BlockNo, Geometry, GroupDesc, GroupNo, InodeNo, Superblock};
use nextent_store::{Handle, Store, StoreOptions};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, thread};
use nextent_testkit::{Skip, e2fs};
use std::path::PathBuf;
use std::time::Duration;

/// An allocator under test.
#[derive(Clone, Debug, Default)]
pub(super) struct Variant {
    pub(super) choice: AllocatorChoice,
    /// Threads that check the reserve at the same time may exceed it, by one block each.
    pub(super) overdraws: bool,
}

impl Variant {
    /// The product's allocator.
    pub(super) fn engine() -> Self {
        Self::default()
    }
}

/// Credits of every handle in these tests.
pub(super) const CREDITS: u32 = 64;

/// An image in a temporary directory.
pub(super) struct Image {
    _dir: tempfile::TempDir,
    pub(super) path: PathBuf,
}

/// An open image.
pub(super) struct Open {
    pub(super) device: Arc<MemoryDevice>,
    pub(super) store: Arc<Store>,
    pub(super) blocks: BlockAlloc,
    pub(super) inodes: InodeAlloc,
    pub(super) geo: Arc<Geometry>,
    pub(super) sb: Superblock,
}

impl Image {
    /// An image made by mke2fs; none if mke2fs is not installed.
    pub(super) fn make(args: &str, mib: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let args: Vec<&str> = args.split_whitespace().collect();
        match e2fs::mke2fs(&path, mib << 20, &args) {
            Ok(()) => Some(Self { _dir: dir, path }),
            Err(skip) => {
                Skip::note(&skip);
                None
            }
        }
    }

    pub(super) fn device(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::load(&self.path).unwrap())
    }

    /// Loads the image into memory and opens it, so that commits do not wait for a disk.
    pub(super) fn open(&self) -> Open {
        self.open_as(&Variant::engine())
    }

    pub(super) fn open_as(&self, variant: &Variant) -> Open {
        Open::new(self.device(), variant)
    }

    pub(super) fn assert_clean(&self) {
        e2fs::assert_clean(&self.path);
    }
}

impl Open {
    pub(super) fn new(device: Arc<MemoryDevice>, variant: &Variant) -> Self {
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).unwrap();
        let sb = Superblock::read(&bytes).unwrap();
        let geo = Arc::new(sb.check(device.size()).unwrap());
        let options = StoreOptions {
            block_size: geo.block_len(),
            commit_interval: Duration::from_secs(3600),
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::without_journal(device.clone(), &options).unwrap());
        let root = sb.reserved_blocks_count();
        let (store_of, choice) = (store.clone(), &variant.choice);
        let blocks = BlockAlloc::open_as(store_of, geo.clone(), root, &[], choice).unwrap();
        let inodes = InodeAlloc::new(&blocks);
        Self { device, store, blocks, inodes, geo, sb }
    }

    /// The block of a group's block bitmap, by the descriptor on the device.
    pub(super) fn block_bitmap(&self, group: GroupNo) -> BlockNo {
        let (block, at) = self.geo.desc_location(group);
        let mut bytes = vec![0; usize::from(self.geo.desc_size)];
        let offset = (block.0 << self.geo.block_bits) + at as u64;
        self.device.read_at(offset, &mut bytes).unwrap();
        GroupDesc::read(&bytes).unwrap().block_bitmap
    }

    pub(super) fn start(&self) -> Handle<'_> {
        self.store.start(CREDITS).unwrap()
    }

    pub(super) fn allocate(&self, want: u32, min: u32, goal: Option<BlockNo>) -> Result<BlockRun> {
        self.allocate_as(want, min, goal, Privilege::User)
    }

    pub(super) fn allocate_as(
        &self,
        want: u32,
        min: u32,
        goal: Option<BlockNo>,
        privilege: Privilege,
    ) -> Result<BlockRun> {
        let kind = BlockKind::Data;
        let ino = InodeNo(12);
        self.blocks.allocate(&self.start(), &BlockRequest { goal, want, min, kind, privilege, ino })
    }

    pub(super) fn free(&self, run: BlockRun) {
        self.blocks.free(&self.start(), run.start, run.len, BlockKind::Data).unwrap();
    }

    /// Commits, and returns the counts of free blocks and inodes on the device. Superblock and
    /// descriptors must agree.
    pub(super) fn counts_on_disk(&self) -> (u64, u64) {
        self.store.sync_all().unwrap();
        self.store.freeze().unwrap();
        self.store.thaw();
        let again = BlockAlloc::open(
            Arc::new(Store::read_only(
                self.store.device().clone(),
                &StoreOptions { block_size: self.geo.block_len(), ..StoreOptions::default() },
            )),
            self.geo.clone(),
            0,
            &[],
        )
        .unwrap();
        let mut bytes = [0; 1024];
        self.store.device().read_at(1024, &mut bytes).unwrap();
        let sb = Superblock::read(&bytes).unwrap();
        let free = again.free_blocks();
        assert_eq!(free, sb.free_blocks_count());
        let inodes = InodeAlloc::new(&again).free_inodes();
        assert_eq!(inodes, u64::from(sb.free_inodes_count.get()));
        (free, inodes)
    }

    /// Closes the image and runs e2fsck on it.
    pub(super) fn close(self, image: &Image) {
        self.finish();
        self.device.save(&image.path).unwrap();
        image.assert_clean();
    }

    /// Closes the image without e2fsck, which would report blocks in use that no file maps.
    pub(super) fn finish(&self) {
        self.store.close().unwrap();
        assert_eq!(self.store.credit_overruns(), 0);
        assert!(self.blocks.damage().is_empty(), "{:?}", self.blocks.damage());
    }
}

/// The blocks that the test has allocated.
pub(super) struct Shadow(Vec<bool>);

impl Shadow {
    pub(super) fn new(geo: &Geometry) -> Self {
        Self(vec![false; geo.blocks_count as usize])
    }

    pub(super) fn take(&mut self, run: BlockRun) {
        for no in run.start.0..run.end().0 {
            assert!(
                !std::mem::replace(&mut self.0[no as usize], true),
                "block {no} allocated twice"
            );
        }
    }

    pub(super) fn give(&mut self, run: BlockRun) {
        for no in run.start.0..run.end().0 {
            assert!(std::mem::take(&mut self.0[no as usize]));
        }
    }
}

/// Runs `work` while another thread commits without pause. Ends also if `work` panics.
pub(super) fn with_commits(open: &Open, work: impl FnOnce()) {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                open.store.sync_all().unwrap();
            }
        });
        work();
    });
}
