//! The groups of a volume in the words of dumpe2fs.

use crate::failure::{Result, say};
use nextent::check::Overview;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{BlockNo, Compat, Geometry, GroupDesc, GroupNo};
use std::ops::Range;

/// How numbers of blocks are printed.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    /// The least number of hexadecimal digits; none for decimal numbers.
    pub(super) digits: Option<usize>,
}

impl Numbers {
    fn one(self, number: u64) -> String {
        match self.digits {
            Some(digits) => format!("0x{number:0digits$x}"),
            None => number.to_string(),
        }
    }

    fn range(self, first: u64, len: u64) -> String {
        let last = first.saturating_add(len).saturating_sub(1);
        format!("{}-{}", self.one(first), self.one(last))
    }

    /// Runs, separated by commas.
    fn runs(self, runs: &[Range<u64>]) -> String {
        let one = |run: &Range<u64>| match run.end - run.start {
            1 => self.one(run.start),
            len => self.range(run.start, len),
        };
        runs.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Where a block is, in its own group or in another one.
    fn place(self, geo: &Geometry, group: GroupNo, block: BlockNo) -> String {
        match geo.group_of(block) {
            Some(of) if of == group => {
                format!(" (+{})", block.0 - geo.group_first_block(group).0)
            }
            Some(of) => {
                format!(" (bg #{of} + {})", block.0 - geo.group_first_block(of).0)
            }
            None => String::new(),
        }
    }
}

/// Prints every group.
pub(super) fn print(volume: &Overview, numbers: Numbers) -> Result<()> {
    for group in volume.geometry().groups() {
        if let Some(desc) = volume.descriptor(group) {
            print_one(volume, numbers, group, &desc)?;
        }
    }
    Ok(())
}

fn print_one(volume: &Overview, numbers: Numbers, group: GroupNo, desc: &GroupDesc) -> Result<()> {
    let geo = volume.geometry();
    let range = numbers.range(geo.group_first_block(group).0, geo.group_blocks(group).into());
    let sums = match geo.features.group_csum() {
        true => format!(" csum 0x{:04x}{}", desc.checksum, flag_words(geo, desc)),
        false => String::new(),
    };
    say!("Group {group}: (Blocks {range}){sums}");
    print_head(geo, numbers, group)?;
    let sum = |sum: u32| match geo.features.metadata_csum() {
        true => format!(", csum 0x{sum:08x}"),
        false => String::new(),
    };
    for (name, block, checksum) in [
        ("Block", desc.block_bitmap, desc.block_bitmap_csum),
        ("Inode", desc.inode_bitmap, desc.inode_bitmap_csum),
    ] {
        let place = numbers.place(geo, group, block);
        say!("  {name} bitmap at {}{place}{}", numbers.one(block.0), sum(checksum));
    }
    let table = numbers.range(desc.inode_table.0, geo.inode_table_blocks.into());
    say!("  Inode table at {table}{}", numbers.place(geo, group, desc.inode_table));
    let unused = match desc.itable_unused {
        _ if !geo.features.group_csum() => String::new(),
        0 => String::new(),
        count => format!(", {count} unused inodes"),
    };
    say!(
        "  {} free {}, {} free inodes, {} directories{unused}",
        desc.free_clusters,
        if geo.cluster_bits > 0 { "clusters" } else { "blocks" },
        desc.free_inodes,
        desc.used_dirs
    );
    if let Some(runs) = volume.free_blocks(group, desc) {
        say!("  Free blocks: {}", numbers.runs(&runs));
    }
    if let Some(runs) = volume.free_inodes(group, desc) {
        say!("  Free inodes: {}", numbers.runs(&runs));
    }
    Ok(())
}

fn flag_words(geo: &Geometry, desc: &GroupDesc) -> String {
    let all = [
        (flags::INODE_UNINIT, "INODE_UNINIT"),
        (flags::BLOCK_UNINIT, "BLOCK_UNINIT"),
        (flags::INODE_ZEROED, "ITABLE_ZEROED"),
    ];
    let set = all.iter().filter(|(bit, _)| desc.has_flag(&geo.features, *bit));
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    if names.is_empty() { String::new() } else { format!(" [{}]", names.join(", ")) }
}

/// The superblock, descriptors and reserved blocks at the start of a group.
fn print_head(geo: &Geometry, numbers: Numbers, group: GroupNo) -> Result<()> {
    let head = geo.head_blocks(group);
    let first_meta = u64::from(geo.contiguous_gdt_blocks());
    let mut line = String::new();
    let sup = geo.super_block_of(group);
    if let Some(block) = sup {
        let kind = if group.0 == 0 { "Primary" } else { "Backup" };
        line = format!("  {kind} superblock at {}", numbers.one(block.0));
    }
    let after = sup.map_or(head.start, |block| block.0 + 1);
    let reserved = match geo.features.has(Compat::RESIZE_INODE) && sup.is_some() {
        true => u64::from(geo.reserved_gdt_blocks),
        false => 0,
    };
    let descs = head.end.saturating_sub(after).saturating_sub(reserved);
    if descs > 0 {
        line.push_str(if line.is_empty() { "  " } else { ", " });
        line.push_str(&match first_meta > 0 && sup.is_some() && descs == first_meta {
            true => format!("Group descriptors at {}", numbers.range(after, descs)),
            false => format!("Group descriptor at {}", numbers.one(after)),
        });
    }
    if !line.is_empty() {
        say!("{line}");
    }
    if reserved > 0 {
        say!("  Reserved GDT blocks at {}", numbers.range(after + descs, reserved));
    }
    Ok(())
}
