//! Shortening files and freeing inodes, in as many transactions as it takes.
//!
//! An inode that loses blocks is an orphan while it does: a crash in between leaves it to the next
//! open, which goes on where this stopped. When all happens in one transaction, the orphan entry
//! comes and goes in it and nothing of it reaches the device.

use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::change::Change;
use super::credits;
use super::fs::Fs;
use super::object::Inode;
use crate::FileType;
use crate::alloc::{Kind, Privilege, Window};
use crate::error::Result;
use crate::map::{self, Progress};

/// Gives back what is set aside for the growth of `inode`.
pub(crate) fn drop_window(fs: &Fs, inode: &Inode) {
    // Whoever holds the file changes it and may use the window: it is dropped another time.
    if let Some(mut window) = inode.rw.try_write() {
        fs.blocks.release(&mut window);
    }
}

/// Unmaps and frees all blocks from `from` on, restarting `h` when the transaction is full. The
/// caller holds `[inode.rw]` with the window exclusively and has made the inode an orphan.
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

/// Unmaps and frees all blocks from `from` on inside `h` alone, as far as its credits reach; true
/// if nothing is left. The caller holds `[inode.rw]` exclusively and has seen to the window.
pub(crate) fn remove_at_once(
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

/// Unmaps and frees the blocks of `range`, restarting `h` when the transaction is full. The caller
/// holds `[inode.rw]` exclusively; what is left after a crash is a shorter range.
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

/// Frees `inode` when it has no name and no one has it open. Takes `[inode.rw]`.
///
/// # Errors
/// What reading its map or the allocator says; it stays an orphan then.
pub(crate) fn reap(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    let mut window = inode.rw.write();
    // Marked free first, so that nobody opens it from here on.
    if !inode.claim_if_gone() {
        return Ok(());
    }
    Fs::forget_deferred(inode);
    let h = fs.store.start(credits::REAP)?;
    let (kind, has_map) = inode.with(|state| (state.disk.file_type(), state.has_map()));
    fs.blocks.release(&mut window);
    if has_map {
        remove_from(fs, &h, inode, &mut window, FileBlock(0))?;
    }
    if !h.ensure(credits::REAP)? {
        fs.restart(&h, credits::REAP)?;
    }
    super::attributes::drop_all(fs, &h, inode)?;
    super::attributes::drop_translator(fs, &h, inode)?;
    bury(fs, &h, inode, kind)
}

/// [`reap`] in the handle that took the last name away, if nobody has the file open and all of it
/// surely fits; it is no orphan then, not for a moment. The caller holds `[inode.rw]` with the
/// window exclusively. False if the file must become an orphan.
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
            let contents = if data { Kind::Data } else { Kind::Metadata };
            map::remove_all_credits(&inode.map.read(), &fs.geometry, contents)
        }
        false => Some(0),
    };
    let Some(need) = need.filter(|_| plain) else { return Ok(false) };
    let room = h.ensure(need + credits::ORPHAN + credits::NEW_INODE)?;
    if !room || !inode.claim_if_gone() {
        return Ok(false);
    }
    fs.blocks.release(window);
    let emptied = match mapped {
        true => remove_at_once(fs, h, inode, FileBlock(0)),
        false => Ok(true),
    };
    if !matches!(emptied, Ok(true)) {
        fs.orphans.add(fs, h, inode);
        emptied?;
        remove_from(fs, h, inode, window, FileBlock(0))?;
    }
    bury(fs, h, inode, kind)?;
    Ok(true)
}

/// The end of an inode without blocks.
fn bury(fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>, kind: Option<FileType>) -> Result<()> {
    fs.orphans.remove(fs, h, inode);
    let now = fs.now();
    inode.change(h, Change::Life, |state| {
        state.disk.dtime = must_fit(now.seconds.clamp(1, i64::from(u32::MAX)));
        state.disk.size = 0;
    });
    fs.inodes.free(h, inode.ino, kind == Some(FileType::Directory))?;
    Ok(())
}

/// [`reap`], when it is due. Called without locks or handles after a name or an open went away.
pub(crate) fn reap_if_gone(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    let gone = inode.with(|state| state.disk.links == 0 && !state.free);
    if gone && !inode.is_held() { reap(fs, inode) } else { Ok(()) }
}
