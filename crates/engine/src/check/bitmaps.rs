//! Pass 5: compares bitmaps and counts with what earlier passes found in use.

use nextent_num::must_fit;
use nextent_ondisk::bitmap;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{GroupDesc, GroupNo};
use nextent_sync::atomic::{AtomicU64, Ordering};

use super::claims::Claims;
use super::image::Image;
use super::inodes::{Group, Inodes, is, kind};
use super::report::{Problem, Totals};

/// Sums over all groups.
#[derive(Default)]
struct Sums {
    free_clusters: AtomicU64,
    free_inodes: AtomicU64,
    directories: AtomicU64,
    files: AtomicU64,
    fragmented: AtomicU64,
    stored_free_clusters: AtomicU64,
    stored_free_inodes: AtomicU64,
}

fn add(sum: &AtomicU64, count: impl Into<u64>) {
    sum.fetch_add(count.into(), Ordering::Relaxed);
}

/// Runs the pass; the totals found.
pub(super) fn check(
    image: &Image,
    claims: &Claims,
    inodes: &Inodes,
    done: &(dyn Fn() + Sync),
) -> Totals {
    let sums = Sums::default();
    image.each_desc(5, |group, desc, _| {
        add(&sums.stored_free_clusters, desc.free_clusters);
        add(&sums.stored_free_inodes, desc.free_inodes);
        let readable = desc.check(&image.geo, group).is_ok();
        blocks(image, claims, group, &desc, readable, &sums);
        inode_bits(image, inodes.group(group), group, &desc, readable, &sums);
        done();
    });
    totals(image, &sums)
}

/// The runs of bits that differ, `(first, last, set)` with `set` for a bit that should be set.
fn differences(should: &[u8], stored: &[u8], len: u32, mut each: impl FnMut(u32, u32, bool)) {
    let mut run: Option<(u32, u32, bool)> = None;
    for (byte, (a, b)) in should.iter().zip(stored).enumerate() {
        if a == b {
            continue;
        }
        for bit in (0..8).filter(|bit| (a ^ b) >> bit & 1 == 1) {
            let (at, set) = (must_fit::<u32, _>(byte) * 8 + bit, a >> bit & 1 == 1);
            if at >= len {
                break;
            }
            match &mut run {
                Some((_, last, kind)) if *last + 1 == at && *kind == set => *last = at,
                _ => {
                    if let Some((first, last, set)) = run.replace((at, at, set)) {
                        each(first, last, set);
                    }
                }
            }
        }
    }
    if let Some((first, last, set)) = run {
        each(first, last, set);
    }
}

fn push(image: &Image, group: GroupNo, code: &'static str, text: String) {
    image.push(Problem::error(5, code, text).in_group(group));
}

/// A run as text.
fn span(first: u64, last: u64) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

fn blocks(
    image: &Image,
    claims: &Claims,
    group: GroupNo,
    desc: &GroupDesc,
    readable: bool,
    sums: &Sums,
) {
    let geo = &image.geo;
    let clusters = geo.group_clusters(group);
    let first = u64::from(group.0) * u64::from(geo.clusters_per_group);
    let mut used = vec![0; geo.block_bitmap_bytes()];
    claims.used.copy_to(first, &mut used);
    let free = bitmap::count_clear(&used, clusters);
    add(&sums.free_clusters, free);
    if desc.free_clusters != free {
        let text = format!("{} free clusters are counted, should be {free}", desc.free_clusters);
        push(image, group, "free-blocks", text);
    }
    if !readable {
        return;
    }
    let mut stored = vec![0; geo.block_len()];
    if desc.has_flag(&geo.features, flags::BLOCK_UNINIT) {
        if geo.cluster_bits > 0 {
            // Only fixed metadata may be in use; counted in clusters it may be more than was found.
            return;
        }
        stored = bitmap::implied(geo, group, desc);
    } else {
        if !image.read(5, desc.block_bitmap, &mut stored) {
            return;
        }
        if let Err(error) = bitmap::verify_block_bitmap(geo, group, desc, &stored) {
            image.push(Problem::corrupt(5, "block-bitmap-checksum", &error));
        }
        if bitmap::find_clear(&stored, clusters, geo.block_size * 8).is_some() {
            let text = "the padding at the end of the block bitmap is not set".into();
            push(image, group, "block-bitmap-padding", text);
        }
    }
    differences(&used, &stored, clusters, |from, to, set| {
        let ratio = u64::from(geo.cluster_blocks);
        let base = geo.group_first_block(group).0;
        let blocks = span(base + u64::from(from) * ratio, base + (u64::from(to) + 1) * ratio - 1);
        let what = match set {
            true => "in use, but free in the bitmap",
            false => "free, but in use in the bitmap",
        };
        push(image, group, "block-bitmap", format!("blocks {blocks} are {what}"));
    });
}

fn inode_bits(
    image: &Image,
    found: Option<&Group>,
    group: GroupNo,
    desc: &GroupDesc,
    readable: bool,
    sums: &Sums,
) {
    let geo = &image.geo;
    let mut used = vec![0; geo.inode_bitmap_bytes()];
    let mut dirs = 0u32;
    for (index, mark) in (0..geo.inodes_per_group).zip(found.map_or(&[][..], |f| &f.marks)) {
        if mark.in_use() {
            bitmap::set_run(&mut used, index, 1);
            dirs += u32::from(mark.kind == kind::DIRECTORY);
            add(&sums.fragmented, u64::from(mark.flags & is::FRAGMENTED != 0));
            let file = mark.kind != kind::DIRECTORY && mark.flags & is::HIDDEN == 0;
            add(&sums.files, u64::from(file));
        }
    }
    let free = bitmap::count_clear(&used, geo.inodes_per_group);
    add(&sums.free_inodes, free);
    add(&sums.directories, dirs);
    for (code, what, stored, should) in [
        ("free-inodes", "free inodes", desc.free_inodes, free),
        ("directories", "directories", desc.used_dirs, dirs),
    ] {
        if stored != should {
            push(image, group, code, format!("{stored} {what} are counted, should be {should}"));
        }
    }
    if !readable {
        return;
    }
    let mut stored = vec![0; geo.block_len()];
    if !desc.has_flag(&geo.features, flags::INODE_UNINIT) {
        if !image.read(5, desc.inode_bitmap, &mut stored) {
            return;
        }
        if let Err(error) = bitmap::verify_inode_bitmap(geo, group, desc, &stored) {
            image.push(Problem::corrupt(5, "inode-bitmap-checksum", &error));
        }
        let end = geo.block_size * 8;
        if bitmap::find_clear(&stored, geo.inodes_per_group, end).is_some() {
            let text = "the padding at the end of the inode bitmap is not set".into();
            push(image, group, "inode-bitmap-padding", text);
        }
    }
    differences(&used, &stored, geo.inodes_per_group, |from, to, set| {
        let ino = |index| u64::from(geo.inode_at(group, index).0);
        let what = match set {
            true => "in use, but free in the bitmap",
            false => "free, but in use in the bitmap",
        };
        let text = format!("inodes {} are {what}", span(ino(from), ino(to)));
        push(image, group, "inode-bitmap", text);
    });
}

/// Compares the superblock's totals, which are old while a log waits for replay.
fn totals(image: &Image, sums: &Sums) -> Totals {
    let (geo, sb) = (&image.geo, &image.sb);
    let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
    let free_blocks = get(&sums.free_clusters) << geo.cluster_bits;
    let free_inodes = get(&sums.free_inodes);
    for (code, what, stored, should) in [
        ("free-blocks-total", "blocks", sb.free_blocks_count(), free_blocks),
        ("free-inodes-total", "inodes", u64::from(sb.free_inodes_count.get()), free_inodes),
    ] {
        if stored != should && !image.unclean {
            let text = format!("the superblock counts {stored} free {what}, should be {should}");
            // The next mount sums them up again, and e2fsck does not call this an error either.
            image.push(Problem::note(5, code, text));
        }
    }
    Totals {
        inodes_used: u64::from(geo.inodes_count).saturating_sub(free_inodes),
        inodes: geo.inodes_count.into(),
        blocks_used: geo.blocks_count.saturating_sub(free_blocks),
        blocks: geo.blocks_count,
        directories: get(&sums.directories),
        files: get(&sums.files),
        fragmented: get(&sums.fragmented),
    }
}
