//! Passes 3 and 4: every directory is connected to the root, and link counts are right.

use nextent_num::low_half;
use nextent_sync::HashSet;

use nextent_ondisk::{DiskTime, GroupNo, InodeNo, RoCompat, numbers};
use nextent_sync::atomic::Ordering;

use super::image::Image;
use super::inodes::{Inodes, is, kind};
use super::report::Problem;

/// The highest link count; a directory with more links has the count 1.
const MAX_LINKS: u32 = 65000;

/// Pass 3: follows each directory to the root; each step is taken once.
pub(super) fn connected(image: &Image, inodes: &Inodes) {
    let mut reached = HashSet::from_iter([numbers::ROOT_INO]);
    let mut lost = HashSet::default();
    let mut groups: Vec<_> = inodes.groups().collect();
    groups.sort_unstable_by_key(|(number, _)| *number);
    for (number, group) in groups {
        for (index, place) in group.dirs() {
            let ino = image.geo.inode_at(number, index);
            let parent = InodeNo(place.parent.load(Ordering::Relaxed));
            let dotdot = InodeNo(place.dotdot.load(Ordering::Relaxed));
            let parent = if ino == numbers::ROOT_INO { ino } else { parent };
            if dotdot.0 != 0 && parent.0 != 0 && dotdot != parent {
                let text = format!("its .. leads to inode {dotdot}, should lead to {parent}");
                image.push(Problem::error(3, "dotdot", text).at_inode(ino));
            }
            let orphan = group.mark(index).flags & is::ORPHAN != 0;
            if !orphan {
                climb(image, inodes, ino, &mut reached, &mut lost);
            }
        }
    }
}

/// Walks up from `ino` to the first directory that is known to be connected.
fn climb(
    image: &Image,
    inodes: &Inodes,
    ino: InodeNo,
    reached: &mut HashSet<InodeNo>,
    lost: &mut HashSet<InodeNo>,
) {
    let mut way = Vec::new();
    let mut on_way = HashSet::default();
    let mut at = ino;
    let whole = loop {
        if reached.contains(&at) {
            break true;
        }
        if lost.contains(&at) {
            break false;
        }
        let parent = inodes.place(at).map_or(0, |place| place.parent.load(Ordering::Relaxed));
        let looped = !on_way.insert(at);
        way.push(at);
        if looped || parent == 0 {
            let what = if looped { "contains itself" } else { "has no name" };
            let text = format!("the directory {what}: it does not hang from the root");
            image.push(Problem::error(3, "unconnected", text).at_inode(at));
            break false;
        }
        at = InodeNo(parent);
    };
    let set = if whole { reached } else { lost };
    set.extend(way);
}

/// Pass 4: compares the link count of every inode in use with the names found.
pub(super) fn links(image: &Image, inodes: &Inodes) {
    nextent_sync::parallel_for(image.workers, (0..image.geo.group_count).map(GroupNo), |number| {
        let Some(group) = inodes.group(number) else { return };
        for (index, mark) in (0u32..).zip(&group.marks) {
            let special = is::HIDDEN | is::ORPHAN;
            if !mark.in_use() || mark.flags & special != 0 {
                continue;
            }
            let ino = image.geo.inode_at(number, index);
            let (mut found, stored) = (group.links_found(index), u32::from(mark.links));
            if mark.flags & is::EA_INODE != 0 && found > 0 {
                value_references(image, ino, found);
                found = 1;
            }
            let directory = mark.kind == kind::DIRECTORY;
            let many = directory
                && stored == 1
                && image.geo.features.has(RoCompat::DIR_NLINK)
                && found > MAX_LINKS;
            if found == 0 && !directory {
                let text = "in use, but no directory has a name for it";
                image.push(Problem::error(4, "unattached", text).at_inode(ino));
            } else if found != stored && !many {
                let text = format!("the link count is {stored}, should be {found}");
                image.push(Problem::error(4, "link-count", text).at_inode(ino));
            }
        }
    });
}

/// Compares the references that the inode of an attribute's value counts with those found.
fn value_references(image: &Image, ino: InodeNo, found: u32) {
    let Some((inode, _)) = image.inode(4, ino) else { return };
    let low = |time: DiskTime| u64::from(time.to_words().0);
    let stored = low(inode.ctime) << 32 | u64::from(low_half(inode.version));
    // Inodes that Lustre made count nothing.
    let lustre = inode.ctime == inode.atime;
    if stored != u64::from(found) && !lustre {
        let text = format!("holds a value of {found} attributes, counts {stored}");
        image.push(Problem::error(4, "value-references", text).at_inode(ino));
    }
}
