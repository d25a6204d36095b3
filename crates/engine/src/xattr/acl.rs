//! Access lists: what they grant, and how they, the mode bits and new files go together.
//!
//! Source: acl(5) and POSIX 1003.1e draft 17, section 23.

use nextent_num::to_u64;
use nextent_ondisk::BlockNo;
use nextent_ondisk::acl::{Acl, AclEntry, Tag};
use nextent_store::Handle;

use super::change::set_acl;
use super::cx::{AttrStorage, XattrCx};
use super::name::XattrName;
use super::read::stored;
use crate::{Cred, Result};

/// The list that governs access to the inode; `None` if only the mode bits do.
///
/// # Errors
/// `Corrupt`, also for a list that breaks the rules.
pub(crate) fn access_list(cx: &XattrCx<'_>, area: &[u8], block: BlockNo) -> Result<Option<Acl>> {
    read(cx, area, block, XattrName::ACL_ACCESS)
}

/// The list that a directory hands to what is made in it.
///
/// # Errors
/// As [`access_list`].
pub(crate) fn default_list(cx: &XattrCx<'_>, area: &[u8], block: BlockNo) -> Result<Option<Acl>> {
    read(cx, area, block, XattrName::ACL_DEFAULT)
}

fn read(cx: &XattrCx<'_>, area: &[u8], block: BlockNo, name: XattrName<'_>) -> Result<Option<Acl>> {
    let Some(value) = stored(cx, area, block, name)? else { return Ok(None) };
    let acl = Acl::from_disk(&value).map_err(|e| cx.place(e, None))?;
    if acl.entries.is_empty() {
        return Ok(None);
    }
    if !acl.is_valid() {
        let rule = "order or number of entries";
        let count = to_u64(acl.entries.len());
        let error = nextent_ondisk::Corrupt::field(nextent_ondisk::Structure::Acl, rule, count);
        return Err(cx.place(error, None));
    }
    Ok(Some(acl))
}

/// Stores a directory's default list, or takes it away.
///
/// # Errors
/// As [`put`](super::put).
pub(crate) fn set_default(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    acl: Option<&Acl>,
) -> Result<i64> {
    set_acl(cx, h, storage, XattrName::ACL_DEFAULT, acl)
}

/// Stores the list that governs access; one that says no more than mode bits is not stored, and
/// takes away what there was. The mode bits must be set to [`Acl::mode_bits`] in the same handle.
///
/// # Errors
/// As [`put`](super::put).
pub(crate) fn set_access(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    acl: Option<&Acl>,
) -> Result<i64> {
    set_acl(cx, h, storage, XattrName::ACL_ACCESS, acl.filter(|acl| !acl.is_minimal()))
}

/// The `rwx` bits that the unprivileged `cred` gets of a file of `uid` and `gid` with this valid
/// list. Of several groups of a user a single one must grant all that is needed, so the result has
/// all bits of `want` or access is refused.
pub(crate) fn granted(acl: &Acl, cred: &Cred, (uid, gid): (u32, u32), want: u16) -> u16 {
    let perm = |tag| acl.perm_of(tag).unwrap_or(0);
    if cred.uid == uid {
        return perm(Tag::UserObj);
    }
    let mask = acl.perm_of(Tag::Mask).unwrap_or(7);
    if let Some(named) = acl.perm_of(Tag::User(cred.uid)) {
        return named & mask;
    }
    let mut matched = false;
    for entry in &acl.entries {
        let mine = match entry.tag {
            Tag::GroupObj => cred.in_group(gid),
            Tag::Group(group) => cred.in_group(group),
            _ => false,
        };
        matched |= mine;
        if mine && entry.perm & mask & want == want {
            return entry.perm & mask;
        }
    }
    if matched { 0 } else { perm(Tag::Other) }
}

/// What a new node takes from its directory's default list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Its mode: the bits asked for, as far as the list grants them.
    pub(crate) mode: u16,
    /// Its own list, if it says more than the mode.
    pub(crate) access: Option<Acl>,
}

/// The list and mode of a node made with `mode` in a directory with this default list. The umask
/// does not count; a directory also takes the default list as its own.
pub(crate) fn inherit(default: &Acl, mode: u16) -> Inherited {
    let mut access = default.clone();
    let has_mask = default.perm_of(Tag::Mask).is_some();
    let mut bits = mode;
    for entry in &mut access.entries {
        let Some(shift) = shift_of(entry.tag, has_mask) else { continue };
        entry.perm &= mode >> shift;
        bits &= !(7 << shift) | entry.perm << shift;
    }
    Inherited { mode: bits, access: Some(access).filter(|acl| !acl.is_minimal()) }
}

/// The list after the mode bits were set to `mode`: the mask, if there is one, takes the group's.
pub(crate) fn after_chmod(acl: &Acl, mode: u16) -> Acl {
    let has_mask = acl.perm_of(Tag::Mask).is_some();
    let change = |entry: &AclEntry| match shift_of(entry.tag, has_mask) {
        Some(shift) => AclEntry { tag: entry.tag, perm: mode >> shift & 7 },
        None => *entry,
    };
    Acl { entries: acl.entries.iter().map(change).collect() }
}

/// Where the entry's permissions are in the mode, if they are there.
fn shift_of(tag: Tag, has_mask: bool) -> Option<u16> {
    match tag {
        Tag::UserObj => Some(6),
        Tag::Mask => Some(3),
        Tag::GroupObj if !has_mask => Some(3),
        Tag::Other => Some(0),
        _ => None,
    }
}
