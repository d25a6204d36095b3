//! The label of the volume.

use nextent_ondisk::superblock::{MAX_LABEL, SUPER_SIZE};
use nextent_ondisk::{BlockNo, Superblock};
use nextent_store::Handle;
use nextent_sync::{LockClass, Mutex};

use crate::error::{Error, Result};
use crate::ops::Inodes;

static LABEL: LockClass = LockClass::new("volume.label", 87);

/// Orders changes of the label, so that all copies get the same one.
pub(super) fn lock() -> Mutex<()> {
    Mutex::new(&LABEL, ())
}

impl Inodes {
    /// The label, up to 16 bytes.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.fs.sup.with(|sb| sb.label_bytes().to_vec())
    }

    /// Changes the label in the superblock and in all its backups. A backup that is damaged stays
    /// as it is. A crash before the next commit can leave backups with the earlier label.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 16 bytes, or a zero byte; [`Error::ReadOnly`].
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.fs.check_writable()?;
        if label.len() > MAX_LABEL || label.contains(&0) {
            return Err(Error::Invalid);
        }
        self.report(self.write_label(label))
    }

    fn write_label(&self, label: &[u8]) -> Result<()> {
        let fs = &self.fs;
        let _turn = self.label.lock();
        let h = fs.start(1)?;
        fs.sup.change(&h, |sb| sb.set_label_bytes(label));
        drop(h);
        let backups = fs.geometry.groups().skip(1);
        for block in backups.filter_map(|group| fs.geometry.super_block_of(group)) {
            // A handle each, since a volume may have thousands of backups.
            let h = fs.start(1)?;
            self.label_backup(&h, block, label)?;
        }
        Ok(())
    }

    fn label_backup(&self, h: &Handle<'_>, block: BlockNo, label: &[u8]) -> Result<()> {
        let block = self.fs.store.read::<Error>(block, |_| Ok(()))?;
        let sound = Superblock::read(&block.image()).is_ok_and(|sb| sb.verify_checksum().is_ok());
        if sound {
            h.update(&block, |bytes| {
                if let Ok(mut sb) = Superblock::read(bytes) {
                    sb.set_label_bytes(label);
                    sb.seal();
                    bytes[..SUPER_SIZE].copy_from_slice(sb.bytes());
                }
            });
        }
        Ok(())
    }
}
