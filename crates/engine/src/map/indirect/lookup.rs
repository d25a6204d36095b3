//! Reads an indirect map.

use super::super::{END_OF_BLOCKS, Extent, ExtentState, MapCx, MapRoot, Mapping};
use super::path::{Path, check, read_table};
use super::table::{self, DIRECT, PointerPos};
use crate::error::Result;
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, FileBlock, Structure};

/// See [`super::super::lookup`].
pub(in super::super) fn lookup(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: u32,
    max: u32,
) -> Result<Mapping> {
    let mut goal = None;
    let mut len = 0u64;
    while len < u64::from(max) {
        let here = at + must_fit::<u32, _>(len);
        if PointerPos::of(cx.geometry, here).is_none() {
            len = u64::from(max);
            break;
        }
        let path = Path::find(cx, root, here)?;
        let pos = &path.pos;
        if !path.is_whole() {
            len += pos.span(path.found) - pos.offset(path.found);
            continue;
        }
        let image = path.image(path.found, root);
        if path.pointer != 0 {
            if len > 0 {
                break;
            }
            let end = pos.end_slot().min(pos.slot().saturating_add(max));
            let len = table::run(&image, pos.slot(), end);
            check(cx, path.pointer, len, path.number(path.found))?;
            return Ok(Mapping::Written { start: BlockNo(u64::from(path.pointer)), len });
        }
        if len == 0 {
            goal = goal_before(&image, pos.slot());
        }
        len += u64::from(table::zeros(&image, pos.slot(), pos.end_slot()));
    }
    Ok(Mapping::Hole { len: must_fit(len.min(u64::from(max))), goal })
}

/// See [`super::super::lookup_near`].
pub(in super::super) fn lookup_near(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: u32,
    max: u32,
    near: &mut Vec<Extent>,
) -> Result<Mapping> {
    let found = lookup(cx, root, at, max)?;
    if matches!(found, Mapping::Written { .. }) {
        near.extend(next_extent(cx, root, at)?);
    }
    Ok(found)
}

/// See [`super::super::next_extent`].
pub(in super::super) fn next_extent(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: u32,
) -> Result<Option<Extent>> {
    let mut at = at;
    while at < END_OF_BLOCKS.get() {
        match lookup(cx, root, at, END_OF_BLOCKS.get() - at)? {
            Mapping::Hole { len, .. } => at += len,
            Mapping::Written { start, len } | Mapping::Unwritten { start, len } => {
                let (at, state) = (FileBlock(at), ExtentState::Written);
                return Ok(Some(Extent { at, start, len, state }));
            }
        }
    }
    Ok(None)
}

/// The block for `slot` that is contiguous with the nearest pointer before it.
fn goal_before(image: &[u8], slot: u32) -> Option<BlockNo> {
    let near = (0..slot).rev().find(|&i| table::pointer(image, i) != 0)?;
    Some(BlockNo(u64::from(table::pointer(image, near)) + u64::from(slot - near)))
}

/// Calls `f` with the block and the height of each table, parents first.
pub(in super::super) fn visit_nodes(
    cx: &MapCx<'_>,
    root: &MapRoot,
    f: &mut dyn FnMut(BlockNo, u32),
) -> Result<()> {
    // Many pointers of a damaged image may lead to one table. No valid map has more tables than the
    // volume has blocks.
    let mut left = cx.geometry.blocks_count;
    for height in 0..3 {
        let pointer = table::pointer(root.bytes(), DIRECT + height);
        visit(cx, pointer, height, None, &mut left, f)?;
    }
    Ok(())
}

fn visit(
    cx: &MapCx<'_>,
    pointer: u32,
    height: u32,
    from: Option<BlockNo>,
    left: &mut u64,
    f: &mut dyn FnMut(BlockNo, u32),
) -> Result<()> {
    if pointer == 0 {
        return Ok(());
    }
    *left = left.checked_sub(1).ok_or_else(|| {
        cx.corrupt(Structure::IndirectBlock, from, "table used many times", u64::from(pointer))
    })?;
    check(cx, pointer, 1, from)?;
    let no = BlockNo(u64::from(pointer));
    f(no, height);
    if height == 0 {
        return Ok(());
    }
    let (_, image) = read_table(cx, pointer, from)?;
    for slot in 0..must_fit::<u32, _>(image.len() / 4) {
        visit(cx, table::pointer(&image, slot), height - 1, Some(no), left, f)?;
    }
    Ok(())
}
