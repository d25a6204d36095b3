//! POSIX access control lists in their two forms: on disk, and as the extended attribute that
//! programs exchange with the kernel.
//!
//! The form on disk omits the user or group number of entries that do not use one.
//!
//! Source: ext4 disk layout documentation, "POSIX ACLs"; acl(5) for the rules of a valid list.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use crate::error::{Corrupt, Structure};

/// The version of the disk form.
const DISK_VERSION: u32 = 1;
/// The version of the attribute form.
const XATTR_VERSION: u32 = 2;
/// The user or group number, in the attribute form, of an entry that has none.
const NO_ID: u32 = u32::MAX;
/// More entries than fit into any block.
const MAX_ENTRIES: usize = 8192;

/// The user or group that an entry applies to. The order is that of a valid list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// The owner of the file.
    UserObj,
    /// A user.
    User(u32),
    /// The group of the file.
    GroupObj,
    /// A group.
    Group(u32),
    /// The most that an entry for a user or a group may grant.
    Mask,
    /// All other users.
    Other,
}

impl Tag {
    fn code(self) -> u16 {
        match self {
            Self::UserObj => 0x01,
            Self::User(_) => 0x02,
            Self::GroupObj => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }

    fn of_code(code: u16, id: impl FnOnce() -> Option<u32>) -> Option<Self> {
        Some(match code {
            0x01 => Self::UserObj,
            0x02 => Self::User(id()?),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id()?),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    /// The position in a valid list, ignoring user and group numbers.
    fn rank(self) -> u16 {
        self.code().trailing_zeros() as u16
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The user or group that the entry applies to.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
}

/// A list, in stored order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The entries.
    pub entries: Vec<AclEntry>,
}

fn bad<T>(name: &'static str, value: impl Into<u64>) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::Acl, name, value))
}

fn version(bytes: &[u8], expected: u32) -> Result<&[u8], Corrupt> {
    match U32::ref_from_prefix(bytes) {
        Ok((version, rest)) if version.get() == expected => Ok(rest),
        Ok((version, _)) => bad("version", version.get()),
        Err(_) => Err(Corrupt::too_short(Structure::Acl, 4, bytes.len())),
    }
}

/// Parses one entry. Without `short`, every entry stores a user or group number.
fn take(bytes: &[u8], short: bool) -> Result<(AclEntry, &[u8]), Corrupt> {
    let too_short = || Corrupt::too_short(Structure::Acl, 8, bytes.len());
    let ([code, perm], rest) = <[U16; 2]>::ref_from_prefix(bytes).map_err(|_| too_short())?;
    let id = U32::ref_from_prefix(rest).ok().map(|(id, _)| id.get());
    let Some(tag) = Tag::of_code(code.get(), || id) else { return bad("e_tag", code.get()) };
    if perm.get() > 7 {
        return bad("e_perm", perm.get());
    }
    let skip = if short && tag.id().is_none() { 0 } else { 4 };
    let rest = rest.get(skip..).ok_or_else(too_short)?;
    Ok((AclEntry { tag, perm: perm.get() }, rest))
}

fn read(mut bytes: &[u8], short: bool) -> Result<Acl, Corrupt> {
    let mut acl = Acl::default();
    while !bytes.is_empty() {
        let (entry, rest) = take(bytes, short)?;
        if acl.entries.len() == MAX_ENTRIES {
            return bad("number of entries", acl.entries.len() as u64);
        }
        acl.entries.push(entry);
        bytes = rest;
    }
    Ok(acl)
}

impl Acl {
    /// Parses the disk form.
    ///
    /// # Errors
    ///
    /// Another version, an unknown tag, unknown permission bits, or a truncated entry.
    /// [`Self::is_valid`] checks order and completeness.
    pub fn from_disk(bytes: &[u8]) -> Result<Self, Corrupt> {
        read(version(bytes, DISK_VERSION)?, true)
    }

    /// Parses the attribute form.
    ///
    /// # Errors
    ///
    /// As [`Self::from_disk`].
    pub fn from_xattr(bytes: &[u8]) -> Result<Self, Corrupt> {
        read(version(bytes, XATTR_VERSION)?, false)
    }

    /// Encodes the disk form.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        let mut bytes = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.code().to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.tag.id().into_iter().flat_map(u32::to_le_bytes));
        }
        bytes
    }

    /// Encodes the attribute form.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut bytes = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.code().to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        bytes
    }

    /// Whether a program may set this list: it is in order, has one entry each for owner, group and
    /// others, and has a mask if it has entries for further users or groups.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let ranks = || self.entries.iter().map(|entry| entry.tag.rank());
        let count = |tag: Tag| ranks().filter(|rank| *rank == tag.rank()).count();
        let named = count(Tag::User(0)) + count(Tag::Group(0)) > 0;
        let masks = count(Tag::Mask);
        [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(|tag| count(tag) == 1)
            && (masks == 1 || (masks == 0 && !named))
            && ranks().is_sorted()
            && self.entries.iter().all(|entry| entry.perm <= 7 && entry.tag.id() != Some(NO_ID))
    }

    /// The permissions of the first entry with this tag.
    #[must_use]
    pub fn perm_of(&self, tag: Tag) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// The mode bits (owner, group, others) of a file with this list. The mask, if there is one,
    /// takes the place of the group's permissions.
    #[must_use]
    pub fn mode_bits(&self) -> u16 {
        let perm = |tag| self.perm_of(tag).unwrap_or(0);
        let group = self.perm_of(Tag::Mask).unwrap_or_else(|| perm(Tag::GroupObj));
        perm(Tag::UserObj) << 6 | group << 3 | perm(Tag::Other)
    }

    /// Whether mode bits express the same, so that the list need not be stored.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3 && self.is_valid()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(entries: &[(Tag, u16)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect() }
    }

    #[test]
    fn both_forms_round_trip() {
        let acl = list(&[
            (Tag::UserObj, 7),
            (Tag::User(1000), 6),
            (Tag::GroupObj, 5),
            (Tag::Group(70000), 4),
            (Tag::Mask, 6),
            (Tag::Other, 0),
        ]);
        assert!(acl.is_valid() && !acl.is_minimal());
        assert_eq!(acl.mode_bits(), 0o760);
        assert_eq!(acl.to_disk().len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap(), acl);
        assert_eq!(Acl::from_xattr(&acl.to_xattr()).unwrap(), acl);
        assert!(Acl::from_disk(&acl.to_xattr()).is_err());
        assert!(Acl::from_xattr(&acl.to_xattr()[..13]).is_err());
    }

    #[test]
    fn an_incomplete_or_repeated_list_is_not_valid() {
        let full = [(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 5)];
        assert!(list(&full).is_minimal());
        assert!(!list(&full[1..]).is_valid());
        assert!(!list(&[full[1], full[0], full[2]]).is_valid());
        assert!(!list(&[full[0], full[0], full[1], full[2]]).is_valid());
        assert!(!list(&[full[0], (Tag::User(3), 1), full[1], full[2]]).is_valid());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            form in 1u8..3,
        ) {
            let _ = Acl::from_disk(&bytes);
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = match at {
                    0 => form,
                    1..4 => 0,
                    at if at % 2 == 1 => 0,
                    _ => *byte & 7,
                };
            }
            for acl in [Acl::from_disk(&bytes), Acl::from_xattr(&bytes)].into_iter().flatten() {
                let _ = (acl.is_valid(), acl.mode_bits());
                prop_assert_eq!(&Acl::from_disk(&acl.to_disk()).unwrap(), &acl);
            }
        }
    }
}
