//! Orphans that the last use left: files without a name, and files that were being truncated.

use nextent_num::must_fit;
use nextent_sync::HashSet;

use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{Compat, Corrupt, FileBlock, InodeNo, RoCompat, Structure, orphan};
use nextent_store::Seal;
use nextent_sync::Arc;

use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::object::Orphan;
use crate::inode::orphan::OrphanFile;
use crate::inode::{Change, Fs, Inode, credits, truncate};
use crate::map::{self, Mapping};

/// Reads the orphan file, which later orphans go to.
pub(super) fn prepare(fs: &Fs, writable: bool) -> Result<()> {
    if !writable || !fs.geometry.features.has(Compat::ORPHAN_FILE) {
        return Ok(());
    }
    let ino = InodeNo(fs.sup.with(|sb| sb.orphan_file_inum.get()));
    let inode = fs.own_inode(ino)?;
    let cx = fs.map_cx(&inode, Privilege::User);
    let size = inode.with(|state| state.disk.size);
    let count = must_fit((size / fs.block_size()).min(orphan::MAX_BLOCKS));
    let seed = inode.csum_seed();
    let csum = fs.geometry.features.metadata_csum();
    let mut blocks = Vec::new();
    for at in 0..count {
        let Mapping::Written { start, .. } = map::lookup(&cx, &inode.map.read(), FileBlock(at), 1)?
        else {
            let hole = Corrupt::field(Structure::OrphanFile, "hole at block", at).at_inode(ino);
            return Err(hole.into());
        };
        let block = fs.store.read::<Error>(start, |bytes| {
            let checked = if csum { orphan::verify(seed, start, bytes) } else { Ok(()) };
            let checked = checked.and_then(|()| orphan::check(&fs.geometry, bytes));
            Ok(checked.map_err(|error| error.at_inode(ino).at_block(start))?)
        })?;
        block.set_seal(if csum { Seal { f: orphan::seal, seed } } else { Seal::NONE });
        blocks.push(block);
    }
    if !blocks.is_empty() {
        fs.orphans.use_file(OrphanFile::new(&fs.geometry, blocks));
    }
    Ok(())
}

/// Frees or truncates all orphans of the list and of the orphan file; returns their number.
///
/// An orphan that cannot be finished stays one, and the superblock records the damage. As with
/// Linux the rest of the volume can be used, and the next open tries again.
///
/// # Errors
/// The journal stopped.
pub(super) fn finish(fs: &Fs) -> Result<u32> {
    let mut count = 0;
    for inode in &adopt_list(fs)? {
        count += finish_or_keep(fs, inode)?;
    }
    let present = fs.geometry.features.has(RoCompat::ORPHAN_PRESENT);
    let filed = fs.orphans.file().filter(|_| present).map(OrphanFile::entries);
    for (ino, place) in filed.unwrap_or_default() {
        if fs.is_read_only() {
            break;
        }
        match orphan_of(fs, ino) {
            Ok(inode) if !inode.with(|state| state.free) => {
                let h = fs.store.start(credits::INODE)?;
                inode.change(&h, Change::Orphan, |state| state.orphan = place);
                drop(h);
                count += finish_or_keep(fs, &inode)?;
            }
            Ok(_) | Err(Error::NotFound) => forget_entry(fs, place)?,
            Err(error) => go_on(fs, error)?,
        }
    }
    Ok(count)
}

/// Ends the deletions and truncations that errors interrupted. It tries all, and returns the first
/// error.
pub(super) fn complete_interrupted(fs: &Fs) -> Result<()> {
    let orphans = fs.cache.select(|inode| inode.with(|state| state.orphan != Orphan::No));
    let complete = |inode| truncate::complete(fs, inode).map_err(|error| fs.report_error(error));
    orphans.iter().map(complete).fold(Ok(()), Result::and)
}

/// The inode that an entry of the orphan file names, which must be in use.
fn orphan_of(fs: &Fs, ino: InodeNo) -> Result<Arc<Inode>> {
    if ino == ROOT_INO || !fs.may_be_file(ino) || !fs.inodes.is_used(ino)? {
        return Err(Error::NotFound);
    }
    fs.any_inode(ino)
}

/// Finishes one orphan if the volume may still be changed; returns the number finished.
fn finish_or_keep(fs: &Fs, inode: &Arc<Inode>) -> Result<u32> {
    if fs.is_read_only() {
        return Ok(0);
    }
    match truncate::complete(fs, inode) {
        Ok(()) => Ok(1),
        Err(error) => go_on(fs, error).map(|()| 0),
    }
}

/// Records the damage and applies the error policy; fails only if the journal has stopped.
fn go_on(fs: &Fs, error: Error) -> Result<()> {
    let error = fs.report_error(error);
    if fs.is_aborted() { Err(error) } else { Ok(()) }
}

/// Adopts the members of the list, its head first. The list is cut before a member that cannot be
/// an orphan, since what follows it may be anything.
fn adopt_list(fs: &Fs) -> Result<Vec<Arc<Inode>>> {
    let mut list = Vec::new();
    let whole = read_list(fs, &mut list);
    fs.orphans.adopt(list.clone());
    if let Err(error) = whole {
        let h = fs.store.start(credits::ORPHAN)?;
        match list.last() {
            Some(last) => last.change(&h, Change::Orphan, |state| state.disk.dtime = 0),
            None => fs.sup.change(&h, |sb| sb.last_orphan.set(0)),
        }
        drop(h);
        go_on(fs, error)?;
    }
    Ok(list)
}

/// Removes an entry of the orphan file that names no inode in use.
fn forget_entry(fs: &Fs, place: Orphan) -> Result<()> {
    if let (Orphan::Filed { block, entry }, Some(file)) = (place, fs.orphans.file()) {
        let h = fs.store.start(credits::ORPHAN)?;
        file.remove(&h, block, entry);
    }
    Ok(())
}

/// Reads the list, its head first, up to the first invalid member.
fn read_list(fs: &Fs, list: &mut Vec<Arc<Inode>>) -> Result<()> {
    let mut seen = HashSet::default();
    let mut next = fs.sup.with(|sb| sb.last_orphan.get());
    while next != 0 {
        let ino = InodeNo(next);
        let bad = |name| Corrupt::field(Structure::OrphanList, name, next).at_inode(ino);
        if !seen.insert(ino) {
            return Err(bad("inode listed twice").into());
        }
        if ino == ROOT_INO || !fs.may_be_file(ino) {
            return Err(bad("inode that no file has").into());
        }
        let inode = fs.any_inode(ino).map_err(|_| bad("inode that cannot be read"))?;
        if !fs.inodes.is_used(ino)? || inode.with(|state| state.disk.mode == 0) {
            return Err(bad("inode that is free").into());
        }
        fs.adopt_orphan(&inode)?;
        next = inode.with(|state| state.disk.dtime);
        list.push(inode);
    }
    Ok(())
}
