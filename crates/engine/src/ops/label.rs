//! The label of the volume.

use nextent_ondisk::superblock::MAX_LABEL;

use crate::error::{Error, Result};
use crate::ops::Inodes;

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
        self.report(self.change_copies(&|sb| sb.set_label_bytes(label)))
    }
}
