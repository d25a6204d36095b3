//! What the operations share: the lower floors of one open volume, tied together.

use nextent_ondisk::inode::{self as format, Inode as Fields};
use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{BlockNo, Corrupt, DiskTime, Geometry, InodeNo, Structure};
use nextent_store::{BlockRef, Handle, Store};
use nextent_sync::atomic::AtomicBool;
use nextent_sync::{Arc, Duration, Mutex};

use super::cache::{InodeCache, Shrink};
use super::damage::Damage;
use super::names::NameCache;
use super::numbers::OwnInodes;
use super::object::{self, Inode};
use super::orphan::Orphans;
use super::phase::Phase;
#[cfg(feature = "lab")]
use super::seam::DirectChoice;
use super::settle::Unsettled;
use super::superblock::SuperObject;
use super::{clock::Clock, credits, locks};
use crate::FileType;
use crate::alloc::{BlockAlloc, InodeAlloc, Kind, Privilege};
use crate::dir::IndexInfo;
use crate::error::{Error, Result};
use crate::map::{self, MapCx, MapKind, MapRoot};
use crate::policy::ErrorPolicy;
use crate::xattr::ShareCache;

/// One open volume below its operations.
pub(crate) struct Fs {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) store: Arc<Store>,
    pub(crate) blocks: BlockAlloc,
    pub(crate) inodes: InodeAlloc,
    pub(crate) cache: InodeCache,
    /// What names meant lately.
    pub(crate) names: NameCache,
    pub(crate) sup: Arc<SuperObject>,
    pub(crate) orphans: Orphans,
    /// The files in which conversions are put off.
    pub(crate) unsettled: Unsettled,
    /// Blocks of attributes that files may share.
    pub(crate) shares: ShareCache,
    pub(crate) clock: Clock,
    /// How direct writes begin.
    #[cfg(feature = "lab")]
    pub(crate) direct: DirectChoice,
    /// How directories are indexed, if they are.
    pub(crate) dir_index: Option<IndexInfo>,
    /// What of the superblock never changes, kept beside it so that no operation takes its lock
    /// to look.
    pub(crate) fixed: Fixed,
    /// What to do about damage.
    pub(crate) policy: ErrorPolicy,
    /// Moving directories between directories.
    pub(crate) rename: Mutex<()>,
    /// Changes are refused. Relaxed: a change that slips through is only late.
    phase: Phase,
    /// The last damage that was noted.
    pub(super) damage: Mutex<Option<Damage>>,
    /// The journal's end was noted on the device.
    pub(super) abort_noted: AtomicBool,
}

/// Fields of the superblock that stay as they are while the volume is open.
#[derive(Clone, Copy)]
pub(crate) struct Fixed {
    /// User and group who may use the reserved blocks.
    pub(crate) reserved_owner: (u32, u32),
    /// Wanted and least size of an inode's extra fields.
    pub(crate) extra_isize: (u16, u16),
    /// The inodes of the volume's own use.
    pub(crate) own: OwnInodes,
}

/// The parts of [`Fs`] that opening a volume brings.
pub(crate) struct Parts {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) store: Arc<Store>,
    pub(crate) blocks: BlockAlloc,
    pub(crate) inodes: InodeAlloc,
    pub(crate) sup: Arc<SuperObject>,
    pub(crate) clock: Clock,
    #[cfg(feature = "lab")]
    pub(crate) direct: DirectChoice,
    pub(crate) policy: ErrorPolicy,
    pub(crate) commit_interval: Duration,
    pub(crate) read_only: bool,
    /// Bytes of inodes that are kept in memory without need.
    pub(crate) inode_bytes: usize,
}

impl Fs {
    pub(crate) fn new(parts: Parts) -> Self {
        let cache = InodeCache::new(parts.inode_bytes, &parts.geometry);
        Self {
            geometry: parts.geometry,
            store: parts.store,
            blocks: parts.blocks,
            inodes: parts.inodes,
            cache,
            names: NameCache::new(),
            dir_index: parts.sup.with(IndexInfo::of),
            fixed: parts.sup.with(|sb| Fixed {
                reserved_owner: sb.reserved_owner(),
                extra_isize: (sb.want_extra_isize.get(), sb.min_extra_isize.get()),
                own: OwnInodes::of(sb),
            }),
            sup: parts.sup,
            orphans: Orphans::new(),
            unsettled: Unsettled::new(parts.commit_interval),
            shares: ShareCache::new(),
            clock: parts.clock,
            #[cfg(feature = "lab")]
            direct: parts.direct,
            policy: parts.policy,
            rename: Mutex::new(&locks::RENAME, ()),
            phase: Phase::new(parts.read_only),
            damage: Mutex::new(&locks::DAMAGE, None),
            abort_noted: AtomicBool::new(false),
        }
    }

    /// The inode `ino`, which must be in use or an orphan.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a free one, [`Error::Corrupt`] for a damaged one.
    pub(crate) fn inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let inode = self.any_inode(ino)?;
        if inode.traits().is_free() { Err(Error::NotFound) } else { Ok(inode) }
    }

    /// The object of the number `ino`, whatever state it is in. The number may be any.
    ///
    /// # Errors
    /// [`Error::NotFound`] for one that is no file's, see [`numbers`](super::numbers);
    /// [`Error::Corrupt`] for a damaged inode.
    pub(crate) fn any_inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let load = || if self.may_be_file(ino) { self.load(ino) } else { Err(Error::NotFound) };
        self.cache.get(ino, load, |inode| self.may_leave(inode))
    }

    /// The same of a number that may be the volume's own.
    pub(super) fn cached(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        self.cache.get(ino, || self.load(ino), |inode| self.may_leave(inode))
    }

    /// The object of a number that was just allocated. Of what lies on disk only the generation
    /// is looked at, so that the new file gets another.
    pub(crate) fn blank_inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let load = || {
            let (table, offset) = self.table_of(ino)?;
            let root = MapRoot::empty(MapKind::Indirect);
            let geometry = Arc::clone(&self.geometry);
            let before = Fields::read(&geometry, &table.image()[offset..]).unwrap_or_default();
            let disk = Fields { generation: before.generation, ..Fields::default() };
            let inode = Inode::new(ino, geometry, table, offset, disk, root);
            inode.set_free_at_load(true);
            Ok(inode)
        };
        self.cache.get(ino, load, |inode| self.may_leave(inode))
    }

    /// Takes back `times` pins of `ino`; see [`InodeCache::unpin`].
    pub(crate) fn unpin(
        &self,
        ino: InodeNo,
        times: u64,
    ) -> std::result::Result<Option<Arc<Inode>>, ()> {
        self.cache.unpin(ino, times, &|inode| self.may_leave(inode))
    }

    /// Drops inodes, names and metadata blocks that nobody needs.
    pub(crate) fn shrink(&self, how: Shrink) {
        if how != Shrink::ToBound {
            self.names.clear();
        }
        self.cache.shrink(how, &|inode| self.may_leave(inode));
        if how != Shrink::ToBound {
            self.blocks.drop_groups();
        }
        // Blocks after the inodes and groups that kept them.
        match how {
            Shrink::ToBound => {}
            Shrink::Unused => self.store.drop_blocks(false),
            Shrink::All => self.store.drop_blocks(true),
        }
    }

    /// Whether an inode that nobody else holds may leave the cache: its table block has all of it,
    /// and what an fsync would wait for has happened. Gives back what is set aside for its growth.
    /// Takes `[inode.state]` and `[alloc.region]`, and tries `[inode.rw]`.
    fn may_leave(&self, inode: &Inode) -> bool {
        if !inode.is_idle() || !self.store.is_flushed(inode.unflushed()) {
            return false;
        }
        let Some(mut window) = inode.rw.try_write() else { return false };
        self.blocks.release(&mut window);
        true
    }

    fn table_of(&self, ino: InodeNo) -> Result<(BlockRef, usize)> {
        let at = self.geometry.inode_location(ino).map_err(|_| Error::NotFound)?;
        let no = self.blocks.inode_place(&at)?.ok_or_else(|| Error::NotFound)?;
        Ok((self.store.read::<Error>(no, |_| Ok(()))?, at.offset))
    }

    pub(super) fn load(&self, ino: InodeNo) -> Result<Inode> {
        let (table, offset) = self.table_of(ino)?;
        let no = table.number();
        let image = table.image();
        let bytes = &image[offset..offset + usize::from(self.geometry.inode_size)];
        let blank = bytes.iter().all(|byte| *byte == 0);
        let place = |error: Corrupt| error.at_inode(ino).at_block(no);
        if !blank {
            format::verify(&self.geometry, ino, bytes).map_err(place)?;
        }
        let disk = Fields::read(&self.geometry, bytes).map_err(place)?;
        let free = blank || (disk.links == 0 && disk.dtime != 0) || disk.mode == 0;
        let directory = !free && disk.file_type() == Some(FileType::Directory);
        // Its blocks may be read one after the other, and a map may lead to the same one again and
        // again.
        if directory && disk.size >> self.geometry.block_bits > self.geometry.blocks_count {
            let error = Corrupt::field(Structure::Inode, "i_size of a directory", disk.size);
            return Err(place(error).into());
        }
        let acl = disk.file_acl;
        if !free && acl != BlockNo(0) && self.blocks.is_own(acl, 1) {
            return Err(place(Corrupt::field(Structure::Inode, "i_file_acl", acl.0)).into());
        }
        let root = if free { MapRoot::empty(MapKind::Indirect) } else { self.root_of(ino, &disk)? };
        let inode = Inode::new(ino, Arc::clone(&self.geometry), table.clone(), offset, disk, root);
        inode.set_free_at_load(free);
        Ok(inode)
    }

    /// Notes that `inode` was found in the list of orphans, at open. What looked like a freed
    /// inode, without names and with a time of deletion, has its map back: the time is a link of
    /// the list.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged map.
    pub(crate) fn adopt_orphan(&self, inode: &Inode) -> Result<()> {
        let disk = inode.with(|state| state.disk.clone());
        *inode.map.write() = self.root_of(inode.ino, &disk)?;
        inode.adopt_orphan();
        Ok(())
    }

    fn root_of(&self, ino: InodeNo, disk: &Fields) -> Result<MapRoot> {
        if disk.file_type().is_none() {
            return Err(Corrupt::field(Structure::Inode, "i_mode", disk.mode).at_inode(ino).into());
        }
        if !object::has_map(disk) {
            return Ok(MapRoot::empty(MapKind::Indirect));
        }
        let root = MapRoot::load(object::map_kind(disk), disk.block, ino, &self.geometry)?;
        if self.is_guarded(ino) {
            map::check_root(&self.blocks, ino, &root)?;
        }
        Ok(root)
    }

    /// Whether the blocks of `ino` must not be the volume's own: the journal's are, and those of
    /// the inodes that keep blocks away from everyone.
    fn is_guarded(&self, ino: InodeNo) -> bool {
        let reserved = self.geometry.is_reserved_inode(ino) && ino != ROOT_INO;
        !reserved && ino != self.fixed.own.journal
    }

    /// The surroundings of the map of `inode`, for changes on behalf of `privilege`.
    pub(crate) fn map_cx<'a>(&'a self, inode: &Inode, privilege: Privilege) -> MapCx<'a> {
        // Directories and targets of links go through the journal.
        let contents = match inode.file_type() {
            Some(FileType::Regular) => Kind::Data,
            _ => Kind::Metadata,
        };
        let sums = self.geometry.features.metadata_csum();
        MapCx {
            contents,
            guarded: self.is_guarded(inode.ino),
            store: &self.store,
            space: &self.blocks,
            ino: inode.ino,
            csum_seed: sums.then(|| inode.csum_seed()),
            geometry: &self.geometry,
            privilege,
        }
    }

    /// Starts a handle for a change.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Aborted`].
    #[inline]
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_writable()?;
        debug_assert!(credits <= credits::LARGEST, "{credits} credits");
        Ok(self.store.start(credits)?)
    }

    /// Starts a handle for a deferred conversion: part of an operation that has ended, so a close
    /// that has begun allows it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_conversion(&self, credits: u32) -> Result<Handle<'_>> {
        if !self.phase.may_convert() {
            return Err(self.why_read_only());
        }
        debug_assert!(credits <= credits::LARGEST, "{credits} credits");
        Ok(self.store.start(credits)?)
    }

    /// Ends this part of a multi-transaction change and begins the next. The caller has brought the
    /// volume into a state that may stay.
    ///
    /// # Errors
    /// As [`start`](Self::start): the volume may have become read-only meanwhile.
    pub(crate) fn restart(&self, h: &Handle<'_>, credits: u32) -> Result<()> {
        self.check_writable()?;
        debug_assert!(credits <= credits::LARGEST, "{credits} credits");
        Ok(h.restart(credits)?)
    }

    /// Before another part of an operation that changes many groups: commits if too many of them
    /// cannot leave memory else. Not under a handle; long locks may be held.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub(crate) fn make_groups_leave(&self) -> Result<()> {
        if self.blocks.is_crowded() {
            self.store.sync_all()?;
            self.blocks.drop_groups();
        }
        Ok(())
    }

    /// After [`Error::NoSpace`]: makes the blocks usable that wait for a commit; false if none do.
    /// Not under a handle; long locks may be held.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    #[cold]
    pub(crate) fn reclaim(&self) -> Result<bool> {
        let pending = self.blocks.has_pending();
        if pending {
            self.store.sync_all()?;
        }
        Ok(pending)
    }

    /// Whether changes are allowed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], or [`Error::Aborted`] if that is why.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(self.why_read_only()) } else { Ok(()) }
    }

    /// Why it became so, if there is a reason.
    #[cold]
    fn why_read_only(&self) -> Error {
        self.store.check().err().map_or(Error::ReadOnly, Error::from)
    }

    /// Whether operations are refused: from the start, by the policy for errors, or by a close.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        !self.phase.is_writable()
    }

    /// Refuses operations from now on; deferred conversions go on until the store is closed.
    pub(crate) fn begin_closing(&self) {
        self.phase.begin_closing();
    }

    /// Refuses changes from now on.
    pub(crate) fn set_read_only(&self) {
        self.phase.set_read_only();
    }

    /// The present, as an inode stores it.
    pub(crate) fn now(&self) -> DiskTime {
        self.clock.now()
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.geometry.block_size)
    }
}
