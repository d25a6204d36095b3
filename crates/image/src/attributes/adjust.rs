//! The interface by which the engines change the attributes of entries.

use super::super::Result;
use super::super::entry::Meta;
use super::Attributes;
use nextent::DiskTime;
use nextent::mkfs::Owner;

/// Changes the attributes of entries before they are used. `()` changes nothing.
pub trait Adjust: Sync {
    /// Whether [`adjust`](Self::adjust) may change more than times.
    fn is_active(&self) -> bool {
        false
    }

    /// Whether [`adjust`](Self::adjust) needs paths.
    fn needs_path(&self) -> bool {
        false
    }

    /// Changes `meta`, of the entry at `path` of the image. The root's path is `/`; that of another
    /// entry is absolute, or empty if no path is needed.
    ///
    /// # Errors
    /// The entry cannot have such attributes; it is left out.
    fn adjust(&self, path: &[u8], meta: &mut Meta) -> Result<()> {
        let _ = (path, meta);
        Ok(())
    }
}

impl Adjust for () {}

/// The changes that a builder makes.
pub(crate) struct Adjuster<'a> {
    pub(crate) attributes: Option<&'a Attributes>,
    /// The owner of the root directory.
    pub(crate) root_owner: Option<Owner>,
    /// The permission bits of the root directory.
    pub(crate) root_mode: Option<u16>,
    /// Extended attributes of the contents are left out.
    pub(crate) no_xattrs: bool,
    /// The latest time that entries may have.
    pub(crate) latest: Option<DiskTime>,
}

impl Adjust for Adjuster<'_> {
    fn is_active(&self) -> bool {
        self.attributes.is_some()
    }

    fn needs_path(&self) -> bool {
        self.attributes.is_some_and(Attributes::needs_path)
    }

    fn adjust(&self, path: &[u8], meta: &mut Meta) -> Result<()> {
        if let Some(latest) = self.latest {
            meta.mtime = meta.mtime.min(latest);
            meta.atime = meta.mtime;
        }
        if self.no_xattrs {
            meta.xattrs.clear();
        }
        if let Some(attributes) = self.attributes {
            attributes.apply(path, meta)?;
        }
        if let Some(mode) = self.root_mode
            && path == b"/"
        {
            meta.mode = mode;
        }
        if let Some(owner) = self.root_owner
            && path == b"/"
        {
            (meta.uid, meta.gid) = (owner.uid, owner.gid);
        }
        Ok(())
    }
}
