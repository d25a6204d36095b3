//! Pass 0: a journal on a device of its own.
//!
//! The device holds a superblock, which only identifies it, and the journal in the blocks after it.
//! Several volumes may use it; the journal's superblock lists them.

use nextent_device::BlockDevice;
use nextent_num::to_usize;
use nextent_ondisk::jbd2::{JournalFeatures, JournalSuperblock};
use nextent_ondisk::superblock::SUPER_OFFSET;
use nextent_ondisk::{Incompat, Superblock};

use super::image::Image;
use super::open::read;
use super::report::Problem;

/// Whether `device` holds the external journal with this identity.
pub fn is_journal(device: &dyn BlockDevice, uuid: [u8; 16]) -> bool {
    read(device, SUPER_OFFSET).is_ok_and(|sb| named(&sb, uuid))
}

fn named(sb: &Superblock, uuid: [u8; 16]) -> bool {
    sb.features().has(Incompat::JOURNAL_DEV) && sb.uuid == uuid
}

/// The superblock of the external journal on `device` and that of its log, if it is one.
#[must_use]
pub fn read_journal(device: &dyn BlockDevice) -> Option<(Superblock, JournalSuperblock)> {
    let sb = read(device, SUPER_OFFSET).ok()?;
    let there = sb.features().has(Incompat::JOURNAL_DEV) && sb.verify_checksum().is_ok();
    let size = 1024_u32.checked_shl(sb.log_block_size.get()).filter(|size| *size <= 65_536);
    let log = log(device, &sb, size.filter(|_| there)?).ok()?;
    Some((sb, log))
}

/// The superblock of the log, in the block after that with `sb`.
fn log(device: &dyn BlockDevice, sb: &Superblock, size: u32) -> Result<JournalSuperblock, String> {
    let first = if size == 1024 { 2 } else { 1 };
    let mut bytes = vec![0; to_usize(size)];
    let at = first * u64::from(size);
    device.read_at(at, &mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    let journal = JournalSuperblock::parse(&bytes, size, sb.blocks_count());
    journal.map_err(|error| format!("is damaged: {error}"))
}

/// Checks the journal of a volume that needs no recovery.
pub(super) fn check(image: &Image, device: &dyn BlockDevice) {
    if let Err(text) = judge(image, device) {
        let text = format!("the external journal {text}");
        image.push(Problem::error(0, "journal", text));
    }
}

fn judge(image: &Image, device: &dyn BlockDevice) -> Result<(), String> {
    let sb = read(device, SUPER_OFFSET).map_err(|error| format!("cannot be used: {error}"))?;
    if !named(&sb, image.sb.journal_uuid) {
        return Err("is another than the superblock names".into());
    }
    sb.verify_checksum().map_err(|error| format!("is damaged: {error}"))?;
    let size = image.geo.block_size;
    if sb.log_block_size.get() + 10 != image.geo.block_bits {
        return Err("has blocks of another size".into());
    }
    let journal = log(device, &sb, size)?;
    let features = journal.features();
    if features.incompat & !JournalFeatures::INCOMPAT_KNOWN != 0 || features.ro_compat != 0 {
        return Err("has unknown features".into());
    }
    if !journal.has_user(&image.sb.uuid) {
        return Err("does not list this volume among its users".into());
    }
    Ok(())
}
