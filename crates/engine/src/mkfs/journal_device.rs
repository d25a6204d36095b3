//! An external journal: a device that holds the journal of a volume on another device.
//!
//! | block | contents |
//! |---|---|
//! | that of byte 1024 | a superblock with the feature `journal_dev`, a label and the UUID |
//! | the next one | the journal's superblock, without users |
//! | all after it | the log, zeroed |
//!
//! The superblock has no inodes and no groups, so that no program takes it for a volume. The
//! superblock is written last, after a flush.
//!
//! Source: kernel documentation, "External Journal" in "Journal (jbd2)".

use std::fmt;

use nextent_device::BlockDevice;
use nextent_num::must_fit;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::superblock::SUPER_OFFSET;
use nextent_ondisk::{BlockNo, Features, Incompat, RoCompat, Superblock};

use super::error::MkfsError;
use super::journal::check_blocks;
use super::options::MkfsOptions;
use super::shape::Shape;
use super::space::Run;
use super::write::{Out, clear};
use super::{profile, resolve, super_block};

/// An external journal ready to be written.
pub struct JournalPlan {
    sb: Superblock,
    block_size: u32,
    blocks: u32,
    warnings: Vec<String>,
    discard: bool,
    prezeroed: bool,
    lazy: bool,
}

impl fmt::Debug for JournalPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalPlan")
            .field("blocks", &self.blocks)
            .field("block_size", &self.block_size)
            .finish_non_exhaustive()
    }
}

/// Whether the options ask for an external journal in place of a volume: by the feature
/// `journal_dev`.
///
/// # Errors
///
/// [`MkfsError::Option`] for a list of features with an unknown name.
pub fn is_journal(options: &MkfsOptions) -> Result<bool, MkfsError> {
    let features = profile::asked(options)?;
    Ok(!options.revision_0 && features.has(Incompat::JOURNAL_DEV))
}

impl JournalPlan {
    /// Decides what an external journal on a device of `device_bytes` contains. Options about
    /// inodes, groups and reserved blocks have no effect, and of the features only `metadata_csum`
    /// has one.
    ///
    /// # Errors
    ///
    /// Options out of range, or too few or too many blocks.
    pub fn new(options: &MkfsOptions, device_bytes: u64) -> Result<Self, MkfsError> {
        let bytes = options.size.unwrap_or(device_bytes);
        if bytes > device_bytes {
            let text = format!("{bytes} bytes were asked for, the device has {device_bytes}");
            return Err(MkfsError::TooSmall(text));
        }
        let own = &options.journal;
        if own.size.is_some() || own.fast_commit_size.is_some() || own.location.is_some() {
            let text = "an external journal has the size of its device; leave out -J";
            return Err(MkfsError::option(text));
        }
        let asked = profile::asked(options)?;
        let block_size = resolve::block_size(options, bytes)?;
        let mut blocks = bytes / u64::from(block_size);
        if options.size.is_none() {
            blocks = resolve::whole_pages(blocks, block_size);
        }
        check_blocks(blocks)?;
        let mut features = Features::EMPTY.with(Incompat::JOURNAL_DEV);
        features.set(RoCompat::METADATA_CSUM, asked.has(RoCompat::METADATA_CSUM));
        let per_group = options.blocks_per_group.unwrap_or(block_size * 8);
        let shape = Shape::without_groups(blocks, per_group, features);
        let resolved = resolve::without_volume(options, bytes, shape, block_size)?;
        let mut sb = super_block::build(options, &resolved);
        // There are no names to hash.
        sb.flags.set(0);
        Ok(Self {
            sb,
            block_size,
            blocks: must_fit(blocks),
            warnings: resolved.warnings,
            discard: options.extended.discard,
            prezeroed: options.extended.prezeroed,
            lazy: options.extended.lazy_journal_init,
        })
    }

    /// The superblock that identifies the journal, without its checksum.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Blocks of the device.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Warnings for people, one line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes the journal to the device and flushes it.
    ///
    /// # Errors
    ///
    /// An error of the device, or one that is smaller than the journal.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<(), MkfsError> {
        let (bits, blocks) = (self.block_size.ilog2(), u64::from(self.blocks));
        if device.size() < blocks << bits {
            let text = format!("the journal needs {} bytes", blocks << bits);
            return Err(MkfsError::TooSmall(text));
        }
        let out = Out::new(device, bits);
        let clean = clear(&out, blocks, (self.prezeroed, self.discard))?;
        if !clean && !self.lazy {
            out.zero("zeroing the journal", Run { start: 0, len: blocks })?;
        }
        let first = SUPER_OFFSET >> bits;
        let (at, head) = (BlockNo(first + 1), must_fit::<u32, _>(first) + 2);
        let journal =
            JournalSuperblock::external((self.block_size, self.blocks), head, self.sb.uuid);
        let mut block = vec![0; must_fit::<usize, _>(self.block_size)];
        let bytes = journal.to_bytes();
        block[..bytes.len()].copy_from_slice(&bytes);
        out.put("writing the journal's superblock", at, &block)?;
        out.flush()?;
        let mut sb = self.sb.clone();
        if sb.features().metadata_csum() {
            sb.kbytes_written.set(out.kbytes_written());
        }
        sb.seal();
        let mut block = vec![0; must_fit::<usize, _>(self.block_size)];
        let at = must_fit::<usize, _>(SUPER_OFFSET - (first << bits));
        block[at..at + sb.bytes().len()].copy_from_slice(sb.bytes());
        out.put("writing the superblock", BlockNo(first), &block)?;
        out.flush()
    }
}
