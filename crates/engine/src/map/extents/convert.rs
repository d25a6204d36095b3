//! Converts many runs of unwritten blocks in one walk of the tree, with one change of each leaf.
//!
//! Deferred conversions have runs all over a file. This module converts all runs of a leaf at once,
//! as far as the leaf has room. If the leaf becomes full, [`set_state`](super::set_state) converts
//! the next run, because it can split nodes.

use super::super::{Converted, Extent, ExtentState, MapCx, MapRoot, Progress, credits};
use super::extent_state::{cut, set_state};
use super::path::Path;
use super::{check, node};
use crate::error::Result;
use nextent_ondisk::extent::Node;
use nextent_ondisk::{FileBlock, Geometry};
use nextent_store::Handle;
use std::ops::Range;

/// See [`super::super::convert_runs`].
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
            FirstChange::None => {
                done += 1;
                continue;
            }
            FirstChange::LaterLeaf => continue,
            FirstChange::ThisLeaf => {}
        }
        if !h.ensure(credits::edit_credits(root.depth()))? {
            return Ok(Converted { done, changes });
        }
        let (bound, geometry, rest) = (path.bound(), cx.geometry, &mut runs[done..]);
        let leaf = path.leaf();
        let progress = path.edit(cx, h, root, leaf, |b| convert_leaf(b, rest, bound, geometry))?;
        done += progress.done;
        changes += progress.changes;
        if progress.full
            && let Some(run) = runs.get_mut(done)
        {
            // The leaf is full: `set_state` makes room.
            changes += 1;
            match set_state(cx, h, root, run.start.get()..run.end.get(), ExtentState::Written)? {
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

/// The position of the first unwritten block of a run.
enum FirstChange {
    /// The run has no unwritten block.
    None,
    /// Not in this leaf. The run is cut to begin in the next leaf.
    LaterLeaf,
    /// In this leaf.
    ThisLeaf,
}

/// Cuts `run` to begin at its first unwritten block in the leaf `b`, or after the leaf.
fn first_change(
    b: &[u8],
    run: &mut Range<FileBlock>,
    bound: u32,
    geometry: &Geometry,
) -> node::Edited<FirstChange> {
    let leaf = Node::new(b)?;
    // The next descent begins at the bound, so it must be after the run's start.
    check::check_key_order(bound, run.start.get())?;
    while run.start < run.end {
        let at = run.start.get();
        if at >= bound {
            return Ok(FirstChange::LaterLeaf);
        }
        let pos = node::upper_bound(leaf, at);
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
                if e.state == ExtentState::Unwritten {
                    return Ok(FirstChange::ThisLeaf);
                }
                e.end()
            }
            None if pos < leaf.len() => {
                let next = leaf.key(pos);
                check::check_key_order(next.get(), at)?;
                next
            }
            None => FileBlock(bound),
        };
    }
    Ok(FirstChange::None)
}

/// The progress of a conversion in one leaf.
struct LeafProgress {
    /// Runs that are converted.
    done: usize,
    /// Extents that were changed.
    changes: usize,
    /// The leaf has no room for the next change.
    full: bool,
}

/// The new extents of a leaf, with neighbours merged.
struct Rewrite {
    list: Vec<Extent>,
}

/// Capacity of the list, besides two extents for each run. A list for a whole leaf would be a large
/// allocation, which may call the operating system while the map is locked.
const AROUND: usize = 6;

impl LeafProgress {
    /// Counts the runs that end at or before `at` as done.
    fn complete_before(&mut self, runs: &[Range<FileBlock>], at: FileBlock) {
        self.done += runs[self.done..].iter().take_while(|run| run.end <= at).count();
    }
}

impl Rewrite {
    /// An empty list with capacity for the extents around `runs` runs, at most `most`.
    fn around(runs: usize, most: usize) -> Self {
        Self { list: Vec::with_capacity((AROUND + 2 * runs).min(most)) }
    }

    fn push(&mut self, e: Extent) {
        match self.list.last_mut() {
            Some(last) if node::can_merge(last, &e) => last.len += e.len,
            _ => self.list.push(e),
        }
    }

    /// Adds `e`, with its parts in `runs` converted. Stops converting before the list exceeds
    /// `most` extents.
    fn convert(
        &mut self,
        mut e: Extent,
        runs: &[Range<FileBlock>],
        progress: &mut LeafProgress,
        most: usize,
    ) {
        while e.state == ExtentState::Unwritten {
            progress.complete_before(runs, e.at);
            let Some(run) = runs.get(progress.done).filter(|run| run.start < e.end()) else {
                break;
            };
            let part = run.start.max(e.at).get()..run.end.min(e.end()).get();
            let (pieces, n) = cut(&e, part, ExtentState::Written);
            if self.list.len() + n > most {
                progress.full = true;
                break;
            }
            progress.changes += 1;
            pieces[..n - 1].iter().for_each(|piece| self.push(*piece));
            e = pieces[n - 1];
        }
        self.push(e);
    }
}

/// Converts the parts of `runs` in the leaf `b`, in one pass over its extents from the first run
/// on. A corrupt extent is an error, and changes nothing.
fn convert_leaf(
    b: &mut [u8],
    runs: &mut [Range<FileBlock>],
    bound: u32,
    geometry: &Geometry,
) -> node::Edited<LeafProgress> {
    let leaf = Node::new(b)?;
    let (count, room) = (leaf.len(), node::capacity(leaf, b));
    // The extent before the first run may merge.
    let from =
        runs.first().map_or(0, |run| node::upper_bound(leaf, run.start.get())).saturating_sub(2);
    let mut progress = LeafProgress { done: 0, changes: 0, full: false };
    let mut new = Rewrite::around(runs.len(), room.saturating_sub(from));
    let mut at = from;
    while at < count {
        let over =
            progress.full || runs.get(progress.done).is_none_or(|run| run.start.get() >= bound);
        let e = Extent::from(leaf.extent(at));
        check::extent(&e, bound, geometry)?;
        at += 1;
        if over {
            // The extent after the last change may merge.
            new.push(e);
            break;
        }
        let most = room.saturating_sub(from + count - at);
        new.convert(e, runs, &mut progress, most);
    }
    if !progress.full {
        progress.complete_before(runs, FileBlock(bound));
        if let Some(run) = runs.get_mut(progress.done) {
            run.start = run.start.max(FileBlock(bound));
        }
    }
    if progress.changes > 0 {
        node::splice(b, from, at - from, &new.list)?;
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_does_not_allocate_for_a_whole_leaf() {
        let bytes = |runs| Rewrite::around(runs, 340).list.capacity() * size_of::<Extent>();
        assert!(bytes(1) <= 256, "{}", bytes(1));
        // Two extents before the run, three pieces of its extent, and one after it.
        assert!(Rewrite::around(1, 340).list.capacity() >= 6);
        assert_eq!(Rewrite::around(1000, 340).list.capacity(), 340);
    }
}
