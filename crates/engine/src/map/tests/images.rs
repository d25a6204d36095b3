//! Images of the kernel: the map and the kernel read the same extents, before and after the map
//! changes them. Changed images pass e2fsck.

use super::super::*;
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{Geometry, GroupDesc, Inode, InodeNo, Superblock, bitmap, inode};
use nextent_store::{Handle, Seal, Store, StoreOptions};
use nextent_sync::{Arc, LockClass, Mutex};
use nextent_testkit::{Access, KernelMount, Rng, Skip, e2fs, need};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

static SPACE: LockClass = LockClass::new("test.space", 410);

/// An image in a temporary directory, with one file.
struct Image {
    dir: tempfile::TempDir,
    ino: InodeNo,
}

impl Image {
    /// An image whose file `fill` writes through a kernel mount.
    fn make(args: &[&str], fill: impl FnOnce(&Path)) -> std::result::Result<Self, Skip> {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let mut image = Self { dir, ino: InodeNo(0) };
        e2fs::mke2fs(&image.path(), 128 << 20, args)?;
        let mount = KernelMount::new(&image.path(), Access::ReadWrite)?;
        fill(&mount.join("f"));
        image.ino = InodeNo(mount.join("f").metadata().expect("made").ino() as u32);
        mount.unmount();
        Ok(image)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// The extents of the file as the kernel reports them, with neighbours merged.
    fn fiemap(&self, geometry: &Geometry) -> std::result::Result<Vec<Extent>, Skip> {
        let mount = KernelMount::new(&self.path(), Access::ReadOnly)?;
        let unit = format!("-b{}", geometry.block_size);
        let file = mount.join("f");
        let output = e2fs::run("filefrag", ["-v".as_ref(), unit.as_ref(), file.as_os_str()])?;
        mount.unmount();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number =
            |field: &str| field.trim().split("..").map(|n| n.trim().parse().ok()).collect();
        let line = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            fields.first()?.trim().parse::<u32>().ok()?;
            let logical: Vec<Option<u32>> = number(fields.get(1)?);
            let physical: u64 = fields.get(2)?.split("..").next()?.trim().parse().ok()?;
            let (first, last) = (logical[0]?, logical[1]?);
            let unwritten = line.contains("unwritten");
            Some(Extent {
                at: FileBlock(first),
                start: BlockNo(physical),
                len: last - first + 1,
                state: if unwritten { ExtentState::Unwritten } else { ExtentState::Written },
            })
        };
        Ok(merged(text.lines().filter_map(line)))
    }
}

fn merged(extents: impl Iterator<Item = Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for e in extents {
        match all.last_mut() {
            Some(last)
                if last.end() == e.at
                    && block_after(last.start, last.len) == e.start
                    && last.state == e.state =>
            {
                last.len += e.len;
            }
            _ => all.push(e),
        }
    }
    all
}

/// The image, opened without the kernel: its geometry, its store, and the file's inode.
struct Open {
    geometry: Geometry,
    store: Store,
    ino: InodeNo,
    /// The inode's block, and the inode's offset in it.
    place: (BlockNo, usize),
    inode: Inode,
    root: MapRoot,
    free: Mutex<BTreeSet<u64>>,
}

impl Open {
    fn new(image: &Image) -> Self {
        let device = FileDevice::open(image.path(), &FileOptions::new()).expect("opens");
        let mut sb = vec![0; 1024];
        device.read_at(1024, &mut sb).expect("reads");
        let geometry = Superblock::read(&sb).expect("long").check(device.size()).expect("sound");
        let block = |no: BlockNo| {
            let mut bytes = vec![0; geometry.block_len()];
            device.read_at(no.get() * u64::from(geometry.block_size), &mut bytes).expect("reads");
            bytes
        };
        let desc = |group| {
            let (no, offset) = geometry.desc_location(group);
            GroupDesc::read(&block(no)[offset..][..usize::from(geometry.desc_size)]).expect("long")
        };
        let location = geometry.inode_location(image.ino).expect("made by the kernel");
        let table = desc(location.group).inode_table.get() + u64::from(location.table_block);
        let place = (BlockNo(table), location.offset);
        let inode = Inode::read(&geometry, &block(place.0)[place.1..]).expect("sound");
        let kind = match inode.has_flag(flags::EXTENTS) {
            true => MapKind::Extents,
            false => MapKind::Indirect,
        };
        let root = MapRoot::load(kind, inode.block, image.ino, &geometry).expect("sound");
        let mut free = BTreeSet::new();
        for group in geometry.groups() {
            let bits = block(desc(group).block_bitmap);
            let first = geometry.group_first_block(group).get();
            let uninit = desc(group).flags & 2 != 0;
            let all = 0..if uninit { 0 } else { geometry.group_blocks(group) };
            free.extend(all.filter(|n| !bitmap::test(&bits, *n)).map(|n| first + u64::from(n)));
        }
        let options = StoreOptions { block_size: geometry.block_len(), ..Default::default() };
        let store = Store::without_journal(Arc::new(device), &options).unwrap();
        let free = Mutex::new(&SPACE, free);
        Self { geometry, store, ino: image.ino, place, inode, root, free }
    }

    /// Runs `f` in a handle and updates the file's block count.
    fn with<R>(&mut self, f: impl FnOnce(&MapCx<'_>, &Handle<'_>, &mut MapRoot) -> R) -> R {
        let mut root = self.root.clone();
        let h = self.store.start(200).expect("starts");
        let done = f(&self.cx(), &h, &mut root);
        h.stop();
        self.root = root;
        let change = self.root.take_change() * i64::from(self.geometry.block_size / 512);
        let sectors = self.inode.sectors(&self.geometry).checked_add_signed(change);
        let sectors = sectors.expect("the block count is not negative");
        self.inode.set_sectors(&self.geometry, sectors).expect("fits");
        done
    }

    fn cx(&self) -> MapCx<'_> {
        let has_sums = self.geometry.features.metadata_csum();
        MapCx {
            store: &self.store,
            space: self,
            ino: self.ino,
            csum_seed: has_sums.then(|| self.inode.csum_seed(&self.geometry, self.ino)),
            geometry: &self.geometry,
            contents: BlockKind::Data,
            refuse_system_blocks: true,
            privilege: Privilege::Root,
        }
    }

    fn extents(&self) -> Vec<Extent> {
        let cx = self.cx();
        merged(extents(&cx, &self.root, FileBlock(0)).map(|e| e.expect("sound")))
    }

    /// Allocates a run of at most `most` free blocks at a random position.
    fn take(&self, rng: &mut Rng, most: u32) -> BlockRun {
        let mut free = self.free.lock();
        let goal = rng.below(self.geometry.blocks_count);
        let start = *free.range(goal..).next().or(free.first()).expect("room");
        let len = (0..u64::from(most)).take_while(|i| free.remove(&(start + i))).count();
        BlockRun { start: BlockNo(start), len: len as u32 }
    }

    /// Writes the inode and closes the store.
    fn close(mut self) {
        self.inode.block = *self.root.bytes();
        let h = self.store.start(1).expect("starts");
        let block = self.store.read(self.place.0, |_| Ok::<_, Error>(())).expect("reads");
        block.set_seal(Seal::NONE);
        let (offset, size) = (self.place.1, usize::from(self.geometry.inode_size));
        h.update(&block, |bytes| {
            let bytes = &mut bytes[offset..offset + size];
            self.inode.write(&self.geometry, bytes);
            inode::seal(&self.geometry, self.ino, bytes);
        });
        h.stop();
        self.store.close().expect("all blocks are checkpointed");
    }
}

impl Space for Open {
    fn allocate(&self, _h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        assert_eq!((request.want, request.kind), (1, BlockKind::Metadata));
        let mut free = self.free.lock();
        // Nodes come from the end of the volume, data from anywhere.
        let no = free.pop_last().ok_or_else(|| Error::NoSpace)?;
        Ok(BlockRun { start: BlockNo(no), len: 1 })
    }

    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        for no in start.get()..start.get() + u64::from(len) {
            assert!(self.free.lock().insert(no), "block {no} was free");
            if kind == BlockKind::Metadata {
                h.forget(BlockNo(no));
            }
        }
        Ok(())
    }

    fn overlaps_system_zone(&self, _: BlockNo, _: u32) -> bool {
        false
    }
}

/// Writes a file with single blocks, long runs, preallocated blocks and holes.
fn fill(path: &Path) {
    let file = File::create(path).expect("the mount can be written");
    for i in 0..700u64 {
        file.write_all_at(&[(i % 250) as u8 + 1; 900], i * 8192).expect("room");
    }
    file.write_all_at(&vec![7; 5 << 20], 20 << 20).expect("room");
    file.sync_all().expect("room");
    // Fails on ext3, and then does not change the file.
    let args = ["-n", "-o", "40M", "-l", "9M"].map(AsRef::as_ref);
    let _ = e2fs::run("fallocate", args.into_iter().chain([path.as_os_str()]));
    file.write_all_at(&[9; 100], 43 << 20).expect("room");
    file.set_len(60 << 20).expect("room");
}

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "4096"],
];

#[test]
fn maps_written_by_the_kernel_read_the_same_extents() {
    for args in KINDS {
        let image = need!(Image::make(args, fill));
        let open = Open::new(&image);
        let found = open.extents();
        assert!(found.len() > 600, "{args:?}: {} extents", found.len());
        assert_eq!(found, need!(image.fiemap(&open.geometry)), "{args:?}");
        let data: i64 = found.iter().map(|e| i64::from(e.len)).sum();
        let nodes = count_nodes(&open.cx(), &open.root).expect("sound") as i64;
        let sectors = (data + nodes) * i64::from(open.geometry.block_size / 512);
        let own = open.inode.sectors(&open.geometry) as i64;
        assert_eq!(own, sectors, "{args:?}");
    }
}

fn change(open: &mut Open, rng: &mut Rng) {
    let at = FileBlock(rng.below(30_000) as u32);
    let most = if rng.percent(70) { 4 } else { 400 };
    let len = 1 + rng.below(most) as u32;
    let range = at..FileBlock(at.get() + len);
    let extents = open.root.kind() == MapKind::Extents;
    match rng.below(if extents { 10 } else { 7 }) {
        0..5 => {
            let hole = lookup(&open.cx(), &open.root, at, len).expect("sound");
            if let Mapping::Hole { len, .. } = hole {
                let run = open.take(rng, len);
                let plain = !extents || rng.percent(50);
                let state = if plain { ExtentState::Written } else { ExtentState::Unwritten };
                let done = open.with(|cx, h, root| insert(cx, h, root, at, run, state));
                assert_eq!(done.expect("room"), run.len);
            }
        }
        5..7 => {
            let done = open.with(|cx, h, root| remove(cx, h, root, range));
            assert_eq!(done.expect("sound"), Progress::Done);
        }
        7..9 => {
            let done = open.with(|cx, h, root| convert(cx, h, root, range));
            assert_eq!(done.expect("room"), Progress::Done);
        }
        _ => {
            let done = open.with(|cx, h, root| mark_unwritten(cx, h, root, range));
            assert_eq!(done.expect("room"), Progress::Done);
        }
    }
}

/// The lines of e2fsck's output that report other problems than bitmaps and counts, which this test
/// does not update, and offers to optimise trees.
fn complaints(text: &str) -> Vec<&str> {
    let known = [
        "Pass ",
        "bitmap differences",
        "Free blocks count",
        "Fix?",
        "e2fsck ",
        "***",
        "tree (at level",
    ];
    let odd = |line: &&str| {
        let is_number_list = line.chars().all(|c| " +-0123456789()".contains(c));
        !is_number_list && !known.iter().any(|k| line.contains(k)) && !line.contains(" files (")
    };
    text.lines().filter(odd).collect()
}

#[test]
fn changed_maps_pass_e2fsck_and_read_the_same_in_the_kernel() {
    for (seed, args) in KINDS.iter().enumerate() {
        let image = need!(Image::make(args, fill));
        let mut open = Open::new(&image);
        let mut rng = Rng::new(seed as u64);
        for _ in 0..3000 {
            change(&mut open, &mut rng);
        }
        if open.root.kind() == MapKind::Extents {
            let by = 100;
            let range = FileBlock(500)..FileBlock(500 + by);
            let done = open.with(|cx, h, root| remove(cx, h, root, range));
            assert_eq!(done.expect("sound"), Progress::Done);
            let from = FileBlock(500 + by);
            let done = open.with(|cx, h, root| shift_left(cx, h, root, from, by));
            assert_eq!(done.expect("sound"), Progress::Done);
        }
        let found = open.extents();
        assert!(found.len() > 800, "{args:?}: {} extents", found.len());
        let geometry = open.geometry.clone();
        open.inode.size = u64::from(geometry.block_size) * 62_000;
        open.close();
        let path = image.path();
        let output = need!(e2fs::run("e2fsck", ["-fy".as_ref(), path.as_os_str()]));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(complaints(&text), [""; 0], "{args:?}:\n{text}");
        e2fs::assert_clean(&image.path());
        assert_eq!(found, need!(image.fiemap(&geometry)), "{args:?}");
    }
}
