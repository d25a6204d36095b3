//! Encodes a list: entries from the start, values from the end, in the same order.

use zerocopy::IntoBytes;

use super::{
    BLOCK_HEADER, INODE_HEADER, LIST_END, MAGIC, MAX_NAME, RawEntry, RawHeader, Value, XattrEntry,
    block_hash, entry_hash, entry_len, padded,
};

fn value_len(entry: &XattrEntry<'_>) -> usize {
    match entry.value {
        Value::Bytes(bytes) => padded(bytes.len()),
        Value::Inode(..) => 0,
    }
}

/// Bytes of the entries, their values and the end of the list, without a header.
#[must_use]
pub fn space_for<'a>(entries: impl IntoIterator<Item = XattrEntry<'a>>) -> usize {
    entries.into_iter().map(|entry| entry_len(entry.name.len()) + value_len(&entry)).sum::<usize>()
        + LIST_END
}

/// Writes the list into `area` from `at` on. Value offsets count from `base`.
fn put(area: &mut [u8], at: usize, base: usize, entries: &[XattrEntry<'_>]) {
    let (mut front, mut back) = (at, area.len());
    for entry in entries {
        assert!((..=MAX_NAME).contains(&entry.name.len()), "a name has at most 255 bytes");
        let (mut offset, mut ino, mut size) = (0, 0, 0);
        match entry.value {
            Value::Bytes(&[]) => {}
            Value::Bytes(bytes) => {
                back -= padded(bytes.len());
                area[back..back + bytes.len()].copy_from_slice(bytes);
                (offset, size) = (back - base, bytes.len() as u32);
            }
            Value::Inode(number, len) => (ino, size) = (number.0, len),
        }
        let raw = RawEntry {
            name_len: entry.name.len() as u8,
            name_index: entry.index,
            value_offset: (offset as u16).into(),
            value_ino: ino.into(),
            value_size: size.into(),
            hash: entry.hash.into(),
        };
        let (head, name) = (raw.as_bytes(), front + super::ENTRY_HEADER);
        area[front..name].copy_from_slice(head);
        area[name..name + entry.name.len()].copy_from_slice(entry.name);
        front += entry_len(entry.name.len());
    }
}

/// Encodes the attributes of an inode into `area`. Returns `false`, with `area` unchanged, if they
/// do not fit. Without entries the area becomes all zeros. Entries whose value lies in the area
/// store no hash.
///
/// # Panics
///
/// If a name is longer than 255 bytes.
pub fn write_inode(area: &mut [u8], entries: &[XattrEntry<'_>]) -> bool {
    let need = INODE_HEADER + space_for(entries.iter().copied());
    if !entries.is_empty() && need > area.len() {
        return false;
    }
    area.fill(0);
    if entries.is_empty() {
        return true;
    }
    // Values start at a multiple of four, whatever the area's length.
    let end = area.len() / 4 * 4;
    let area = &mut area[..end];
    area[..INODE_HEADER].copy_from_slice(&MAGIC.to_le_bytes());
    let plain: Vec<_> = entries
        .iter()
        .map(|entry| match entry.value {
            Value::Bytes(_) => XattrEntry { hash: 0, ..*entry },
            Value::Inode(..) => *entry,
        })
        .collect();
    put(area, INODE_HEADER, INODE_HEADER, &plain);
    true
}

/// Encodes a block of attributes with one reference and returns its hash. Returns `None`, with
/// `block` unchanged, if they do not fit. It sorts the entries and computes the hashes of those
/// whose value lies in the block. [`super::seal`] adds the checksum.
///
/// # Panics
///
/// If a name is longer than 255 bytes.
pub fn write_block(block: &mut [u8], entries: &[XattrEntry<'_>]) -> Option<u32> {
    if BLOCK_HEADER + space_for(entries.iter().copied()) > block.len() {
        return None;
    }
    let mut sorted: Vec<_> = entries
        .iter()
        .map(|entry| match entry.value {
            Value::Bytes(bytes) => XattrEntry { hash: entry_hash(entry.name, bytes), ..*entry },
            Value::Inode(..) => *entry,
        })
        .collect();
    sorted.sort_by_key(|entry| (entry.index, entry.name.len(), entry.name));
    let hash = block_hash(sorted.iter().map(|entry| entry.hash));
    block.fill(0);
    let header = RawHeader {
        magic: MAGIC.into(),
        refcount: 1.into(),
        blocks: 1.into(),
        hash: hash.into(),
        checksum: 0.into(),
        reserved: [0.into(); 3],
    };
    block[..BLOCK_HEADER].copy_from_slice(header.as_bytes());
    put(block, BLOCK_HEADER, 0, &sorted);
    Some(hash)
}
