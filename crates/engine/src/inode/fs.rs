//! The state of one open volume that all operations share: allocator, journal, caches.

use nextent_ondisk::inode::{self as format, Inode as Fields};
use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{BlockNo, Corrupt, DiskTime, Geometry, InodeNo, Structure};
use nextent_store::{BlockRef, Handle, Store};
use nextent_sync::atomic::{AtomicBool, AtomicU8, Ordering};
use nextent_sync::{Arc, Duration, Mutex};

use super::cache::{InodeCache, Shrink};
use super::damage::Damage;
use super::deferred_conversion::DeferredFiles;
use super::name_cache::NameCache;
use super::numbers::OwnInodes;
use super::object::{self, Inode};
use super::orphan::Orphans;
use super::phase::Phase;
#[cfg(feature = "lab")]
use super::seam::DirectChoice;
use super::superblock::SuperObject;
use super::{clock::Clock, credits, locks};
use crate::FileType;
use crate::alloc::{BlockAlloc, BlockKind, InodeAlloc, Privilege};
use crate::dir::IndexInfo;
use crate::error::{Error, Result};
use crate::map::{self, MapCx, MapKind, MapRoot};
use crate::mmp::Heartbeat;
use crate::observer::DamageObserver;
use crate::policy::ErrorPolicy;
use crate::xattr::ShareCache;

/// One open volume, below the layer of operations.
pub(crate) struct Fs {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) store: Arc<Store>,
    pub(crate) blocks: BlockAlloc,
    pub(crate) inodes: InodeAlloc,
    pub(crate) cache: InodeCache,
    /// Names that were looked up recently.
    pub(crate) name_cache: NameCache,
    pub(crate) sup: Arc<SuperObject>,
    pub(crate) orphans: Orphans,
    /// The files with deferred conversions.
    pub(crate) deferred_files: DeferredFiles,
    /// Attribute blocks that files may share.
    pub(crate) shares: ShareCache,
    pub(crate) clock: Clock,
    /// How direct writes begin.
    #[cfg(feature = "lab")]
    pub(crate) direct: DirectChoice,
    /// How directories are indexed, if they are.
    pub(crate) dir_index: Option<IndexInfo>,
    /// The constant fields of the superblock, which can be read without its lock.
    pub(crate) fixed: FixedSuper,
    /// The error policy's code. Relaxed: an error that a change of the policy races with may
    /// follow either.
    policy: AtomicU8,
    /// Learns of damage.
    pub(super) observer: DamageObserver,
    /// [volume.rename] Held while a directory moves between directories.
    pub(crate) rename: Mutex<()>,
    /// [volume.trim] Held during a trim, so that a volume that becomes read-only waits for it.
    pub(crate) trim: Mutex<()>,
    /// The volume is being made and filled: files may take all blocks, also the reserved ones.
    pub(crate) fills: bool,
    /// The phase, which says whether changes are refused. Relaxed: a change that misses it
    /// counts as an earlier one.
    phase: Phase,
    /// [volume.heartbeat] The heartbeat of a volume with multiple mount protection.
    pub(crate) heartbeat: Mutex<Option<Heartbeat>>,
    /// The last damage noted in the superblock.
    pub(super) damage: Mutex<Option<Damage>>,
    /// Whether the end of the journal was noted on the device.
    pub(super) abort_noted: AtomicBool,
}

/// Fields of the superblock that are constant while the volume is open.
#[derive(Clone, Copy)]
pub(crate) struct FixedSuper {
    /// User and group that may use the reserved blocks.
    pub(crate) reserved_owner: (u32, u32),
    /// Requested and least size of an inode's extra fields.
    pub(crate) extra_isize: (u16, u16),
    /// The inodes of the volume's own use.
    pub(crate) own: OwnInodes,
}

/// The parts of [`Fs`] that opening a volume provides.
pub(crate) struct FsParts {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) store: Arc<Store>,
    pub(crate) blocks: BlockAlloc,
    pub(crate) inodes: InodeAlloc,
    pub(crate) sup: Arc<SuperObject>,
    pub(crate) clock: Clock,
    #[cfg(feature = "lab")]
    pub(crate) direct: DirectChoice,
    pub(crate) policy: ErrorPolicy,
    pub(crate) observer: DamageObserver,
    pub(crate) commit_interval: Duration,
    pub(crate) read_only: bool,
    pub(crate) fills: bool,
    /// Bytes of idle inodes that the cache keeps.
    pub(crate) inode_bytes: usize,
}

impl Fs {
    pub(crate) fn new(parts: FsParts) -> Self {
        let cache = InodeCache::new(parts.inode_bytes, &parts.geometry);
        Self {
            geometry: parts.geometry,
            store: parts.store,
            blocks: parts.blocks,
            inodes: parts.inodes,
            cache,
            name_cache: NameCache::new(),
            dir_index: parts.sup.with(IndexInfo::of),
            fixed: parts.sup.with(|sb| FixedSuper {
                reserved_owner: sb.reserved_owner(),
                extra_isize: (sb.want_extra_isize.get(), sb.min_extra_isize.get()),
                own: OwnInodes::of(sb),
            }),
            sup: parts.sup,
            orphans: Orphans::new(),
            deferred_files: DeferredFiles::new(parts.commit_interval),
            shares: ShareCache::new(),
            clock: parts.clock,
            heartbeat: Mutex::new(&locks::HEARTBEAT, None),
            #[cfg(feature = "lab")]
            direct: parts.direct,
            policy: AtomicU8::new(parts.policy.code()),
            observer: parts.observer,
            rename: Mutex::new(&locks::RENAME, ()),
            trim: Mutex::new(&locks::TRIM, ()),
            fills: parts.fills,
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
        if inode.snapshot().is_free() { Err(Error::NotFound) } else { Ok(inode) }
    }

    /// The object of inode number `ino`, in any state. The caller may pass any number.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a number that is not a file's, see [`numbers`](super::numbers).
    /// [`Error::Corrupt`] for a damaged inode.
    pub(crate) fn any_inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let load = || if self.may_be_file(ino) { self.load(ino) } else { Err(Error::NotFound) };
        self.cache.get(ino, load, |inode| self.may_evict(inode))
    }

    /// Like [`any_inode`](Self::any_inode), also for the volume's own inodes.
    pub(super) fn cached(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        self.cache.get(ino, || self.load(ino), |inode| self.may_evict(inode))
    }

    /// The object of a number that was just allocated. Only the generation is read from the disk,
    /// so that the new file gets another.
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
        self.cache.get(ino, load, |inode| self.may_evict(inode))
    }

    /// Removes `times` pins of `ino`; see [`InodeCache::unpin`].
    pub(crate) fn unpin(
        &self,
        ino: InodeNo,
        times: u64,
    ) -> std::result::Result<Option<Arc<Inode>>, ()> {
        self.cache.unpin(ino, times, &|inode| self.may_evict(inode))
    }

    /// Drops unused inodes, names and metadata blocks.
    pub(crate) fn shrink(&self, how: Shrink) {
        if how != Shrink::ToBound {
            self.name_cache.clear();
        }
        self.cache.shrink(how, &|inode| self.may_evict(inode));
        if how != Shrink::ToBound {
            self.blocks.drop_groups();
        }
        // Inodes and groups keep blocks in memory, so blocks are dropped last.
        match how {
            Shrink::ToBound => {}
            Shrink::Unused => self.store.drop_blocks(false),
            Shrink::All => self.store.drop_blocks(true),
        }
    }

    /// Whether an inode that only the cache references may be evicted: its table block contains all
    /// of it, and an fsync would have nothing to wait for. Releases the window for its growth.
    /// Takes `[inode.state]` and `[alloc.region]`, and tries `[inode.rw]`.
    fn may_evict(&self, inode: &Inode) -> bool {
        if !inode.is_idle() || !self.store.is_flushed(inode.unflushed()) {
            return false;
        }
        let Some(mut window) = inode.rw.try_write() else { return false };
        self.blocks.release(&mut window);
        true
    }

    fn table_of(&self, ino: InodeNo) -> Result<(BlockRef, usize)> {
        let at = self.geometry.inode_location(ino).map_err(|_| Error::NotFound)?;
        let no = self.blocks.inode_table_block(&at)?.ok_or_else(|| Error::NotFound)?;
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
        // Readers may read a directory's blocks one by one, and a damaged map may contain the same
        // block many times.
        if directory && disk.size >> self.geometry.block_bits > self.geometry.blocks_count {
            let error = Corrupt::field(Structure::Inode, "i_size of a directory", disk.size);
            return Err(place(error).into());
        }
        let acl = disk.file_acl;
        if !free && acl != BlockNo(0) && self.blocks.overlaps_system_zone(acl, 1) {
            return Err(place(Corrupt::field(Structure::Inode, "i_file_acl", acl.0)).into());
        }
        let root = if free { MapRoot::empty(MapKind::Indirect) } else { self.root_of(ino, &disk)? };
        let inode = Inode::new(ino, Arc::clone(&self.geometry), table.clone(), offset, disk, root);
        inode.set_free_at_load(free);
        Ok(inode)
    }

    /// Notes at open that `inode` was found in the list of orphans. An inode without links and with
    /// a deletion time looked free, so its map was not loaded; this loads it. The deletion time is
    /// a link of the list.
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

    /// Whether the blocks of `ino` must not be the volume's own blocks. Those of the journal are,
    /// and so are those of inodes that reserve blocks.
    fn is_guarded(&self, ino: InodeNo) -> bool {
        let reserved = self.geometry.is_reserved_inode(ino) && ino != ROOT_INO;
        !reserved && ino != self.fixed.own.journal
    }

    /// The context of the map of `inode`, for changes with `privilege`.
    pub(crate) fn map_cx<'a>(&'a self, inode: &Inode, privilege: Privilege) -> MapCx<'a> {
        // Contents of directories and targets of links go through the journal.
        let contents = match inode.file_type() {
            Some(FileType::Regular) => BlockKind::Data,
            _ => BlockKind::Metadata,
        };
        let sums = self.geometry.features.metadata_csum();
        MapCx {
            contents,
            refuse_system_blocks: self.is_guarded(inode.ino),
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

    /// Starts a handle for a deferred conversion. It is part of an operation that has ended, so it
    /// is allowed even after a close has begun.
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

    /// Ends this transaction of a longer change and joins the next. The caller has made the volume
    /// consistent.
    ///
    /// # Errors
    /// As [`start`](Self::start): the volume may have become read-only meanwhile.
    pub(crate) fn restart(&self, h: &Handle<'_>, credits: u32) -> Result<()> {
        self.check_writable()?;
        debug_assert!(credits <= credits::LARGEST, "{credits} credits");
        Ok(h.restart(credits)?)
    }

    /// Called before each part of an operation that changes many groups: commits if too many groups
    /// cannot be evicted otherwise. Not under a handle; `inode.rw` locks may be held.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub(crate) fn evict_groups(&self) -> Result<()> {
        if self.blocks.needs_commit_to_drop() {
            self.store.sync_all()?;
            self.blocks.drop_groups();
        }
        Ok(())
    }

    /// Called after [`Error::NoSpace`]: commits to make freed blocks usable. True, too, if another
    /// commit has done that since [`BlockAlloc::releases`](crate::alloc::BlockAlloc::releases) was
    /// `before`. False if the operation would fail again. Not under a handle; `inode.rw` locks may
    /// be held.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    #[cold]
    pub(crate) fn reclaim(&self, before: u64) -> Result<bool> {
        if self.blocks.has_pending() {
            self.store.sync_all()?;
            return Ok(true);
        }
        Ok(self.blocks.releases() != before)
    }

    /// Checks that changes are allowed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], or [`Error::Aborted`] if the journal stopped.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(self.why_read_only()) } else { Ok(()) }
    }

    /// The reason why changes are refused.
    #[cold]
    fn why_read_only(&self) -> Error {
        self.store.check().err().map_or(Error::ReadOnly, Error::from)
    }

    /// Whether operations are refused: the volume was opened read-only, or the error policy or a
    /// close refuses them.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        !self.phase.is_writable()
    }

    /// What the volume does about damage.
    pub(super) fn policy(&self) -> ErrorPolicy {
        ErrorPolicy::of_code(self.policy.load(Ordering::Relaxed))
    }

    /// Changes what the volume does about damage from now on.
    pub(crate) fn set_policy(&self, policy: ErrorPolicy) {
        self.policy.store(policy.code(), Ordering::Relaxed);
    }

    /// Refuses operations from now on. Deferred conversions are allowed until the store is closed.
    pub(crate) fn begin_closing(&self) {
        self.phase.begin_closing();
    }

    /// Refuses all changes from now on.
    pub(crate) fn set_read_only(&self) {
        self.phase.set_read_only();
    }

    /// Refuses all changes for good, because damage was found.
    pub(super) fn set_damaged(&self) {
        self.phase.set_damaged();
    }

    /// Whether changes are refused for good, because damage was found.
    pub(crate) fn is_damaged(&self) -> bool {
        self.phase.is_damaged()
    }

    /// Allows changes, unless damage was found.
    pub(crate) fn set_writable(&self) {
        self.phase.set_writable();
    }

    /// Waits for the writes to files, and the trims, that began before
    /// [`begin_closing`](Self::begin_closing). None begins after that. Takes `[volume.trim]`, and
    /// `[inode.rw]` of one file after another.
    pub(crate) fn wait_for_writes(&self) {
        drop(self.trim.lock());
        // A writer gets its file from the cache: either it is found here, or it sees the phase.
        for inode in self.cache.referenced() {
            if inode.file_type() == Some(FileType::Regular) {
                drop(inode.rw.write());
            }
        }
    }

    /// The present time, as an inode stores it.
    pub(crate) fn now(&self) -> DiskTime {
        self.clock.now()
    }

    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.geometry.block_size)
    }
}
