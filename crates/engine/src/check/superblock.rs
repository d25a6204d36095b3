//! Pass 0: checks the fields of the superblock apart from the layout, with e2fsck's rules.

use nextent_ondisk::superblock::GOOD_OLD_INODE_SIZE;
use nextent_ondisk::{Compat, Incompat, InodeNo, RoCompat, numbers};

use super::image::Image;
use super::report::Problem;

/// The only character set: UTF-8, Unicode 12.1.
const UTF8_12_1: u16 = 1;

/// Checks the fields on which no layout depends.
pub(super) fn check(image: &Image) {
    let (sb, geo) = (&image.sb, &image.geo);
    let push = |text: String| image.push(Problem::error(0, "superblock", text));
    let reserved = sb.reserved_blocks_count();
    if reserved > geo.blocks_count / 2 {
        push(format!("{reserved} blocks are reserved, more than half of {}", geo.blocks_count));
    }
    let log = sb.log_groups_per_flex;
    if geo.features.has(Incompat::FLEX_BG) && log > 31 {
        push(format!("a flex group has 2^{log} groups, which cannot be"));
    }
    let size = sb.desc_size.get();
    if !geo.features.has(Incompat::BIT64) && size != 0 && !size.is_power_of_two() {
        push(format!("a descriptor has {size} bytes, which cannot be"));
    }
    let room = geo.inode_size - GOOD_OLD_INODE_SIZE;
    for (name, size) in [("least", sb.min_extra_isize.get()), ("wanted", sb.want_extra_isize.get())]
    {
        let fits = size.is_multiple_of(4) && size <= room;
        if room > 0 && size != 0 && !fits {
            push(format!("the {name} extra size of inodes is {size}, which cannot be"));
        }
    }
    let encoding = sb.encoding.get();
    if geo.features.has(Incompat::CASEFOLD) && encoding != UTF8_12_1 {
        push(format!("character set {encoding} is not known"));
    }
    if sb.rev_level.get() == 0 && !geo.features.names().is_empty() {
        let text = "has features, but is of revision 0";
        image.push(Problem::note(0, "revision", text));
    }
    named(image);
}

/// Checks that each inode that the superblock names may be named, and only for one use.
fn named(image: &Image) {
    let (sb, features) = (&image.sb, &image.geo.features);
    let (quota, orphans) = (features.has(RoCompat::QUOTA), features.has(Compat::ORPHAN_FILE));
    let journal = features.has(Compat::HAS_JOURNAL);
    let push = |text: String| image.push(Problem::error(0, "superblock", text));
    let all = [
        ("journal", sb.journal_inum.get(), journal, numbers::JOURNAL_INO),
        ("user quota", sb.usr_quota_inum.get(), quota, numbers::USER_QUOTA_INO),
        ("group quota", sb.grp_quota_inum.get(), quota, numbers::GROUP_QUOTA_INO),
        ("project quota", sb.prj_quota_inum.get(), quota, InodeNo(0)),
        ("orphan file", sb.orphan_file_inum.get(), orphans, InodeNo(0)),
    ];
    for (at, (what, number, on, own)) in all.iter().enumerate() {
        let ino = InodeNo(*number);
        if ino.0 == 0 || ino == *own {
            continue;
        }
        let quota = what.ends_with("quota");
        // Either number may be for a quota file; its contents show if it is not.
        let kept = [numbers::USER_QUOTA_INO, numbers::GROUP_QUOTA_INO];
        let reserved = image.geo.is_reserved_inode(ino) && !(quota && kept.contains(&ino));
        if (quota || *on) && (reserved || ino.0 > image.geo.inodes_count) {
            push(format!("names inode {ino} for the {what}, which cannot be"));
        } else if !on && *what != "journal" && is_used(image, ino) {
            push(format!("names inode {ino} for the {what}, but that feature is off"));
        }
        let twice = all[..at].iter().find(|other| other.1 == ino.0 && other.2 && *on);
        if let Some((other, ..)) = twice {
            push(format!("names inode {ino} both for the {other} and for the {what}"));
        }
    }
}

/// Whether an inode without a reserved use of its own, or the root, is in use.
fn is_used(image: &Image, ino: InodeNo) -> bool {
    let free = ino == numbers::ROOT_INO
        || !image.geo.is_reserved_inode(ino)
        || (ino == numbers::RESIZE_INO && image.geo.features.has(Compat::RESIZE_INODE));
    free && image.inode(0, ino).is_some_and(|(inode, _)| inode.links > 0)
}
