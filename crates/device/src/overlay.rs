//! An overlay: keeps writes in memory and never changes the base device.

use crate::range;
use crate::{BlockDevice, MemoryDevice};
use nextent_num::{to_u64, to_usize};
use nextent_sync::{Arc, LockClass, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::io;

/// Bytes of a page, the unit of written data.
const PAGE: usize = 4096;
const SHARDS: usize = 64;

static PAGES: LockClass = LockClass::new("device.overlay", 860);

type Shard = RwLock<HashMap<u64, Arc<[u8]>>>;

/// Returns written data, and for all other ranges the data of the base device.
///
/// The base device is never written and must not change. The written data ends with the overlay: a
/// flush succeeds but guarantees nothing beyond the process.
pub struct Overlay<D> {
    base: D,
    shards: Box<[Shard]>,
}

impl<D: BlockDevice> Overlay<D> {
    /// An overlay of `base` without written data.
    pub fn new(base: D) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(&PAGES, HashMap::new())).collect();
        Self { base, shards }
    }

    /// The base device.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// Bytes of memory that the written pages use.
    pub fn held(&self) -> u64 {
        self.shards.iter().map(|shard| to_u64(shard.read().len() * PAGE)).sum()
    }

    /// Writes every written page to `target`, which must have the same size.
    ///
    /// # Errors
    ///
    /// Any error of `target`.
    pub fn apply_to(&self, target: &MemoryDevice) -> io::Result<()> {
        for shard in &self.shards {
            let pages: Vec<_> =
                shard.read().iter().map(|(page, bytes)| (*page, Arc::clone(bytes))).collect();
            for (page, bytes) in pages {
                let at = page * to_u64(PAGE);
                let len = to_usize(to_u64(PAGE).min(self.size() - at));
                target.write_at(at, &bytes[..len])?;
            }
        }
        Ok(())
    }

    /// The units of `unit` bytes that differ from the base device: offsets in rising order, and the
    /// new bytes. `unit` must be a power of two of at least 512.
    ///
    /// # Errors
    ///
    /// Any error of the base device.
    pub fn changes(&self, unit: usize) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut units = BTreeSet::new();
        for shard in &self.shards {
            for page in shard.read().keys() {
                let (from, to) = (page * to_u64(PAGE), (page + 1) * to_u64(PAGE));
                units.extend(from / to_u64(unit)..to.div_ceil(to_u64(unit)));
            }
        }
        let mut changed = Vec::new();
        let mut below = vec![0; unit];
        for at in units.into_iter().map(|n| n * to_u64(unit)) {
            if at + to_u64(unit) > self.size() {
                break;
            }
            let mut now = vec![0; unit];
            self.read_at(at, &mut now)?;
            self.base.read_at(at, &mut below)?;
            if now != below {
                changed.push((at, now));
            }
        }
        Ok(changed)
    }

    fn shard(&self, page: u64) -> &Shard {
        &self.shards[to_usize(page) % SHARDS]
    }

    fn page(&self, page: u64) -> Option<Arc<[u8]>> {
        self.shard(page).read().get(&page).cloned()
    }

    /// The page in the base device, with zeros beyond the end.
    fn base_page(&self, page: u64) -> io::Result<Vec<u8>> {
        let at = page * to_u64(PAGE);
        let mut bytes = vec![0; PAGE];
        let len = to_usize(to_u64(PAGE).min(self.base.size() - at));
        self.base.read_at(at, &mut bytes[..len])?;
        Ok(bytes)
    }

    /// Changes a copy of the page, which then replaces the page.
    fn change(&self, piece: range::Piece, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        // The base device never changes, so it can be read without the lock.
        let partial = piece.len < PAGE && self.page(piece.unit).is_none();
        let fresh = if partial { self.base_page(piece.unit)? } else { vec![0; PAGE] };
        let mut shard = self.shard(piece.unit).write();
        let mut bytes = match shard.get(&piece.unit) {
            Some(held) => held.to_vec(),
            None => fresh,
        };
        change(&mut bytes[piece.of_unit()]);
        shard.insert(piece.unit, bytes.into());
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        range::check(self.size(), offset, to_u64(buf.len()))?;
        self.base.read_at(offset, buf)?;
        for piece in range::pieces(PAGE, offset, to_u64(buf.len())) {
            if let Some(page) = self.page(piece.unit) {
                buf[piece.of_buffer()].copy_from_slice(&page[piece.of_unit()]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        range::check(self.size(), offset, to_u64(buf.len()))?;
        for piece in range::pieces(PAGE, offset, to_u64(buf.len())) {
            self.change(piece, |part| part.copy_from_slice(&buf[piece.of_buffer()]))?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        // A discarded range may read as anything, so it may stay as it is.
        range::check(self.size(), offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        range::check(self.size(), offset, len)?;
        for piece in range::pieces(PAGE, offset, len) {
            self.change(piece, |part| part.fill(0))?;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
