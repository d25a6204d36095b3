//! A copy-on-write device: a file, the *delta*, holds what was written over a base that is only
//! read.
//!
//! Unlike [`Overlay`](crate::Overlay) and [`ScratchOverlay`](crate::ScratchOverlay), whose written
//! data ends with the process, a delta fulfils the contract of a flush. Many deltas may share a
//! base.
//!
//! | module | contents |
//! |---|---|
//! | [`format`] | header and layout of the file |
//! | [`bitmap`] | which units are in the delta |
//! | [`io`] | reads and writes |
//! | [`queue`] | asynchronous transfers |
//! | [`commit`], [`rebase`] | the delta's data into its base; another base |
//! | [`file`] | opens or makes the file |
//!
//! Invariants:
//!
//! - A unit lies at its offset in the data area, so nothing is allocated and nothing leaks. The
//!   file is sparse.
//! - A unit without its bit reads from the base, whatever the data area holds there.
//! - The first write to a unit writes all of it: the parts that the caller does not write are
//!   copied from the base. Later writes go in place.
//! - A bit becomes stable only after the data of its unit.
//!
//! A flush: take the changed sectors of the bitmap; flush the data; write the sectors; flush them.
//! A crash in between leaves units without a bit, which read from the base as if they had not been
//! written.
//!
//! The header identifies the base by its size and by a checksum of a few *samples* of it. The
//! caller chooses their offsets so that a writer of the base changes one of them: an ext4 writer
//! changes the superblock.
//!
//! Lock ranks: 846 `device.delta-flush`, 847 `device.delta-units` (held while a unit is copied from
//! the base), 848 `device.delta-changed`.

mod bitmap;
mod commit;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod device_tests;
mod file;
mod format;
mod io;
#[cfg(all(test, feature = "model-shuttle"))]
mod models;
mod queue;
mod rebase;

pub use file::{DeltaFile, is_unused_delta};
pub use rebase::replace_base;

use crate::BlockDevice;
use bitmap::Bitmap;
use format::{Header, Identity, Layout, MAX_SAMPLES, SAMPLE, State, UNIT};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{LockClass, Mutex};

/// [device.delta-flush] One flush at a time; held across its I/O.
static FLUSH: LockClass = LockClass::new("device.delta-flush", 846);
static UNITS: LockClass = LockClass::new("device.delta-units", 847);
static CHANGED: LockClass = LockClass::new("device.delta-changed", 848);

/// Locks for first writes; each is for every so manieth word of the bitmap.
const UNIT_LOCKS: u64 = 32;

/// Returns written data from the delta, and for all other ranges the data of the base device.
///
/// The base device must not change, except by [`commit`](Self::commit).
///
/// # Examples
///
/// ```
/// use nextent_device::{BlockDevice, DeltaDevice, MemoryDevice};
///
/// let base = MemoryDevice::from_bytes(&[7; 8192]);
/// let len = DeltaDevice::<&MemoryDevice, &MemoryDevice>::file_len(base.size()).unwrap();
/// let delta = MemoryDevice::new(len);
/// let device = DeltaDevice::create(&base, &delta, vec![0])?;
/// device.write_at(5000, b"text")?;
/// device.flush()?;
/// drop(device);
///
/// let again = DeltaDevice::open(&base, &delta)?;
/// let mut bytes = [0; 5];
/// again.read_at(5000, &mut bytes)?;
/// assert_eq!(&bytes, b"text\x07");
/// assert_eq!(base.to_bytes(), [7; 8192]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeltaDevice<B, S> {
    base: B,
    /// The device of the delta file.
    store: S,
    header: Header,
    bitmap: Bitmap,
    /// Whether writes are allowed. Set once.
    writes: AtomicBool,
    flushing: Mutex<()>,
    /// Held while units get their first data.
    units: Box<[Mutex<()>]>,
}

/// Why a delta cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The file is something else.
    #[error("is not a delta of nextent")]
    NotADelta,
    /// The format is newer.
    #[error("is a delta of version {0}, which this program does not know")]
    Version(u32),
    /// A checksum or a field is wrong.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// The file is too short.
    #[error("is cut short: it has {len} of {needed} bytes")]
    CutShort {
        /// Its length in bytes.
        len: u64,
        /// The length that its header asks for.
        needed: u64,
    },
    /// The base has another size.
    #[error("belongs to another base: that has {recorded} bytes, this one has {found}")]
    BaseSize {
        /// The size of the delta's base in bytes.
        recorded: u64,
        /// The size of the given base in bytes.
        found: u64,
    },
    /// The samples of the base differ.
    #[error("belongs to another base, or its base has changed")]
    BaseChanged,
    /// A commit has begun and not ended.
    #[error("is being committed to its base: run commit-overlay again to complete that")]
    Committing,
    /// The delta has changed since it was opened for reading.
    #[error("has changed since it was opened")]
    Changed,
    /// The base cannot hold the overlay.
    #[error("has {size} bytes and cannot be committed to a base of {base}")]
    TooLarge {
        /// The size of the overlay in bytes.
        size: u64,
        /// The size of the base in bytes.
        base: u64,
    },
    /// A device failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<DeltaError> for std::io::Error {
    fn from(error: DeltaError) -> Self {
        match error {
            DeltaError::Io(error) => error,
            other => Self::new(std::io::ErrorKind::InvalidData, other),
        }
    }
}

fn damaged_bitmap() -> std::io::Error {
    DeltaError::Damaged("a checksum of its bitmap is wrong").into()
}

impl<B: BlockDevice, S: BlockDevice> DeltaDevice<B, S> {
    /// Bytes that a delta of a device of `size` bytes needs. `None` if that is too large for a
    /// file.
    pub fn file_len(size: u64) -> Option<u64> {
        Layout::new(size).map(|layout| layout.file_len())
    }

    /// Makes an empty delta of `base` in `store`, which has [`file_len`](Self::file_len) bytes and
    /// holds zeros. `samples` are offsets of the bytes that identify the base; at most 48 are used.
    ///
    /// # Errors
    ///
    /// An error of a device, or `store` is too small.
    pub fn create(base: B, store: S, samples: Vec<u64>) -> Result<Self, DeltaError> {
        let len = store.size();
        let Some(layout) = Layout::new(base.size()) else {
            return Err(DeltaError::CutShort { len, needed: u64::MAX });
        };
        let base_size = base.size();
        let mut header = Header {
            layout,
            base_size,
            state: State::InUse,
            identity: 0,
            samples: chosen(samples, base_size),
        };
        header.identity = identity_of(&base, &header.samples)?;
        let device = Self::new(base, store, header)?;
        device.write_header(&device.header)?;
        Ok(device)
    }

    /// Opens the delta in `store`. It is read only if `store` is, or if a commit has not ended.
    ///
    /// # Errors
    ///
    /// [`DeltaError`]: it is no delta, damaged, or belongs to another base.
    pub fn open(base: B, store: S) -> Result<Self, DeltaError> {
        let header = read_header(&store)?;
        if header.base_size != base.size() {
            let (recorded, found) = (header.base_size, base.size());
            return Err(DeltaError::BaseSize { recorded, found });
        }
        let device = Self::new(base, store, header)?;
        let found = match device.header.state {
            State::InUse => identity_of(&device.base, &device.header.samples)?,
            // The base has the samples already, or will have them.
            State::Committing => device.merged_identity()?,
        };
        match found == device.header.identity {
            true => Ok(device),
            false => Err(DeltaError::BaseChanged),
        }
    }

    fn new(base: B, store: S, header: Header) -> Result<Self, DeltaError> {
        let (len, needed) = (store.size(), header.layout.file_len());
        if len < needed {
            return Err(DeltaError::CutShort { len, needed });
        }
        let writes = !store.is_read_only() && header.state == State::InUse;
        Ok(Self {
            base,
            store,
            bitmap: Bitmap::new(&header.layout),
            header,
            writes: AtomicBool::new(writes),
            flushing: Mutex::new(&FLUSH, ()),
            units: (0..UNIT_LOCKS).map(|_| Mutex::new(&UNITS, ())).collect(),
        })
    }

    /// The base device.
    pub fn base(&self) -> &B {
        &self.base
    }

    /// The device of the delta file.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Whether a commit to the base has begun and not ended.
    pub fn is_committing(&self) -> bool {
        self.header.state == State::Committing
    }

    /// Bytes of the units that are in the delta.
    ///
    /// # Errors
    ///
    /// An error of the delta file.
    pub fn delta_bytes(&self) -> std::io::Result<u64> {
        let (mut at, mut count) = (0, 0);
        let units = self.header.layout.units();
        while at < units {
            let (present, end) = self.bitmap.run(&self.store, at, units)?;
            count += if present { end - at } else { 0 };
            at = end;
        }
        Ok(count * UNIT)
    }

    /// Allows writes to a delta that was opened for reading, after its file allows them.
    ///
    /// # Errors
    ///
    /// [`DeltaError::Changed`]: another process has written to it since it was opened.
    pub fn allow_writes(&self) -> Result<(), DeltaError> {
        if self.writes.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.is_committing() {
            return Err(DeltaError::Committing);
        }
        if read_header(&self.store)? != self.header || !self.bitmap.is_unchanged(&self.store)? {
            return Err(DeltaError::Changed);
        }
        self.writes.store(true, Ordering::Release);
        Ok(())
    }

    /// The checksum of the samples of the base as it will be after a commit.
    fn merged_identity(&self) -> std::io::Result<u64> {
        let mut identity = Identity::new();
        for at in &self.header.samples {
            let mut bytes = sample_of(&self.base, *at)?;
            let within = to_u64(bytes.len()).min(self.size().saturating_sub(*at));
            if within > 0 {
                self.read_at(*at, &mut bytes[..to_usize(within)])?;
            }
            identity.add(&bytes);
        }
        Ok(identity.end())
    }

    fn write_header(&self, header: &Header) -> std::io::Result<()> {
        self.store.write_at(0, &header.encode())?;
        self.store.flush()
    }
}

fn read_header(store: &(impl BlockDevice + ?Sized)) -> Result<Header, DeltaError> {
    if store.size() < to_u64(crate::SECTOR) {
        return Err(DeltaError::NotADelta);
    }
    let mut bytes = [0; crate::SECTOR];
    store.read_at(0, &mut bytes)?;
    Header::decode(&bytes)
}

/// The samples to use: in order, each once, within the base.
fn chosen(mut samples: Vec<u64>, size: u64) -> Vec<u64> {
    samples.retain(|at| *at < size);
    samples.sort_unstable();
    samples.dedup();
    samples.truncate(MAX_SAMPLES);
    samples
}

/// The checksum of the samples.
fn identity_of(device: &(impl BlockDevice + ?Sized), samples: &[u64]) -> std::io::Result<u64> {
    let mut identity = Identity::new();
    for at in samples {
        identity.add(&sample_of(device, *at)?);
    }
    Ok(identity.end())
}

fn sample_of(device: &(impl BlockDevice + ?Sized), at: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(SAMPLE.min(device.size().saturating_sub(at)))];
    device.read_at(at, &mut bytes)?;
    Ok(bytes)
}
