//! Reading attributes.

use nextent_ondisk::BlockNo;
use nextent_ondisk::acl::Acl;

use super::cx::XattrCx;
use super::name::XattrName;
use super::state::{Attribute, List, Stored};
use crate::{Error, Result};

/// The value of an attribute, as it is stored.
pub(super) fn stored(
    cx: &XattrCx<'_>,
    area: &[u8],
    block: BlockNo,
    name: XattrName<'_>,
) -> Result<Option<Vec<u8>>> {
    let value = |a: &Attribute| match &a.value {
        Stored::Here(bytes) => Ok(bytes.clone()),
        Stored::There(ino, size) => cx.values.read_value(*ino, *size),
    };
    if let Some(found) = List::inside(cx, area)?.find(name) {
        return value(found).map(Some);
    }
    List::outside(cx, block)?.find(name).map(value).transpose()
}

/// The value of an attribute; access lists in the form of Linux's calls.
///
/// # Errors
/// [`Error::NoData`] if there is none; `Corrupt`, or what reading the block says.
pub(crate) fn get(
    cx: &XattrCx<'_>,
    area: &[u8],
    block: BlockNo,
    name: XattrName<'_>,
) -> Result<Vec<u8>> {
    let value = stored(cx, area, block, name)?.ok_or(Error::NoData)?;
    if !name.is_acl() {
        return Ok(value);
    }
    let acl = Acl::from_disk(&value).map_err(|e| cx.place(e, None))?;
    Ok(acl.to_xattr())
}

/// The full names of all attributes that users see, those in the inode first.
///
/// # Errors
/// `Corrupt`, or what reading the block says.
pub(crate) fn list(cx: &XattrCx<'_>, area: &[u8], block: BlockNo) -> Result<Vec<Vec<u8>>> {
    let (inside, outside) = (List::inside(cx, area)?, List::outside(cx, block)?);
    Ok(inside.iter().chain(outside.iter()).filter_map(|a| a.name().full()).collect())
}
