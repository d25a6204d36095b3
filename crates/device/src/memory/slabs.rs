//! Memory for chunks, got from the system for many of them at a time.
//!
//! An allocator that grows its heap by the 16 KiB of a chunk asks the system each time, which keeps
//! the other threads of the process from getting pages meanwhile. Here one call is for up to
//! [`MOST`] chunks; what nobody has written to costs no memory. A slab goes when the last of its
//! chunks does: back to the system, or into the [`MemoryStock`] that its device shares. The first
//! slab of a table is one chunk and each next one twice as large as the one before, so a small
//! device stays small.

use super::chunks::CHUNK;
use nextent_sync::{Arc, CachePadded, LockClass, Mutex, PagedWords, Words, current_slot};
use std::ops::Deref;

/// Bytes of one chunk.
pub(super) type Bytes = Words<{ CHUNK / 8 }>;
/// Those of chunks side by side, which begin with pages as buffers of direct transfers do.
type Row = PagedWords<{ CHUNK / 8 }>;

/// Chunks of a slab at most: a mebibyte.
const MOST: usize = 64;

/// Threads take from so many slabs at a time.
const SOURCES: usize = 16;

static SLAB: LockClass = LockClass::new("device.slab", 905);
static STOCK: LockClass = LockClass::new("device.stock", 906);

/// Memory that devices in memory give back for each other, instead of to the system: what measures
/// one after another then measures no new memory.
///
/// Goes with the last of them. Holds as much as they ever did together.
///
/// ```
/// use nextent_device::{BlockDevice, MemoryDevice, MemoryStock};
///
/// let stock = MemoryStock::default();
/// let device = MemoryDevice::with_stock(1 << 30, &stock);
/// device.write_at(4096, b"text")?;
/// drop(device);
/// let (device, mut text) = (MemoryDevice::with_stock(1 << 30, &stock), [1; 4]);
/// device.read_at(4096, &mut text)?;
/// assert_eq!(text, [0; 4]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryStock(Arc<Mutex<Vec<Row>>>);

impl Default for MemoryStock {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(&STOCK, Vec::new())))
    }
}

impl std::fmt::Debug for MemoryStock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryStock({} slabs)", self.0.lock().len())
    }
}

/// Chunks that were got together.
struct Slab {
    chunks: Row,
    stock: Option<MemoryStock>,
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(stock) = &self.stock
            && self.chunks.len() == MOST
        {
            stock.0.lock().push(std::mem::take(&mut self.chunks));
        }
    }
}

/// A chunk of a slab.
pub(super) struct Piece {
    slab: Arc<Slab>,
    at: usize,
}

impl Deref for Piece {
    type Target = Bytes;
    fn deref(&self) -> &Bytes {
        &self.slab.chunks[self.at]
    }
}

/// What is left of a slab.
struct Rest {
    slab: Arc<Slab>,
    next: usize,
    /// It is of the stock: its chunks are not zeros.
    used: bool,
}

/// Gives chunks of zeros.
pub(super) struct Slabs {
    sources: [CachePadded<Mutex<Rest>>; SOURCES],
    stock: Option<MemoryStock>,
}

impl Slabs {
    pub(super) fn new(stock: Option<MemoryStock>) -> Self {
        let slab = || Arc::new(Slab { chunks: Row::default(), stock: None });
        let rest = || Rest { slab: slab(), next: 0, used: false };
        let sources = std::array::from_fn(|_| CachePadded::new(Mutex::new(&SLAB, rest())));
        Self { sources, stock }
    }

    /// A chunk of zeros, used by nobody.
    pub(super) fn piece(&self) -> Piece {
        let mut rest = self.sources[current_slot().index() % SOURCES].lock();
        if rest.next == rest.slab.chunks.len() {
            *rest = self.more((rest.next * 2).clamp(1, MOST));
        }
        rest.next += 1;
        let piece = Piece { slab: rest.slab.clone(), at: rest.next - 1 };
        let used = rest.used;
        drop(rest);
        if used {
            piece.clear(0..CHUNK);
        }
        piece
    }

    fn more(&self, count: usize) -> Rest {
        let stock = self.stock.clone();
        let old = stock.as_ref().and_then(|stock| stock.0.lock().pop());
        let used = old.is_some();
        let chunks = old.unwrap_or_else(|| Row::zeros(count));
        Rest { slab: Arc::new(Slab { chunks, stock }), next: 0, used }
    }
}
