//! Changes of the superblock that affect no other structure.

use nextent_ondisk::superblock::{SUPER_SIZE, state};
use nextent_ondisk::{
    BlockNo, Compat, Corrupt, Features, Incompat, RoCompat, Structure, Superblock,
};
use nextent_store::Handle;
use nextent_sync::{LockClass, Mutex};

use crate::error::{Error, Result};
use crate::ops::Inodes;

static LABEL: LockClass = LockClass::new("volume.label", 87);

/// Features without a structure of their own: a volume is valid with and without each of them, but
/// for file types, which e2fsck adds to entries or removes.
const FREE: Features = Features {
    compat: Compat::DIR_INDEX.with(Compat::STABLE_INODES).with(Compat::FAST_COMMIT),
    incompat: Incompat::FILETYPE
        .with(Incompat::EXTENTS)
        .with(Incompat::FLEX_BG)
        .with(Incompat::LARGEDIR)
        .with(Incompat::EA_INODE)
        .with(Incompat::ENCRYPT)
        .with(Incompat::CSUM_SEED),
    ro_compat: RoCompat::LARGE_FILE
        .with(RoCompat::HUGE_FILE)
        .with(RoCompat::DIR_NLINK)
        .with(RoCompat::EXTRA_ISIZE)
        .with(RoCompat::VERITY),
};

/// Orders changes, so that all copies get the same ones.
pub(super) fn lock() -> Mutex<()> {
    Mutex::new(&LABEL, ())
}

impl Inodes {
    /// Changes fields of the superblock and of all its backups that affect no other structure:
    /// names, owners, limits, times, defaults of mounts, features such as `verity`, and the UUID
    /// where no checksum depends on it. `change` is called for each copy. A backup that is damaged
    /// stays as it is.
    ///
    /// The superblock changes in one transaction. A crash before the next commit can leave backups
    /// with the earlier fields. Changed features take effect at the next open.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a superblock that no volume may have; [`Error::NotSupported`] for a
    /// change that affects another structure; [`Error::ReadOnly`].
    pub fn change_superblock(&self, change: &dyn Fn(&mut Superblock)) -> Result<()> {
        self.fs.check_writable()?;
        let mut changed = self.superblock();
        change(&mut changed);
        self.check_changed(&changed)?;
        self.report(self.change_copies(change))
    }

    /// Leaves the volume marked as one that e2fsck must check, also after
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn require_check(&self) -> Result<()> {
        self.fs.check_writable()?;
        let h = self.fs.start(1)?;
        h.bar_fast();
        self.fs.sup.require_check(&h);
        Ok(())
    }

    /// Checks that no other structure depends on what a change made of the superblock.
    fn check_changed(&self, new: &Superblock) -> Result<()> {
        let old = &self.fs.geometry;
        let mut geometry = new.check(u64::MAX)?;
        let both = |features: Features| Features {
            compat: Compat::from_bits(features.compat.bits() & !FREE.compat.bits()),
            incompat: Incompat::from_bits(features.incompat.bits() & !FREE.incompat.bits()),
            ro_compat: RoCompat::from_bits(features.ro_compat.bits() & !FREE.ro_compat.bits()),
        };
        if both(geometry.features) != both(self.superblock().features()) {
            return Err(Error::NotSupported);
        }
        geometry.features = old.features;
        if !old.features.group_csum() {
            (geometry.uuid, geometry.csum_seed) = (old.uuid, old.csum_seed);
        } else if old.features.metadata_csum() {
            geometry.uuid = old.uuid;
        }
        if geometry != **old {
            return Err(Error::NotSupported);
        }
        let (reserved, blocks) = (new.reserved_blocks_count(), new.blocks_count());
        if reserved > blocks {
            let field = "s_r_blocks_count (more than all blocks)";
            return Err(Corrupt::field(Structure::Superblock, field, reserved).into());
        }
        Ok(())
    }

    /// Changes all copies, each in a transaction of its own if need be.
    pub(crate) fn change_copies(&self, change: &dyn Fn(&mut Superblock)) -> Result<()> {
        let fs = &self.fs;
        let _turn = self.label.lock();
        let h = fs.start(1)?;
        h.bar_fast();
        fs.sup.change(&h, |sb| change(sb));
        drop(h);
        let backups = fs.geometry.groups().skip(1);
        for block in backups.filter_map(|group| fs.geometry.super_block_of(group)) {
            // A handle each, since a volume may have thousands of backups.
            let h = fs.start(1)?;
            self.change_backup(&h, block, change)?;
        }
        Ok(())
    }

    fn change_backup(
        &self,
        h: &Handle<'_>,
        block: BlockNo,
        change: &dyn Fn(&mut Superblock),
    ) -> Result<()> {
        let block = self.fs.store.read::<Error>(block, |_| Ok(()))?;
        let sound = Superblock::read(&block.image()).is_ok_and(|sb| sb.verify_checksum().is_ok());
        if sound {
            h.update(&block, |bytes| {
                if let Ok(mut sb) = Superblock::read(bytes) {
                    change(&mut sb);
                    // A copy is never known to be up to date.
                    sb.state.set(sb.state.get() & !state::VALID);
                    sb.seal();
                    bytes[..SUPER_SIZE].copy_from_slice(sb.bytes());
                }
            });
        }
        Ok(())
    }
}
