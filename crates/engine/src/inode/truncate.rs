//! Shortening files and freeing inodes, in as many transactions as needed.
//!
//! An inode is an orphan while it loses blocks. After a crash the next open continues. If
//! everything happens in one transaction, the orphan entry is added and removed in it and never
//! reaches the device.

use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::change::Change;
use super::credits;
use super::fs::Fs;
use super::object::{Inode, Orphan};
use crate::FileType;
use crate::alloc::{BlockKind, Privilege, Window};
use crate::error::Result;
use crate::map::{self, Progress};

/// Releases the window for the growth of `inode`.
pub(crate) fn drop_window(fs: &Fs, inode: &Inode) {
    // A thread that holds the lock may use the window: it is released another time.
    if let Some(mut window) = inode.rw.try_write() {
        fs.blocks.release(&mut window);
    }
}

/// Unmaps and frees all blocks from `from` on, and restarts `h` when the transaction is full. The
/// caller holds `[inode.rw]`, and with it the window, exclusively and has made the inode an orphan.
pub(crate) fn remove_from(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    window: &mut Window,
    from: FileBlock,
) -> Result<()> {
    fs.blocks.release(window);
    remove_range(fs, h, inode, from..map::END_OF_BLOCKS)
}

/// Unmaps and frees blocks from `from` on in this handle, as far as its credits allow; true if none
/// is left. The caller holds `[inode.rw]` exclusively and has released or kept the window.
pub(crate) fn remove_in_handle(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    from: FileBlock,
) -> Result<bool> {
    let cx = fs.map_cx(inode, Privilege::Reserved);
    let range = from..map::END_OF_BLOCKS;
    let progress = inode.change_map(h, Change::Layout, |root| map::remove(&cx, h, root, range))?;
    Ok(progress == Progress::Done)
}

/// Unmaps and frees the blocks of `range`, from its end, and restarts `h` when the transaction is
/// full. The caller holds `[inode.rw]` exclusively. After a crash a shorter range is left.
pub(crate) fn remove_range(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    range: std::ops::Range<FileBlock>,
) -> Result<()> {
    let mut end = range.end;
    loop {
        let need = credits::remove(&inode.map.read(), &fs.geometry);
        if !h.ensure(need)? {
            fs.restart(h, need + credits::ORPHAN)?;
        }
        let cx = fs.map_cx(inode, Privilege::Reserved);
        let progress = inode
            .change_map(h, Change::Layout, |root| map::remove(&cx, h, root, range.start..end))?;
        match progress {
            Progress::Done => return Ok(()),
            Progress::Stopped(at) => {
                end = at;
                fs.restart(h, need + credits::ORPHAN)?;
            }
        }
    }
}

/// Frees `inode` if it has neither names nor opens. Takes `[inode.rw]`.
///
/// # Errors
/// Errors of the map and the allocator; it stays an orphan then.
pub(crate) fn reap(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    let mut window = inode.rw.write();
    // Marked free first, so that no thread can open it from now on.
    if inode.claim_if_unused() { reap_claimed(fs, inode, &mut window) } else { Ok(()) }
}

/// Ends the deletion or truncation of an orphan that an error interrupted, or a crash. Does nothing
/// if `inode` is no orphan, or is open or pinned. Takes `[inode.rw]`.
///
/// # Errors
/// As [`reap`].
pub(crate) fn complete(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    let mut window = inode.rw.write();
    let (orphan, named, claimed) =
        inode.with(|state| (state.orphan, state.disk.links > 0, state.free));
    match orphan {
        Orphan::No => Ok(()),
        _ if named => remove_beyond_size(fs, inode, &mut window),
        _ if claimed || inode.claim_if_unused() => reap_claimed(fs, inode, &mut window),
        _ => Ok(()),
    }
}

/// Removes the blocks beyond the size of an orphan that has names. The caller holds `[inode.rw]`,
/// and with it the window, exclusively.
fn remove_beyond_size(fs: &Fs, inode: &Arc<Inode>, window: &mut Window) -> Result<()> {
    let h = fs.store.start(credits::REMOVAL)?;
    let (size, mapped, kind) =
        inode.with(|state| (state.disk.size, state.has_map(), state.disk.file_type()));
    if mapped && kind == Some(FileType::Regular) {
        let from = size.div_ceil(fs.block_size()).min(u64::from(map::END_OF_BLOCKS.0));
        remove_from(fs, &h, inode, window, FileBlock(must_fit(from)))?;
    }
    if !h.ensure(credits::ORPHAN)? {
        fs.restart(&h, credits::ORPHAN)?;
    }
    fs.orphans.remove(fs, &h, inode);
    Ok(())
}

/// Frees an inode that is claimed. The caller holds `[inode.rw]`, and with it the window,
/// exclusively.
fn reap_claimed(fs: &Fs, inode: &Arc<Inode>, window: &mut Window) -> Result<()> {
    Fs::forget_deferred(inode);
    let h = fs.store.start(credits::REAP)?;
    let (kind, has_map) = inode.with(|state| (state.disk.file_type(), state.has_map()));
    fs.blocks.release(window);
    if has_map {
        remove_from(fs, &h, inode, window, FileBlock(0))?;
    }
    if !h.ensure(credits::REAP)? {
        fs.restart(&h, credits::REAP)?;
    }
    super::attributes::drop_all(fs, &h, inode)?;
    super::attributes::drop_translator(fs, &h, inode)?;
    free_inode(fs, &h, inode, kind)
}

/// Like [`reap`], in the handle that removed the last name, if the file is not open and its blocks
/// surely fit into the handle. Then it never becomes an orphan. The caller holds `[inode.rw]`, and
/// with it the window, exclusively. False if the file must become an orphan.
///
/// # Errors
/// As [`reap`].
pub(crate) fn reap_within(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    window: &mut Window,
) -> Result<bool> {
    let (kind, mapped, plain) = inode
        .with(|state| (state.disk.file_type(), state.has_map(), state.disk.file_acl == BlockNo(0)));
    let plain = plain && super::attributes::translator(fs, inode) == BlockNo(0);
    let need = match mapped {
        true => {
            let data = kind == Some(FileType::Regular);
            let contents = if data { BlockKind::Data } else { BlockKind::Metadata };
            map::remove_all_credits(&inode.map.read(), &fs.geometry, contents)
        }
        false => Some(0),
    };
    let Some(need) = need.filter(|_| plain) else { return Ok(false) };
    let room = h.ensure(need + credits::ORPHAN + credits::NEW_INODE)?;
    if !room || !inode.claim_if_unused() {
        return Ok(false);
    }
    fs.blocks.release(window);
    let emptied = match mapped {
        true => remove_in_handle(fs, h, inode, FileBlock(0)),
        false => Ok(true),
    };
    if !matches!(emptied, Ok(true)) {
        fs.orphans.add(fs, h, inode);
        emptied?;
        remove_from(fs, h, inode, window, FileBlock(0))?;
    }
    free_inode(fs, h, inode, kind)?;
    Ok(true)
}

/// Frees an inode that has no blocks any more.
fn free_inode(fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>, kind: Option<FileType>) -> Result<()> {
    fs.orphans.remove(fs, h, inode);
    let now = fs.now();
    inode.change(h, Change::Life, |state| {
        state.disk.dtime = must_fit(now.seconds.clamp(1, i64::from(u32::MAX)));
        state.disk.size = 0;
    });
    fs.inodes.free(h, inode.ino, kind == Some(FileType::Directory))?;
    Ok(())
}

/// Calls [`reap`] if the file is to be freed. Called without locks or handles after a name or an
/// open was removed.
pub(crate) fn reap_if_gone(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    let gone = inode.with(|state| state.disk.links == 0 && !state.free);
    if gone && !inode.is_open_or_pinned() { reap(fs, inode) } else { Ok(()) }
}
