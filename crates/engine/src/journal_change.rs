//! Adds a journal to a volume, and removes it.
//!
//! | step of adding | a crash after it leaves |
//! |---|---|
//! | 1 | inode 8 gets blocks, which hold an empty journal; the volume is closed | no journal; e2fsck clears the inode |
//! | 2 | the superblock names the journal; flush | the volume with a journal |
//! | 3 | the backups of the superblock name it | the same |
//!
//! | step of removing | a crash after it leaves |
//! |---|---|
//! | 1 | the journal is replayed; the volume is closed | the volume with its journal |
//! | 2 | the superblock names no journal; flush | no journal; e2fsck clears the inode |
//! | 3 | the blocks of inode 8 become free; the backups name no journal | no journal; e2fsck checks the volume |
//!
//! A superblock changes in one sector where that is possible, as at each open.

use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::inode::{EXTRA_SIZE, FileType, Inode as Fields, flags};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::numbers::JOURNAL_INO;
use nextent_ondisk::{Compat, Incompat, Superblock};
use nextent_sync::Arc;

use crate::Cred;
use crate::error::{Error, Result};
use crate::inode::{Change, credits};
use crate::map::{MapKind, MapRoot};
use crate::mkfs::journal_blocks;
use crate::open::{OpenOptions, read_super, write_super};
use crate::ops::Inodes;

/// Bytes of zeros that are written at once.
const CHUNK: u64 = 1 << 20;
/// Of so many blocks of the journal, one more block is needed for its map at most.
const MAPPED: u64 = 200;

/// Adds a journal of `size` bytes, or of the size that mke2fs chooses, inside the volume on
/// `device`. Returns its blocks.
///
/// # Errors
/// [`Error::Exists`] if there is one; [`Error::Unsupported`] for a size or a volume that cannot
/// have a journal; [`Error::NoSpace`]; as [`Inodes::open`].
pub fn add_journal(device: &Arc<dyn BlockDevice>, size: Option<u64>) -> Result<u64> {
    let before = read_super(&**device)?;
    check(&before)?;
    if before.features().has(Compat::HAS_JOURNAL) {
        return Err(Error::Exists);
    }
    let bits = before.check(u64::MAX)?.block_bits;
    let blocks = journal_blocks(before.blocks_count(), bits, size);
    let blocks = blocks.map_err(|error| Error::unsupported(error.to_string()))?;
    if before.free_blocks_count() < blocks + blocks / MAPPED + 2 {
        return Err(Error::NoSpace);
    }
    let volume = writable(device)?;
    let made = fill(&volume, blocks).and_then(|()| volume.sync());
    if let Err(error) = made {
        // The error that is reported is the first one.
        let _ = clear(&volume).and_then(|()| volume.close());
        return Err(error);
    }
    let inode = volume.fs.own_inode(JOURNAL_INO)?;
    let (map, bytes) = inode.with(|state| (state.disk.block, state.disk.size));
    volume.close()?;
    let mut sb = read_super(&**device)?;
    let named = |sb: &mut Superblock| {
        set_journal(sb, true, blocks);
        sb.journal_inum.set(JOURNAL_INO.0);
        sb.set_journal_backup(&map, bytes);
    };
    named(&mut sb);
    write_super(&**device, &mut sb)?;
    let volume = writable(device)?;
    volume.change_copies(&|sb| {
        if !sb.features().has(Compat::HAS_JOURNAL) {
            named(sb);
        }
        keep_mounts(sb, &before);
    })?;
    volume.close()?;
    Ok(blocks)
}

/// Removes the journal of the volume on `device`, which is replayed first.
///
/// # Errors
/// [`Error::Unsupported`] for a journal on another device, and for a volume with features that need
/// a journal; as [`Inodes::open`].
pub fn remove_journal(device: &Arc<dyn BlockDevice>) -> Result<()> {
    let before = read_super(&**device)?;
    check(&before)?;
    let features = before.features();
    if !features.has(Compat::HAS_JOURNAL) {
        return Ok(());
    }
    if before.journal_inum.get() != JOURNAL_INO.0 {
        return Err(Error::unsupported("removing a journal that is not inode 8"));
    }
    if features.has(Compat::ORPHAN_FILE) {
        return Err(Error::unsupported("removing the journal that the orphan file needs"));
    }
    let volume = writable(device)?;
    let blocks = volume.journal_blocks;
    volume.close()?;
    let forget = |sb: &mut Superblock| {
        if sb.features().has(Compat::HAS_JOURNAL) {
            set_journal(sb, false, blocks);
            sb.journal_inum.set(0);
            sb.jnl_blocks.iter_mut().for_each(|word| word.set(0));
        }
        keep_mounts(sb, &before);
    };
    let mut sb = read_super(&**device)?;
    forget(&mut sb);
    write_super(&**device, &mut sb)?;
    let volume = writable(device)?;
    clear(&volume)?;
    volume.change_copies(&forget)?;
    volume.close()
}

/// Refuses volumes that another node may claim between two opens.
fn check(sb: &Superblock) -> Result<()> {
    match sb.features().has(Incompat::MMP) {
        true => Err(Error::unsupported("a change of the journal with the feature mmp")),
        false => Ok(()),
    }
}

/// Opens the volume for changes.
fn writable(device: &Arc<dyn BlockDevice>) -> Result<Inodes> {
    let volume = Inodes::open(Arc::clone(device), &OpenOptions::new())?;
    match volume.read_only_reason().map(str::to_owned) {
        Some(why) => Err(Error::unsupported(format!("a change of the journal: {why}"))),
        None => Ok(volume),
    }
}

/// An open for these changes is no mount.
fn keep_mounts(sb: &mut Superblock, before: &Superblock) {
    sb.mnt_count = before.mnt_count;
    sb.set_mounted_at(before.mounted_at());
}

/// Sets the feature, and counts the blocks among those that files cannot have.
fn set_journal(sb: &mut Superblock, on: bool, blocks: u64) {
    let mut features = sb.features();
    features.set(Compat::HAS_JOURNAL, on);
    sb.set_features(features);
    sb.become_dynamic();
    let overhead = sb.overhead_clusters.get();
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    if overhead > 0 {
        let changed = match on {
            true => overhead.saturating_add(blocks),
            false => overhead.saturating_sub(blocks),
        };
        sb.overhead_clusters.set(changed);
    }
}

/// Gives inode 8 the blocks of an empty journal.
fn fill(volume: &Inodes, blocks: u64) -> Result<()> {
    let fs = &volume.fs;
    let inode = fs.own_inode(JOURNAL_INO)?;
    if inode.with(|state| !state.free) {
        return Err(Error::unsupported("inode 8 is in use; check the volume with e2fsck"));
    }
    let extents = fs.geometry.features.has(Incompat::EXTENTS);
    let kind = if extents { MapKind::Extents } else { MapKind::Indirect };
    let now = fs.now();
    let h = fs.start(credits::INODE)?;
    let mut root = inode.map.write();
    *root = MapRoot::empty(kind);
    inode.change(&h, Change::Life, |state| {
        let wide = fs.geometry.inode_size > 128;
        state.disk = Fields {
            mode: FileType::Regular.mode_bits() | 0o600,
            links: 1,
            flags: if extents { flags::EXTENTS } else { 0 },
            extra_isize: if wide { EXTRA_SIZE } else { 0 },
            ..Fields::default()
        };
        state.disk.block = *root.bytes();
        let now = now.clamped(state.disk.has_wide_times());
        (state.disk.atime, state.disk.ctime, state.disk.mtime) = (now, now, now);
        if state.disk.has_crtime() {
            state.disk.crtime = now;
        }
        state.raw_mut().fill(0);
    });
    drop(root);
    drop(h);
    inode.finish_creation();
    let cred = Cred::root();
    let block_size = fs.geometry.block_size;
    let (end, zeros) = (blocks * u64::from(block_size), vec![0; to_usize(CHUNK)]);
    let mut first = vec![0; to_usize(u64::from(block_size))];
    let head = JournalSuperblock::new(block_size, must_fit(blocks), fs.geometry.uuid).to_bytes();
    first[..head.len()].copy_from_slice(&head);
    let mut at = 0;
    while at < end {
        let part = match at {
            0 => &first[..],
            _ => &zeros[..to_usize((end - at).min(CHUNK))],
        };
        let written = volume.write_in(&cred, &inode, at, part)?;
        if written < part.len() {
            return Err(Error::NoSpace);
        }
        at += to_u64(written);
    }
    Ok(())
}

/// Frees the blocks of inode 8, and the inode.
fn clear(volume: &Inodes) -> Result<()> {
    let fs = &volume.fs;
    let inode = fs.own_inode(JOURNAL_INO)?;
    if inode.with(|state| state.free) {
        return Ok(());
    }
    volume.truncate_in(&Cred::root(), &inode, 0)?;
    let h = fs.start(credits::INODE)?;
    let mut root = inode.map.write();
    *root = MapRoot::empty(MapKind::Indirect);
    inode.change(&h, Change::Life, |state| {
        let extra_isize = state.disk.extra_isize;
        state.disk = Fields { extra_isize, ..Fields::default() };
        state.raw_mut().fill(0);
    });
    Ok(())
}
