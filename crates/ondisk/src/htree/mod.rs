//! Hash trees: an index of a directory's blocks by the hash of the names.
//!
//! Block 0 of the directory is the root. It looks like a block with `.` and a `..` that covers the
//! rest. Another node looks like a block with one unused record. Both hold sorted pairs of hash and
//! file block. A count and a limit occupy the hash of the first pair, which stands for 0. If the
//! lowest bit of a pair's hash is set, the previous block also has names of that hash.
//!
//! Source: ext4 disk layout documentation, "Hash Tree Directories".

mod hash;

pub use hash::{HashVersion, Hasher, MAX_MAJOR, NameHash, siphash};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::csum;
use crate::dirent::{self, Raw};
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, FileBlock, Geometry, Incompat, InodeNo, Superblock, superblock};

/// Offset of the pairs in the root.
const ROOT_START: usize = 32;
/// Offset of the pairs in another node.
const NODE_START: usize = 8;
const PAIR: usize = 8;
/// Bytes of the checksum after the pairs.
const TAIL: usize = 8;
/// Bits of a pair's block field that are a block number.
const BLOCK_MASK: u32 = 0x0fff_ffff;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInfo {
    zero: U32,
    hash_version: u8,
    info_len: u8,
    levels: u8,
    flags: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCount {
    limit: U16,
    count: U16,
    first_block: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPair {
    hash: U32,
    block: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    reserved: U32,
    checksum: U32,
}

/// The two kinds of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Block 0 of the directory.
    Root,
    /// Any other block of the index.
    Node,
}

impl NodeKind {
    fn start(self) -> usize {
        match self {
            Self::Root => ROOT_START,
            Self::Node => NODE_START,
        }
    }
}

/// The root's information about the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// The hash function's number, see [`HashVersion::of_code`].
    pub hash_code: u8,
    /// Levels of nodes between the root and the blocks of entries.
    pub levels: u8,
}

/// The most levels of nodes between the root and the blocks of entries.
#[must_use]
pub fn max_levels(geometry: &Geometry) -> u8 {
    if geometry.features.has(Incompat::LARGEDIR) { 2 } else { 1 }
}

/// The pairs that fit into a node.
#[must_use]
pub fn limit(geometry: &Geometry, kind: NodeKind) -> usize {
    let tail = if geometry.features.metadata_csum() { TAIL } else { 0 };
    (geometry.block_len() - kind.start() - tail) / PAIR
}

impl Superblock {
    /// The hash for new directories, or `None` if the superblock names an unknown one.
    #[must_use]
    pub fn default_hasher(&self) -> Option<Hasher> {
        self.hasher(self.def_hash_version)
    }

    /// The hash with the number `code` on this volume. A volume that has neither the flag "signed"
    /// nor "unsigned" counts as signed, like the most common machines.
    #[must_use]
    pub fn hasher(&self, code: u8) -> Option<Hasher> {
        let unsigned = self.flags.get() & superblock::flags::UNSIGNED_HASH != 0;
        let version = HashVersion::of_code(code, unsigned)?;
        Some(Hasher { version, seed: self.hash_seed_words() })
    }
}

fn bad<T>(name: &'static str, value: impl Into<u64>) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::DirectoryIndex, name, value))
}

fn broken(rule: &'static str) -> Corrupt {
    Corrupt::rule(Structure::DirectoryIndex, rule)
}

/// Whether a block looks like a node other than the root: one unused record of a whole block.
/// Without `metadata_csum` an empty block of entries looks the same; only the tree distinguishes
/// them.
#[must_use]
pub fn looks_like_node(geometry: &Geometry, block: &[u8]) -> bool {
    Raw::ref_from_prefix(block).is_ok_and(|(raw, _)| {
        raw.ino.get() == 0
            && raw.name_len == 0
            && dirent::decode_len(geometry, raw.rec_len.get()) == block.len()
    })
}

/// Parses the root's information. Checks the records `.` and `..`, and that the hash information is
/// of this format version.
///
/// # Errors
///
/// The first broken rule, including an unknown hash or too many levels.
pub fn root_info(geometry: &Geometry, block: &[u8]) -> Result<RootInfo, Corrupt> {
    if block.len() != geometry.block_len() {
        let need = geometry.block_len();
        return Err(Corrupt::too_short(Structure::DirectoryIndex, need, block.len()));
    }
    let mut entries = dirent::Entries::over(geometry, block);
    for (name, len) in [(&b"."[..], 12), (b"..", block.len() - 12)] {
        match entries.next() {
            Some(Ok(entry)) if entry.name == name && entry.rec_len == len => {}
            Some(Err(error)) => return Err(error),
            _ => return Err(broken("the index root has no . or ..")),
        }
    }
    let (info, _) = RawInfo::ref_from_prefix(&block[24..]).expect("a block has 32 bytes");
    if info.zero.get() != 0 {
        return bad("reserved_zero", info.zero.get());
    }
    if HashVersion::of_code(info.hash_version, false).is_none() {
        return bad("hash_version", info.hash_version);
    }
    if info.info_len != 8 {
        return bad("info_length", info.info_len);
    }
    if info.levels > max_levels(geometry) {
        return bad("indirect_levels", info.levels);
    }
    if info.flags & 1 != 0 {
        return bad("unused_flags", info.flags);
    }
    Ok(RootInfo { hash_code: info.hash_version, levels: info.levels })
}

/// Checks a node: records, limit and count, order of hashes, and that each pair refers to a block
/// after the root and before `blocks`, the directory's number of blocks.
///
/// # Errors
///
/// The first broken rule.
pub fn check(
    geometry: &Geometry,
    kind: NodeKind,
    block: &[u8],
    blocks: u32,
) -> Result<(), Corrupt> {
    let node = open(geometry, kind, block)?;
    let mut before = 0;
    for (hash, child) in node.pairs() {
        if hash < before {
            return bad("dx_hash", hash);
        }
        if child.0 == 0 || child.0 >= blocks {
            return bad("dx_block", child.0);
        }
        before = hash;
    }
    Ok(())
}

/// The pairs of a node after a check of only its records (of a root with its information), limit
/// and count. A lookup reads few pairs: it does not need their order, and it checks each child that
/// it follows.
///
/// # Errors
///
/// The first broken rule.
pub fn open<'a>(geometry: &Geometry, kind: NodeKind, block: &'a [u8]) -> Result<Node<'a>, Corrupt> {
    match kind {
        NodeKind::Root => drop(root_info(geometry, block)?),
        NodeKind::Node
            if block.len() == geometry.block_len() && looks_like_node(geometry, block) => {}
        NodeKind::Node => return Err(broken("an index node has no unused record")),
    }
    let node = Node { bytes: block, start: kind.start() };
    if usize::from(node.raw().limit.get()) != limit(geometry, kind) {
        return bad("dx_limit", node.raw().limit.get());
    }
    let count = node.raw().count.get();
    if count == 0 || count > node.raw().limit.get() {
        return bad("dx_count", count);
    }
    Ok(node)
}

/// A node to read.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Node<'a> {
    /// The pairs of a block that [`check`] accepted.
    ///
    /// # Panics
    ///
    /// If `block` has fewer than 48 bytes.
    #[must_use]
    pub fn new(kind: NodeKind, block: &'a [u8]) -> Self {
        assert!(block.len() >= ROOT_START + 2 * PAIR, "a node is a block");
        Self { bytes: block, start: kind.start() }
    }

    fn raw(self) -> &'a RawCount {
        RawCount::ref_from_prefix(&self.bytes[self.start..]).expect("a node has a first pair").0
    }

    /// Pairs in use: at least 1, never more than the block holds.
    #[must_use]
    pub fn len(self) -> usize {
        let room = (self.bytes.len() - self.start) / PAIR;
        usize::from(self.raw().count.get()).clamp(1, room)
    }

    /// Always `false`: a node has at least its first pair.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }

    /// Whether the node has no space for another pair.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.len() >= usize::from(self.raw().limit.get())
    }

    /// The hash (0 for the first) and file block of a pair.
    ///
    /// # Panics
    ///
    /// If `at` is not below [`Self::len`].
    #[must_use]
    pub fn pair(self, at: usize) -> (u32, FileBlock) {
        assert!(at < self.len(), "pair {at} is not in use");
        let from = self.start + at * PAIR;
        let (raw, _) = RawPair::ref_from_prefix(&self.bytes[from..]).expect("pairs are inside");
        let hash = if at == 0 { 0 } else { raw.hash.get() };
        (hash, FileBlock(raw.block.get() & BLOCK_MASK))
    }

    /// All pairs in order.
    pub fn pairs(self) -> impl ExactSizeIterator<Item = (u32, FileBlock)> + 'a {
        (0..self.len()).map(move |at| self.pair(at))
    }

    /// Binary search for the last pair whose hash is at most `major`.
    #[must_use]
    pub fn find(self, major: u32) -> usize {
        let (mut low, mut high) = (1, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.pair(middle).0 <= major {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }
}

/// A node to change. The caller keeps the pairs ordered.
pub struct NodeMut<'a> {
    bytes: &'a mut [u8],
    kind: NodeKind,
}

impl<'a> NodeMut<'a> {
    /// The pairs of a block that [`check`] accepted.
    ///
    /// # Panics
    ///
    /// If `block` has fewer than 48 bytes.
    #[must_use]
    pub fn new(kind: NodeKind, block: &'a mut [u8]) -> Self {
        let _ = Node::new(kind, block);
        Self { bytes: block, kind }
    }

    /// Makes `block` a root with one pair, which refers to `child`. The inodes are those of `.` and
    /// `..`.
    ///
    /// # Panics
    ///
    /// If the length is not the block size.
    pub fn init_root(
        geometry: &Geometry,
        block: &'a mut [u8],
        (own, parent): (InodeNo, InodeNo),
        version: HashVersion,
        child: FileBlock,
    ) -> Self {
        dirent::init_dots(geometry, block, own, parent);
        let rest = geometry.block_len() - 12;
        block[24..].fill(0);
        let (dotdot, _) = Raw::mut_from_prefix(&mut block[12..]).expect("a block has 24 bytes");
        dotdot.rec_len.set(dirent::encode_len(geometry, rest));
        let info = RawInfo {
            zero: 0.into(),
            hash_version: version.code(),
            info_len: 8,
            levels: 0,
            flags: 0,
        };
        block[24..32].copy_from_slice(info.as_bytes());
        Self::with_pair(geometry, block, NodeKind::Root, child)
    }

    /// Makes `block` a node with one pair, which refers to `child`.
    ///
    /// # Panics
    ///
    /// If the length is not the block size.
    pub fn init(geometry: &Geometry, block: &'a mut [u8], child: FileBlock) -> Self {
        assert_eq!(block.len(), geometry.block_len(), "a node is a whole block");
        block.fill(0);
        let (raw, _) = Raw::mut_from_prefix(block).expect("a block has 8 bytes");
        raw.rec_len.set(dirent::encode_len(geometry, geometry.block_len()));
        Self::with_pair(geometry, block, NodeKind::Node, child)
    }

    fn with_pair(
        geometry: &Geometry,
        block: &'a mut [u8],
        kind: NodeKind,
        child: FileBlock,
    ) -> Self {
        let mut node = Self { bytes: block, kind };
        let raw = node.raw();
        raw.limit.set(limit(geometry, kind) as u16);
        raw.count.set(1);
        raw.first_block.set(child.0);
        node
    }

    /// Read access to the node.
    #[must_use]
    pub fn view(&self) -> Node<'_> {
        Node { bytes: self.bytes, start: self.kind.start() }
    }

    fn raw(&mut self) -> &mut RawCount {
        let start = self.kind.start();
        RawCount::mut_from_prefix(&mut self.bytes[start..]).expect("a node has a first pair").0
    }

    /// Stores the number of levels below the root.
    ///
    /// # Panics
    ///
    /// If this is not a root.
    pub fn set_levels(&mut self, levels: u8) {
        assert_eq!(self.kind, NodeKind::Root, "only a root has levels");
        RawInfo::mut_from_prefix(&mut self.bytes[24..]).expect("32 bytes").0.levels = levels;
    }

    /// Replaces the block of a pair.
    ///
    /// # Panics
    ///
    /// If there is no such pair.
    pub fn set_block(&mut self, at: usize, child: FileBlock) {
        assert!(at < self.view().len(), "pair {at} is not in use");
        let from = self.kind.start() + at * PAIR;
        let pair = RawPair::mut_from_prefix(&mut self.bytes[from..]).expect("pairs are inside").0;
        pair.block.set(child.0);
    }

    /// Inserts a pair before the one at `at`.
    ///
    /// # Panics
    ///
    /// If the node is full, or `at` is 0 or past the end.
    pub fn insert(&mut self, at: usize, hash: u32, child: FileBlock) {
        let len = self.view().len();
        assert!(at > 0 && at <= len && !self.view().is_full(), "the node has room at {at}");
        let from = self.kind.start() + at * PAIR;
        let end = self.kind.start() + len * PAIR;
        self.bytes.copy_within(from..end, from + PAIR);
        let pair = RawPair { hash: hash.into(), block: child.0.into() };
        self.bytes[from..from + PAIR].copy_from_slice(pair.as_bytes());
        self.raw().count.set(len as u16 + 1);
    }

    /// Removes the pair at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is 0 or there is no such pair.
    pub fn remove(&mut self, at: usize) {
        let len = self.view().len();
        assert!(at > 0 && at < len, "pair {at} can be removed");
        let from = self.kind.start() + at * PAIR;
        let end = self.kind.start() + len * PAIR;
        self.bytes.copy_within(from + PAIR..end, from);
        self.bytes[end - PAIR..end].fill(0);
        self.raw().count.set(len as u16 - 1);
    }

    /// Moves the pairs from `at` on into `other`, a newly initialized node with any child. Returns
    /// the hash of the first moved pair, which the parent's pair for `other` needs.
    ///
    /// # Panics
    ///
    /// If there is no such pair, or `other` has too little space.
    pub fn move_tail(&mut self, at: usize, other: &mut NodeMut<'_>) -> u32 {
        let pairs: Vec<_> = self.view().pairs().skip(at).collect();
        let hash = pairs.first().expect("at least one pair is moved").0;
        other.raw().count.set(1);
        for (place, (hash, child)) in pairs.iter().enumerate() {
            if place == 0 {
                other.set_block(0, *child);
            } else {
                other.insert(place, *hash, *child);
            }
        }
        let kept = at.max(1);
        let start = self.kind.start();
        let end = start + self.view().len() * PAIR;
        self.bytes[start + kept * PAIR..end].fill(0);
        self.raw().count.set(kept as u16);
        hash
    }
}

/// Offset and expected value of the checksum, for the kind of node that `block` looks like.
fn sums(seed: u32, block: &[u8]) -> Option<(usize, u32)> {
    let (raw, _) = Raw::ref_from_prefix(block).ok()?;
    let start = if raw.ino.get() == 0 { NODE_START } else { ROOT_START };
    let (count, _) = RawCount::ref_from_prefix(block.get(start..)?).ok()?;
    let (limit, count) = (usize::from(count.limit.get()), usize::from(count.count.get()));
    let at = start + limit * PAIR;
    if count > limit || at + TAIL > block.len() {
        return None;
    }
    let (tail, _) = RawTail::ref_from_prefix(&block[at..]).ok()?;
    let sum = csum(seed, &block[..start + count * PAIR]);
    Some((at, csum(csum(sum, tail.reserved.as_bytes()), &[0; 4])))
}

/// Stores the checksum of a node of either kind. `seed` is the directory inode's. A block that is
/// no node stays unchanged.
pub fn seal(seed: u32, _no: BlockNo, block: &mut [u8]) {
    if let Some((at, sum)) = sums(seed, block)
        && let Ok((tail, _)) = RawTail::mut_from_prefix(&mut block[at..])
    {
        tail.checksum.set(sum);
    }
}

/// Compares the checksum of a node of either kind. Call it only with the feature `metadata_csum`.
///
/// # Errors
///
/// A wrong checksum, or a block that is no node.
pub fn verify(seed: u32, block: &[u8]) -> Result<(), Corrupt> {
    let Some((at, expected)) = sums(seed, block) else {
        return Err(broken("no space for a checksum"));
    };
    let (tail, _) = RawTail::ref_from_prefix(&block[at..]).expect("sums() saw the tail");
    let found = tail.checksum.get();
    if found != expected {
        return Err(Corrupt::checksum(Structure::DirectoryIndex, found, expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
