//! Allocates memory for many chunks at a time.
//!
//! An allocator that grows its heap by the 16 KiB of a chunk calls the system each time, and
//! meanwhile no other thread of the process can get pages. Here one call allocates up to [`MOST`]
//! chunks. Chunks that were never written use no memory.
//!
//! A slab is freed with its last chunk: back to the system, or into the [`MemoryStock`] that the
//! device shares. The first slab of a table has one chunk and each later one twice as many as the
//! previous one, so a small device stays small.

use super::chunks::CHUNK;
use nextent_sync::{Arc, CachePadded, LockClass, Mutex, PagedWords, Words, current_slot};
use std::ops::Deref;

/// Bytes of one chunk.
pub(super) type Bytes = Words<{ CHUNK / 8 }>;
/// Adjacent chunks that start at a page, like buffers of direct transfers.
type Row = PagedWords<{ CHUNK / 8 }>;

/// The most chunks of a slab: 1 MiB.
const MOST: usize = 64;

/// The number of slabs that threads allocate from concurrently.
const SOURCES: usize = 16;

static SLAB: LockClass = LockClass::new("device.slab", 905);
static STOCK: LockClass = LockClass::new("device.stock", 906);

/// Memory that memory devices reuse for each other instead of freeing it. Measurements one after
/// the other then do not measure page allocation.
///
/// It is freed with its last user, and holds at most what its users ever held together.
///
/// # Examples
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

/// Chunks that were allocated together.
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
pub(super) struct SlabChunk {
    slab: Arc<Slab>,
    at: usize,
}

impl Deref for SlabChunk {
    type Target = Bytes;
    fn deref(&self) -> &Bytes {
        &self.slab.chunks[self.at]
    }
}

/// The unused part of a slab.
struct Rest {
    slab: Arc<Slab>,
    next: usize,
    /// Whether the slab came from the stock, so that its chunks are not zeros.
    used: bool,
}

/// Allocates chunks of zeros.
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

    /// A chunk of zeros with no other user.
    pub(super) fn chunk(&self) -> SlabChunk {
        let mut rest = self.sources[current_slot().index() % SOURCES].lock();
        if rest.next == rest.slab.chunks.len() {
            *rest = self.more((rest.next * 2).clamp(1, MOST));
        }
        rest.next += 1;
        let piece = SlabChunk { slab: rest.slab.clone(), at: rest.next - 1 };
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
