//! A directory in a vector of blocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use nextent_ondisk::{BlockNo, FileBlock, InodeNo};

use crate::dir::pages::{BlockKind, Pages, PagesMut};
use crate::dir::{Cursor, DirError, DirInfo, IndexInfo, Name, insert, iterate, lookup, remove};

pub(super) struct Fake {
    pub(super) info: DirInfo,
    pub(super) blocks: RefCell<Vec<(BlockKind, Vec<u8>)>>,
    pub(super) indexed: Cell<bool>,
}

pub(super) fn info(block_size: usize, csum: bool, version: Option<u8>) -> DirInfo {
    DirInfo {
        ino: InodeNo(12),
        block_size,
        inodes_count: u32::MAX,
        filetype: true,
        csum: csum.then_some(0x1234_5678),
        index: version.map(|version| IndexInfo {
            version: version % 3,
            unsigned: version >= 3,
            seed: [1, 2, 3, 4],
            max_levels: 2,
        }),
    }
}

impl Fake {
    pub(super) fn new(info: DirInfo) -> Self {
        let fake = Self { info, blocks: RefCell::new(Vec::new()), indexed: Cell::new(false) };
        crate::dir::init::init(&fake, InodeNo(2)).unwrap();
        fake
    }

    pub(super) fn insert(&self, name: &[u8], ino: u32) -> Result<(), DirError> {
        let new = insert::New { name: Name::new(name)?, ino: InodeNo(ino), ftype: (ino % 8) as u8 };
        insert::insert(self, new)
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

impl Pages for Fake {
    type Image = Vec<u8>;
    type Error = DirError;

    fn info(&self) -> &DirInfo {
        &self.info
    }

    fn blocks(&self) -> u32 {
        self.blocks.borrow().len() as u32
    }

    fn is_indexed(&self) -> bool {
        self.indexed.get()
    }

    fn image(&self, n: FileBlock) -> Result<Vec<u8>, DirError> {
        Ok(self.blocks.borrow()[n.get() as usize].1.clone())
    }

    fn number(&self, n: FileBlock) -> Option<BlockNo> {
        Some(BlockNo(1000 + u64::from(n.get())))
    }
}

impl PagesMut for Fake {
    fn update<R>(
        &self,
        n: FileBlock,
        kind: BlockKind,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, DirError> {
        let mut blocks = self.blocks.borrow_mut();
        let block = &mut blocks[n.get() as usize];
        block.0 = kind;
        Ok(f(&mut block.1))
    }

    fn append(&self, kind: BlockKind) -> Result<FileBlock, DirError> {
        let mut blocks = self.blocks.borrow_mut();
        blocks.push((kind, vec![0; self.info.block_size]));
        Ok(FileBlock(blocks.len() as u32 - 1))
    }

    fn set_indexed(&self) -> Result<(), DirError> {
        self.indexed.set(true);
        Ok(())
    }
}
