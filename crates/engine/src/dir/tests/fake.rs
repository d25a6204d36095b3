//! A directory in a vector of blocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref};
use std::rc::Rc;

use nextent_ondisk::dirent::NewEntry;
use nextent_ondisk::{BlockNo, FileBlock, FileType, Geometry, InodeNo, Superblock};

use crate::dir::pages::{Pages, PagesMut};
use crate::dir::{Cursor, DirError, DirInfo, IndexInfo, Name, insert, iterate, lookup, remove};

/// The image of a block.
pub(super) struct Bytes(Rc<Vec<u8>>);

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

pub(super) struct Fake {
    pub(super) geometry: Geometry,
    pub(super) index: Option<IndexInfo>,
    pub(super) blocks: RefCell<Vec<Rc<Vec<u8>>>>,
    pub(super) indexed: Cell<bool>,
}

/// The numbers of a volume with blocks of this size.
pub(super) fn geometry(block_size: u32, features: &str) -> Geometry {
    let mut sb = Superblock::empty();
    sb.log_block_size.set(2);
    sb.log_cluster_size.set(2);
    sb.blocks_per_group.set(32768);
    sb.clusters_per_group.set(32768);
    sb.inodes_per_group.set(8192);
    sb.set_blocks_count(100_000);
    sb.inodes_count.set(4 * 8192);
    sb.first_ino.set(11);
    sb.inode_size.set(256);
    let mut geometry = sb.check(u64::MAX).unwrap();
    geometry.block_size = block_size;
    geometry.inodes_count = 1 << 24;
    geometry.features.apply(features).unwrap();
    geometry
}

impl Fake {
    /// An empty directory; `version` is the hash: 0 to 2, plus 3 for unsigned.
    pub(super) fn new(block_size: u32, csum: bool, version: Option<u8>) -> Self {
        let list = if csum { "filetype,metadata_csum" } else { "filetype" };
        Self::with(geometry(block_size, list), version, [1, 2, 3, 4])
    }

    pub(super) fn with(geometry: Geometry, version: Option<u8>, seed: [u32; 4]) -> Self {
        let index = version.map(|v| IndexInfo { code: v % 3, unsigned: v >= 3, seed });
        let (blocks, indexed) = (RefCell::default(), Cell::new(false));
        let fake = Self { geometry, index, blocks, indexed };
        crate::dir::init::init(&fake, InodeNo(2)).unwrap();
        fake
    }

    pub(super) fn insert(&self, name: &[u8], ino: u32) -> Result<(), DirError> {
        insert::insert(self, NewEntry::new(InodeNo(ino), FileType::Regular, name))
    }

    pub(super) fn remove(&self, name: &[u8]) -> Result<u32, DirError> {
        Ok(remove::remove(self, Name::new(name)?)?.ino.get())
    }

    pub(super) fn lookup(&self, name: &[u8]) -> Result<Option<u32>, DirError> {
        Ok(lookup::locate(self, Name::new(name)?)?.map(|spot| spot.found.ino.get()))
    }

    /// At most `max` entries after the cursor.
    pub(super) fn scan(
        &self,
        cursor: &mut Cursor,
        max: usize,
    ) -> Result<Vec<(Vec<u8>, u32)>, DirError> {
        let mut out = Vec::new();
        iterate::iterate(self, cursor, |e| {
            if out.len() == max {
                return ControlFlow::Break(());
            }
            out.push((e.name.to_vec(), e.ino.get()));
            ControlFlow::Continue(())
        })?;
        Ok(out)
    }

    /// All names but `.` and `..`; a name seen twice is a failure.
    pub(super) fn all(&self) -> BTreeMap<Vec<u8>, u32> {
        let mut all = BTreeMap::new();
        for (name, ino) in self.scan(&mut Cursor::new(), usize::MAX).unwrap() {
            assert!(all.insert(name.clone(), ino).is_none(), "{name:?} came twice");
        }
        assert_eq!(all.remove(&b"."[..]), Some(12));
        assert_eq!(all.remove(&b".."[..]), Some(2));
        all
    }
}

impl Fake {
    /// Changes a byte behind the verbs' back.
    pub(super) fn poke(&self, block: usize, at: usize, value: u8) {
        Rc::make_mut(&mut self.blocks.borrow_mut()[block])[at] = value;
    }
}

impl Pages for Fake {
    type Image = Bytes;
    type Error = DirError;

    fn info(&self) -> DirInfo<'_> {
        let Self { geometry, index, .. } = self;
        DirInfo { ino: InodeNo(12), geometry, seed: 0x1234_5678, index: *index }
    }

    fn blocks(&self) -> u32 {
        self.blocks.borrow().len() as u32
    }

    fn is_indexed(&self) -> bool {
        self.indexed.get()
    }

    fn image(&self, n: FileBlock) -> Result<Bytes, DirError> {
        Ok(Bytes(self.blocks.borrow()[n.get() as usize].clone()))
    }

    fn number(&self, n: FileBlock) -> Option<BlockNo> {
        Some(BlockNo(1000 + u64::from(n.get())))
    }
}

impl PagesMut for Fake {
    fn update<R>(&self, n: FileBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, DirError> {
        Ok(f(Rc::make_mut(&mut self.blocks.borrow_mut()[n.get() as usize]).as_mut_slice()))
    }

    fn append(&self) -> Result<FileBlock, DirError> {
        let mut blocks = self.blocks.borrow_mut();
        blocks.push(Rc::new(vec![0; self.geometry.block_len()]));
        Ok(FileBlock(blocks.len() as u32 - 1))
    }

    fn set_indexed(&self) -> Result<(), DirError> {
        self.indexed.set(true);
        Ok(())
    }
}
