//! Changes the numbers of inodes that hold values, in place.

use zerocopy::FromBytes;

use super::{BLOCK_HEADER, INODE_HEADER, LIST_END, RawEntry, entry_len, in_block, in_inode};
use crate::error::Corrupt;
use crate::{Geometry, InodeNo};

/// Stores `to` in each entry whose value is in inode `from`, of the attributes in an inode. Returns
/// the number of such entries. Hashes of entries do not depend on the number.
///
/// # Errors
///
/// As [`in_inode`].
pub fn renumber_in_inode(
    geometry: &Geometry,
    area: &mut [u8],
    from: InodeNo,
    to: InodeNo,
) -> Result<usize, Corrupt> {
    let empty = in_inode(geometry, area)?.is_empty();
    Ok(if empty { 0 } else { renumber(&mut area[INODE_HEADER..], from, to) })
}

/// As [`renumber_in_inode`], of the attributes in a block. [`super::seal`] sets its checksum.
///
/// # Errors
///
/// As [`in_block`].
pub fn renumber_in_block(
    geometry: &Geometry,
    block: &mut [u8],
    from: InodeNo,
    to: InodeNo,
) -> Result<usize, Corrupt> {
    in_block(geometry, block)?;
    Ok(renumber(&mut block[BLOCK_HEADER..], from, to))
}

/// Changes the entries of a checked list.
fn renumber(mut list: &mut [u8], from: InodeNo, to: InodeNo) -> usize {
    let mut found = 0;
    while list.first_chunk::<LIST_END>().is_some_and(|start| *start != [0; LIST_END]) {
        let Ok((raw, _)) = RawEntry::mut_from_prefix(list) else { break };
        if raw.value_ino.get() == from.0 {
            raw.value_ino.set(to.0);
            found += 1;
        }
        let len = entry_len(usize::from(raw.name_len));
        list = list.get_mut(len..).unwrap_or_default();
    }
    found
}
