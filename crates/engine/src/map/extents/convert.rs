//! Making many runs of blocks written: one walk of the tree, each leaf changed once.
//!
//! Who converts for many has runs all over a file. What one leaf has of them is done in one visit
//! and one change of its bytes, as far as it has room; only a leaf that is full sends the next run
//! the long way ([`set_state`](super::set_state)), which makes room.

use super::super::{Converted, Extent, MapCx, MapRoot, Progress, State, credits};
use super::edit::Edit;
use super::path::Path;
use super::state::{cut, set_state};
use super::{check, node};
use crate::error::Result;
use nextent_ondisk::extent::{Node, NodeMut};
use nextent_ondisk::{FileBlock, Geometry};
use nextent_store::Handle;
use std::ops::Range;

/// Makes the unwritten blocks of `runs`, which rise, written, as far as the handle's credits go;
/// how far that was. The first run that is not done begins where it is to be gone on with.
pub(in super::super) fn convert_runs(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    runs: &mut [Range<FileBlock>],
) -> Result<Converted> {
    let (mut done, mut changes) = (0, 0);
    while let Some(run) = runs.get_mut(done) {
        let path = Path::find(cx, root, run.start.get())?;
        let image = path.leaf_image(root);
        let bytes: &[u8] = &image;
        let found = first_change(bytes, run, path.bound(), cx.geometry);
        drop(image);
        match found.map_err(|c| cx.place(c, path.number(path.leaf())))? {
            First::Over => {
                done += 1;
                continue;
            }
            First::Later => continue,
            First::Here => {}
        }
        if !h.ensure(credits::edit_credits(root.depth()))? {
            return Ok(Converted { done, changes });
        }
        let (bound, geometry, rest) = (path.bound(), cx.geometry, &mut runs[done..]);
        let leaf = path.leaf();
        let told = path.edit(cx, h, root, leaf, |b| convert_leaf(b, rest, bound, geometry))?;
        done += told.done;
        changes += told.changes;
        if told.full
            && let Some(run) = runs.get_mut(done)
        {
            // By itself, which makes room.
            changes += 1;
            match set_state(cx, h, root, run.start.get()..run.end.get(), State::Written)? {
                Progress::Done => done += 1,
                Progress::Stopped(at) => {
                    run.start = at;
                    return Ok(Converted { done, changes });
                }
            }
        }
    }
    Ok(Converted { done, changes })
}

/// Where the first unwritten block of a run is.
enum First {
    /// There is none.
    Over,
    /// Perhaps in a later leaf; the run begins there now.
    Later,
    /// In this leaf.
    Here,
}

/// Lets `run` begin at its first unwritten block in the leaf `b`, or past the leaf.
fn first_change(
    b: &[u8],
    run: &mut Range<FileBlock>,
    bound: u32,
    geometry: &Geometry,
) -> node::Edited<First> {
    let leaf = Node::new(b)?;
    while run.start < run.end {
        let at = run.start.get();
        if at >= bound {
            return Ok(First::Later);
        }
        let pos = node::upper(leaf, at);
        let covering = match pos.checked_sub(1) {
            Some(i) => {
                let e = Extent::from(leaf.extent(i));
                check::extent(&e, bound, geometry)?;
                Some(e).filter(|e| at < e.end().get())
            }
            None => None,
        };
        run.start = match covering {
            Some(e) => {
                if e.state == State::Unwritten {
                    return Ok(First::Here);
                }
                e.end()
            }
            None if pos < leaf.len() => leaf.key(pos),
            None => FileBlock(bound),
        };
    }
    Ok(First::Over)
}

/// How far a leaf was dealt with.
struct Told {
    /// Runs that are done.
    done: usize,
    /// Extents that were changed.
    changes: usize,
    /// There is no room for the next.
    full: bool,
}

/// Makes what the leaf `b` has of `runs` written. What is wrong with it is told only if it is the
/// first thing that is met; later, what came before is done, and the rest left.
fn convert_leaf(
    b: &mut [u8],
    runs: &mut [Range<FileBlock>],
    bound: u32,
    geometry: &Geometry,
) -> node::Edited<Told> {
    let mut told = Told { done: 0, changes: 0, full: false };
    let room = node::room(Node::new(b)?, b);
    while let Some(run) = runs.get_mut(told.done) {
        match first_change(b, run, bound, geometry) {
            Ok(First::Over) => {
                told.done += 1;
                continue;
            }
            Ok(First::Later) => break,
            Ok(First::Here) => {}
            Err(_) if told.changes > 0 => break,
            Err(corrupt) => return Err(corrupt),
        }
        let mut leaf = NodeMut::new(b)?;
        let view = leaf.view();
        let at = run.start.get();
        let pos = node::upper(view, at);
        let entry = |i: usize| (i < view.len()).then(|| Extent::from(view.extent(i)));
        let Some((first, e)) = pos.checked_sub(1).and_then(|i| Some((i, entry(i)?))) else { break };
        let end = e.end().min(run.end);
        let (pieces, n) = cut(&e, at..end.get(), State::Written);
        let (left, right) = (first.checked_sub(1).and_then(entry), entry(pos));
        let edit = Edit::merged(left, &pieces[..n], right, (first, 1));
        let (from, gone) = edit.old;
        if view.len() - gone + edit.put().len() > room {
            told.full = true;
            break;
        }
        leaf.splice(from, gone, edit.put().iter().map(Into::into));
        told.changes += 1;
        run.start = end;
    }
    Ok(told)
}
