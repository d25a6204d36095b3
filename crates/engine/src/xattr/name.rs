//! Full names and their parts.

use nextent_ondisk::xattr::{self, index};

use crate::{Error, Result};

/// A name as it is stored: the number of its prefix and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XattrName<'a> {
    /// The number.
    pub(crate) index: u8,
    /// What follows the prefix; empty for access lists.
    pub(crate) rest: &'a [u8],
}

impl<'a> XattrName<'a> {
    /// `system.posix_acl_access`.
    pub(crate) const ACL_ACCESS: XattrName<'static> =
        XattrName { index: index::POSIX_ACL_ACCESS, rest: b"" };
    /// `system.posix_acl_default`.
    pub(crate) const ACL_DEFAULT: XattrName<'static> =
        XattrName { index: index::POSIX_ACL_DEFAULT, rest: b"" };
    /// `system.data`, where inline data goes on. No user sees it.
    pub(crate) const INLINE_DATA: XattrName<'static> =
        XattrName { index: index::SYSTEM, rest: b"data" };

    /// The parts of a user's name.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a prefix that is unknown or not for users, [`Error::Range`] for
    /// a name of more than 255 bytes, [`Error::Invalid`] for one with a zero byte.
    pub(crate) fn new(full: &'a [u8]) -> Result<Self> {
        if full.len() > xattr::MAX_NAME || full.is_empty() {
            return Err(Error::Range);
        }
        if full.contains(&0) {
            return Err(Error::Invalid);
        }
        let (index, rest) = xattr::split_name(full).ok_or(Error::NotSupported)?;
        if index == index::SYSTEM {
            return Err(Error::NotSupported);
        }
        Ok(Self { index, rest })
    }

    /// The full name; none for what users do not see.
    pub(super) fn full(self) -> Option<Vec<u8>> {
        if self.index == index::SYSTEM {
            return None;
        }
        xattr::full_name(self.index, self.rest)
    }

    /// Whether the value is an access list.
    pub(super) fn is_acl(self) -> bool {
        matches!(self.index, index::POSIX_ACL_ACCESS | index::POSIX_ACL_DEFAULT)
    }
}
