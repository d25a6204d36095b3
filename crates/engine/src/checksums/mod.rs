//! Gives a volume another UUID where checksums depend on it, and computes all of them anew.
//!
//! With `metadata_csum` and without `metadata_csum_seed`, the UUID is the seed of every checksum,
//! and of the hashes of attributes' values in inodes of their own. With `uninit_bg` only checksums
//! of group descriptors depend on it.
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | 1 | a pending recovery is done, and the volume is checked | the volume as before |
//! | 2 | the superblock says that the volume needs recovery; flush | the same, with an empty log |
//! | 3 | all changed blocks are logged as one transaction; flush | the new volume, by replay |
//! | 4 | most blocks are written in place; flush | the same |
//! | 5 | those that a replay reads are written: descriptors, journal inode; then the superblock | the same, by e2fsck |
//! | 6 | the log is marked empty | the new volume |
//! | 7 | backups of superblock and descriptors are written | the same |
//!
//! Between the first and the last write of step 5, mounts refuse the volume, since the checksum of
//! a descriptor or of the journal inode is wrong. e2fsck replays the log by the copy of the
//! journal's map in the superblock.
//!
//! A volume without a journal is refused, and one whose log is too small for all changed blocks. A
//! crash that leaves wrong checksums would cost files: e2fsck clears whole blocks of inodes in
//! which most checksums are wrong. The feature `metadata_csum_seed` is the alternative. A journal
//! whose map has nodes outside its inode is refused, too: e2fsck could not read it in step 5.

mod images;
mod rewrite;

use nextent_device::BlockDevice;
use nextent_ondisk::superblock::{SUPER_SIZE, state};
use nextent_ondisk::{Geometry, Incompat, Superblock};
use nextent_sync::Arc;

use self::images::Images;
use self::rewrite::Rewrite;
use crate::check::{CheckOptions, InodeMetadata, check, claim, peek};
use crate::error::{Cause, Error, Result};
use crate::open::{OpenOptions, read_super};
use crate::ops::Inodes;

/// Whether checksums or hashes of the volume with this superblock depend on its UUID.
pub fn uuid_seeds_checksums(sb: &Superblock) -> bool {
    let features = sb.features();
    let summed = features.group_csum() || features.has(Incompat::EA_INODE);
    summed && !features.has(Incompat::CSUM_SEED)
}

/// Gives the volume on `device` another UUID, and computes anew all checksums that depend on it.
/// The volume is checked first. No other program may have it open.
///
/// # Errors
///
/// [`Error::Corrupt`] for a volume that e2fsck must check first; [`Error::Unsupported`] for a
/// volume without a journal, or with one that is on another device or too small for all changed
/// blocks. Nothing has changed then. As [`Inodes::open`].
pub fn change_uuid(device: &Arc<dyn BlockDevice>, uuid: [u8; 16]) -> Result<()> {
    let before = read_super(&**device)?;
    let mut claimed = claim(device)?;
    recover(device, &before, claimed.as_ref())?;
    sound(device, claimed.is_some())?;
    let mut after = read_super(&**device)?;
    (after.mnt_count, after.uuid) = (before.mnt_count, uuid);
    after.set_mounted_at(before.mounted_at());
    let metadata = InodeMetadata::of(device)?;
    let geometry = Arc::new(after.check(u64::MAX)?);
    let mut images = Images::new(device, metadata.superblock(), metadata.geometry())?;
    let rewrite = Rewrite { metadata: &metadata, new: &geometry };
    rewrite.descriptors(&mut images)?;
    if geometry.features.metadata_csum() || geometry.features.has(Incompat::EA_INODE) {
        metadata.each(&mut |no, kind, bytes| rewrite.block(no, kind, bytes, &mut images))?;
    }
    if let Some(claim) = &mut claimed {
        let (block, [claimed, clean]) = claim.reseal(&geometry)?;
        images.put_claimed(block, claimed, clean)?;
    }
    images.commit(&mut after)?;
    backups(device, &geometry, uuid)?;
    claimed.map_or(Ok(()), |claim| claim.end())
}

/// Replays the journal and finishes orphans, if there are any.
fn recover(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    claimed: Option<&crate::check::CheckClaim>,
) -> Result<()> {
    if !peek(&**device, &CheckOptions::default())?.waits {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    if let Some(claim) = claimed {
        options = options.claimed(claim);
    }
    let volume = Inodes::open(Arc::clone(device), &options)?;
    if let Some(why) = volume.read_only_reason() {
        return Err(Error::unsupported(format!("a change of the UUID: {why}")));
    }
    let (mounts, mounted_at) = (sb.mnt_count, sb.mounted_at());
    volume.change_superblock(&|sb| {
        sb.mnt_count = mounts;
        sb.set_mounted_at(mounted_at);
    })?;
    volume.close()
}

/// Checks the volume: the checksum of damaged metadata must not become right.
fn sound(device: &Arc<dyn BlockDevice>, claimed: bool) -> Result<()> {
    let options = CheckOptions { limit: 1, claimed, ..CheckOptions::default() };
    let clean = peek(&**device, &options)?.clean;
    let errors = check(Arc::clone(device), &options, &|_| ())?.errors;
    if errors > 0 || !clean {
        let text = format!("{errors} errors, run e2fsck -f on the file system first");
        return Err(Error::Corrupt(Cause::new(text)));
    }
    Ok(())
}

/// Writes the backups of superblock and descriptors. A superblock that is damaged stays as it is.
fn backups(device: &Arc<dyn BlockDevice>, geometry: &Geometry, uuid: [u8; 16]) -> Result<()> {
    let failed = |error| Error::Io(Cause::new(format!("write of a backup: {error}")));
    for index in 0..geometry.gdt_blocks() {
        let mut bytes = vec![0; geometry.block_len()];
        let from = geometry.gdt_block(index).0 << geometry.block_bits;
        device.read_at(from, &mut bytes).map_err(failed)?;
        for backup in geometry.gdt_backups(index) {
            device.write_at(backup.0 << geometry.block_bits, &bytes).map_err(failed)?;
        }
    }
    let groups = geometry.groups().skip(1);
    for block in groups.filter_map(|group| geometry.super_block_of(group)) {
        let (at, mut bytes) = (block.0 << geometry.block_bits, [0; SUPER_SIZE]);
        device.read_at(at, &mut bytes).map_err(failed)?;
        let sound = Superblock::read(&bytes).ok().filter(|sb| sb.verify_checksum().is_ok());
        if let Some(mut sb) = sound {
            sb.uuid = uuid;
            // A copy is never known to be up to date.
            sb.state.set(sb.state.get() & !state::VALID);
            sb.seal();
            device.write_at(at, sb.bytes()).map_err(failed)?;
        }
    }
    device.flush().map_err(failed)
}
