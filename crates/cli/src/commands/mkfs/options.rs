//! From the command line to the engine's options.

use super::Args;
use super::values;
use crate::size::Size;
use nextent::mkfs::{MkfsOptions, Usage};
use uuid::Uuid;

/// What a plain number of SIZE counts without `-b`.
const SIZE_UNIT: u64 = 1024;

/// The options, and the byte of the image at which the volume starts.
pub(super) fn from(args: &Args) -> Result<(MkfsOptions, u64), String> {
    let block_size = args.block_size.map(|size| bytes(size, 1, "block size")).transpose()?;
    let unit = block_size.map_or(SIZE_UNIT, u64::from);
    let size = args.size.map(|size| size.bytes(unit).ok_or("the size is too large"));
    let mut options = MkfsOptions {
        size: size.transpose()?,
        fs_type: values::fs_type(&args.fs_type)?,
        usage: usages(&args.usage)?,
        block_size,
        inode_size: args.inode_size,
        bytes_per_inode: args
            .bytes_per_inode
            .map(|size| size.bytes(1).ok_or("the inode ratio is too large"))
            .transpose()?,
        inode_count: args.inodes,
        blocks_per_group: args.blocks_per_group,
        flex_groups: args.flex_groups,
        force_journal: args.journal,
        features: args.features.join(","),
        label: args.label.clone(),
        last_mounted: args.last_mounted.clone(),
        reserved_percent: args.reserved,
        creator_os: values::creator(&args.creator)?,
        uuid: Some(args.uuid.as_deref().map_or_else(|| Ok(Uuid::new_v4()), values::uuid)?),
        revision_0: revision_0(args.revision)?,
        on_error: values::on_error(&args.on_error)?,
        clock: values::source_date_epoch()?,
        ..MkfsOptions::default()
    };
    let block = block_size.map_or(SIZE_UNIT, u64::from);
    for text in &args.journal_options {
        values::journal(text, block, &mut options.journal)?;
    }
    let mut offset = 0;
    for text in &args.extended {
        values::extended(text, block, &mut options.extended, &mut offset)?;
    }
    if args.keep {
        options.extended.discard = false;
    }
    Ok((options, offset))
}

fn bytes(size: Size, unit: u64, what: &str) -> Result<u32, String> {
    let bytes = size.bytes(unit).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("invalid {what}"))
}

fn usages(lists: &[String]) -> Result<Vec<Usage>, String> {
    lists.iter().flat_map(|list| list.split(',')).map(values::usage).collect()
}

fn revision_0(revision: u32) -> Result<bool, String> {
    match revision {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(format!("revision {revision} is unknown; there are 0 and 1")),
    }
}
