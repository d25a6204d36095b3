//! The allocator over images of mke2fs, judged by e2fsck and by shadow maps.

mod blocks;
mod crash_rule;
mod damage;
mod groups;
mod inodes;
mod museum;
mod threads;
mod trim;

use super::{BlockAlloc, BlockRequest, BlockRun, InodeAlloc, Kind, Privilege, Result, Window};
use crate::Design;
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::{BlockNo, Geometry, InodeNo, Superblock};
use nextent_store::{Handle, Store, StoreOptions};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, thread};
use nextent_testkit::{Skip, e2fs};
use std::path::PathBuf;
use std::time::Duration;

/// Credits of every handle in these tests.
const CREDITS: u32 = 64;

/// An image on disk.
struct Image {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

/// An image that is open.
struct Open {
    device: Arc<MemoryDevice>,
    store: Arc<Store>,
    blocks: BlockAlloc,
    inodes: InodeAlloc,
    geo: Arc<Geometry>,
    sb: Superblock,
}

impl Image {
    /// An image of mke2fs, or nothing where that is not installed.
    fn make(args: &str, mib: u64) -> Option<Self> {
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

    fn device(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::load(&self.path).unwrap())
    }

    /// The image in memory, so that commits cost no wait for a disk.
    fn open(&self) -> Open {
        self.open_as(&Design::default())
    }

    fn open_as(&self, design: &Design) -> Open {
        Open::new(self.device(), design)
    }

    fn assert_clean(&self) {
        e2fs::assert_clean(&self.path);
    }
}

impl Open {
    fn new(device: Arc<MemoryDevice>, design: &Design) -> Self {
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
        let blocks =
            BlockAlloc::with_design(store.clone(), geo.clone(), root, &[], design).unwrap();
        let inodes = InodeAlloc::new(&blocks);
        Self { device, store, blocks, inodes, geo, sb }
    }

    fn start(&self) -> Handle<'_> {
        self.store.start(CREDITS).unwrap()
    }

    fn allocate(&self, want: u32, min: u32, goal: Option<BlockNo>) -> Result<BlockRun> {
        self.allocate_as(want, min, goal, Privilege::User)
    }

    fn allocate_as(
        &self,
        want: u32,
        min: u32,
        goal: Option<BlockNo>,
        privilege: Privilege,
    ) -> Result<BlockRun> {
        let kind = Kind::Data;
        let ino = InodeNo(12);
        self.blocks.allocate(&self.start(), &BlockRequest { goal, want, min, kind, privilege, ino })
    }

    fn free(&self, run: BlockRun) {
        self.blocks.free(&self.start(), run.start, run.len, Kind::Data).unwrap();
    }

    /// The free counts on disk after everything was committed, from superblock and descriptors.
    fn counts_on_disk(&self) -> (u64, u64) {
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

    /// Closes the image and has e2fsck look at it.
    fn close(self, image: &Image) {
        self.finish();
        self.device.save(&image.path).unwrap();
        image.assert_clean();
    }

    /// Closes the image with blocks in use that nothing points to.
    fn finish(&self) {
        self.store.close().unwrap();
        assert_eq!(self.store.credit_overruns(), 0);
        assert!(self.blocks.damage().is_empty(), "{:?}", self.blocks.damage());
    }
}

/// Which blocks are in use according to the tests.
struct Shadow(Vec<bool>);

impl Shadow {
    fn new(geo: &Geometry) -> Self {
        Self(vec![false; geo.blocks_count as usize])
    }

    fn take(&mut self, run: BlockRun) {
        for no in run.start.0..run.end().0 {
            assert!(!std::mem::replace(&mut self.0[no as usize], true), "block {no} given twice");
        }
    }

    fn give(&mut self, run: BlockRun) {
        for no in run.start.0..run.end().0 {
            assert!(std::mem::take(&mut self.0[no as usize]));
        }
    }
}

/// Runs `work` while another thread commits without pause; ends even if `work` panics.
fn with_commits(open: &Open, work: impl FnOnce()) {
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
