//! Makes changes durable, all or none.
//!
//! | step | action | a crash after it leaves |
//! |---|---|---|
//! | 1 | flush, since blocks were copied to free places | the volume before |
//! | 2 | the superblock says that the volume needs recovery; flush | the same, with an empty log |
//! | 3 | all changed blocks are logged as one transaction; flush | the volume after, by replay |
//! | 4 | they are written in place; flush | the same |
//! | 5 | the log is marked empty; flush | the volume after |
//!
//! Without a journal, or when the log is too small, the superblock first says that the volume has
//! errors, so that `e2fsck -p` checks it after a crash. Then the blocks are written in place.

use nextent_num::to_usize;
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE, state};
use nextent_ondisk::{BlockNo, Incompat, Superblock, bitmap, group_desc};

use super::volume::Volume;
use crate::error::Result;
use crate::open::{read_super, write_super};

/// Blocks that a transaction has besides those that were counted: the superblock's.
const RESERVE: usize = 8;

impl Volume {
    /// Commits if the changes fill most of a transaction. Call this where the volume is consistent.
    pub(super) fn commit_if_full(&mut self) -> Result<()> {
        // A group changes its bitmaps and its descriptor.
        let blocks = self.images.len() + 3 * self.changed.len() + RESERVE;
        let limit = if self.journal.is_some() { self.room * 3 / 4 } else { 4096 };
        if blocks < limit { Ok(()) } else { self.commit() }
    }

    /// Makes all changes durable. After a crash before it returns, all of them or none are there.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.render_groups()?;
        if self.trial {
            self.images.clear();
            self.release_freed();
            return Ok(());
        }
        self.count_free();
        self.flush()?;
        let fits = self.images.len() + RESERVE <= self.room;
        match self.journal.is_some() && fits {
            true => self.commit_logged()?,
            false => self.commit_in_place()?,
        }
        self.images.clear();
        self.release_freed();
        Ok(())
    }

    fn commit_logged(&mut self) -> Result<()> {
        let mut before = read_super(&*self.device)?;
        set_recovery(&mut before, true);
        // In place as well as in the log: Linux keeps the state that it read before the replay.
        before.state.set(self.sb.state.get());
        write_super(&*self.device, &mut before)?;
        set_recovery(&mut self.sb, true);
        if !self.sb.seal_like(&before) {
            self.sb.seal();
        }
        let (no, at) = self.geo.super_location();
        let mut image = self.block(no)?;
        image[at..at + SUPER_SIZE].copy_from_slice(self.sb.bytes());
        self.images.insert(no, image);
        let images: Vec<_> = std::mem::take(&mut self.images).into_iter().collect();
        if let Some(journal) = &self.journal {
            journal.log_blocks(&self.device, &self.geo, &images)?;
        }
        if before.features().has(Incompat::BIT64) && !self.sb.features().has(Incompat::BIT64) {
            // e2fsck finds the log by the first descriptor. Of wide descriptors, narrow eyes see
            // the first half of the first one; wide eyes see two narrow ones as one.
            write_super(&*self.device, &mut self.sb)?;
        }
        self.write_in_place(&images)?;
        self.flush()?;
        write_super(&*self.device, &mut self.sb)?;
        match &self.journal {
            Some(journal) => journal.empty_log(&self.device, &self.geo),
            None => Ok(()),
        }
    }

    fn commit_in_place(&mut self) -> Result<()> {
        self.require_check_after_crash()?;
        let images: Vec<_> = std::mem::take(&mut self.images).into_iter().collect();
        self.write_in_place(&images)?;
        self.flush()?;
        write_super(&*self.device, &mut self.sb)
    }

    /// Asks for a check in the superblock on the device until the resize is done.
    pub(super) fn require_check_after_crash(&mut self) -> Result<()> {
        self.require_check();
        if self.trial || std::mem::replace(&mut self.check_required, true) {
            return Ok(());
        }
        let mut before = read_super(&*self.device)?;
        before.state.set(self.sb.state.get());
        write_super(&*self.device, &mut before)
    }

    /// Lets the next commit ask for a check in the superblock until the resize is done. A check
    /// frees blocks that are in use without an owner.
    pub(super) fn require_check(&mut self) {
        self.sb.state.set(self.sb.state.get() & !state::VALID | state::ERROR);
    }

    /// Writes blocks in place, but for the superblock, whose write could be torn.
    fn write_in_place(&self, images: &[(BlockNo, Vec<u8>)]) -> Result<()> {
        let (super_block, at) = self.geo.super_location();
        for (no, bytes) in images {
            let mut bytes = std::borrow::Cow::Borrowed(bytes);
            if *no == super_block {
                let old = &mut bytes.to_mut()[at..at + SUPER_SIZE];
                let read = self.device.read_at(SUPER_OFFSET, old);
                read.map_err(|error| self.io("read", *no, &error))?;
            }
            self.write(*no, &bytes)?;
        }
        Ok(())
    }

    /// Writes bytes at the start of a block.
    pub(super) fn write(&self, no: BlockNo, bytes: &[u8]) -> Result<()> {
        if self.trial {
            return Ok(());
        }
        let written = self.device.write_at(no.0 << self.geo.block_bits, bytes);
        written.map_err(|error| self.io("write", no, &error))
    }

    pub(super) fn flush(&self) -> Result<()> {
        if self.trial {
            return Ok(());
        }
        self.device.flush().map_err(|error| self.io("flush", BlockNo(0), &error))
    }

    /// Renders bitmaps and descriptors of changed groups.
    fn render_groups(&mut self) -> Result<()> {
        for group in std::mem::take(&mut self.changed) {
            let (blocks, inodes) = self.loaded(group);
            let (blocks, inodes) = (blocks.cloned(), inodes.cloned());
            let geo = self.geo.clone();
            let mut desc = self.descs[to_usize(group)];
            if let Some(bits) = blocks
                && !desc.has_flag(&geo.features, group_desc::flags::BLOCK_UNINIT)
            {
                if geo.features.metadata_csum() {
                    desc.block_bitmap_csum = bitmap::block_checksum(&geo, &bits);
                }
                self.put(desc.block_bitmap, bits);
            }
            if let Some(bits) = inodes
                && !desc.has_flag(&geo.features, group_desc::flags::INODE_UNINIT)
            {
                if geo.features.metadata_csum() {
                    desc.inode_bitmap_csum = bitmap::inode_checksum(&geo, &bits);
                }
                self.put(desc.inode_bitmap, bits);
            }
            self.descs[to_usize(group)] = desc;
            self.put_desc(group)?;
        }
        Ok(())
    }

    /// Renders a group's descriptor.
    pub(super) fn put_desc(&mut self, group: u32) -> Result<()> {
        let group = nextent_ondisk::GroupNo(group);
        let (block, at) = self.geo.desc_location(group);
        let mut bytes = self.block(block)?;
        let raw = &mut bytes[at..at + usize::from(self.geo.desc_size)];
        self.descs[to_usize(group.0)].write(raw);
        group_desc::seal(&self.geo, group, raw);
        self.put(block, bytes);
        Ok(())
    }

    /// Sums up what is free.
    pub(super) fn count_free(&mut self) {
        let clusters: u64 = self.descs.iter().map(|desc| u64::from(desc.free_clusters)).sum();
        let inodes: u64 = self.descs.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        self.sb.set_free_blocks_count(clusters << self.geo.cluster_bits);
        self.sb.free_inodes_count.set(u32::try_from(inodes).unwrap_or(u32::MAX));
    }
}

/// Sets whether the superblock says that the volume needs recovery.
pub(super) fn set_recovery(sb: &mut Superblock, on: bool) {
    let mut features = sb.features();
    features.set(Incompat::RECOVER, on);
    sb.set_features(features);
}
