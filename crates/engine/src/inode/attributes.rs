//! Extended attributes, access lists and inline data of an inode. The functions of `xattr` work on
//! a copy of the attribute storage, which is stored back in the same handle.
//!
//! A change needs `inode.rw` exclusively, or an inode that is still being created. A read needs it
//! shared, except for the access list: permission checks hold no lock of the file, see
//! [`read_validated`].

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::acl::Acl;
use nextent_ondisk::inode::{self as format, BLOCK_AREA, mode};
use nextent_ondisk::{BlockNo, Compat, Corrupt, FileBlock, InodeNo, Structure};
use nextent_store::Handle;
use nextent_sync::atomic::{Ordering, fence};
use nextent_sync::{Arc, injected};

use super::change::Change;
use super::fs::Fs;
use super::object::{Inode, InodeState};
use crate::alloc::{BlockKind, Privilege};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::xattr::{self, AttrStorage, ValueReader, XattrCx, XattrName, acl};
use crate::{Access, Cred, FileType, XattrMode};

/// Reads attribute values that are stored in inodes of their own.
impl ValueReader for Fs {
    fn read_value(&self, ino: InodeNo, size: u32) -> Result<Vec<u8>> {
        let inode = self.value_inode(ino, size)?;
        let cx = self.map_cx(&inode, Privilege::User);
        let root = inode.map.read();
        let mut value = Vec::new();
        while value.len() < to_usize(size) {
            let at = FileBlock(must_fit(to_u64(value.len()) / self.block_size()));
            let Mapping::Written { start, .. } = map::lookup(&cx, &root, at, 1)? else {
                return Err(Corrupt::field(Structure::Xattr, "hole at block", at.0)
                    .at_inode(ino)
                    .into());
            };
            let mut block = vec![0; self.geometry.block_len()];
            let read = self.store.device().read_at(start.0 * self.block_size(), &mut block);
            read.map_err(|source| nextent_store::Error::Io {
                op: "read",
                block: start,
                source: Arc::new(source),
            })?;
            block.truncate(to_usize(size) - value.len());
            value.append(&mut block);
        }
        Ok(value)
    }
}

/// What a new file inherits from its directory.
pub(crate) struct Inherited {
    /// The permission bits.
    pub(crate) mode: u16,
    access: Option<Acl>,
    default: Option<Acl>,
}

fn cx<'a>(fs: &'a Fs, ino: InodeNo) -> XattrCx<'a> {
    let group = fs.geometry.inode_group(ino).map(|(group, _)| group).ok();
    XattrCx {
        store: &fs.store,
        space: &fs.blocks,
        shares: &fs.shares,
        geometry: &fs.geometry,
        ino,
        goal: group.map(|group| fs.geometry.group_first_block(group)),
        privilege: Privilege::Root,
        values: fs,
    }
}

/// A copy of the attribute area of the inode, and the number of the attribute block.
fn copy_storage(fs: &Fs, inode: &Inode) -> (Vec<u8>, BlockNo) {
    inode.with_raw(|state, raw| copy_storage_locked(fs, state, raw))
}

fn copy_storage_locked(fs: &Fs, state: &InodeState, raw: &[u8]) -> (Vec<u8>, BlockNo) {
    let area = state.disk.xattr_area(&fs.geometry);
    let area = area.and_then(|at| raw.get(at)).unwrap_or_default().to_vec();
    (area, state.disk.file_acl)
}

/// A change of attributes in progress. Lock-free readers discard what they read during it: the
/// attribute block may be freed and reused by another file before the inode refers to the new one.
struct AttrChange<'i> {
    inode: &'i Inode,
    before: u32,
}

impl<'i> AttrChange<'i> {
    fn begin(inode: &'i Inode) -> Self {
        let before = inode.attributes.load(Ordering::Relaxed);
        debug_assert!(before.is_multiple_of(2), "one thread at a time changes attributes");
        inode.attributes.store(before.wrapping_add(1), Ordering::Release);
        Self { inode, before }
    }
}

impl Drop for AttrChange<'_> {
    fn drop(&mut self) {
        self.inode.attributes.store(self.before.wrapping_add(2), Ordering::Release);
    }
}

/// Runs `read`, which reads attributes, for a caller that may hold no lock of `inode`.
///
/// This is a sequence lock. The result is valid only if no change of attributes was in progress
/// meanwhile. A reader sees a block that was freed and reused through locks that its new owner took
/// after the change began, so the second load sees that change too. If the result is invalid,
/// `read` runs again under `[inode.rw]`. A caller that holds that lock and has found the inode in
/// use gets a valid result at once, since no other thread can change it.
///
/// # Errors
/// [`Error::NotFound`] if the inode was freed meanwhile; the errors of `read`.
fn read_validated<R>(inode: &Inode, read: impl Fn() -> Result<R>) -> Result<R> {
    let before = inode.attributes.load(Ordering::Acquire);
    if before.is_multiple_of(2) || injected("attributes-unvalidated") {
        let found = read();
        fence(Ordering::Acquire);
        let same = inode.attributes.load(Ordering::Relaxed) == before;
        if same || injected("attributes-unvalidated") {
            return found;
        }
    }
    let _guard = inode.rw.read();
    if inode.snapshot().is_free() { Err(Error::NotFound) } else { read() }
}

/// Sets the superblock's feature for attributes.
fn set_feature(fs: &Fs, h: &Handle<'_>) {
    if !fs.geometry.features.has(Compat::EXT_ATTR) {
        fs.sup.set_feature(h, Compat::EXT_ATTR);
    }
}

/// Runs a changing function of `xattr` and stores its result in the inode.
fn change(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    verb: impl FnOnce(&XattrCx<'_>, &mut AttrStorage<'_>) -> Result<i64>,
) -> Result<()> {
    set_feature(fs, h);
    let _change = AttrChange::begin(inode);
    let (mut area, mut block) = copy_storage(fs, inode);
    let blocks = verb(&cx(fs, inode.ino), &mut AttrStorage { area: &mut area, block: &mut block })?;
    inode.change(h, Change::Attributes, |state| {
        if let Some(at) = state.disk.xattr_area(&fs.geometry) {
            state.raw_mut()[at].copy_from_slice(&area);
        }
        state.disk.file_acl = block;
        state.add_blocks(&fs.geometry, blocks)
    })
}

/// What a new file of `kind`, created with `mode`, inherits from `dir`.
pub(crate) fn inherit(
    fs: &Fs,
    dir: &Inode,
    kind: FileType,
    mode: u16,
    umask: u16,
) -> Result<Inherited> {
    let masked = Inherited { mode: mode & !umask, access: None, default: None };
    if kind == FileType::Symlink {
        return Ok(masked);
    }
    let (area, block) = copy_storage(fs, dir);
    let Some(default) = acl::default_list(&cx(fs, dir.ino), &area, block)? else {
        return Ok(masked);
    };
    let inherited = acl::inherit(&default, mode);
    let default = Some(default).filter(|_| kind == FileType::Directory);
    Ok(Inherited { mode: inherited.mode, access: inherited.access, default })
}

/// Sets the inherited access lists of a new file.
pub(crate) fn set_inherited(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    inherited: &Inherited,
) -> Result<()> {
    if let Some(default) = &inherited.default {
        change(fs, h, inode, |cx, storage| acl::set_default(cx, h, storage, Some(default)))?;
    }
    if let Some(access) = &inherited.access {
        change(fs, h, inode, |cx, storage| acl::set_access(cx, h, storage, Some(access)))?;
    }
    Ok(())
}

/// The attributes that decide about permissions, consistent with each other.
pub(crate) struct Rights {
    pub(crate) mode: u16,
    /// User and group.
    pub(crate) owner: (u32, u32),
    list: Option<Acl>,
}

impl Rights {
    /// The bits that the access list grants `cred`, which is neither privileged nor the owner;
    /// `None` without a list.
    pub(crate) fn by_list(&self, cred: &Cred, want: Access) -> Option<u16> {
        self.list.as_ref().map(|list| acl::granted(list, cred, self.owner, want.bits()))
    }
}

/// Mode, owner and access list of `inode`. The caller may hold no lock of it.
pub(crate) fn rights(fs: &Fs, inode: &Inode) -> Result<Rights> {
    read_validated(inode, || {
        let (mode, owner, area, block) = inode.with_raw(|state, raw| {
            let (area, block) = copy_storage_locked(fs, state, raw);
            (state.disk.mode, (state.disk.uid, state.disk.gid), area, block)
        });
        let list = acl::access_list(&cx(fs, inode.ino), &area, block)?;
        Ok(Rights { mode, owner, list })
    })
}

/// Adapts the access list, if there is one, to new mode bits.
pub(crate) fn acl_chmod(fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>, bits: u16) -> Result<()> {
    let (area, block) = copy_storage(fs, inode);
    let Some(list) = acl::access_list(&cx(fs, inode.ino), &area, block)? else { return Ok(()) };
    let list = acl::after_chmod(&list, bits);
    change(fs, h, inode, |cx, storage| acl::set_access(cx, h, storage, Some(&list)))
}

/// Releases the attribute block of an inode that is being freed.
pub(crate) fn drop_all(fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    if inode.with(|state| state.disk.file_acl) == BlockNo(0) {
        return Ok(());
    }
    change(fs, h, inode, |cx, storage| xattr::drop_all(cx, h, storage))
}

/// Frees the translator's block of an inode of the Hurd that is being freed.
///
/// # Errors
/// [`Error::Corrupt`] for a number that cannot be a file's block.
pub(crate) fn drop_translator(fs: &Fs, h: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let no = translator(fs, inode);
    if no == BlockNo(0) {
        return Ok(());
    }
    if !fs.geometry.holds_run(no, 1) || fs.blocks.overlaps_system_zone(no, 1) {
        let field = Corrupt::field(Structure::Inode, "h_i_translator", no.0);
        return Err(field.at_inode(inode.ino).into());
    }
    fs.blocks.free(h, no, 1, BlockKind::Metadata)?;
    inode.change(h, Change::Attributes, |state| {
        format::set_translator(&fs.geometry, state.raw_mut(), BlockNo(0));
        // Some systems count the block in i_blocks and some do not.
        state.disk.blocks = 0;
    });
    Ok(())
}

/// The translator's block of `inode` on a volume of the Hurd; 0 for none.
pub(crate) fn translator(fs: &Fs, inode: &Inode) -> BlockNo {
    match fs.geometry.is_hurd() {
        true => inode.with_raw(|_, raw| format::translator(&fs.geometry, raw)),
        false => BlockNo(0),
    }
}

/// The value of an attribute.
pub(crate) fn get(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    let name = XattrName::new(name)?;
    let (area, block) = copy_storage(fs, inode);
    xattr::get(&cx(fs, inode.ino), &area, block, name)
}

/// The attribute that gives a program rights. A write to the file removes it.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Cached state of that attribute.
mod cached {
    pub(super) const NOTHING: u32 = 0;
    pub(super) const MISSING: u32 = 1;
    pub(super) const PRESENT: u32 = 2;
}

/// Whether the file has the attribute [`CAPABILITY`], if that is cached. `inode.rw` is held.
#[inline]
pub(crate) fn known_capability(inode: &Inode) -> Option<bool> {
    match inode.capability.load(Ordering::Relaxed) {
        cached::MISSING => Some(false),
        cached::PRESENT => Some(true),
        _ => None,
    }
}

/// Whether the file has the attribute [`CAPABILITY`]; false if its attributes cannot be read.
pub(crate) fn has_capability(fs: &Fs, inode: &Inode) -> bool {
    match inode.capability.load(Ordering::Relaxed) {
        cached::MISSING => false,
        cached::PRESENT => true,
        _ => {
            let found = get(fs, inode, CAPABILITY);
            let state = match found {
                Ok(_) => cached::PRESENT,
                Err(Error::NoData) => cached::MISSING,
                Err(_) => cached::NOTHING,
            };
            inode.capability.store(state, Ordering::Relaxed);
            state == cached::PRESENT
        }
    }
}

/// Notes that a new file does not have the attribute [`CAPABILITY`].
pub(super) fn note_no_capability(inode: &Inode) {
    inode.capability.store(cached::MISSING, Ordering::Relaxed);
}

/// The names of all attributes.
pub(crate) fn list(fs: &Fs, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let (area, block) = copy_storage(fs, inode);
    xattr::list(&cx(fs, inode.ino), &area, block)
}

/// Sets an attribute, or removes it. An access list also sets the mode bits.
pub(crate) fn set(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    name: &[u8],
    value: Option<&[u8]>,
    how: XattrMode,
    cred: &Cred,
) -> Result<()> {
    if name == CAPABILITY {
        inode.capability.store(cached::NOTHING, Ordering::Relaxed);
    }
    let name = XattrName::new(name)?;
    if name == XattrName::ACL_DEFAULT && inode.file_type() != Some(FileType::Directory) {
        return if value.is_none() { Ok(()) } else { Err(Error::Access) };
    }
    if name == XattrName::ACL_ACCESS && inode.file_type() == Some(FileType::Symlink) {
        return Err(Error::NotSupported);
    }
    if let (true, Some(value)) = (name == XattrName::ACL_ACCESS, value) {
        return set_access(fs, h, inode, value, cred);
    }
    let is_acl = name == XattrName::ACL_ACCESS || name == XattrName::ACL_DEFAULT;
    let done = change(fs, h, inode, |cx, storage| match (value, how) {
        (None, _) => xattr::remove(cx, h, storage, name),
        (Some(value), XattrMode::Either) => xattr::put(cx, h, storage, name, value),
        (Some(value), XattrMode::Create) => xattr::create(cx, h, storage, name, value),
        (Some(value), XattrMode::Replace) => xattr::replace(cx, h, storage, name, value),
    });
    match done {
        // Linux reports success for the removal of an access list that does not exist.
        Err(Error::NoData) if is_acl && value.is_none() => Ok(()),
        done => done,
    }
}

fn set_access(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    value: &[u8],
    cred: &Cred,
) -> Result<()> {
    let list = Acl::from_xattr(value).map_err(|_| Error::Invalid)?;
    if !list.entries.is_empty() && !list.is_valid() {
        return Err(Error::Invalid);
    }
    let list = Some(list).filter(|list| !list.entries.is_empty());
    change(fs, h, inode, |cx, storage| acl::set_access(cx, h, storage, list.as_ref()))?;
    if let Some(list) = list {
        inode.change(h, Change::Fields, |state| {
            let kept = state.disk.mode & !0o777;
            let kept = match cred.privileged || cred.in_group(state.disk.gid) {
                true => kept,
                false => kept & !mode::SETGID,
            };
            state.disk.mode = kept | list.mode_bits();
        });
    }
    Ok(())
}

/// The part of inline data that is stored as an attribute, after the block area.
pub(crate) fn inline_rest(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    let (area, block) = copy_storage(fs, inode);
    match xattr::get(&cx(fs, inode.ino), &area, block, XattrName::INLINE_DATA) {
        Err(Error::NoData) => Ok(Vec::new()),
        rest => rest,
    }
}

/// Fills `buf` from `offset` of a file with inline data; bytes past the data are zero.
pub(crate) fn read_inline(fs: &Fs, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut data = inode.with(|state| state.disk.block).to_vec();
    debug_assert_eq!(data.len(), BLOCK_AREA);
    data.extend(inline_rest(fs, inode)?);
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
    let have = &data[start..];
    let len = have.len().min(buf.len());
    buf[..len].copy_from_slice(&have[..len]);
    buf[len..].fill(0);
    Ok(())
}
