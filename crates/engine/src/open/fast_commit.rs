//! Replays fast commits, after the log that they continue.
//!
//! Invariants:
//! - Records are applied in order, each in a handle of its own.
//! - Applying a record again changes nothing.
//! - Blocks and inodes that records name are marked used first, so that blocks which the replay
//!   itself allocates (directory blocks, map nodes) lie elsewhere.
//! - Ranges of directories are skipped: their entries are replayed by name.
//! - Records of names in encrypted directories are refused. Linux before 6.2 (and before fixes in
//!   5.15 and 5.10) wrote such names in plain text, not as the directory stores them. Without the
//!   key they cannot be encrypted. Later versions make a full commit instead.

use std::collections::BTreeSet;

use nextent_num::to_u64;
use nextent_ondisk::extent::Extent;
use nextent_ondisk::fast_commit::{Name, Next, Record, Records, Scanner};
use nextent_ondisk::inode::{BLOCK_AREA, BLOCK_AREA_AT, Inode as Fields, flags};
use nextent_ondisk::{Corrupt, FileBlock, InodeNo, Structure, Tid};
use nextent_sync::Arc;

use crate::FileType;
use crate::alloc::{BlockRun, Privilege};
use crate::error::{Cause, Error, Result};
use crate::inode::entries::Names;
use crate::inode::object::{has_map, map_kind};
use crate::inode::{Change, Fs, Inode, credits, truncate};
use crate::map::{self, ExtentState, MapKind, MapRoot, Mapping, Progress};

/// Replays the records in `blocks` that continue the log before `next`; returns how many.
///
/// # Errors
/// Records that contradict the volume, and the errors of lower layers.
pub(super) fn replay(fs: &Fs, next: Tid, blocks: &[Vec<u8>]) -> Result<u64> {
    let mut scanner = Scanner::new(next);
    for block in blocks {
        if scanner.block(block) == Next::Stop {
            break;
        }
    }
    let valid = scanner.valid_records();
    let records = || blocks.iter().flat_map(|block| Records::new(block)).take(valid).flatten();
    for record in records() {
        claim(fs, &record)?;
    }
    let mut touched = BTreeSet::new();
    for record in records() {
        apply(fs, &record, &mut touched)?;
    }
    for ino in touched {
        finish_inode(fs, ino)?;
    }
    Ok(to_u64(valid))
}

/// Marks the blocks or the inode of a record used.
fn claim(fs: &Fs, record: &Record<'_>) -> Result<()> {
    match record {
        Record::AddRange(ino, extent) => {
            if fs.blocks.overlaps_system_zone(extent.start, extent.len) {
                let name = "start of a range (in the system zone)";
                let own = Corrupt::field(Structure::FastCommit, name, extent.start.0);
                return Err(own.at_inode(*ino).into());
            }
            let h = fs.store.start(fs.blocks.free_credits(extent.len) + credits::BIT)?;
            fs.blocks.mark_used(&h, extent.start, extent.len)?;
        }
        Record::Inode(ino, bytes) => {
            fs.check_recorded(*ino)?;
            fs.inodes.initialise_table_block(*ino)?;
            let mode = fields_of(fs, *ino, bytes)?.0.mode;
            let directory = FileType::of_mode(mode) == Some(FileType::Directory);
            let h = fs.store.start(credits::BIT)?;
            fs.inodes.mark_used(&h, *ino, directory)?;
        }
        _ => {}
    }
    Ok(())
}

fn apply(fs: &Fs, record: &Record<'_>, touched: &mut BTreeSet<InodeNo>) -> Result<()> {
    match record {
        Record::AddRange(ino, extent) => {
            touched.insert(*ino);
            with_file(fs, *ino, |inode| add_range(fs, inode, extent))
        }
        Record::DeleteRange(ino, at, len) => {
            touched.insert(*ino);
            let end = FileBlock(at.0.saturating_add(*len));
            with_file(fs, *ino, |inode| {
                let h = fs.store.start(credits::PUNCH)?;
                truncate::remove_range(fs, &h, inode, *at..end)
            })
        }
        Record::Inode(ino, bytes) => {
            touched.insert(*ino);
            restore(fs, *ino, bytes)
        }
        Record::Create(name) | Record::Link(name) => {
            touched.insert(name.parent);
            touched.insert(name.ino);
            add_name(fs, name)
        }
        Record::Unlink(name) => {
            touched.insert(name.parent);
            touched.insert(name.ino);
            remove_name(fs, name)
        }
        Record::Pad | Record::Head { .. } | Record::Tail { .. } => Ok(()),
    }
}

/// Runs `f` on the file if its ranges are replayed: not on directories and free inodes.
fn with_file(fs: &Fs, ino: InodeNo, f: impl FnOnce(&Arc<Inode>) -> Result<()>) -> Result<()> {
    let inode = fs.recorded(ino)?;
    let replayed = inode.with(|state| {
        !state.free && state.has_map() && state.disk.file_type() != Some(FileType::Directory)
    });
    if replayed { f(&inode) } else { Ok(()) }
}

/// Maps the blocks of `extent` and replaces the present mapping.
fn add_range(fs: &Fs, inode: &Arc<Inode>, extent: &Extent) -> Result<()> {
    let state = if extent.unwritten { ExtentState::Unwritten } else { ExtentState::Written };
    let end = extent.block.0.saturating_add(extent.len);
    let mut at = extent.block.0;
    while at < end {
        let need = {
            let root = inode.map.read();
            map::insert_credits(&root, &fs.geometry, end - at) + map::change_credits(&root)
        };
        let h = fs.store.start(need + credits::RUN)?;
        let cx = fs.map_cx(inode, Privilege::Reserved);
        let want = nextent_ondisk::BlockNo(extent.start.0 + u64::from(at - extent.block.0));
        let range = |len: u32| FileBlock(at)..FileBlock(at + len);
        let found = map::lookup(&cx, &inode.map.read(), FileBlock(at), end - at)?;
        match found {
            Mapping::Hole { len, .. } => {
                let run = BlockRun { start: want, len };
                at += inode.change_map(&h, Change::Contents, |root| {
                    map::insert(&cx, &h, root, FileBlock(at), run, state)
                })?;
            }
            Mapping::Written { start, len } if start == want => {
                if state == ExtentState::Unwritten {
                    let verb = |root: &mut MapRoot| map::mark_unwritten(&cx, &h, root, range(len));
                    done(inode.change_map(&h, Change::Contents, verb)?)?;
                }
                at += len;
            }
            Mapping::Unwritten { start, len } if start == want => {
                if state == ExtentState::Written {
                    let verb = |root: &mut MapRoot| map::convert(&cx, &h, root, range(len));
                    done(inode.change_map(&h, Change::Contents, verb)?)?;
                }
                at += len;
            }
            Mapping::Written { len, .. } | Mapping::Unwritten { len, .. } => {
                truncate::remove_range(fs, &h, inode, range(len))?;
            }
        }
    }
    Ok(())
}

fn done(progress: Progress) -> Result<()> {
    match progress {
        Progress::Done => Ok(()),
        Progress::Stopped(_) => Err(Error::NoSpace),
    }
}

/// The fields and bytes of an inode: those of the record over the present ones.
fn fields_of(fs: &Fs, ino: InodeNo, bytes: &[u8]) -> Result<(Fields, Vec<u8>)> {
    let inode = fs.recorded(ino)?;
    let mut merged = inode.with_raw(|_, raw| raw.to_vec());
    let len = bytes.len().min(merged.len());
    merged[..len].copy_from_slice(&bytes[..len]);
    let fields = Fields::read(&fs.geometry, &merged).map_err(|error| error.at_inode(ino))?;
    Ok((fields, merged))
}

/// Restores an inode except its map, which the records of ranges restore.
fn restore(fs: &Fs, ino: InodeNo, bytes: &[u8]) -> Result<()> {
    let inode = fs.recorded(ino)?;
    let (mut disk, mut raw) = fields_of(fs, ino, bytes)?;
    let (kept, size, fresh) = inode.with(|state| {
        let same = state.disk.generation == disk.generation && !state.free;
        let extents = same && state.has_flag(flags::EXTENTS);
        (extents.then_some(state.disk.block), state.disk.size, !same)
    });
    if has_map(&disk) && map_kind(&disk) == MapKind::Extents {
        disk.block = kept.unwrap_or(*MapRoot::empty(MapKind::Extents).bytes());
    }
    if disk.file_type() == Some(FileType::Directory) {
        disk.size = if fresh { 0 } else { size };
    }
    raw[BLOCK_AREA_AT..BLOCK_AREA_AT + BLOCK_AREA].copy_from_slice(&disk.block);
    let root = match has_map(&disk) {
        true => MapRoot::load(map_kind(&disk), disk.block, ino, &fs.geometry)?,
        false => MapRoot::empty(MapKind::Indirect),
    };
    let h = fs.store.start(credits::INODE + credits::BIT)?;
    fs.inodes.mark_used(&h, ino, disk.file_type() == Some(FileType::Directory))?;
    let mut map = inode.map.write();
    *map = root;
    inode.change(&h, Change::Life, |state| {
        state.disk = disk;
        state.raw_mut().copy_from_slice(&raw);
        state.free = false;
    });
    Ok(())
}

/// The directory of a record of a name.
///
/// # Errors
/// [`Error::Unsupported`] for an encrypted directory.
fn parent(fs: &Fs, name: &Name<'_>) -> Result<Arc<Inode>> {
    let dir = fs.recorded(name.parent)?;
    if dir.snapshot().has_any(flags::ENCRYPT) {
        let text = format!(
            "a fast commit has a name of the encrypted directory {} in plain text, as Linux before \
             6.2 wrote it; recover the volume with e2fsck -fy",
            name.parent.0
        );
        return Err(Error::Unsupported(Cause::new(text)));
    }
    Ok(dir)
}

fn add_name(fs: &Fs, name: &Name<'_>) -> Result<()> {
    let dir = parent(fs, name)?;
    let child = fs.recorded(name.ino)?;
    let kind = child.file_type().ok_or(Error::NotFound)?;
    let names = Names::of(fs, &dir);
    let h = fs.store.start(credits::FIRST_BLOCK + names.insert_credits())?;
    if kind == FileType::Directory && child.with(|state| state.disk.size == 0) {
        Names::of(fs, &child).init(&h, dir.ino)?;
    }
    match names.lookup(name.name)? {
        Some(ino) if ino == name.ino => Ok(()),
        Some(_) => names.replace(&h, name.name, name.ino, kind),
        None => names.insert(&h, name.name, name.ino, kind),
    }
}

fn remove_name(fs: &Fs, name: &Name<'_>) -> Result<()> {
    let dir = parent(fs, name)?;
    let names = Names::of(fs, &dir);
    if names.lookup(name.name)? != Some(name.ino) {
        return Ok(());
    }
    let h = fs.store.start(credits::REMOVE_NAME + credits::INODE)?;
    names.remove(&h, name.name)?;
    let child = fs.recorded(name.ino)?;
    let left = child.change(&h, Change::Names, |state| {
        let directory = state.disk.file_type() == Some(FileType::Directory);
        state.disk.links = if directory { 0 } else { state.disk.links.saturating_sub(1) };
        state.disk.links
    });
    drop(h);
    // Now, since a later record may use the number for another file.
    if left == 0 { finish_inode(fs, name.ino) } else { Ok(()) }
}

/// The links a directory must have: itself, its name, and the `..` of each directory in it.
fn count_links(fs: &Fs, inode: &Arc<Inode>) -> Result<u16> {
    let mut inside = Vec::new();
    Names::of(fs, inode).iterate(0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            inside.push((entry.ino, entry.kind));
        }
        true
    })?;
    let mut count = 2u32;
    for (ino, kind) in inside {
        let kind = match kind {
            Some(kind) => Some(kind),
            None => fs.named(inode.ino, ino)?.file_type(),
        };
        count += u32::from(kind == Some(FileType::Directory));
    }
    // Beyond the limit the count is 1 and means nothing.
    Ok(u16::try_from(count).ok().filter(|count| *count < 65000).unwrap_or(1))
}

/// Counts the blocks of a replayed inode again, and frees it if it has no name left.
fn finish_inode(fs: &Fs, ino: InodeNo) -> Result<()> {
    let inode = fs.recorded(ino)?;
    if inode.with(|state| state.free) {
        return Ok(());
    }
    let mut blocks = u64::from(inode.with(|state| state.disk.file_acl.0 != 0));
    if inode.with(|state| state.has_map()) {
        let cx = fs.map_cx(&inode, Privilege::User);
        let root = inode.map.read();
        for extent in map::extents(&cx, &root, FileBlock(0)) {
            blocks += u64::from(extent?.len);
        }
        blocks += map::count_nodes(&cx, &root)?;
    }
    let (directory, links) =
        inode.with(|state| (state.disk.file_type() == Some(FileType::Directory), state.disk.links));
    let links = if directory && links > 1 { Some(count_links(fs, &inode)?) } else { None };
    let h = fs.store.start(credits::INODE + credits::ORPHAN)?;
    let sectors = blocks * u64::from(fs.geometry.block_size / 512);
    inode.change(&h, Change::Life, |state| {
        state.disk.links = links.unwrap_or(state.disk.links);
        state.disk.set_sectors(&fs.geometry, sectors)
    })?;
    let gone = inode.with(|state| state.disk.links == 0);
    if gone {
        fs.orphans.add(fs, &h, &inode);
    }
    drop(h);
    if gone { truncate::reap(fs, &inode) } else { Ok(()) }
}
