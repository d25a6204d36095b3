//! The block of multiple mount protection.
//!
//! Its location is mke2fs's. It names no host and no device, which mke2fs stores, because the same
//! options make the same bytes on each machine.

use nextent_ondisk::mmp::{MAX_CHECK_INTERVAL, MIN_CHECK_INTERVAL, MmpBlock};
use nextent_ondisk::{Incompat, Superblock};

use super::error::MkfsError;
use super::files::Files;
use super::options::MkfsOptions;
use super::room::What;

/// Seconds between heartbeats if the caller chooses none.
const USUAL_INTERVAL: u16 = 5;

impl Files<'_> {
    /// Makes the block, when features ask for it.
    ///
    /// # Errors
    ///
    /// An interval out of range, or no room.
    pub(super) fn add_multi_mount(
        &mut self,
        options: &MkfsOptions,
        sb: &mut Superblock,
    ) -> Result<(), MkfsError> {
        if !sb.features().has(Incompat::MMP) {
            return match options.extended.mmp_update_interval {
                Some(_) => Err(MkfsError::option("mmp_update_interval needs mmp; add -O mmp")),
                None => Ok(()),
            };
        }
        let interval = options.extended.mmp_update_interval.filter(|seconds| *seconds > 0);
        let interval = interval.unwrap_or(USUAL_INTERVAL);
        if interval > MAX_CHECK_INTERVAL {
            let text = format!("an mmp_update_interval of {interval} s is more than 300 s");
            return Err(MkfsError::option(text));
        }
        let no = self.room.take_block(0, What::Block("multiple mount protection"))?;
        let mut block = MmpBlock::clean();
        block.time.set(u64::try_from(self.clock.seconds).unwrap_or(0));
        block.check_interval.set(interval.max(MIN_CHECK_INTERVAL));
        block.seal(self.geometry);
        let mut bytes = self.room.new_block();
        bytes[..block.bytes().len()].copy_from_slice(block.bytes());
        self.room.blocks.push((no, bytes));
        sb.mmp_interval.set(interval);
        sb.mmp_block.set(no.0);
        Ok(())
    }
}
