//! The destination of committed transactions: a jbd2 log, or their places on the device.
//!
//! A volume without a journal commits through the same gate and rendering; the commit writes its
//! blocks in place and flushes. That is not atomic across a crash, as in ext2.

mod fast;
mod jbd2;
mod map;

pub(crate) use fast::FastArea;
pub(crate) use jbd2::{Jbd2Log, check_features, clear_fast_commits, read_superblock};
pub(crate) use map::JournalArea;
pub use map::JournalRun;

use super::commit::TransactionContent;
use super::core::Journal;
use crate::Result;
use crate::flushes::Flushes;
use nextent_ondisk::Tid;
use nextent_ondisk::jbd2::JournalFeatures;

/// The format options of a journal that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUse {
    /// crc32c sums on every block; for volumes with `metadata_csum`.
    pub checksums: bool,
    /// 64-bit block numbers; for volumes with `64bit`.
    pub wide: bool,
    /// An area for fast commits; for volumes with `fast_commit`.
    pub fast: bool,
}

impl JournalUse {
    /// The incompatible features of a log in use, apart from fast commits.
    pub(super) fn incompat(&self) -> u32 {
        let mut incompat = JournalFeatures::REVOKE;
        if self.checksums {
            incompat |= JournalFeatures::CSUM_V3;
        }
        if self.wide {
            incompat |= JournalFeatures::WIDE;
        }
        incompat
    }
}

/// The extent of a transaction in the log, in blocks of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogExtent {
    /// First block, within the circular log.
    pub(super) start: u32,
    /// Where the next transaction begins.
    pub(super) end: u32,
}

/// Credits of a transaction when there is no log to bound it.
const IN_PLACE_CAPACITY: u32 = 16_384;

/// Where and how transactions are written.
pub(crate) enum Log {
    /// In place: the volume has no journal.
    InPlace,
    /// An internal jbd2 journal.
    Jbd2(Box<Jbd2Log>),
}

impl Log {
    pub(super) fn first_tid(&self) -> Tid {
        match self {
            Log::InPlace => Tid(1),
            Log::Jbd2(log) => log.first_tid(),
        }
    }

    /// Blocks that one transaction's handles may change.
    pub(super) fn capacity(&self) -> u32 {
        match self {
            Log::InPlace => IN_PLACE_CAPACITY,
            Log::Jbd2(log) => log.capacity(),
        }
    }

    /// Makes sure that the log has space for the transaction just closed, and for a whole further
    /// one (J4). Handles of the next transaction run already.
    pub(super) fn make_space(&self, journal: &Journal) -> Result<()> {
        match self {
            Log::Jbd2(log) if !log.has_space() => {
                super::checkpoint(journal)?;
                debug_assert!(
                    log.has_space(),
                    "J4: no space for two transactions after a checkpoint"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes a transaction and makes it durable, with all data written before. Its return is the
    /// commit point.
    pub(super) fn write(
        &self,
        journal: &Journal,
        content: &TransactionContent,
    ) -> Result<Option<LogExtent>> {
        match self {
            Log::InPlace => {
                journal.cache.flushes().flush()?;
                let images: Vec<_> =
                    content.blocks.iter().map(|(b, image)| (b.number(), image.clone())).collect();
                journal.write_in_place(&images)?;
                journal.cache.flushes().flush()?;
                Ok(None)
            }
            Log::Jbd2(log) => log.write(content, journal.cache.flushes()).map(Some),
        }
    }

    /// The blocks for fast commits, if there are any.
    pub(super) fn fast(&self) -> Option<&FastArea> {
        match self {
            Log::InPlace => None,
            Log::Jbd2(log) => log.fast(),
        }
    }

    /// The used blocks of the log, and all of them.
    pub(super) fn usage(&self) -> (u64, u64) {
        match self {
            Log::InPlace => (0, 0),
            Log::Jbd2(log) => log.usage(),
        }
    }

    pub(super) fn wants_checkpoint(&self) -> bool {
        matches!(self, Log::Jbd2(log) if log.wants_checkpoint())
    }

    /// Everything before `start`, where `tid` is or will be, is in place and flushed: the log may
    /// reuse that space.
    pub(super) fn set_tail(&self, flushes: &Flushes, tid: Tid, start: u32) -> Result<()> {
        match self {
            Log::InPlace => Ok(()),
            Log::Jbd2(log) => log.set_tail(flushes, tid, start),
        }
    }

    /// Marks the empty log in use, for transactions from `tid` on.
    pub(super) fn mark_used(&self, tid: Tid) -> Result<()> {
        match self {
            Log::InPlace => Ok(()),
            Log::Jbd2(log) => log.mark_used(tid),
        }
    }

    /// Marks the log empty; `next` is the sequence that follows.
    pub(super) fn mark_clean(&self, flushes: &Flushes, next: Tid) -> Result<()> {
        match self {
            Log::InPlace => flushes.flush(),
            Log::Jbd2(log) => log.mark_clean(flushes, next),
        }
    }

    /// Records an abort on disk, as far as that still works.
    pub(super) fn record_error(&self) {
        const EIO: i32 = -5;
        if let Log::Jbd2(log) = self {
            log.record_error(EIO);
        }
    }
}
