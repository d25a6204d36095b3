//! Orphans: inodes without names that a mount will delete or finish truncating.

use nextent_sync::HashSet;

use nextent_ondisk::{BlockNo, Compat, Inode, InodeNo, RoCompat, orphan};

use super::image::Image;
use super::report::Problem;
use super::walk;

/// All orphans, from the chain in the superblock and from the orphan file.
pub(super) fn collect(image: &Image) -> HashSet<InodeNo> {
    let mut found = HashSet::default();
    let mut next = InodeNo(image.sb.last_orphan.get());
    while next.0 != 0 {
        let sound = !image.geo.is_reserved_inode(next) && next.0 <= image.geo.inodes_count;
        let inode = if sound { image.inode(0, next) } else { None };
        let Some((inode, _)) = inode.filter(|_| found.insert(next)) else {
            let text = format!("the list of orphans leads to inode {next}, which cannot be");
            image.push(Problem::error(0, "orphan-list", text));
            break;
        };
        next = InodeNo(inode.dtime);
    }
    if !found.is_empty() && !image.unclean {
        let text = format!("{} orphans are listed, though it was closed cleanly", found.len());
        image.push(Problem::error(0, "orphan-list", text));
    }
    let listed = found.len();
    let has_file = image.geo.features.has(Compat::ORPHAN_FILE);
    if has_file {
        from_file(image, &mut found);
    }
    let said = image.geo.features.has(RoCompat::ORPHAN_PRESENT);
    if said && (!has_file || (found.len() == listed && !image.unclean)) {
        let text = "orphan_present is set, but no orphan file has any";
        image.push(Problem::error(0, "orphan-file", text));
    }
    if !found.is_empty() {
        let text = format!("{} orphans wait for a mount to finish them", found.len());
        image.push(Problem::note(0, "orphans", text));
    }
    found
}

/// The orphan file; pass 1 checks its blocks.
fn from_file(image: &Image, found: &mut HashSet<InodeNo>) {
    let ino = InodeNo(image.sb.orphan_file_inum.get());
    let Some((inode, _)) = image.inode(0, ino) else {
        let text = format!("the orphan file, inode {ino}, cannot be read");
        image.push(Problem::error(0, "orphan-file", text));
        return;
    };
    for no in blocks_of_file(image, 0, ino, &inode) {
        let Some(block) = image.block(0, no) else { continue };
        if orphan::check(&image.geo, &block).is_ok() {
            for (_, orphan) in orphan::orphans(&block) {
                if image.geo.is_reserved_inode(orphan) || orphan == ino {
                    let text = format!("the orphan file lists inode {orphan}, which cannot be");
                    image.push(Problem::error(0, "orphan-file", text).at_block(no));
                } else {
                    found.insert(orphan);
                }
            }
        }
    }
}

/// The blocks of the orphan file that a mount reads: as many as its size says, and at most
/// [`orphan::MAX_BLOCKS`], whatever its map holds.
pub(super) fn blocks_of_file(
    image: &Image,
    pass: u8,
    ino: InodeNo,
    inode: &Inode,
) -> impl Iterator<Item = BlockNo> {
    let count = (inode.size >> image.geo.block_bits).min(orphan::MAX_BLOCKS);
    walk::runs(image, pass, ino, inode).runs.into_iter().flat_map(move |run| {
        let len = count.saturating_sub(run.block.0.into()).min(run.len.into());
        (run.start.0..run.start.0 + len).map(BlockNo)
    })
}
