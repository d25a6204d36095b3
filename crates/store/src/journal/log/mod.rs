//! Where committed transactions go: a jbd2 log, or straight home.
//!
//! A volume without a journal commits through the same gate and rendering; its
//! blocks are written to their places and flushed. That is not atomic across a
//! crash, as ext2 is not.

use super::commit::Content;
use super::core::Journal;
use crate::{Error, Result};
use nextent_device::BlockDevice;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::Arc;

/// Place of a transaction in the log, in blocks of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogExtent {
    /// First block, within the log's circle.
    pub(super) start: u32,
}

/// Credits of a transaction when there is no log to bound it.
const HOME_CAPACITY: u32 = 16_384;

/// The way to the disk.
pub(crate) enum Log {
    /// No journal.
    Home(Arc<dyn BlockDevice>),
}

impl Log {
    pub(super) fn first_tid(&self) -> Tid {
        match self {
            Log::Home(_) => Tid(1),
        }
    }

    /// Blocks that one transaction's handles may change.
    pub(super) fn capacity(&self) -> u32 {
        match self {
            Log::Home(_) => HOME_CAPACITY,
        }
    }

    /// Makes sure that the log can take the transaction just closed and a
    /// whole further one.
    pub(super) fn make_space(&self, _journal: &Journal) -> Result<()> {
        match self {
            Log::Home(_) => Ok(()),
        }
    }

    /// Writes a transaction and makes it durable, data written before included.
    /// The return is the commit point.
    pub(super) fn write(&self, journal: &Journal, content: &Content) -> Result<Option<LogExtent>> {
        match self {
            Log::Home(_) => {
                self.flush()?;
                let images: Vec<_> =
                    content.blocks.iter().map(|(b, image)| (b.number(), image.clone())).collect();
                journal.write_home(&images)?;
                self.flush()?;
                Ok(None)
            }
        }
    }

    pub(super) fn wants_checkpoint(&self) -> bool {
        match self {
            Log::Home(_) => false,
        }
    }

    /// Flushes the device that holds the volume.
    pub(super) fn flush(&self) -> Result<()> {
        let device = match self {
            Log::Home(device) => device,
        };
        device.flush().map_err(|e| Error::io("flush", BlockNo(0), e))
    }

    /// Everything before `tail` is home: the log may use its space.
    pub(super) fn set_tail(
        &self,
        _journal: &Journal,
        _tail: Option<(Tid, u32)>,
        _next: Tid,
    ) -> Result<()> {
        match self {
            Log::Home(_) => Ok(()),
        }
    }

    /// Marks the log empty; `next` is the sequence that follows.
    pub(super) fn mark_clean(&self, _next: Tid) -> Result<()> {
        match self {
            Log::Home(_) => self.flush(),
        }
    }
}
