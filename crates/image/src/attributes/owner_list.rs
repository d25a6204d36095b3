//! Files of owners in either format.

use super::list_file::{AttributesError, ListFile};
use super::{Attributes, DeviceTable, FakerootState};
use std::path::Path;

impl Attributes {
    /// Reads a file of owners: a device table of genext2fs ([`DeviceTable`]) or a state file of
    /// `fakeroot -s` ([`FakerootState`]), recognised by its first line. Several files may be added,
    /// one of each kind.
    ///
    /// # Errors
    ///
    /// [`AttributesError`]
    pub fn owners(self, path: impl AsRef<Path>) -> Result<Self, AttributesError> {
        let file = ListFile::read(path.as_ref())?;
        let second = |what: &str| Err(file.whole(format!("a second {what}; there may be one")));
        match FakerootState::recognises(&file) {
            true if self.state.is_some() => second("state file of fakeroot"),
            true => Ok(self.fakeroot_state(FakerootState::parse(&file)?)),
            false if self.table.is_some() => second("device table"),
            false => Ok(self.device_table(DeviceTable::parse(&file)?)),
        }
    }
}
