//! The attributes of a file that is written as a whole.

use nextent_ondisk::Geometry;
use nextent_ondisk::acl::Acl;

use super::change::{arrange, checked_value};
use super::name::XattrName;
use super::state::{Attribute, List};
use crate::{Error, FileType, Result};

/// Where attributes go that were laid out.
pub(crate) struct Laid {
    /// A block of those that the inode has no room for, with its hash.
    pub(crate) block: Option<(Vec<u8>, u32)>,
    /// Those left out, by number, and why.
    pub(crate) refused: Vec<(usize, Error)>,
}

/// Lays out `attributes` of a file of `kind`, one after the other by the rules of
/// [`put`](super::put): those that fit into `area`, the inode's spare bytes, go there.
pub(crate) fn lay_out(
    geometry: &Geometry,
    kind: FileType,
    attributes: &[(Vec<u8>, Vec<u8>)],
    area: &mut [u8],
) -> Laid {
    let (mut inside, mut outside) = (List::default(), List::default());
    let mut refused = Vec::new();
    for (at, (name, value)) in attributes.iter().enumerate() {
        let placed = accept(kind, name, value).and_then(|accepted| match accepted {
            None => Ok(()),
            Some((name, attribute)) => {
                let both = (&inside, &outside);
                let attribute = Some(attribute);
                let block_len = geometry.block_len();
                let placed = arrange(block_len, area, both, name, attribute)?;
                (inside, outside) = placed;
                Ok(())
            }
        });
        if let Err(error) = placed {
            refused.push((at, error));
        }
    }
    if !inside.is_empty() {
        inside.write_inside(area);
    }
    let block = (!outside.is_empty()).then(|| outside.to_block(geometry.block_len())).flatten();
    Laid { block, refused }
}

/// The attribute as it is stored; `None` for an access list that says no more than the mode.
fn accept<'n>(
    kind: FileType,
    name: &'n [u8],
    value: &[u8],
) -> Result<Option<(XattrName<'n>, Attribute)>> {
    let parts = XattrName::new(name)?;
    if name.starts_with(b"user.") && !matches!(kind, FileType::Regular | FileType::Directory) {
        return Err(Error::Perm);
    }
    if parts == XattrName::ACL_DEFAULT && kind != FileType::Directory {
        return Err(Error::Access);
    }
    if parts == XattrName::ACL_ACCESS {
        if kind == FileType::Symlink {
            return Err(Error::NotSupported);
        }
        let list = Acl::from_xattr(value).map_err(|_| Error::Invalid)?;
        if list.entries.is_empty() || list.is_minimal() {
            return Ok(None);
        }
    }
    let value = checked_value(parts, value)?;
    Ok(Some((parts, Attribute::new(parts, &value))))
}
