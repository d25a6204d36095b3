//! Moves the journal while no transaction is in its log.
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | 1 | the new blocks are in use by the bitmaps, and the superblock asks for a check | blocks that e2fsck -p frees |
//! | 2 | contents and map are written to the new blocks; flush | the same |
//! | 3 | the inode names the new map, in one sector; flush | the volume with the new journal |
//! | 4 | the superblock's copy of the map is the new one; flush | the same |
//! | 5 | the old blocks are free, by a commit to the new journal | the same, complete |

use nextent_ondisk::InodeNo;

use super::commit::set_recovery;
use super::volume::Volume;
use crate::error::Result;
use crate::open::{locate_journal, read_super, write_super};

impl Volume {
    /// Moves the blocks of the journal that must move.
    pub(super) fn move_journal(&mut self) -> Result<()> {
        if self.journal.is_none() {
            return Ok(());
        }
        self.commit()?;
        let (moved, deferred) = self.defer(Self::move_journal_blocks)?;
        let Some((inode, raw)) = moved else { return Ok(()) };
        let nodes = std::mem::take(&mut self.images);
        self.require_check();
        self.commit()?;
        // Not before that commit, which uses the log: the next one must have a later number.
        for (from, to) in &deferred.copies {
            self.copy(*from, to)?;
        }
        for (block, bytes) in &nodes {
            self.write(*block, bytes)?;
        }
        if self.trial {
            self.images.extend(nodes);
        }
        self.flush()?;
        self.write_inode_in_place(InodeNo(self.sb.journal_inum.get()), &raw)?;
        self.flush()?;
        self.sb.set_journal_backup(&inode.block, inode.size);
        if !self.trial {
            let mut sb = read_super(&*self.device)?;
            // The log is empty, so nothing needs recovery.
            set_recovery(&mut sb, false);
            sb.set_journal_backup(&inode.block, inode.size);
            write_super(&*self.device, &mut sb)?;
            self.journal = locate_journal(&self.device, &self.sb, &self.geo)?;
        }
        deferred.frees.into_iter().try_for_each(|run| self.free(run))?;
        self.commit()
    }
}
