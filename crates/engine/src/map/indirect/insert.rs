//! Maps a hole of an indirect map.

use super::super::{BlockRun, ExtentState, MapCx, MapRoot};
use super::path::Path;
use super::table;
use crate::error::{Error, Result};
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, Structure};
use nextent_store::{Handle, Seal};

/// See [`super::super::insert`].
pub(in super::super) fn insert(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    at: u32,
    run: BlockRun,
    state: ExtentState,
) -> Result<u32> {
    if state == ExtentState::Unwritten {
        return Err(Error::NotSupported);
    }
    let last = run.start.get() + u64::from(run.len) - 1;
    if u32::try_from(last).is_err() {
        return Err(Error::TooBig);
    }
    let mut done = 0;
    while done < run.len {
        let start = must_fit::<u32, _>(run.start.get()) + done;
        match insert_into_table(cx, h, root, at + done, start, run.len - done) {
            Ok(n) => {
                root.add_change(i64::from(n));
                done += n;
            }
            Err(Error::NoSpace) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Sets the pointers of one table, and returns how many.
fn insert_into_table(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    at: u32,
    start: u32,
    len: u32,
) -> Result<u32> {
    let path = Path::find(cx, root, at)?;
    let slot = path.pos.slot();
    let n = len.min(path.pos.end_slot() - slot);
    let fill = |bytes: &mut [u8]| {
        (0..n).for_each(|i| table::set_pointer(bytes, slot + i, start + i));
    };
    if !path.is_whole() {
        branch(cx, h, root, &path, fill)?;
        return Ok(n);
    }
    let free = table::zeros(&path.image(path.found, root), slot, slot + n);
    if free < n {
        let (what, no) = (Structure::IndirectBlock, path.number(path.found));
        return Err(cx.corrupt(what, no, "mapped file block in a hole", (at + free).into()));
    }
    path.edit(h, root, path.found, fill);
    Ok(n)
}

/// Adds the missing tables; `fill` fills the last one. Links them into the map when they are
/// complete.
fn branch(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    fill: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let mut new = [0u32; 3];
    let missing = path.pos.depth - path.found;
    let mut near = path.number(path.found);
    for i in 0..missing {
        match allocate(cx, h, root, near) {
            Ok(no) => {
                new[i] = no;
                near = Some(BlockNo(u64::from(no)));
            }
            Err(error) => {
                for no in &new[..i] {
                    cx.free_node(h, root, BlockNo(u64::from(*no)))?;
                }
                return Err(error);
            }
        }
    }
    let create = |no: u32| h.create(BlockNo(u64::from(no)), Seal::NONE);
    h.update(&create(new[missing - 1]), fill);
    for i in (0..missing - 1).rev() {
        let slot = path.pos.slots[path.found + 1 + i];
        h.update(&create(new[i]), |bytes| table::set_pointer(bytes, slot, new[i + 1]));
    }
    let slot = path.pos.slots[path.found];
    path.edit(h, root, path.found, |bytes| table::set_pointer(bytes, slot, new[0]));
    Ok(())
}

/// Allocates a block for a table. Fails if its number does not fit into a pointer.
fn allocate(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    near: Option<BlockNo>,
) -> Result<u32> {
    let no = cx.allocate_node(h, root, near)?;
    match u32::try_from(no.get()) {
        Ok(no) => Ok(no),
        Err(_) => {
            cx.free_node(h, root, no)?;
            Err(Error::NoSpace)
        }
    }
}
