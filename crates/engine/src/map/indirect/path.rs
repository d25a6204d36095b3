//! The path from the root to the table with a block's pointer.

use super::super::extents::Image;
use super::super::{MapCx, MapRoot, system_blocks};
use super::table::{self, PointerPos};
use crate::error::{Error, Result};
use nextent_ondisk::{BlockNo, Structure};
use nextent_store::{BlockRef, Buf, Handle};

/// The path to a pointer, as far as tables exist. Valid until the map changes.
pub(super) struct Path {
    pub(super) pos: PointerPos,
    /// The tables on the path, from below the root.
    tables: [Option<BlockRef>; 3],
    /// The number of tables on the path.
    pub(super) found: usize,
    /// The last pointer of the path: the block's pointer, or 0.
    pub(super) pointer: u32,
}

/// Checks that `pointer`, read from the table `from`, leads to `len` blocks in the volume.
pub(super) fn check(cx: &MapCx<'_>, pointer: u32, len: u32, from: Option<BlockNo>) -> Result<()> {
    if cx.geometry.holds_run(BlockNo(u64::from(pointer)), u64::from(len)) {
        return Ok(());
    }
    let what = Structure::IndirectBlock;
    Err(cx.corrupt(what, from, "pointer outside the volume", u64::from(pointer)))
}

/// Reads the table that `pointer`, read from the table `from`, leads to.
pub(super) fn read_table(
    cx: &MapCx<'_>,
    pointer: u32,
    from: Option<BlockNo>,
) -> Result<(BlockRef, Buf)> {
    check(cx, pointer, 1, from)?;
    let block = cx.store.read(BlockNo(u64::from(pointer)), |_| Ok::<_, Error>(()))?;
    let image = block.image();
    system_blocks::check_once(cx, &block, &image, system_blocks::TABLE)?;
    Ok((block, image))
}

impl Path {
    /// The path to block `at`.
    pub(super) fn find(cx: &MapCx<'_>, root: &MapRoot, at: u32) -> Result<Self> {
        let pos = PointerPos::of(cx.geometry, at).ok_or_else(|| Error::TooBig)?;
        let pointer = table::pointer(root.bytes(), pos.slots[0]);
        let mut path = Self { pos, tables: [const { None }; 3], found: 0, pointer };
        while path.found < pos.depth && path.pointer != 0 {
            let (block, image) = read_table(cx, path.pointer, path.number(path.found))?;
            path.tables[path.found] = Some(block);
            path.found += 1;
            path.pointer = table::pointer(&image, pos.slots[path.found]);
        }
        if path.pointer != 0 {
            check(cx, path.pointer, 1, path.number(path.found))?;
        }
        Ok(path)
    }

    /// Whether the table with the block's pointer exists.
    pub(super) fn is_whole(&self) -> bool {
        self.found == self.pos.depth
    }

    /// The block of the table at `level`; none for the root, level 0.
    pub(super) fn number(&self, level: usize) -> Option<BlockNo> {
        Some(self.tables[level.checked_sub(1)?].as_ref()?.number())
    }

    /// The bytes of the table at `level`.
    pub(super) fn image<'a>(&self, level: usize, root: &'a MapRoot) -> Image<'a> {
        match level.checked_sub(1).and_then(|i| self.tables[i].as_ref()) {
            Some(block) => Image::Block(block.image()),
            None => Image::Root(root.bytes()),
        }
    }

    /// Changes the bytes of the table at `level`.
    pub(super) fn edit(
        &self,
        h: &Handle<'_>,
        root: &mut MapRoot,
        level: usize,
        change: impl FnOnce(&mut [u8]),
    ) {
        match level.checked_sub(1).and_then(|i| self.tables[i].as_ref()) {
            Some(block) => h.update(block, change),
            None => change(root.bytes_mut()),
        }
    }
}
