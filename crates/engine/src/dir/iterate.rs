//! Reading a directory, call by call.

use std::ops::{ControlFlow, Range};

use nextent_num::to_u64;
use nextent_ondisk::htree::{Hasher, NameHash};
use nextent_ondisk::{Corrupt, FileBlock, FileType, InodeNo, Structure, dirent};

use super::cursor::{AFTER_DOT, AFTER_DOTDOT, Cursor, cookie_of, major_of};
use super::layout::hash;
use super::pages::Pages;
use super::tree::{Lost, Path, advance, probe_hash, read_root};

/// Bytes of an entry, mostly.
const USUAL_RECORD: usize = 24;

/// One entry of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The name.
    pub(crate) name: &'a [u8],
    /// The inode.
    pub(crate) ino: InodeNo,
    /// The file type as the entry has it; `None` without feature `filetype`.
    pub(crate) file_type: Option<FileType>,
    /// The place after this entry, for [`Cursor::from_cookie`].
    pub(crate) cookie: u64,
}

impl<'a> Entry<'a> {
    pub(super) fn of(entry: &dirent::DirEntry<'a>, cookie: u64) -> Self {
        Self { name: entry.name, ino: entry.ino, file_type: entry.file_type(), cookie }
    }
}

/// Where entries go; `Break` means that this one was not taken and the scan shall pause before it.
pub(super) trait Sink: FnMut(Entry<'_>) -> ControlFlow<()> {}
impl<F: FnMut(Entry<'_>) -> ControlFlow<()>> Sink for F {}

pub(super) fn iterate<P: Pages>(
    p: &P,
    cursor: &mut Cursor,
    mut emit: impl FnMut(Entry<'_>) -> ControlFlow<()>,
) -> Result<(), P::Error> {
    let flow = match order_of(p)? {
        Order::Blocks => by_block(p, cursor, &mut emit)?,
        Order::Hash(hasher) => by_hash(p, hasher, cursor, &mut emit)?,
    };
    let (ControlFlow::Continue(()) | ControlFlow::Break(())) = flow;
    Ok(())
}

/// The hash function that orders a scan; `None` if it goes in the order of the blocks.
pub(super) fn scan_hasher<P: Pages>(p: &P) -> Result<Option<Hasher>, P::Error> {
    Ok(match order_of(p)? {
        Order::Blocks => None,
        Order::Hash(hasher) => Some(hasher),
    })
}

/// The name of an entry that `matches`. Only entries of the index key `major` are read, if a scan
/// has the order of the keys.
pub(super) fn find_by<P: Pages>(
    p: &P,
    major: u32,
    matches: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, P::Error> {
    let hasher = scan_hasher(p)?;
    let first = cookie_of(NameHash { major, minor: 0 });
    let mut cursor = Cursor::from_cookie(if hasher.is_some() { first - 1 } else { 0 });
    let mut found = None;
    iterate(p, &mut cursor, |entry| {
        if hasher.is_some() && major_of(entry.cookie) > major & !1 {
            return ControlFlow::Break(());
        }
        if matches(entry.name) {
            found = Some(entry.name.to_vec());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

enum Order {
    Blocks,
    Hash(Hasher),
}

/// The order of a scan: by hash if the directory has an index or may get one at the next insertion.
///
/// A directory of several blocks without an index never gets one, and an index that cannot be
/// used stays so, hence the order does not change between the calls of a scan.
fn order_of<P: Pages>(p: &P) -> Result<Order, P::Error> {
    let hasher = if p.is_indexed() {
        match read_root(p) {
            Ok((hasher, _)) => Some(hasher),
            Err(Lost::Damaged(_)) => None,
            Err(Lost::Failed(error)) => return Err(error),
        }
    } else if p.blocks() == 1 {
        p.info().new_hasher()
    } else {
        None
    };
    Ok(hasher.map_or(Order::Blocks, Order::Hash))
}

/// Block order: the cookie is one more than the offset at which the entry begins.
fn by_block<P: Pages>(
    p: &P,
    cursor: &mut Cursor,
    emit: &mut impl Sink,
) -> Result<ControlFlow<()>, P::Error> {
    let size = to_u64(p.info().geometry.block_len());
    let first = u32::try_from(cursor.cookie() / size).unwrap_or(u32::MAX);
    for n in first..p.blocks() {
        let image = p.image(FileBlock(n))?;
        for entry in dirent::entries(p.info().geometry, &image) {
            let entry = entry.map_err(|e| p.at(FileBlock(n), e))?;
            let cookie = u64::from(n) * size + to_u64(entry.offset) + 1;
            if !entry.is_used() || cookie <= cursor.cookie() {
                continue;
            }
            if emit(Entry::of(&entry, cookie)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            cursor.set(cookie, None);
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn by_hash<P: Pages>(
    p: &P,
    hasher: Hasher,
    cursor: &mut Cursor,
    emit: &mut impl Sink,
) -> Result<ControlFlow<()>, P::Error> {
    if dots(p, cursor, emit)?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    if !p.is_indexed() {
        let mut batch = Batch::new(hasher);
        batch.load(p, FileBlock(0), 0, None)?;
        return Ok(batch.deliver(cursor, emit));
    }
    let mut path = probe_hash(p, major_of(cursor.cookie())).map_err(Lost::into_error)?;
    let mut low = 0;
    let mut left = p.blocks();
    loop {
        let mut batch = Batch::new(hasher);
        let more = batch.gather(p, &mut path, &mut low, &mut left).map_err(Lost::into_error)?;
        if batch.deliver(cursor, emit).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if !more {
            return Ok(ControlFlow::Continue(()));
        }
    }
}

/// `.` and `..`, which lie in the first block whatever their hash.
fn dots<P: Pages>(
    p: &P,
    cursor: &mut Cursor,
    emit: &mut impl Sink,
) -> Result<ControlFlow<()>, P::Error> {
    if cursor.cookie() >= AFTER_DOTDOT {
        return Ok(ControlFlow::Continue(()));
    }
    let image = p.image(FileBlock(0))?;
    for (name, cookie) in [(&b"."[..], AFTER_DOT), (b"..", AFTER_DOTDOT)] {
        if cursor.cookie() >= cookie {
            continue;
        }
        for entry in dirent::entries(p.info().geometry, &image) {
            let entry = entry.map_err(|e| p.at(FileBlock(0), e))?;
            if !entry.is_used() || entry.name != name {
                continue;
            }
            if emit(Entry::of(&entry, cookie)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            break;
        }
        cursor.set(cookie, None);
    }
    Ok(ControlFlow::Continue(()))
}

/// Entries of one leaf, or of several that share a hash, in the order of the scan.
struct Batch {
    hasher: Hasher,
    /// Names, one behind the other: an allocation for each entry would cost more than all the rest.
    names: Vec<u8>,
    list: Vec<Gathered>,
}

/// One entry of a batch.
struct Gathered {
    cookie: u64,
    ino: InodeNo,
    file_type: Option<FileType>,
    /// Where its name lies in the batch.
    name: Range<usize>,
}

impl Batch {
    fn new(hasher: Hasher) -> Self {
        Self { hasher, names: Vec::new(), list: Vec::new() }
    }

    /// Loads the path's leaf and those that continue its last hash; false if they are the last.
    ///
    /// `low` is the hash the leaf begins at; `left` bounds the leaves that one call may read,
    /// since an index may be made to lead in circles.
    fn gather<P: Pages>(
        &mut self,
        p: &P,
        path: &mut Path,
        low: &mut u32,
        left: &mut u32,
    ) -> Result<bool, Lost<P::Error>> {
        loop {
            let next = path.next_hash();
            *left = left.checked_sub(1).ok_or_else(|| {
                let error = Corrupt::field(Structure::DirectoryIndex, "leaves", p.blocks());
                Lost::Damaged(p.at(path.leaf, error))
            })?;
            self.load(p, path.leaf, *low, next).map_err(Lost::Failed)?;
            let Some(next) = next else { return Ok(false) };
            *low = next & !1;
            if !advance(p, path)? {
                return Ok(false);
            }
            if next & 1 == 0 {
                return Ok(true);
            }
        }
    }

    /// Adds the entries of leaf `n`, whose hashes must lie from `low` up to `next`.
    fn load<P: Pages>(
        &mut self,
        p: &P,
        n: FileBlock,
        low: u32,
        next: Option<u32>,
    ) -> Result<(), P::Error> {
        let image = p.image(n)?;
        self.names.reserve(image.len());
        self.list.reserve(image.len() / USUAL_RECORD);
        for entry in dirent::entries(p.info().geometry, &image) {
            let entry = entry.map_err(|e| p.at(n, e))?;
            if !entry.is_used() || entry.is_dot() {
                continue;
            }
            let hash = hash(&self.hasher, entry.name);
            if hash.major < low || next.is_some_and(|next| hash.major >= next) {
                let rule = "hash of an entry outside of its leaf";
                let error = Corrupt::field(Structure::DirectoryIndex, rule, hash.major);
                return Err(p.at(n, error).into());
            }
            let start = self.names.len();
            self.names.extend_from_slice(entry.name);
            self.list.push(Gathered {
                cookie: cookie_of(hash),
                ino: entry.ino,
                file_type: entry.file_type(),
                name: start..self.names.len(),
            });
        }
        Ok(())
    }

    /// Hands out what comes after the cursor and moves it along.
    fn deliver(&mut self, cursor: &mut Cursor, emit: &mut impl Sink) -> ControlFlow<()> {
        let Self { names, list, .. } = self;
        list.retain(|e| cursor.is_before(e.cookie, &names[e.name.clone()]));
        let key = |e: &Gathered| (e.cookie, &names[e.name.clone()]);
        list.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        let mut taken = 0;
        let flow = list.iter().try_for_each(|e| {
            let name = &names[e.name.clone()];
            emit(Entry { name, ino: e.ino, file_type: e.file_type, cookie: e.cookie })?;
            taken += 1;
            ControlFlow::Continue(())
        });
        if let Some(last) = list[..taken].last() {
            cursor.set(last.cookie, Some(&names[last.name.clone()]));
        }
        flow
    }
}
