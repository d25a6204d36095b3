//! Opens a volume with a backup of its superblock and the group descriptors behind it.
//!
//! The device is not written: an overlay has the backup in place of the superblock. Backups are
//! written when a volume is made, resized or checked, so they do not record whether the journal
//! must be replayed. The journal's own superblock records it.

use nextent_device::{BlockDevice, Overlay};
use nextent_num::to_u64;
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{BlockNo, Geometry, Incompat, Superblock};
use nextent_sync::Arc;

use super::journal;
use super::lifecycle::geometry_of;
use crate::error::{Cause, Error, Result};

/// Bytes of the unit in which the place of a backup is given.
const UNIT: u64 = 1024;

/// The volume on `device` with the backup at `block`, in units of 1 KiB.
///
/// # Errors
/// [`Error::Corrupt`] if there is no backup; failed reads.
pub(super) fn overlay(device: Arc<dyn BlockDevice>, block: u64) -> Result<Arc<dyn BlockDevice>> {
    let mut sb = read_backup(&*device, block)?;
    let geometry = geometry_of(&sb, device.size())?;
    let start = first_block(&geometry, block)?;
    let over: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(&device)));
    let mut bytes = vec![0; geometry.block_len()];
    for index in 0..geometry.contiguous_gdt_blocks() {
        let from = BlockNo(start.0 + 1 + u64::from(index));
        let at = |block: BlockNo| block.0 << geometry.block_bits;
        device.read_at(at(from), &mut bytes).map_err(|error| failed("read", &error))?;
        let to = at(geometry.gdt_block(index));
        over.write_at(to, &bytes).map_err(|error| failed("copy", &error))?;
    }
    sb.block_group_nr.set(0);
    write(&*over, &mut sb)?;
    // A damaged journal is an error of the steps to come.
    let journal = journal::locate(&over, &sb, &geometry).ok().flatten();
    if journal.is_some_and(|journal| journal.needs_recovery(&over, &geometry).unwrap_or(false)) {
        let mut features = sb.features();
        features.set(Incompat::RECOVER, true);
        sb.set_features(features);
        write(&*over, &mut sb)?;
    }
    Ok(over)
}

fn read_backup(device: &dyn BlockDevice, block: u64) -> Result<Superblock> {
    let end = block.checked_mul(UNIT).and_then(|at| at.checked_add(to_u64(SUPER_SIZE)));
    if end.is_none_or(|end| end > device.size()) {
        let text = format!("block {block} (of 1 KiB) lies behind the end of the device");
        return Err(Error::Corrupt(Cause::new(text)));
    }
    let mut bytes = [0; SUPER_SIZE];
    device.read_at(block * UNIT, &mut bytes).map_err(|error| failed("read", &error))?;
    let sb = Superblock::read(&bytes).map_err(|_| none(block))?;
    sb.verify_checksum().map_err(|error| {
        Error::Corrupt(Cause::new(format!("backup at block {block} (of 1 KiB): {error}")))
    })?;
    Ok(sb)
}

fn none(block: u64) -> Error {
    let text = format!("block {block} (of 1 KiB) holds no backup of the superblock");
    Error::Corrupt(Cause::new(text))
}

/// The volume's block of the backup: the first one of a group.
fn first_block(geometry: &Geometry, block: u64) -> Result<BlockNo> {
    let start = BlockNo((block * UNIT) >> geometry.block_bits);
    let whole = start.0 << geometry.block_bits == block * UNIT;
    let group = geometry.group_of(start).filter(|group| whole && group.0 > 0);
    let place = group.and_then(|group| geometry.super_block_of(group));
    if place == Some(start) { Ok(start) } else { Err(none(block)) }
}

fn write(over: &dyn BlockDevice, sb: &mut Superblock) -> Result<()> {
    sb.seal();
    over.write_at(SUPER_OFFSET, sb.bytes()).map_err(|error| failed("copy", &error))
}

fn failed(op: &str, source: &std::io::Error) -> Error {
    Error::Io(Cause::new(format!("{op} of a backup of the superblock: {source}")))
}
