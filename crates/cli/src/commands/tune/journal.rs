//! `-j`, `-J` and the feature `has_journal`.

use super::Wrong;
use crate::commands::mkfs::values;
use crate::failure::{Context, Result, say};
use crate::image::{Purpose, device};
use crate::target::ImageSpec;
use nextent::mkfs::{JournalOptions, journal_blocks};
use nextent_ondisk::{Compat, Superblock};

/// What becomes of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Add one of so many bytes, or of the usual size.
    Add(Option<u64>),
    Remove,
}

/// What `-j` and `-J` ask for.
pub(super) fn asked(lists: &[String], sb: &Superblock) -> std::result::Result<Change, Wrong> {
    if sb.features().has(Compat::HAS_JOURNAL) {
        return Err(Wrong::Raw("The filesystem already has a journal.".into()));
    }
    let mut options = JournalOptions::default();
    let block = u64::from(1024_u32.checked_shl(sb.log_block_size.get()).unwrap_or(1024));
    for list in lists {
        values::journal(list, block, &mut options).map_err(Wrong::Plain)?;
    }
    if options.fast_commit_size.is_some() || options.location.is_some() {
        let text = "-J fast_commit_size and location are not supported; mkfs -J has them";
        return Err(Wrong::Plain(text.into()));
    }
    Ok(Change::Add(options.size))
}

/// Checks that the volume may have, or lose, a journal, before anything is written.
pub(super) fn check(change: Change, sb: &Superblock) -> std::result::Result<(), Wrong> {
    match change {
        Change::Add(size) => {
            let bits = sb.log_block_size.get().saturating_add(10);
            let blocks = journal_blocks(sb.blocks_count(), bits, size);
            let blocks = blocks.map_err(|error| Wrong::Plain(error.to_string()))?;
            if blocks > sb.free_blocks_count() {
                let text = format!("no space for a journal of {blocks} blocks");
                return Err(Wrong::Plain(text));
            }
        }
        Change::Remove if sb.features().has(Compat::ORPHAN_FILE) => {
            let text = "-O ^has_journal is not supported with orphan_file, which needs the journal";
            return Err(Wrong::Plain(text.into()));
        }
        Change::Remove if sb.journal_inum.get() == 0 => {
            let text = "-O ^has_journal is not supported with an external journal";
            return Err(Wrong::Plain(text.into()));
        }
        Change::Remove => {}
    }
    Ok(())
}

/// Adds or removes the journal of an image.
pub(super) fn apply(change: Change, image: &ImageSpec) -> Result<()> {
    let device = device(image, Purpose::Change)?;
    match change {
        Change::Add(size) => {
            nextent::add_journal(&device, size).context(|| format!("{image}: journal"))?;
            say!("Creating journal inode: done");
        }
        Change::Remove => {
            nextent::remove_journal(&device).context(|| format!("{image}: journal"))?;
        }
    }
    Ok(())
}
