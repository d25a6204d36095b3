//! Changes that reach a device all or not at all.
//!
//! The volume is open on an overlay, so the device does not change meanwhile. Then the changed
//! blocks are written to the device:
//!
//! | step | action | a crash after it leaves |
//! |---|---|---|
//! | 1 | blocks that are free on the device are written in place; flush | the old volume |
//! | 2 | the superblock says that the volume needs recovery; flush | the old volume, with an empty log |
//! | 3 | all other changed blocks are logged as one transaction; flush | the new volume, by replay |
//! | 4 | they are written in place; flush | the same |
//! | 5 | the log is marked empty; flush | the new volume |
//! | 6 | the superblock says that the volume is clean; flush | the new volume |
//!
//! Before step 1 nothing is written. The transaction must fit into the log, which bounds the size
//! of the changes of metadata and of data that is overwritten in place. New data is not bounded.
//!
//! Invariant: up to the commit block of step 3 no block in use of the old volume is written except
//! the superblock, and the journal, whose blocks are not part of the changes.

use std::fs::File;
use std::ops::Range;

use nextent_device::{BlockDevice, ScratchOverlay};
use nextent_num::{to_u64, to_usize};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{BlockNo, Compat, Geometry, Incompat, Superblock};
use nextent_sync::{Arc, Duration};

use super::lifecycle::{geometry_of, read_super, write_super};
use super::{OpenOptions, journal};
use crate::error::{Cause, Error, Result};
use crate::ops::Inodes;

/// Bytes that are copied at once.
const CHUNK: u64 = 1 << 20;

/// Changes of a volume that reach its device all or not at all, also across a crash.
///
/// ```
/// use nextent::inodes::{ROOT_INO, Staged};
/// use nextent::{Cred, OpenOptions};
/// # use std::sync::Arc;
/// # let device = Arc::new(nextent::MemoryDevice::new(16 << 20));
/// # nextent::mkfs::make(&*device, &nextent::mkfs::MkfsOptions::default())?;
/// # let scratch = tempfile::tempfile()?;
/// let staged = Staged::begin(device, scratch, &OpenOptions::new())?;
/// staged.volume().mkdir(&Cred::root(), ROOT_INO, b"both", 0o755)?;
/// staged.volume().mkdir(&Cred::root(), ROOT_INO, b"or none", 0o755)?;
/// staged.apply()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Staged {
    device: Arc<dyn BlockDevice>,
    overlay: Arc<ScratchOverlay<Arc<dyn BlockDevice>>>,
    volume: Inodes,
}

/// The blocks that [`Staged::apply`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Blocks that were free before, in place.
    pub direct: u64,
    /// Blocks that went through the log.
    pub logged: u64,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("volume", &self.volume).finish_non_exhaustive()
    }
}

impl Staged {
    /// Opens the volume on `device` for changes, which stay in `scratch`, an empty file. A volume
    /// that was not closed is recovered on the device first.
    ///
    /// No other program may write to the device until this ends.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a volume without a journal, [`Error::StaysReadOnly`] for one that
    /// cannot be changed, and as [`Inodes::open`].
    pub fn begin(
        device: Arc<dyn BlockDevice>,
        scratch: File,
        options: &OpenOptions,
    ) -> Result<Self> {
        let sb = read_super(&*device)?;
        if !sb.features().has(Compat::HAS_JOURNAL) {
            return Err(Error::unsupported("changes that are all or nothing without a journal"));
        }
        if sb.features().has(Incompat::MMP) {
            // The heartbeat would stay in the scratch file.
            let what = "changes that are all or nothing with multiple mount protection";
            return Err(Error::unsupported(what));
        }
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if sb.features().has(Incompat::RECOVER) {
            Inodes::open(Arc::clone(&device), options)?.close()?;
        }
        let overlay = Arc::new(ScratchOverlay::new(Arc::clone(&device), scratch));
        // A commit would let blocks that are in use on the device be reused, so that more blocks
        // would have to be logged.
        let options = options.clone().commit_interval(Duration::ZERO);
        let volume = Inodes::open(Arc::<ScratchOverlay<_>>::clone(&overlay), &options)?;
        if volume.is_read_only() {
            let why = volume.read_only_reason().unwrap_or("it is read-only").to_owned();
            return Err(Error::StaysReadOnly(Cause::new(why)));
        }
        Ok(Self { device, overlay, volume })
    }

    /// The volume to change.
    pub fn volume(&self) -> &Inodes {
        &self.volume
    }

    /// Closes the volume, and writes all changes to the device.
    ///
    /// # Errors
    /// [`Error::JournalTooSmall`] if the changes do not fit into the log, or the errors of closing:
    /// the device has not changed. Later errors of the device: the next open leaves all changes or
    /// none.
    pub fn apply(self) -> Result<Applied> {
        let Self { device, overlay, volume } = self;
        volume.close()?;
        let sb = read_super(&*device)?;
        let geometry = geometry_of(&sb, device.size())?;
        let Some(journal) = journal::locate(&device, &sb, &geometry)? else {
            return Err(Error::Corrupt(Cause::new("the journal is gone")));
        };
        let options = OpenOptions::new().read_only(true);
        let before = Inodes::open(Arc::clone(&device), &options)?;
        let change = Change { device, overlay, journal, geometry, before };
        change.apply(sb)
    }
}

/// The changed blocks and where they go.
struct Change {
    device: Arc<dyn BlockDevice>,
    overlay: Arc<ScratchOverlay<Arc<dyn BlockDevice>>>,
    journal: journal::Located,
    geometry: Geometry,
    /// The volume as it is on the device.
    before: Inodes,
}

/// How a changed block reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is free there.
    Direct,
    /// It is in use there.
    Logged,
    /// It belongs to the journal.
    Journal,
}

impl Change {
    fn apply(&self, mut old: Superblock) -> Result<Applied> {
        let mut clean = read_super(&*self.overlay)?;
        let mut in_use = clean.clone();
        let mut features = in_use.features();
        features.set(Incompat::RECOVER, true);
        in_use.set_features(features);
        if !in_use.seal_like(&old) {
            in_use.seal();
        }
        let images = self.logged(&in_use)?;
        let direct = self.write_direct()?;
        self.flush()?;
        let mut features = old.features();
        features.set(Incompat::RECOVER, true);
        old.set_features(features);
        write_super(&*self.device, &mut old)?;
        self.journal.log_blocks(&self.device, &self.geometry, &images)?;
        let (super_block, _) = self.geometry.super_location();
        for (no, bytes) in &images {
            // A torn superblock would hide the log.
            let bytes = if *no == super_block { &self.without_super(bytes)? } else { bytes };
            let at = no.0 << self.geometry.block_bits;
            self.device.write_at(at, bytes).map_err(|error| io("write", &error))?;
        }
        self.flush()?;
        write_super(&*self.device, &mut in_use)?;
        self.journal.empty_log(&self.device, &self.geometry)?;
        write_super(&*self.device, &mut clean)?;
        Ok(Applied { direct, logged: to_u64(images.len()) })
    }

    /// Calls `each` for the runs of changed blocks that go one way, with their numbers.
    fn changed(&self, each: &mut dyn FnMut(Way, Range<u64>) -> Result<()>) -> Result<()> {
        let bits = self.geometry.block_bits;
        let mut next = 0;
        while let Some(range) = self.overlay.next_written(next << bits) {
            let blocks = range.start >> bits..range.end.div_ceil(1 << bits);
            next = blocks.end;
            let mut start = blocks.start.min(self.geometry.blocks_count);
            let end = blocks.end.min(self.geometry.blocks_count);
            while start < end {
                let way = self.way(BlockNo(start))?;
                let mut stop = start + 1;
                while stop < end && self.way(BlockNo(stop))? == way {
                    stop += 1;
                }
                each(way, start..stop)?;
                start = stop;
            }
        }
        Ok(())
    }

    fn way(&self, no: BlockNo) -> Result<Way> {
        if self.journal.contains(no) {
            return Ok(Way::Journal);
        }
        let free = self.before.fs.blocks.is_allocatable(no)?;
        Ok(if free { Way::Direct } else { Way::Logged })
    }

    /// The changed blocks that are in use on the device, with the superblock `sb`.
    fn logged(&self, sb: &Superblock) -> Result<Vec<(BlockNo, Vec<u8>)>> {
        let room = self.journal.log_room(&self.device, &self.geometry)?;
        let (super_block, super_at) = self.geometry.super_location();
        let len = self.geometry.block_len();
        let (mut images, mut needed) = (Vec::new(), 0);
        let (mut now, mut before) = (vec![0; len], vec![0; len]);
        self.changed(&mut |way, blocks| {
            for no in blocks.filter(|_| way == Way::Logged) {
                let at = no << self.geometry.block_bits;
                self.overlay.read_at(at, &mut now).map_err(|error| io("read", &error))?;
                self.device.read_at(at, &mut before).map_err(|error| io("read", &error))?;
                if now == before {
                    continue;
                }
                needed += 1;
                if needed > room {
                    // Only the count is needed.
                    images.clear();
                    continue;
                }
                if BlockNo(no) == super_block {
                    now[super_at..super_at + SUPER_SIZE].copy_from_slice(sb.bytes());
                }
                images.push((BlockNo(no), now.clone()));
            }
            Ok(())
        })?;
        if needed > room {
            let text =
                format!("the changes need {needed} blocks of its log, which has room for {room}");
            return Err(Error::JournalTooSmall(Cause::new(text)));
        }
        Ok(images)
    }

    /// Writes the changed blocks that are free on the device; returns their number.
    fn write_direct(&self) -> Result<u64> {
        let bits = self.geometry.block_bits;
        let (mut done, mut buf) = (0, vec![0; to_usize(CHUNK.max(1 << bits))]);
        self.changed(&mut |way, blocks| {
            if way != Way::Direct {
                return Ok(());
            }
            done += blocks.end - blocks.start;
            let (mut at, end) = (blocks.start << bits, blocks.end << bits);
            while at < end {
                let part = &mut buf[..to_usize((end - at).min(CHUNK.max(1 << bits)))];
                self.overlay.read_at(at, part).map_err(|error| io("read", &error))?;
                self.device.write_at(at, part).map_err(|error| io("write", &error))?;
                at += to_u64(part.len());
            }
            Ok(())
        })?;
        Ok(done)
    }

    /// The image of the superblock's block with the superblock as it is on the device.
    fn without_super(&self, image: &[u8]) -> Result<Vec<u8>> {
        let mut image = image.to_vec();
        let (_, at) = self.geometry.super_location();
        let part = &mut image[at..at + SUPER_SIZE];
        self.device.read_at(SUPER_OFFSET, part).map_err(|error| io("read", &error))?;
        Ok(image)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|error| io("flush", &error))
    }
}

fn io(op: &str, source: &std::io::Error) -> Error {
    Error::Io(Cause::new(format!("{op} of changed blocks: {source}")))
}
