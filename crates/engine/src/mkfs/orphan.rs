//! The orphan file: blocks of slots in which kernels record deleted files that are still open.

use nextent_ondisk::orphan::{self, MAX_BLOCKS};
use nextent_ondisk::{BlockNo, Compat, InodeNo, Superblock, inode};

use super::error::MkfsError;
use super::files::Files;
use super::options::MkfsOptions;

const MIN_BLOCKS: u64 = 32;
/// One block of slots for this many blocks of the volume.
const VOLUME_BLOCKS_PER_BLOCK: u64 = 4096;

impl Files<'_> {
    /// Makes the orphan file, when features ask for it.
    ///
    /// # Errors
    ///
    /// A size out of range, or no room.
    pub(super) fn add_orphan_file(
        &mut self,
        options: &MkfsOptions,
        sb: &mut Superblock,
    ) -> Result<(), MkfsError> {
        let geometry = self.geometry;
        if !sb.features().has(Compat::ORPHAN_FILE) {
            return Ok(());
        }
        let count = match options.extended.orphan_file_size {
            Some(bytes) => bytes.div_ceil(u64::from(geometry.block_size)),
            None => (geometry.blocks_count / VOLUME_BLOCKS_PER_BLOCK).clamp(MIN_BLOCKS, MAX_BLOCKS),
        };
        if !(1..=MAX_BLOCKS).contains(&count) {
            let text = format!("the orphan file would have {count} blocks of at most {MAX_BLOCKS}");
            return Err(MkfsError::option(text));
        }
        let ino = InodeNo(self.highest_inode() + 1);
        let mut file = self.new_system_file();
        file.size = count << geometry.block_bits;
        let runs = self.give_blocks(ino, &mut file, 0, count)?;
        let seed = inode::csum_seed(geometry, ino, file.generation);
        for block in runs.iter().flat_map(|run| run.start..run.end()).map(BlockNo) {
            let mut bytes = self.room.new_block();
            orphan::init(&mut bytes);
            if geometry.features.metadata_csum() {
                orphan::seal(seed, block, &mut bytes);
            }
            self.room.blocks.push((block, bytes));
        }
        sb.orphan_file_inum.set(ino.0);
        self.add(ino, file);
        Ok(())
    }
}
