//! Pass 1 again, if blocks were claimed more than once: finds the inodes that claim them.

use nextent_ondisk::inode::translator;
use nextent_ondisk::{BlockNo, GroupNo, InodeNo, RoCompat, numbers};

use super::claims::Claims;
use super::image::Image;
use super::inodes::{Inodes, is, kind};
use super::report::Problem;
use super::walk::{self, Go, Part, Visitor};

/// Looks for the first shared block of one inode.
struct Search<'a> {
    claims: &'a Claims,
    found: Option<BlockNo>,
}

impl Visitor for Search<'_> {
    fn part(&mut self, part: Part) -> Go {
        let (start, len) = match part {
            Part::Node(block) => (block, 1),
            Part::Run(run) => (run.start, u64::from(run.len)),
        };
        self.found = self.claims.shared_in(start, len);
        if self.found.is_some() { Go::Stop } else { Go::On }
    }

    fn wrong(&mut self, _: Problem) {}
}

/// Names every inode that shares a block with another.
pub(super) fn check(image: &Image, claims: &Claims, inodes: &Inodes) {
    if claims.twice.is_empty() {
        return;
    }
    let shares = image.geo.features.has(RoCompat::SHARED_BLOCKS);
    nextent_sync::parallel_for(image.workers, (0..image.geo.group_count).map(GroupNo), |number| {
        let Some(group) = inodes.group(number) else { return };
        for (index, mark) in (0u32..).zip(&group.marks) {
            if !mark.in_use() {
                continue;
            }
            let ino = image.geo.inode_at(number, index);
            let special = [numbers::RESIZE_INO, numbers::BAD_BLOCKS_INO].contains(&ino);
            // Even where files may share, directories and inodes that the superblock names may not.
            let own = mark.kind == kind::DIRECTORY || mark.flags & is::HIDDEN != 0;
            if !special && (own || !shares) {
                inode(image, claims, ino);
            }
        }
    });
}

fn inode(image: &Image, claims: &Claims, ino: InodeNo) {
    let Some((inode, raw)) = image.inode(1, ino) else { return };
    let mut search = Search { claims, found: None };
    let translator = translator(&image.geo, &raw);
    if translator.0 != 0 && image.geo.holds_run(translator, 1) {
        search.found = claims.shared_in(translator, 1);
    }
    if inode.file_acl.0 != 0 && image.geo.holds_run(inode.file_acl, 1) {
        search.found = claims.shared_in(inode.file_acl, 1);
    }
    let mapped = inode.file_type().is_none_or(|kind| super::contents::is_mapped(kind, &inode));
    if search.found.is_none() && mapped {
        walk::walk(image, 1, ino, &inode, &mut search);
    }
    if let Some(block) = search.found {
        let text = "shares this block, maybe more, with another file or with metadata";
        image.push(Problem::error(1, "shared-block", text).at_inode(ino).at_block(block));
    }
}
