//! The position of a scan of a directory.
//!
//! A scan goes either in block order or, wherever the directory is indexed or could become so, in
//! the order of (hash, minor hash, name), which no split, packing or conversion changes. Either way
//! an entry that is there during the whole scan is returned exactly once, whatever is inserted or
//! removed meanwhile.
//!
//! The 63-bit cookie of an entry is its key without the name: enough to go on exactly, unless two
//! names share all 63 bits and the reader stopped between them. A [`Cursor`] kept by the reader
//! remembers the name too and is always exact.

use nextent_ondisk::htree::NameHash;

/// A place in a scan: after some entry, or at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    cookie: u64,
    /// The entry before the position, which distinguishes names of one key.
    name: Option<Box<[u8]>>,
}

/// After `.` in hash order.
pub(super) const AFTER_DOT: u64 = 1;
/// After `..` in hash order.
pub(super) const AFTER_DOTDOT: u64 = 2;

impl Cursor {
    /// The start of a scan.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The place after the entry that came with `cookie`; 0 is the start.
    #[must_use]
    pub(crate) fn from_cookie(cookie: u64) -> Self {
        Self { cookie, name: None }
    }

    /// The place as a number below 2^63.
    #[must_use]
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }

    pub(super) fn set(&mut self, cookie: u64, name: Option<&[u8]>) {
        self.cookie = cookie;
        self.name = name.map(Into::into);
    }

    /// Whether the entry with this cookie and name comes after the place, in hash order.
    pub(super) fn is_before(&self, cookie: u64, name: &[u8]) -> bool {
        match &self.name {
            Some(mine) if cookie == self.cookie => name > &mine[..],
            _ => cookie > self.cookie,
        }
    }
}

/// The cookie after an entry of this hash: above all those of `.` and `..`.
pub(super) fn cookie_of(hash: NameHash) -> u64 {
    ((u64::from(hash.major >> 1) + 1) << 32) | u64::from(hash.minor)
}

/// The hash at which to look for entries after `cookie`.
pub(super) fn major_of(cookie: u64) -> u32 {
    let high = u32::try_from(cookie >> 32).unwrap_or(u32::MAX);
    high.saturating_sub(1).min(u32::MAX >> 1) << 1
}
