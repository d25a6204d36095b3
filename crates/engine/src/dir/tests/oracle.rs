//! Directories made by the kernel are read here; directories made here pass e2fsck and the kernel.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nextent_ondisk::dirent::NewEntry;
use nextent_ondisk::inode::flags::INDEX;
use nextent_ondisk::{
    BlockNo, FileBlock, FileType, Geometry, GroupDesc, Inode, InodeNo, Superblock,
};
use nextent_testkit::e2fs::{assert_clean, debugfs, mke2fs};
use nextent_testkit::{Access, KernelMount, Rng, Skip};

use super::fake::Fake;
use crate::dir::pages::{Pages, PagesMut};
use crate::dir::{
    Cursor, DirError, DirInfo, IndexInfo, Name, check_block, init, insert, iterate, lookup, remove,
    seal_of,
};

/// One directory of an image, as bytes.
struct Disk {
    path: PathBuf,
    geometry: Geometry,
    index: Option<IndexInfo>,
    ino: InodeNo,
    inode: Inode,
    bytes: RefCell<Vec<u8>>,
    /// Every block the directory has, and how many of them are in use.
    pool: Vec<BlockNo>,
    used: Cell<u32>,
    indexed: Cell<bool>,
}

impl Disk {
    fn open(path: PathBuf, ino: InodeNo) -> Result<Self, Skip> {
        let bytes = std::fs::read(&path).unwrap();
        let superblock = Superblock::read(&bytes[1024..]).unwrap();
        let geometry = superblock.check(bytes.len() as u64).unwrap();
        let size = geometry.block_len();
        let place = geometry.inode_location(ino).unwrap();
        let (block, offset) = geometry.desc_location(place.group);
        let desc = GroupDesc::read(&bytes[block.0 as usize * size + offset..]).unwrap();
        let table = desc.inode_table.0 as usize + place.table_block as usize;
        let inode = Inode::read(&geometry, &bytes[table * size + place.offset..]).unwrap();
        let count = inode.size as usize / size;
        let requests: Vec<_> = (0..count).map(|n| format!("bmap <{ino}> {n}")).collect();
        let requests: Vec<_> = requests.iter().map(String::as_str).collect();
        let answer = debugfs(&path, false, &requests)?;
        let pool: Vec<_> = answer.lines().filter_map(|l| l.parse().ok()).map(BlockNo).collect();
        assert_eq!(pool.len(), count, "{answer}");
        let (used, indexed) = (Cell::new(count as u32), Cell::new(inode.has_flag(INDEX)));
        let index = IndexInfo::of(&superblock);
        let bytes = RefCell::new(bytes);
        Ok(Self { path, geometry, index, ino, inode, bytes, pool, used, indexed })
    }

    fn range(&self, n: FileBlock) -> std::ops::Range<usize> {
        let size = self.geometry.block_len();
        let start = self.pool[n.get() as usize].0 as usize * size;
        start..start + size
    }

    fn all(&self) -> BTreeMap<Vec<u8>, u32> {
        let mut all = BTreeMap::new();
        iterate::iterate(self, &mut Cursor::new(), |e| {
            assert!(all.insert(e.name.to_vec(), e.ino.get()).is_none());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(all.remove(&b"."[..]), Some(self.ino.get()));
        assert_eq!(all.remove(&b".."[..]), Some(2));
        all
    }

    fn lookup(&self, name: &[u8]) -> Option<u32> {
        let spot = lookup::locate(self, Name::new(name).unwrap()).unwrap();
        spot.map(|spot| spot.found.ino.get())
    }

    /// Writes the blocks back and gives the inode the size and flag that go with them.
    fn store(&self) -> Result<(), Skip> {
        let seal = seal_of(self.info());
        let used = self.used.get();
        for n in (0..used).map(FileBlock) {
            let range = self.range(n);
            (seal.f)(seal.seed, self.pool[n.get() as usize], &mut self.bytes.borrow_mut()[range]);
        }
        std::fs::write(&self.path, &*self.bytes.borrow()).unwrap();
        let flags = (self.inode.flags & !INDEX) | if self.indexed.get() { INDEX } else { 0 };
        let size = u64::from(used) * self.geometry.block_len() as u64;
        let (ino, last) = (self.ino, self.pool.len() - 1);
        let mut requests =
            vec![format!("sif <{ino}> size {size}"), format!("sif <{ino}> flags {flags}")];
        if used as usize <= last {
            requests.insert(0, format!("punch <{ino}> {used} {last}"));
        }
        let requests: Vec<_> = requests.iter().map(String::as_str).collect();
        debugfs(&self.path, true, &requests)?;
        Ok(())
    }
}

impl Pages for Disk {
    type Image = Vec<u8>;
    type Error = DirError;

    fn info(&self) -> DirInfo<'_> {
        let seed = self.inode.csum_seed(&self.geometry, self.ino);
        DirInfo { ino: self.ino, geometry: &self.geometry, seed, index: self.index }
    }

    fn blocks(&self) -> u32 {
        self.used.get()
    }

    fn is_indexed(&self) -> bool {
        self.indexed.get() && self.index.is_some()
    }

    fn image(&self, n: FileBlock) -> Result<Vec<u8>, DirError> {
        Ok(self.bytes.borrow()[self.range(n)].to_vec())
    }

    fn number(&self, n: FileBlock) -> Option<BlockNo> {
        Some(self.pool[n.get() as usize])
    }
}

impl PagesMut for Disk {
    fn update<R>(&self, n: FileBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, DirError> {
        Ok(f(&mut self.bytes.borrow_mut()[self.range(n)]))
    }

    fn append(&self) -> Result<FileBlock, DirError> {
        let n = FileBlock(self.used.get());
        assert!((n.get() as usize) < self.pool.len(), "the pool is used up");
        self.used.set(n.get() + 1);
        let range = self.range(n);
        self.bytes.borrow_mut()[range].fill(0);
        Ok(n)
    }

    fn set_indexed(&self) -> Result<(), DirError> {
        self.indexed.set(true);
        Ok(())
    }
}

fn random_name(rng: &mut Rng, number: u32, high: bool) -> Vec<u8> {
    let mut name = format!("{number:x}-").into_bytes();
    for _ in 0..rng.below(40) {
        let byte = if high { 0x80 + rng.below(0x80) } else { 0x61 + rng.below(26) };
        name.push(byte as u8);
    }
    name
}

/// Fills a directory by the kernel and returns its inode and what it holds.
fn fill(image: &std::path::Path) -> Result<(InodeNo, BTreeMap<Vec<u8>, u32>), Skip> {
    let mount = KernelMount::new(image, Access::ReadWrite)?;
    let dir = mount.join("d");
    std::fs::create_dir(&dir).unwrap();
    let mut rng = Rng::new(5);
    let mut model = BTreeMap::new();
    for number in 0..2500 {
        let name = random_name(&mut rng, number, number % 2 == 0);
        let path = dir.join(std::ffi::OsStr::from_bytes(&name));
        std::fs::write(&path, b"").unwrap();
        model.insert(name, std::fs::metadata(&path).unwrap().ino() as u32);
    }
    // What is left fits into fewer blocks, in any order.
    model.retain(|name, ino| {
        let keep = *ino % 5 >= 2;
        if !keep {
            std::fs::remove_file(dir.join(std::ffi::OsStr::from_bytes(name))).unwrap();
        }
        keep
    });
    let ino = std::fs::metadata(&dir).unwrap().ino() as u32;
    mount.unmount();
    Ok((InodeNo(ino), model))
}

/// Builds the directory anew, with other names for the same inodes, in random order.
fn rebuild(disk: &Disk, inodes: impl Iterator<Item = u32>) -> BTreeMap<Vec<u8>, u32> {
    disk.used.set(0);
    disk.indexed.set(false);
    init::init(disk, InodeNo(2)).unwrap();
    let mut rng = Rng::new(9);
    let mut model = BTreeMap::new();
    for (number, ino) in inodes.enumerate() {
        let name = random_name(&mut rng, number as u32, number % 3 == 0);
        let slot = NewEntry::new(InodeNo(ino), FileType::Regular, &name);
        insert::insert(disk, slot).unwrap();
        if rng.percent(20) {
            // Some names change again, so that records are freed and used anew.
            remove::remove(disk, Name::new(&name).unwrap()).unwrap();
            let name = random_name(&mut rng, number as u32 + 10_000, number % 3 == 1);
            insert::insert(disk, NewEntry::new(InodeNo(ino), FileType::Regular, &name)).unwrap();
            model.insert(name, ino);
        } else {
            model.insert(name, ino);
        }
    }
    model
}

fn kernel_reads_and_changes(disk: &Disk, model: &BTreeMap<Vec<u8>, u32>) -> Result<(), Skip> {
    let mount = KernelMount::new(&disk.path, Access::ReadWrite)?;
    let dir = mount.join("d");
    let listed: BTreeMap<_, _> = std::fs::read_dir(&dir)
        .unwrap()
        .map(Result::unwrap)
        .map(|e| {
            (e.file_name().as_bytes().to_vec(), std::os::unix::fs::DirEntryExt::ino(&e) as u32)
        })
        .collect();
    assert!(listed == *model, "the kernel lists other names");
    for (name, ino) in model {
        let path = dir.join(std::ffi::OsStr::from_bytes(name));
        assert_eq!(std::fs::metadata(path).unwrap().ino() as u32, *ino);
    }
    for n in 0..500 {
        std::fs::write(dir.join(format!("by the kernel {n}")), b"").unwrap();
    }
    mount.unmount();
    assert_clean(&disk.path);
    Ok(())
}

fn both_ways(args: &[&str], hash: Option<&str>) -> Result<(), Skip> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("image");
    mke2fs(&path, 24 << 20, args)?;
    if let Some(hash) = hash {
        debugfs(&path, true, &[&format!("ssv def_hash_version {hash}")])?;
    }
    let (ino, model) = fill(&path)?;
    let disk = Disk::open(path.clone(), ino)?;
    for n in (0..disk.blocks()).map(FileBlock) {
        check_block(disk.info(), &disk.image(n).unwrap()).unwrap();
    }
    assert!(disk.all() == model, "other names are listed here");
    for (name, ino) in &model {
        assert_eq!(disk.lookup(name), Some(*ino));
    }
    assert_eq!(disk.is_indexed(), disk.index.is_some());

    let model = rebuild(&disk, model.values().copied());
    assert_eq!(disk.is_indexed(), disk.index.is_some());
    disk.store()?;
    assert_clean(&path);
    kernel_reads_and_changes(&disk, &model)
}

#[test]
fn the_kernel_and_e2fsck_agree() {
    let cases: [(&[&str], Option<&str>); 7] = [
        (&["-t", "ext4", "-b", "1024"], None),
        (&["-t", "ext4", "-b", "4096"], None),
        (&["-t", "ext4", "-b", "2048", "-O", "^metadata_csum"], None),
        (&["-t", "ext4", "-b", "4096", "-O", "^dir_index"], None),
        (&["-t", "ext4", "-b", "1024"], Some("legacy")),
        (&["-t", "ext4", "-b", "1024", "-O", "metadata_csum_seed"], Some("tea")),
        (&["-b", "1024", "-t", "ext2", "-O", "^filetype"], None),
    ];
    for (args, hash) in cases {
        if let Err(skip) = both_ways(args, hash) {
            return skip.note();
        }
    }
}

#[test]
fn two_hundred_thousand_names() {
    let dir = Fake::new(4096, true, Some(1));
    let name = |n: u32| format!("a file with number {n}");
    for n in 0..200_000 {
        dir.insert(name(n).as_bytes(), n + 100).unwrap();
    }
    for n in (0..200_000).step_by(101) {
        assert_eq!(dir.lookup(name(n).as_bytes()).unwrap(), Some(n + 100));
    }
    let mut cursor = Cursor::new();
    let mut seen = vec![false; 200_000];
    loop {
        let some = dir.scan(&mut cursor, 997).unwrap();
        if some.is_empty() {
            break;
        }
        for (_, ino) in some.iter().filter(|(name, _)| name.len() > 2) {
            assert!(!std::mem::replace(&mut seen[*ino as usize - 100], true));
        }
        cursor = Cursor::from_cookie(cursor.cookie());
    }
    assert!(seen.iter().all(|seen| *seen));
}
