//! Setting and removing attributes.

use nextent_ondisk::acl::Acl;
use nextent_ondisk::{BlockNo, Incompat, xattr};
use nextent_store::Handle;

use super::cx::{AttrStorage, XattrCx};
use super::name::XattrName;
use super::share;
use super::state::{Attribute, List};
use crate::map::{BlockKind, BlockRequest};
use crate::{Error, Result};

/// Blocks a change dirties, besides those of one allocation or one free: the block left and the
/// block joined.
pub(crate) const CREDITS: u32 = 2;

/// Which attributes there may be before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Any,
    None,
    One,
}

/// Sets an attribute, whether it is there or not. Access lists come in the form of Linux's calls.
///
/// All verbs return by how many blocks the inode now has more (or less).
///
/// # Errors
/// [`Error::AttributesFull`] if it fits neither place; [`Error::NoSpace`]; [`Error::TooBig`] for a
/// value above 64 KiB; [`Error::Invalid`] for a list that is none; `Unsupported` where values may
/// be inodes; `Corrupt`.
pub(crate) fn put(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    name: XattrName<'_>,
    value: &[u8],
) -> Result<i64> {
    set(cx, h, storage, (name, Some(value)), Before::Any)
}

/// As [`put`], for an attribute that is not there.
///
/// # Errors
/// [`Error::Exists`]; as [`put`].
pub(crate) fn create(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    name: XattrName<'_>,
    value: &[u8],
) -> Result<i64> {
    set(cx, h, storage, (name, Some(value)), Before::None)
}

/// As [`put`], for an attribute that is there.
///
/// # Errors
/// [`Error::NoData`]; as [`put`].
pub(crate) fn replace(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    name: XattrName<'_>,
    value: &[u8],
) -> Result<i64> {
    set(cx, h, storage, (name, Some(value)), Before::One)
}

/// Removes an attribute.
///
/// # Errors
/// [`Error::NoData`] if there is none; [`Error::NoSpace`] if the block is shared and there is no
/// space for one without the attribute; as [`put`].
pub(crate) fn remove(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    name: XattrName<'_>,
) -> Result<i64> {
    set(cx, h, storage, (name, None), Before::One)
}

/// Gives up the block of an inode that is being freed.
///
/// # Errors
/// `Corrupt`, or what freeing says.
pub(crate) fn drop_all(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
) -> Result<i64> {
    if *storage.block == BlockNo(0) {
        return Ok(0);
    }
    share::release(cx, h, *storage.block)?;
    *storage.block = BlockNo(0);
    Ok(-1)
}

fn set(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    (name, value): (XattrName<'_>, Option<&[u8]>),
    before: Before,
) -> Result<i64> {
    if cx.geometry.features.has(Incompat::EA_INODE) {
        return Err(Error::unsupported("changing attributes with feature ea_inode"));
    }
    let value = value.map(|value| checked_value(name, value)).transpose()?;
    let inside = List::inside(cx, storage.area)?;
    let outside = List::outside(cx, *storage.block)?;
    let old = inside.find(name).or_else(|| outside.find(name));
    match (before, old) {
        (Before::None, Some(_)) => return Err(Error::Exists),
        (Before::One, None) => return Err(Error::NoData),
        _ => {}
    }
    let attribute = value.map(|value| Attribute::new(name, &value));
    if let (Some(old), Some(new)) = (old, &attribute)
        && old.value == new.value
    {
        return Ok(0);
    }
    let (new_inside, new_outside) =
        arrange(cx.geometry.block_len(), storage.area, (&inside, &outside), name, attribute)?;
    // The block first: all that can fail is there.
    let change =
        if new_outside == outside { 0 } else { store_block(cx, h, storage, &new_outside)? };
    if new_inside != inside {
        new_inside.write_inside(storage.area);
    }
    Ok(change)
}

/// The value as it is stored: for an access list the other form of a valid one.
pub(super) fn checked_value(name: XattrName<'_>, value: &[u8]) -> Result<Vec<u8>> {
    if value.len() > xattr::MAX_VALUE {
        return Err(Error::TooBig);
    }
    if !name.is_acl() {
        return Ok(value.to_vec());
    }
    match Acl::from_xattr(value) {
        Ok(acl) if acl.is_valid() => Ok(acl.to_disk()),
        _ => Err(Error::Invalid),
    }
}

/// Both lists after the change: the attribute in the inode if it fits there, else in the block.
pub(super) fn arrange(
    block_len: usize,
    area: &[u8],
    (inside, outside): (&List, &List),
    name: XattrName<'_>,
    attribute: Option<Attribute>,
) -> Result<(List, List)> {
    let without = (inside.without(name), outside.without(name));
    let Some(attribute) = attribute else { return Ok(without) };
    let within = inside.with(attribute.clone());
    if within.fits_inside(area) {
        return Ok((within, without.1));
    }
    let beside = outside.with(attribute);
    if beside.to_block(block_len).is_none() {
        return Err(Error::AttributesFull);
    }
    Ok((without.0, beside))
}

/// Gives the inode a block with exactly `list`: none, a shared one, its own changed, or a new one.
fn store_block(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    list: &List,
) -> Result<i64> {
    let old = *storage.block;
    if list.is_empty() {
        return drop_all(cx, h, storage);
    }
    let (bytes, hash) = list.to_block(cx.geometry.block_len()).ok_or(Error::AttributesFull)?;
    if let Some(shared) = share::join(cx, h, &bytes, hash)? {
        *storage.block = shared;
        return leave(cx, h, old);
    }
    if old != BlockNo(0)
        && let Some(block) = share::claim(cx, old)?
    {
        h.update(&block, |image| image.copy_from_slice(&bytes));
        share::publish(cx, hash, old);
        return Ok(0);
    }
    let request = BlockRequest {
        goal: cx.goal,
        want: 1,
        min: 1,
        kind: BlockKind::Metadata,
        privilege: cx.privilege,
        ino: cx.ino,
    };
    let no = cx.space.allocate(h, &request)?.start;
    let block = h.create(no, cx.seal());
    h.update(&block, |image| image.copy_from_slice(&bytes));
    share::publish(cx, hash, no);
    *storage.block = no;
    leave(cx, h, old)
}

/// Leaves the block `old`, if there was one, for another.
fn leave(cx: &XattrCx<'_>, h: &Handle<'_>, old: BlockNo) -> Result<i64> {
    if old == BlockNo(0) {
        return Ok(1);
    }
    share::release(cx, h, old)?;
    Ok(0)
}

/// Sets an access list or, with `None`, takes it away; no error if there was none.
pub(super) fn set_acl(
    cx: &XattrCx<'_>,
    h: &Handle<'_>,
    storage: &mut AttrStorage<'_>,
    name: XattrName<'_>,
    acl: Option<&Acl>,
) -> Result<i64> {
    let Some(acl) = acl else {
        let gone = set(cx, h, storage, (name, None), Before::One);
        return if matches!(gone, Err(Error::NoData)) { Ok(0) } else { gone };
    };
    put(cx, h, storage, name, &acl.to_xattr())
}
