//! Read and write access to a node's entries.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ENTRY_SIZE, Extent, Header, Index, MAGIC, MAX_WRITTEN_LEN, capacity};
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, FileBlock};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    entries: U16,
    max: U16,
    depth: U16,
    generation: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtent {
    block: U32,
    len: U16,
    start_hi: U16,
    start_lo: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIndex {
    block: U32,
    child_lo: U32,
    child_hi: U16,
    unused: U16,
}

/// The only extent in `bytes`. Its length may be 0.
pub(crate) fn parse_one(bytes: &[u8]) -> Option<Extent> {
    RawExtent::ref_from_bytes(bytes).ok().map(|raw| (*raw).into())
}

/// The bytes of one extent, as in a node.
pub(crate) fn bytes_of_one(extent: Extent) -> [u8; ENTRY_SIZE] {
    zerocopy::transmute!(RawExtent::from(extent))
}

impl From<RawExtent> for Extent {
    #[inline]
    fn from(raw: RawExtent) -> Self {
        let len = u32::from(raw.len.get());
        let unwritten = len > MAX_WRITTEN_LEN;
        Self {
            block: FileBlock(raw.block.get()),
            len: if unwritten { len - MAX_WRITTEN_LEN } else { len },
            start: BlockNo(u64::from(raw.start_hi.get()) << 32 | u64::from(raw.start_lo.get())),
            unwritten,
        }
    }
}

impl From<Extent> for RawExtent {
    #[inline]
    fn from(extent: Extent) -> Self {
        assert!(
            extent.len > 0 && extent.len <= Extent::max_len(extent.unwritten),
            "an extent's length is within its kind's limits"
        );
        let len = extent.len + if extent.unwritten { MAX_WRITTEN_LEN } else { 0 };
        Self {
            block: extent.block.0.into(),
            len: (len as u16).into(),
            start_hi: ((extent.start.0 >> 32) as u16).into(),
            start_lo: (extent.start.0 as u32).into(),
        }
    }
}

/// Stores the length of the leaf entry `at` in `bytes` without reading anything else, for a known
/// extent that grows.
///
/// # Panics
///
/// If the bytes hold no such entry, or the length is outside the limits of its kind.
#[inline]
pub fn set_extent_len(bytes: &mut [u8], at: usize, len: u32, unwritten: bool) {
    assert!(
        len > 0 && len <= Extent::max_len(unwritten),
        "an extent's length is within its kind's"
    );
    let len = len + if unwritten { MAX_WRITTEN_LEN } else { 0 };
    let start = (at + 1) * ENTRY_SIZE + std::mem::offset_of!(RawExtent, len);
    bytes[start..start + 2].copy_from_slice(U16::from(len as u16).as_bytes());
}

impl From<RawIndex> for Index {
    #[inline]
    fn from(raw: RawIndex) -> Self {
        Self {
            block: FileBlock(raw.block.get()),
            child: BlockNo(u64::from(raw.child_hi.get()) << 32 | u64::from(raw.child_lo.get())),
        }
    }
}

impl From<Index> for RawIndex {
    #[inline]
    fn from(index: Index) -> Self {
        Self {
            block: index.block.0.into(),
            child_lo: (index.child.0 as u32).into(),
            child_hi: ((index.child.0 >> 32) as u16).into(),
            unused: 0.into(),
        }
    }
}

/// A node to read.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// The node in `bytes`: a whole block, or the 60 bytes of the inode's block area.
    ///
    /// # Errors
    ///
    /// Too few bytes for a header, or a wrong magic number. [`super::check`] checks the rest.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let (raw, _) = RawHeader::ref_from_prefix(bytes)
            .map_err(|_| Corrupt::too_short(Structure::ExtentNode, ENTRY_SIZE, bytes.len()))?;
        if raw.magic.get() != MAGIC {
            return Err(Corrupt::magic(Structure::ExtentNode, raw.magic.get()));
        }
        Ok(Self { bytes })
    }

    #[inline]
    fn raw(self) -> &'a RawHeader {
        RawHeader::ref_from_prefix(self.bytes).expect("new() saw a header").0
    }

    /// The header.
    #[must_use]
    #[inline]
    pub fn header(self) -> Header {
        let raw = self.raw();
        Header {
            entries: raw.entries.get(),
            max: raw.max.get(),
            depth: raw.depth.get(),
            generation: raw.generation.get(),
        }
    }

    /// Levels below this node; 0 for a leaf.
    #[must_use]
    #[inline]
    pub fn depth(self) -> u16 {
        self.raw().depth.get()
    }

    /// Entries in use, never more than the bytes hold.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        usize::from(self.raw().entries.get().min(capacity(self.bytes.len())))
    }

    /// Whether no entry is in use.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether the node has no space for another entry.
    #[must_use]
    #[inline]
    pub fn is_full(self) -> bool {
        self.len() >= usize::from(self.raw().max.get().min(capacity(self.bytes.len())))
    }

    #[inline]
    fn entry<T: FromBytes + Copy + KnownLayout + Immutable + Unaligned>(self, at: usize) -> T {
        assert!(at < self.len(), "entry {at} is not in use");
        *T::ref_from_prefix(&self.bytes[(at + 1) * ENTRY_SIZE..]).expect("entries are inside").0
    }

    /// The extent at `at`, in a leaf.
    ///
    /// # Panics
    ///
    /// If `at` is not below [`Self::len`].
    #[must_use]
    #[inline]
    pub fn extent(self, at: usize) -> Extent {
        self.entry::<RawExtent>(at).into()
    }

    /// The index entry at `at`, in an index node.
    ///
    /// # Panics
    ///
    /// If `at` is not below [`Self::len`].
    #[must_use]
    #[inline]
    pub fn index(self, at: usize) -> Index {
        self.entry::<RawIndex>(at).into()
    }

    /// The raw entries in use.
    #[must_use]
    #[inline]
    pub fn entries(self) -> &'a [[u8; ENTRY_SIZE]] {
        // Without a panic, so that the compiler drops the call if the caller does not use the
        // result.
        let all = self.bytes.get(ENTRY_SIZE..).unwrap_or_default().as_chunks().0;
        all.get(..self.len()).unwrap_or_default()
    }

    /// The extents of a leaf, in order.
    pub fn extents(self) -> impl DoubleEndedIterator<Item = Extent> + ExactSizeIterator + 'a {
        (0..self.len()).map(move |at| self.extent(at))
    }

    /// The entries of an index node, in order.
    pub fn indexes(self) -> impl DoubleEndedIterator<Item = Index> + ExactSizeIterator + 'a {
        (0..self.len()).map(move |at| self.index(at))
    }

    /// The first file block of the entry at `at`, in a leaf or an index node.
    ///
    /// # Panics
    ///
    /// If `at` is not below [`Self::len`].
    #[must_use]
    #[inline]
    pub fn key(self, at: usize) -> FileBlock {
        FileBlock(self.entry::<RawExtent>(at).block.get())
    }

    /// Binary search for the last entry whose first file block is at most `block`.
    #[must_use]
    #[inline]
    pub fn find(self, block: FileBlock) -> Option<usize> {
        let used = &self.bytes[ENTRY_SIZE..(self.len() + 1) * ENTRY_SIZE];
        let entries = <[RawExtent]>::ref_from_bytes(used).expect("entries are inside");
        entries.partition_point(|entry| entry.block.get() <= block.0).checked_sub(1)
    }
}

/// A node to change. The caller keeps the entries ordered and without overlap.
pub struct NodeMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// The node in `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Node::new`].
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Result<Self, Corrupt> {
        Node::new(bytes)?;
        Ok(Self { bytes })
    }

    /// Makes `bytes` an empty node of `depth` that uses all the space.
    ///
    /// # Panics
    ///
    /// If `bytes` has no space for a header and an entry.
    pub fn init(bytes: &'a mut [u8], depth: u16) -> Self {
        let max = capacity(bytes.len());
        assert!(max > 0, "a node has room for an entry");
        bytes.fill(0);
        let header = RawHeader {
            magic: MAGIC.into(),
            entries: 0.into(),
            max: max.into(),
            depth: depth.into(),
            generation: 0.into(),
        };
        bytes[..ENTRY_SIZE].copy_from_slice(header.as_bytes());
        Self { bytes }
    }

    /// Read access to the node.
    #[must_use]
    #[inline]
    pub fn view(&self) -> Node<'_> {
        Node { bytes: self.bytes }
    }

    fn raw(&mut self) -> &mut RawHeader {
        RawHeader::mut_from_prefix(self.bytes).expect("new() saw a header").0
    }

    /// Stores the number of levels below this node.
    pub fn set_depth(&mut self, depth: u16) {
        self.raw().depth.set(depth);
    }

    #[inline]
    fn put(&mut self, at: usize, entry: &[u8]) {
        assert!(at < self.view().len(), "entry {at} is not in use");
        let start = (at + 1) * ENTRY_SIZE;
        self.bytes[start..start + ENTRY_SIZE].copy_from_slice(entry);
    }

    /// Replaces the extent at `at`.
    ///
    /// # Panics
    ///
    /// If there is no such entry, or the length is outside the limits of its kind.
    #[inline]
    pub fn set_extent(&mut self, at: usize, extent: Extent) {
        self.put(at, RawExtent::from(extent).as_bytes());
    }

    /// Replaces the index entry at `at`.
    ///
    /// # Panics
    ///
    /// If there is no such entry.
    pub fn set_index(&mut self, at: usize, index: Index) {
        self.put(at, RawIndex::from(index).as_bytes());
    }

    /// Replaces the first file block of the entry at `at`, in a leaf or an index node.
    ///
    /// # Panics
    ///
    /// If there is no such entry.
    pub fn set_key(&mut self, at: usize, block: FileBlock) {
        assert!(at < self.view().len(), "entry {at} is not in use");
        let start = (at + 1) * ENTRY_SIZE;
        U32::mut_from_prefix(&mut self.bytes[start..]).expect("entries are inside").0.set(block.0);
    }

    fn open_gap(&mut self, at: usize) {
        let len = self.view().len();
        assert!(at <= len && !self.view().is_full(), "the node has room at {at}");
        let start = (at + 1) * ENTRY_SIZE;
        self.bytes.copy_within(start..(len + 1) * ENTRY_SIZE, start + ENTRY_SIZE);
        self.raw().entries.set(len as u16 + 1);
    }

    /// Inserts an extent before the entry at `at`.
    ///
    /// # Panics
    ///
    /// If the node is full, `at` is past the end, or the length is outside the limits of its kind.
    pub fn insert_extent(&mut self, at: usize, extent: Extent) {
        self.open_gap(at);
        self.set_extent(at, extent);
    }

    /// Replaces the `old` extents from `at` on by `new`.
    ///
    /// # Panics
    ///
    /// If the extents do not exist, the node has too little space, or a length is outside the
    /// limits of its kind.
    pub fn splice(&mut self, at: usize, old: usize, new: impl ExactSizeIterator<Item = Extent>) {
        let len = self.view().len();
        assert!(at <= len && old <= len - at, "the extents to replace exist");
        let left = len - old + new.len();
        let room = usize::from(self.view().header().max.min(capacity(self.bytes.len())));
        assert!(left <= room, "the node has room");
        let rest = (at + old + 1) * ENTRY_SIZE..(len + 1) * ENTRY_SIZE;
        self.bytes.copy_within(rest, (at + new.len() + 1) * ENTRY_SIZE);
        if left < len {
            self.bytes[(left + 1) * ENTRY_SIZE..(len + 1) * ENTRY_SIZE].fill(0);
        }
        self.raw().entries.set(left as u16);
        new.enumerate().for_each(|(i, extent)| self.set_extent(at + i, extent));
    }

    /// Inserts an index entry before the entry at `at`.
    ///
    /// # Panics
    ///
    /// If the node is full or `at` is past the end.
    pub fn insert_index(&mut self, at: usize, index: Index) {
        self.open_gap(at);
        self.set_index(at, index);
    }

    /// Removes the entries `from..to`.
    ///
    /// # Panics
    ///
    /// If the range is not inside the entries.
    pub fn remove(&mut self, from: usize, to: usize) {
        let len = self.view().len();
        assert!(from <= to && to <= len, "the entries to remove exist");
        self.bytes
            .copy_within((to + 1) * ENTRY_SIZE..(len + 1) * ENTRY_SIZE, (from + 1) * ENTRY_SIZE);
        let left = len - (to - from);
        self.bytes[(left + 1) * ENTRY_SIZE..(len + 1) * ENTRY_SIZE].fill(0);
        self.raw().entries.set(left as u16);
    }

    /// Moves the entries from `at` on to the end of `other`, a node of the same depth.
    ///
    /// # Panics
    ///
    /// If `other` has too little space.
    pub fn move_tail(&mut self, at: usize, other: &mut NodeMut<'_>) {
        let (len, there) = (self.view().len(), other.view().len());
        let count = len - at;
        let room = usize::from(other.view().header().max.min(capacity(other.bytes.len())));
        assert!(there + count <= room, "the other node has room");
        let to = (there + 1) * ENTRY_SIZE;
        let from = &self.bytes[(at + 1) * ENTRY_SIZE..(len + 1) * ENTRY_SIZE];
        other.bytes[to..to + from.len()].copy_from_slice(from);
        other.raw().entries.set((there + count) as u16);
        self.remove(at, len);
    }
}
