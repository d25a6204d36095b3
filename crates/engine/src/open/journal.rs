//! Finds the journal, replays it, and opens the store that logs to it.

use nextent_device::BlockDevice;
use nextent_num::must_fit;
use nextent_ondisk::inode::{self as format, Inode as Fields, flags};
use nextent_ondisk::{
    BlockNo, Compat, Corrupt, FileBlock, Geometry, GroupDesc, Incompat, InodeNo, Structure,
    Superblock, Tid,
};
use nextent_store::{
    Handle, JournalRun, JournalSpec, JournalUse, Recovery, Store, StoreOptions,
    clear_journal_error, empty_log, inspect_journal, log_blocks, log_room, recover, supersede,
};
use nextent_sync::Arc;

use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::map::{self, BlockKind, BlockRequest, BlockRun, Extent, MapCx, MapKind, MapRoot, Space};

/// The fewest blocks of a journal, its superblock counted. Linux has the same limit, and the
/// smallest journal grants `credits::LARGEST`.
const MIN_BLOCKS: u64 = 1024;

/// Where the journal lies.
pub(crate) struct Located {
    /// Its blocks in order: runs of the volume.
    runs: Vec<BlockRun>,
    blocks: u64,
}

/// Stands for the allocator while only the journal's map is read.
struct NoSpace;

impl Space for NoSpace {
    fn allocate(&self, _: &Handle<'_>, _: &BlockRequest) -> Result<BlockRun> {
        Err(Error::NoSpace)
    }

    fn free(&self, _: &Handle<'_>, _: BlockNo, _: u32, _: BlockKind) -> Result<()> {
        Err(Error::NoSpace)
    }

    fn overlaps_system_zone(&self, _: BlockNo, _: u32) -> bool {
        false
    }
}

/// Finds the journal; `None` when the volume has none.
///
/// # Errors
/// [`Error::Unsupported`] for a journal on another device; a damaged journal inode.
pub(crate) fn locate(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    geometry: &Geometry,
) -> Result<Option<Located>> {
    if !sb.features().has(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let ino = InodeNo(sb.journal_inum.get());
    if ino.0 == 0 {
        return Err(Error::unsupported("an external journal"));
    }
    let options = StoreOptions { block_size: geometry.block_len(), ..StoreOptions::default() };
    let store = Store::read_only(Arc::clone(device), &options);
    let disk = read_inode(&store, geometry, ino)?;
    let kind = if disk.has_flag(flags::EXTENTS) { MapKind::Extents } else { MapKind::Indirect };
    let root = MapRoot::load(kind, disk.block, ino, geometry)?;
    let cx = MapCx {
        contents: BlockKind::Data,
        refuse_system_blocks: false,
        store: &store,
        space: &NoSpace,
        ino,
        csum_seed: geometry.features.metadata_csum().then(|| disk.csum_seed(geometry, ino)),
        geometry,
        privilege: Privilege::User,
    };
    let blocks = disk.size / u64::from(geometry.block_size);
    runs(&cx, &root, ino, blocks).map(|runs| Some(Located { runs, blocks }))
}

/// The runs of the journal, which must have no hole.
fn runs(cx: &MapCx<'_>, root: &MapRoot, ino: InodeNo, blocks: u64) -> Result<Vec<BlockRun>> {
    let mut runs: Vec<BlockRun> = Vec::new();
    let mut reached = 0u64;
    for extent in map::extents(cx, root, FileBlock(0)) {
        let Extent { at, start, len, .. } = extent?;
        if reached >= blocks {
            break;
        }
        if u64::from(at.0) != reached {
            let hole = Corrupt::field(Structure::JournalSuperblock, "hole at block", reached);
            return Err(hole.at_inode(ino).into());
        }
        let len = must_fit(u64::from(len).min(blocks - reached));
        reached += u64::from(len);
        match runs.last_mut() {
            Some(run) if run.end() == start => run.len += len,
            _ => runs.push(BlockRun { start, len }),
        }
    }
    if reached < blocks || blocks == 0 {
        let short = Corrupt::field(Structure::JournalSuperblock, "blocks mapped", reached);
        return Err(short.at_inode(ino).into());
    }
    Ok(runs)
}

fn read_inode(store: &Store, geometry: &Geometry, ino: InodeNo) -> Result<Fields> {
    let at = geometry.inode_location(ino)?;
    let (block, offset) = geometry.desc_location(at.group);
    let image = store.read::<Error>(block, |_| Ok(()))?.image();
    let size = usize::from(geometry.desc_size);
    let desc = GroupDesc::read(&image[offset..offset + size])?;
    desc.check(geometry, at.group)?;
    let no = BlockNo(desc.inode_table.0 + u64::from(at.table_block));
    let image = store.read::<Error>(no, |_| Ok(()))?.image();
    let bytes = &image[at.offset..at.offset + usize::from(geometry.inode_size)];
    format::verify(geometry, ino, bytes)?;
    Ok(Fields::read(geometry, bytes)?)
}

impl Located {
    /// The number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The runs, which the allocator must not touch.
    pub(super) fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    fn spec(&self, geometry: &Geometry) -> JournalSpec {
        let run = |run: &BlockRun| JournalRun { start: run.start, len: run.len };
        JournalSpec {
            runs: self.runs.iter().map(run).collect(),
            form: JournalUse {
                checksums: geometry.features.metadata_csum(),
                wide: geometry.features.has(Incompat::BIT64),
                fast: geometry.features.has(Compat::FAST_COMMIT),
            },
            volume_blocks: geometry.blocks_count,
        }
    }

    /// Writes the blocks in the log in place, and marks the log empty unless fast commits follow.
    pub(super) fn replay(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
    ) -> Result<Recovery> {
        Ok(recover(device, geometry.block_len(), &self.spec(geometry))?)
    }

    /// Logs the blocks that fast commits changed, writes them in place and marks the log empty.
    pub(super) fn supersede(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
        tid: Tid,
        images: &[(BlockNo, Vec<u8>)],
    ) -> Result<()> {
        Ok(supersede(device, geometry.block_len(), &self.spec(geometry), tid, images)?)
    }

    /// Whether a block belongs to the journal.
    pub(super) fn contains(&self, no: BlockNo) -> bool {
        self.runs.iter().any(|run| run.start <= no && no < run.end())
    }

    /// The most blocks that [`log_blocks`](Self::log_blocks) can log.
    pub(crate) fn log_room(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
    ) -> Result<usize> {
        Ok(log_room(device, geometry.block_len(), &self.spec(geometry))?)
    }

    /// Makes blocks durable as the only transaction of the empty log.
    pub(crate) fn log_blocks(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
        images: &[(BlockNo, Vec<u8>)],
    ) -> Result<()> {
        Ok(log_blocks(device, geometry.block_len(), &self.spec(geometry), images)?)
    }

    /// Marks the log empty; its blocks are in place.
    pub(crate) fn empty_log(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
    ) -> Result<()> {
        Ok(empty_log(device, geometry.block_len(), &self.spec(geometry))?)
    }

    /// Whether the log holds transactions.
    pub(super) fn needs_recovery(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
    ) -> Result<bool> {
        Ok(inspect_journal(device, geometry.block_len(), &self.spec(geometry))?.needs_recovery)
    }

    /// Clears the error number that stopped the journal. The superblock has recorded it by now.
    pub(super) fn clear_error(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
    ) -> Result<()> {
        Ok(clear_journal_error(device, geometry.block_len(), &self.spec(geometry))?)
    }

    /// Whether the log is large enough to write with.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: Linux refuses such a journal too, and operations would ask for more
    /// than a transaction grants.
    pub(super) fn check_size(
        &self,
        device: &Arc<dyn BlockDevice>,
        geometry: &Geometry,
    ) -> Result<()> {
        let state = inspect_journal(device, geometry.block_len(), &self.spec(geometry))?;
        // The log begins within the journal, usually behind its first block.
        let log = u64::from(state.blocks) + 1 - u64::from(state.first);
        if log < MIN_BLOCKS {
            let text = format!("writing with a journal of {log} blocks (at least {MIN_BLOCKS})");
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    /// The suspended store that will log to this journal.
    ///
    /// # Errors
    /// As [`check_size`](Self::check_size); a damaged journal.
    pub(super) fn suspended_store(
        &self,
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        options: &StoreOptions,
    ) -> Result<Store> {
        self.check_size(&device, geometry)?;
        Ok(Store::suspended_with_journal(device, options, &self.spec(geometry))?)
    }

    /// Opens the store that logs to this journal.
    pub(super) fn open_store(
        &self,
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        options: &StoreOptions,
    ) -> Result<Store> {
        Ok(Store::with_journal(device, options, &self.spec(geometry))?)
    }
}
