//! The root directory and `lost+found`.

use nextent_ondisk::dirent::{self, NewEntry};
use nextent_ondisk::inode::{self, FileType};
use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{GroupNo, Inode, InodeNo};

use super::error::MkfsError;
use super::files::Files;

/// What `lost+found` can hold without a new block: e2fsck must not allocate any there.
const LOST_FOUND_BYTES: u32 = 16 * 1024;
const LOST_FOUND: &[u8] = b"lost+found";

impl Files<'_> {
    /// Makes the root, with this owner and these permission bits, and `lost+found` in it.
    ///
    /// # Errors
    ///
    /// No room.
    pub(super) fn add_directories(
        &mut self,
        owner: (u32, u32),
        mode: u16,
    ) -> Result<(), MkfsError> {
        let lost_found = self.geometry.first_inode;
        let mut root = self.new_inode(FileType::Directory.mode_bits() | mode & 0o7777);
        (root.uid, root.gid) = owner;
        // Its own ".", its name in itself (".."), and the ".." of lost+found.
        root.links = 3;
        let slot = NewEntry::new(lost_found, FileType::Directory, LOST_FOUND);
        self.add_directory((ROOT_INO, 0), root, 1, Some(slot))?;

        let mut inode = self.new_inode(FileType::Directory.mode_bits() | 0o700);
        inode.links = 2;
        let blocks = (LOST_FOUND_BYTES / self.geometry.block_size).clamp(2, 12);
        let (group, _) = self.geometry.inode_group(lost_found)?;
        // Where its inode lies: with few inodes to a group that is not the first one.
        let lead = GroupNo(group.0 / self.geometry.flex_groups * self.geometry.flex_groups);
        let goal = self.geometry.group_first_block(lead).0;
        self.add_directory((lost_found, goal), inode, blocks, None)
    }

    fn add_directory(
        &mut self,
        (ino, goal): (InodeNo, u64),
        mut inode: Inode,
        blocks: u32,
        entry: Option<NewEntry<'_>>,
    ) -> Result<(), MkfsError> {
        let geometry = self.geometry;
        let runs = self.give_blocks(ino, &mut inode, goal, u64::from(blocks))?;
        inode.size = u64::from(blocks) << geometry.block_bits;
        let seed = inode::csum_seed(geometry, ino, inode.generation);
        let all = runs.iter().flat_map(|run| run.start..run.end()).map(nextent_ondisk::BlockNo);
        let all: Vec<_> = all.collect();
        for (at, &block) in all.iter().enumerate() {
            let mut bytes = self.room.new_block();
            if at == 0 {
                dirent::init_dots(geometry, &mut bytes, ino, ROOT_INO);
                if let Some(slot) = &entry {
                    dirent::insert(geometry, &mut bytes, slot)?;
                }
            } else {
                dirent::init_leaf(geometry, &mut bytes);
            }
            if geometry.features.metadata_csum() {
                dirent::seal(seed, block, &mut bytes);
            }
            self.room.blocks.push((block, bytes));
        }
        self.directories.push((ino, all));
        self.add(ino, inode);
        Ok(())
    }
}
