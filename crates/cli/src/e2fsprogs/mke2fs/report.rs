//! What mke2fs prints: programs read the block size, the UUID and the places of backups from it.

use super::Mke2fs;
use crate::commands::mkfs::{Args, report};
use crate::failure::{Result, say};
use nextent::mkfs::JournalPlan;
use nextent_num::to_usize;
use nextent_ondisk::{Geometry, Superblock};

/// The columns of a line of block numbers.
const COLUMNS: usize = 72;

/// Prints a new file system, or one that would be made.
pub(super) fn show(
    mke2fs: &Mke2fs,
    args: &Args,
    sb: &Superblock,
    geometry: &Geometry,
) -> Result<()> {
    let (blocks, inodes) = (geometry.blocks_count, geometry.inodes_count);
    if args.verbose {
        verbose(mke2fs, sb, geometry)?;
    } else {
        let kib = geometry.block_size / 1024;
        say!("Creating filesystem with {blocks} {kib}k blocks and {inodes} inodes");
    }
    say!("Filesystem UUID: {}", sb.volume_uuid());
    let backups = report::backups(geometry);
    if !backups.is_empty() {
        say!("Superblock backups stored on blocks: ");
        for line in lines(&backups) {
            say!("\t{line}");
        }
    }
    say!();
    if args.dry_run {
        return Ok(());
    }
    say!("Allocating group tables: done");
    say!("Writing inode tables: done");
    let journal = report::journal_blocks(sb, geometry);
    if journal > 0 {
        say!("Creating journal ({journal} blocks): done");
    }
    if !args.contents.is_empty() {
        say!("Copying files into the device: done");
    }
    say!("Writing superblocks and filesystem accounting information: done\n");
    Ok(())
}

/// Prints a new external journal, or one that would be made.
pub(super) fn show_journal(args: &Args, plan: &JournalPlan) -> Result<()> {
    let (sb, blocks) = (plan.superblock(), plan.blocks());
    let kib = plan.block_size() / 1024;
    if args.verbose {
        say!("fs_types for mke2fs.conf resolution: 'journal'");
        say!("Filesystem label={}", crate::show::name(sb.label_bytes()));
        say!("Block size={} (log={})", plan.block_size(), sb.log_block_size.get());
        say!("0 inodes, {blocks} blocks");
    } else {
        say!("Creating filesystem with {blocks} {kib}k blocks and 0 inodes");
    }
    say!("Filesystem UUID: {}", sb.volume_uuid());
    say!("Superblock backups stored on blocks: \n");
    if !args.dry_run {
        say!("Zeroing journal device: done");
    }
    Ok(())
}

fn verbose(mke2fs: &Mke2fs, sb: &Superblock, geometry: &Geometry) -> Result<()> {
    let (size, bits) = (geometry.block_size, geometry.block_bits - 10);
    let (blocks, inodes) = (geometry.blocks_count, geometry.inodes_count);
    let types = mke2fs.types(blocks * u64::from(size));
    let types: Vec<String> = types.iter().map(|name| format!("'{name}'")).collect();
    let reserved = sb.reserved_blocks_count();
    say!("fs_types for mke2fs.conf resolution: {}", types.join(", "));
    say!("Filesystem label={}", crate::show::name(sb.label_bytes()));
    say!("OS type: {}", creator(sb.creator_os.get()));
    say!("Block size={size} (log={bits})");
    say!("Fragment size={size} (log={bits})");
    let (stride, width) = (sb.raid_stride.get(), sb.raid_stripe_width.get());
    say!("Stride={stride} blocks, Stripe width={width} blocks");
    say!("{inodes} inodes, {blocks} blocks");
    let percent = reserved as f64 * 100.0 / blocks.max(1) as f64;
    say!("{reserved} blocks ({percent:.2}%) reserved for the super user");
    say!("First data block={}", geometry.first_data_block.0);
    let groups = geometry.group_count;
    say!("{groups} block group{}", if groups == 1 { "" } else { "s" });
    let per_group = geometry.blocks_per_group;
    say!("{per_group} blocks per group, {per_group} fragments per group");
    say!("{} inodes per group", geometry.inodes_per_group);
    Ok(())
}

/// The name of the operating system that made a file system.
pub(crate) fn creator(number: u32) -> &'static str {
    const ALL: [&str; 5] = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];
    ALL.get(to_usize(number)).unwrap_or(&"unknown")
}

/// The numbers, separated by commas, on as many lines as they need.
fn lines(numbers: &[u64]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (at, number) in numbers.iter().enumerate() {
        let comma = if at + 1 < numbers.len() { ", " } else { "" };
        let word = format!("{number}{comma}");
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + word.len() <= COLUMNS => {
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}
