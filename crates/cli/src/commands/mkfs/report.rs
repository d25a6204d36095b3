//! Prints the new file system, for people or as JSON.

use super::Args;
use crate::failure::{Failure, say};
use nextent_ondisk::{Geometry, Superblock};

/// Prints a superblock in the requested form.
pub(super) fn show(args: &Args, sb: &Superblock, geometry: &Geometry) -> Result<(), Failure> {
    if args.json {
        let text = serde_json::to_string_pretty(&json(sb, geometry));
        say!("{}", text.map_err(|error| Failure::new(error.to_string()))?);
    } else if !args.quiet || args.dry_run {
        match &args.front {
            Some(front) => front.show(args, sb, geometry)?,
            None => people(args, sb, geometry)?,
        }
    }
    Ok(())
}

/// The blocks with backups of the superblock.
pub(crate) fn backups(geometry: &Geometry) -> Vec<u64> {
    let groups = geometry.groups().skip(1);
    groups.filter_map(|group| geometry.super_block_of(group)).map(|block| block.0).collect()
}

/// The blocks of the journal.
pub(crate) fn journal_blocks(sb: &Superblock, geometry: &Geometry) -> u64 {
    let words = &sb.jnl_blocks;
    let size = u64::from(words[15].get()) << 32 | u64::from(words[16].get());
    size >> geometry.block_bits
}

fn json(sb: &Superblock, geometry: &Geometry) -> serde_json::Value {
    serde_json::json!({
        "uuid": sb.volume_uuid().to_string(),
        "label": sb.label(),
        "features": geometry.features.names(),
        "block_size": geometry.block_size,
        "blocks": geometry.blocks_count,
        "free_blocks": sb.free_blocks_count(),
        "reserved_blocks": sb.reserved_blocks_count(),
        "inode_size": geometry.inode_size,
        "inodes": geometry.inodes_count,
        "free_inodes": sb.free_inodes_count.get(),
        "groups": geometry.group_count,
        "blocks_per_group": geometry.blocks_per_group,
        "inodes_per_group": geometry.inodes_per_group,
        "journal_blocks": journal_blocks(sb, geometry),
        "backups": backups(geometry),
    })
}

fn people(args: &Args, sb: &Superblock, geometry: &Geometry) -> Result<(), Failure> {
    let verb = if args.dry_run { "Would make" } else { "Made" };
    say!(
        "{verb} a file system of {} {}k blocks and {} inodes",
        geometry.blocks_count,
        geometry.block_size / 1024,
        geometry.inodes_count
    );
    say!("UUID: {}", sb.volume_uuid());
    let backups: Vec<String> = backups(geometry).iter().map(u64::to_string).collect();
    if !backups.is_empty() {
        say!("Superblock backups in blocks: {}", backups.join(", "));
    }
    if journal_blocks(sb, geometry) > 0 {
        say!("Journal: {} blocks", journal_blocks(sb, geometry));
    }
    if args.verbose {
        say!("Features: {}", geometry.features);
        say!(
            "Groups: {} of {} blocks and {} inodes",
            geometry.group_count,
            geometry.blocks_per_group,
            geometry.inodes_per_group
        );
        say!("Reserved for root: {} blocks", sb.reserved_blocks_count());
        say!("Inode size: {}", geometry.inode_size);
    }
    Ok(())
}
