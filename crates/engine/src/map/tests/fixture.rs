//! A map on a memory store, with an allocator that tracks the blocks in use.

use super::super::*;
use super::model::Model;
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{Features, Geometry, InodeNo};
use nextent_store::{Handle, JournalRun, JournalSpec, JournalUse, Store, StoreOptions};
use nextent_sync::{Arc, LockClass, Mutex};
use std::collections::{BTreeMap, BTreeSet};

static SPACE: LockClass = LockClass::new("test.space", 410);

/// A volume of `blocks` blocks. Groups are small, so that removals cross them.
pub(in super::super) fn geometry(block_size: u32, blocks: u64) -> Geometry {
    Geometry {
        block_size,
        block_bits: block_size.trailing_zeros(),
        cluster_blocks: 1,
        cluster_bits: 0,
        blocks_count: blocks,
        first_data_block: BlockNo(u64::from(block_size == 1024)),
        blocks_per_group: 8192,
        clusters_per_group: 8192,
        inodes_per_group: 512,
        inodes_count: 512,
        first_inode: InodeNo(11),
        inode_size: 256,
        inodes_per_block: block_size / 256,
        inode_table_blocks: 512 * 256 / block_size,
        desc_size: 64,
        descs_per_block: block_size / 64,
        group_count: blocks.div_ceil(8192) as u32,
        reserved_gdt_blocks: 0,
        first_meta_bg: 0,
        flex_groups: 1,
        backup_groups: [0; 2],
        features: Features::default(),
        creator_os: 0,
        csum_seed: 0,
        uuid: [0; 16],
    }
}

/// Blocks of the volume.
const BLOCKS: u64 = 1 << 24;
/// Blocks of the system zone, at the start of the volume.
pub(super) const SYSTEM: u64 = 100;
/// Blocks of the journal: so few that transactions fill up and operations have to stop.
const JOURNAL: u64 = 1024;

/// A store with a journal at block `start`.
fn journaled(device: Arc<MemoryDevice>, block_size: u32, start: u64) -> Store {
    let sb = JournalSuperblock::new(block_size, JOURNAL as u32, [0; 16]);
    device.write_at(start * u64::from(block_size), &sb.to_bytes()).expect("memory writes");
    let spec = JournalSpec {
        runs: vec![JournalRun { start: BlockNo(start), len: JOURNAL as u32 }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: start + JOURNAL,
    };
    let options = StoreOptions { block_size: block_size as usize, ..Default::default() };
    Store::with_journal(device, &options, &spec).expect("a fresh journal opens")
}

/// Allocates nodes from the upper half of the volume, and checks that freed blocks were in use.
pub(super) struct FakeSpace {
    store: Arc<Store>,
    inner: Mutex<Inner>,
    half: u64,
    per_group: u64,
}

#[derive(Default)]
struct Inner {
    nodes: BTreeSet<u64>,
    data: BTreeSet<u64>,
    next: u64,
    /// Node allocations until [`Error::NoSpace`]; none for no limit.
    left: Option<u32>,
    /// Freeing a free block is an error, not a panic.
    lenient: bool,
}

impl FakeSpace {
    fn charge(&self, h: &Handle<'_>, no: u64) {
        let group = no / self.per_group;
        for block in [2 * group + 2, 2 * group + 3] {
            h.join(&self.store.read(BlockNo(block), |_| Ok::<_, Error>(())).expect("memory reads"));
        }
    }
}

impl Space for FakeSpace {
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        assert_eq!((request.want, request.min, request.kind), (1, 1, BlockKind::Metadata));
        let mut inner = self.inner.lock();
        if let Some(left) = &mut inner.left {
            *left = left.checked_sub(1).ok_or_else(|| Error::NoSpace)?;
        }
        inner.next += 1;
        let no = self.half + inner.next;
        assert!(inner.nodes.insert(no));
        drop(inner);
        self.charge(h, no);
        Ok(BlockRun { start: BlockNo(no), len: 1 })
    }

    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        for no in start.get()..start.get() + u64::from(len) {
            let mut inner = self.inner.lock();
            // A directory's blocks are metadata, as its nodes are.
            let was_used = match kind {
                BlockKind::Metadata => inner.nodes.remove(&no) || inner.data.remove(&no),
                _ => inner.data.remove(&no),
            };
            assert!(was_used || inner.lenient, "block {no} was not in use as {kind:?}");
            drop(inner);
            if !was_used {
                return Err(Error::Invalid);
            }
            self.charge(h, no);
            if kind == BlockKind::Metadata {
                h.forget(BlockNo(no));
            }
        }
        Ok(())
    }

    fn overlaps_system_zone(&self, start: BlockNo, len: u32) -> bool {
        start.get() < SYSTEM || start.get() + u64::from(len) > BLOCKS
    }
}

/// A map with its model and its context.
pub(super) struct Fixture {
    pub(super) store: Arc<Store>,
    pub(super) space: FakeSpace,
    pub(super) geometry: Geometry,
    pub(super) root: MapRoot,
    pub(super) model: Model,
    pub(super) owned: i64,
    pub(super) contents: BlockKind,
    /// The number of operations that stopped because credits ran out.
    pub(super) stops: u32,
}

impl Fixture {
    pub(super) fn new(kind: MapKind, block_size: u32) -> Self {
        let blocks = BLOCKS;
        let geometry = geometry(block_size, blocks);
        let device = Arc::new(MemoryDevice::new(blocks * u64::from(block_size)));
        let store = Arc::new(journaled(device, block_size, blocks - JOURNAL));
        let inner = Mutex::new(&SPACE, Inner::default());
        Self {
            space: FakeSpace { store: store.clone(), inner, half: blocks / 2, per_group: 8192 },
            store,
            geometry,
            root: MapRoot::empty(kind),
            model: Model::default(),
            owned: 0,
            contents: BlockKind::Data,
            stops: 0,
        }
    }

    /// Like [`Self::new`], with groups of `blocks` blocks.
    pub(super) fn grouped(kind: MapKind, block_size: u32, blocks: u32) -> Self {
        let mut f = Self::new(kind, block_size);
        f.geometry.blocks_per_group = blocks;
        f.geometry.clusters_per_group = blocks;
        f.geometry.group_count = (BLOCKS / u64::from(blocks)) as u32;
        f.space.per_group = blocks.into();
        f
    }

    /// Like [`Self::new`], for corrupt maps, whose removal frees blocks that are not in use.
    pub(super) fn lenient(kind: MapKind, block_size: u32) -> Self {
        let mut f = Self::new(kind, block_size);
        let options = StoreOptions { block_size: block_size as usize, ..Default::default() };
        let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(block_size)));
        f.store = Arc::new(Store::without_journal(device, &options).unwrap());
        f.space.store = f.store.clone();
        f.space.inner.lock().lenient = true;
        f
    }

    /// Writes a block of the volume without the map.
    pub(super) fn put(&self, no: u64, bytes: &[u8]) {
        let offset = no * bytes.len() as u64;
        self.store.device().write_at(offset, bytes).expect("memory writes");
        let block = self.store.read(BlockNo(no), |_| Ok::<_, Error>(())).expect("memory reads");
        let h = self.store.start(1).expect("memory store starts");
        h.update(&block, |b| b.copy_from_slice(bytes));
    }

    /// Lets the next `left` node allocations succeed.
    pub(super) fn limit_nodes(&self, left: Option<u32>) {
        self.space.inner.lock().left = left;
    }

    /// Runs `f` in a handle of `credits` credits.
    pub(super) fn with<R>(
        &mut self,
        credits: u32,
        f: impl FnOnce(&MapCx<'_>, &Handle<'_>, &mut MapRoot) -> R,
    ) -> R {
        let cx = MapCx {
            contents: self.contents,
            refuse_system_blocks: true,
            store: &self.store,
            space: &self.space,
            ino: InodeNo(12),
            csum_seed: Some(77),
            geometry: &self.geometry,
            privilege: Privilege::User,
        };
        let h = self.store.start(credits).expect("memory store starts");
        let done = f(&cx, &h, &mut self.root);
        h.stop();
        self.owned += self.root.take_change();
        done
    }

    /// Runs `f`, which changes nothing.
    pub(super) fn look<R>(&self, f: impl FnOnce(&MapCx<'_>, &MapRoot) -> R) -> R {
        let cx = MapCx {
            contents: BlockKind::Data,
            refuse_system_blocks: true,
            store: &self.store,
            space: &self.space,
            ino: InodeNo(12),
            csum_seed: Some(77),
            geometry: &self.geometry,
            privilege: Privilege::User,
        };
        f(&cx, &self.root)
    }

    /// Inserts into map and model. The range must be a hole, and the blocks must be free.
    pub(super) fn insert(
        &mut self,
        at: u32,
        start: u64,
        len: u32,
        state: ExtentState,
    ) -> Result<u32> {
        let credits = insert_credits(&self.root, &self.geometry, len);
        let run = BlockRun { start: BlockNo(start), len };
        let done =
            self.with(credits, |cx, h, root| insert(cx, h, root, FileBlock(at), run, state))?;
        for i in 0..done {
            assert!(self.space.inner.lock().data.insert(start + u64::from(i)));
            self.model.set(at + i, start + u64::from(i), state);
        }
        Ok(done)
    }

    /// Inserts single written blocks, many in each handle.
    pub(super) fn insert_singles(&mut self, blocks: &[(u32, u64)]) {
        for some in blocks.chunks(20) {
            self.with(110, |cx, h, root| {
                for &(at, no) in some {
                    let run = BlockRun { start: BlockNo(no), len: 1 };
                    let done = insert(cx, h, root, FileBlock(at), run, ExtentState::Written);
                    assert_eq!(done.expect("room"), 1);
                }
            });
        }
        for &(at, no) in blocks {
            assert!(self.space.inner.lock().data.insert(no));
            self.model.set(at, no, ExtentState::Written);
        }
    }

    pub(super) fn remove(&mut self, mut range: Range<u32>) {
        self.model.remove(range.clone());
        let mut steps = 0;
        loop {
            let credits = remove_credits(&self.root, &self.geometry);
            let whole = FileBlock(range.start)..FileBlock(range.end);
            match self.with(credits, |cx, h, root| remove(cx, h, root, whole)) {
                Ok(Progress::Done) => break,
                Ok(Progress::Stopped(end)) => {
                    assert!(end.get() <= range.end);
                    self.stops += 1;
                    steps += u32::from(end.get() == range.end);
                    assert!(steps < 10, "removal makes progress");
                    range.end = end.get();
                    self.check_nodes();
                }
                Err(error) => panic!("removal: {error}"),
            }
        }
    }

    pub(super) fn set_state(&mut self, mut range: Range<u32>, to: ExtentState) {
        self.model.set_state(range.clone(), to);
        loop {
            let credits = change_credits(&self.root);
            let whole = FileBlock(range.start)..FileBlock(range.end);
            let progress = self.with(credits, |cx, h, root| match to {
                ExtentState::Written => convert(cx, h, root, whole),
                ExtentState::Unwritten => mark_unwritten(cx, h, root, whole),
            });
            match progress.expect("states change") {
                Progress::Done => break,
                Progress::Stopped(at) => {
                    assert!(at.get() < range.end && at.get() >= range.start);
                    self.stops += 1;
                    range.start = at.get();
                    self.check_nodes();
                }
            }
        }
    }

    /// Converts `runs`, which must rise, in one call for each handle.
    pub(super) fn convert_runs(&mut self, runs: &[Range<u32>]) {
        runs.iter().for_each(|run| self.model.set_state(run.clone(), ExtentState::Written));
        let mut runs: Vec<_> =
            runs.iter().map(|run| FileBlock(run.start)..FileBlock(run.end)).collect();
        let mut left = &mut runs[..];
        loop {
            let credits = change_credits(&self.root);
            let done = self.with(credits, |cx, h, root| convert_runs(cx, h, root, left));
            left = &mut left[done.expect("states change").done..];
            if left.is_empty() {
                break;
            }
            self.stops += 1;
            self.check_nodes();
        }
    }

    pub(super) fn collapse(&mut self, range: Range<u32>) {
        self.remove(range.clone());
        let by = range.end - range.start;
        self.model.shift_left(range.end, by);
        let mut from = FileBlock(range.end);
        loop {
            let credits = shift_credits(&self.root);
            let progress = self.with(credits, |cx, h, root| shift_left(cx, h, root, from, by));
            match progress.expect("extents shift") {
                Progress::Done => break,
                Progress::Stopped(at) => (from, self.stops) = (at, self.stops + 1),
            }
            self.check_nodes();
        }
    }

    pub(super) fn insert_range(&mut self, at: u32, by: u32) {
        self.model.shift_right(at, by);
        let mut end = END_OF_BLOCKS;
        loop {
            let credits = shift_credits(&self.root);
            let range = FileBlock(at)..end;
            let progress = self.with(credits, |cx, h, root| shift_right(cx, h, root, range, by));
            match progress.expect("extents shift") {
                Progress::Done => break,
                Progress::Stopped(at) => (end, self.stops) = (at, self.stops + 1),
            }
            self.check_nodes();
        }
    }

    /// Checks that the allocated nodes are the nodes in the tree, and that each is valid.
    pub(super) fn check_nodes(&self) {
        let mut reached = BTreeSet::new();
        self.look(|cx, root| {
            visit_nodes(cx, root, &mut |no, _| assert!(reached.insert(no.get()))).expect("visit");
            assert_eq!(count_nodes(cx, root).expect("count"), reached.len() as u64);
            if root.kind() == MapKind::Extents {
                MapRoot::load(root.kind(), *root.bytes(), cx.ino, cx.geometry).expect("root");
            }
        });
        assert_eq!(reached, self.space.inner.lock().nodes);
        assert_eq!(self.store.credit_overruns(), 0, "credit estimates are sufficient");
    }

    /// Compares the whole map with the model.
    pub(super) fn check(&self) {
        self.check_nodes();
        let found: Vec<Extent> = self
            .look(|cx, root| extents(cx, root, FileBlock(0)).collect::<Result<_>>().expect("walk"));
        let mut blocks = BTreeMap::new();
        for e in &found {
            for i in 0..e.len {
                let block = (e.start.get() + u64::from(i), e.state);
                assert_eq!(blocks.insert(e.at.get() + i, block), None);
            }
        }
        assert_eq!(&blocks, self.model.blocks());
        let inner = self.space.inner.lock();
        let data: BTreeSet<u64> = blocks.values().map(|(no, _)| *no).collect();
        assert_eq!(data, inner.data);
        assert_eq!(self.owned, (inner.data.len() + inner.nodes.len()) as i64);
    }

    /// Compares lookups and seeks at `at` with the model.
    pub(super) fn check_at(&self, at: u32) {
        let end = FileBlock(self.model.end().max(at).saturating_add(10));
        self.look(|cx, root| {
            let found = lookup(cx, root, FileBlock(at), 100_000).expect("lookup");
            match (found, self.model.get(at)) {
                (Mapping::Hole { len, .. }, None) => {
                    assert_eq!(len, self.model.hole_len(at).min(100_000), "hole at {at}");
                }
                (Mapping::Written { start, len }, Some((no, ExtentState::Written)))
                | (Mapping::Unwritten { start, len }, Some((no, ExtentState::Unwritten))) => {
                    assert_eq!(start.get(), no);
                    assert!(len > 0 && self.model.is_run(at, len));
                }
                other => panic!("lookup of {at}: {other:?}"),
            }
            self.check_near(cx, root, at, found);
            let data = next_data(cx, root, FileBlock(at), end).expect("data");
            assert_eq!(data.map(FileBlock::get), self.model.next_data(at));
            let hole = next_hole(cx, root, FileBlock(at), end).expect("hole");
            assert_eq!(hole.get(), self.model.next_hole(at));
        });
    }

    /// Compares the extents that `lookup_near` adds with the model.
    fn check_near(&self, cx: &MapCx<'_>, root: &MapRoot, at: u32, found: Mapping) {
        let mut near = Vec::new();
        let again = lookup_near(cx, root, FileBlock(at), 100_000, &mut near).expect("lookup");
        assert_eq!(again, found);
        let covers = |e: &Extent| e.at.get() <= at && at < e.end().get();
        assert_eq!(near.iter().any(covers), self.model.get(at).is_some());
        assert!(near.windows(2).all(|two| two[0].end() <= two[1].at), "{near:?}");
        for e in near {
            let at = e.at.get();
            assert_eq!(self.model.get(at), Some((e.start.get(), e.state)));
            assert!(self.model.is_run(at, e.len), "{e:?}");
        }
    }
}
