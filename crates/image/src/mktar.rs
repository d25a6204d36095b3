//! Writes a tree as a tar stream, in order of names.
//!
//! One thread walks the tree, a window of entries ahead of its writing; workers read contents into
//! the window. So the stream does not depend on the number of threads.

use super::entered::Entered;
use super::entry::{Kind, Meta};
use super::queue::{Queue, ResultSlot};
use super::tarball::{BLOCK, Records, attribute_record, moment_text, padding};
use super::trail::Trail;
use super::{EntryError, FileId, Report, Result, Source, name};
use nextent::DeviceNo;
use nextent_num::{to_u64, to_usize};
use nextent_sync::{Arc, thread};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::ops::Range;

/// Contents are read in pieces of this size.
const PIECE: u64 = 512 << 10;
/// The most bytes of headers and contents in a window of more than one entry.
const WINDOW_BYTES: u64 = 32 << 20;
/// The most entries in the window.
const WINDOW: usize = 512;
/// The largest number of eleven octal digits.
const OCTAL_MAX: u64 = 0o77_777_777_777;

/// The parameters of [`pack`].
pub struct Packing<'a, S: Source> {
    /// What is read.
    pub source: &'a S,
    /// Receives failures of entries.
    pub report: &'a Report<'a>,
    /// Threads that read contents.
    pub workers: usize,
    /// Leaves out what this process may not read below the top, with a note for each.
    pub skip_unreadable: bool,
}

/// A part of the stream in the window.
enum Ahead<S: Source> {
    Bytes(Vec<u8>),
    PackPiece { node: S::Node, len: u64, slot: Arc<ResultSlot<Result<Vec<u8>>>> },
}

struct Read<S: Source> {
    file: Arc<S::File>,
    range: Range<u64>,
    slot: Arc<ResultSlot<Result<Vec<u8>>>>,
}

/// A range of a file that is not in the window yet.
struct PackPiece<S: Source> {
    file: Arc<S::File>,
    node: S::Node,
    range: Range<u64>,
}

struct Packer<'a, S: Source> {
    packing: &'a Packing<'a, S>,
    queue: &'a Queue<Read<S>>,
    window: VecDeque<Ahead<S>>,
    held: u64,
    /// The directories of the current path.
    stack: Vec<PackLevel<S>>,
    /// The path of the last directory, with a slash.
    prefix: Vec<u8>,
    entered: Entered,
    /// The remaining pieces of the current file.
    pieces: VecDeque<PackPiece<S>>,
    /// The padding after the last piece.
    tail: Option<usize>,
    links: HashMap<FileId, Arc<Trail>>,
}

/// A directory of the current path.
struct PackLevel<S: Source> {
    /// Remaining entries, the last name first.
    entries: Vec<(Vec<u8>, S::Node)>,
    /// Length of its path.
    len: usize,
    trail: Arc<Trail>,
}

/// Writes the tree below `top` to `out`, as `./` and names below it.
///
/// # Errors
/// Errors of `out`. All others go to the report.
pub fn pack<S: Source>(packing: &Packing<'_, S>, top: &S::Node, out: &mut dyn Write) -> Result<()> {
    let queue = Queue::new();
    thread::scope(|scope| {
        for _ in 0..packing.workers.max(1) {
            scope.spawn(|| read_all(packing, &queue));
        }
        let _ending = queue.ending();
        Packer::new(packing, &queue).run(top, out)
    })
}

fn read_all<S: Source>(packing: &Packing<'_, S>, queue: &Queue<Read<S>>) {
    while let Some(job) = queue.oldest() {
        let mut bytes = vec![0; to_usize(job.range.end - job.range.start)];
        let read = packing.source.read(&job.file, job.range.start, &mut bytes);
        job.slot.set(read.map(|len| {
            bytes.truncate(len);
            bytes
        }));
        queue.done();
    }
}

impl<'a, S: Source> Packer<'a, S> {
    fn new(packing: &'a Packing<'a, S>, queue: &'a Queue<Read<S>>) -> Self {
        Self {
            packing,
            queue,
            window: VecDeque::new(),
            held: 0,
            stack: Vec::new(),
            prefix: Vec::new(),
            entered: Entered::new(S::DIRS_HAVE_ONE_NAME),
            pieces: VecDeque::new(),
            tail: None,
            links: HashMap::new(),
        }
    }

    fn run(mut self, top: &S::Node, out: &mut dyn Write) -> Result<()> {
        match self.packing.source.meta(top) {
            Ok(meta) if meta.kind == Kind::Dir => {
                self.entered.enter(&meta)?;
                self.push(headers(b"./", None, &meta, None));
                self.prefix = b"./".to_vec();
                if let Err(trouble) = self.descend(top, Trail::top(b".")) {
                    self.packing.report.fail(&self.packing.source.show(top), &trouble);
                }
            }
            Ok(_) => return Err(EntryError::fatal("is not a directory")),
            Err(trouble) => return Err(trouble),
        }
        loop {
            self.look_ahead();
            match self.window.pop_front() {
                None => break,
                Some(Ahead::Bytes(bytes)) => {
                    out.write_all(&bytes)?;
                    self.held -= to_u64(bytes.len());
                }
                Some(Ahead::PackPiece { node, len, slot }) => {
                    let bytes = self.piece(&node, len, slot.take());
                    out.write_all(&bytes)?;
                    self.held -= len;
                    self.packing.report.bytes(len);
                }
            }
        }
        // A stream ends in two blocks of zeros, padded to tar's usual record.
        out.write_all(&[0; 2 * BLOCK])?;
        Ok(out.flush()?)
    }

    /// A piece of exactly the length in the header, also if less was read.
    fn piece(&self, node: &S::Node, len: u64, read: Result<Vec<u8>>) -> Vec<u8> {
        let mut bytes = read.unwrap_or_else(|trouble| {
            self.packing.report.fail(&self.packing.source.show(node), &trouble);
            Vec::new()
        });
        bytes.resize(to_usize(len), 0);
        bytes
    }

    /// Fills the window.
    fn look_ahead(&mut self) {
        while self.window.len() < WINDOW && self.held < WINDOW_BYTES {
            if let Some(PackPiece { file, node, mut range }) = self.pieces.pop_front() {
                if range.end - range.start > PIECE {
                    let rest = range.start + PIECE..range.end;
                    range.end = rest.start;
                    let (file, node) = (Arc::clone(&file), node.clone());
                    self.pieces.push_front(PackPiece { file, node, range: rest });
                }
                let (slot, len) = (ResultSlot::new(), range.end - range.start);
                self.held += len;
                self.queue.push(Read { file, range, slot: Arc::clone(&slot) });
                self.window.push_back(Ahead::PackPiece { node, len, slot });
                continue;
            }
            if let Some(pad) = self.tail.take() {
                self.push(vec![0; pad]);
                continue;
            }
            let Some(level) = self.stack.last_mut() else { return };
            self.prefix.truncate(level.len);
            match level.entries.pop() {
                Some((name, node)) => self.entry(&name, &node),
                None => {
                    self.stack.pop();
                }
            }
        }
    }

    /// Adds bytes to the window.
    fn push(&mut self, bytes: Vec<u8>) {
        self.held += to_u64(bytes.len());
        self.window.push_back(Ahead::Bytes(bytes));
    }

    fn fail(&self, node: &S::Node, trouble: &EntryError) {
        let shown = self.packing.source.show(node);
        match self.packing.skip_unreadable && trouble.denied {
            true => self.packing.report.skip(&shown, trouble),
            false => self.packing.report.fail(&shown, trouble),
        }
    }

    /// Enters a directory, whose path is the prefix. Returns the error of listing it.
    fn descend(&mut self, node: &S::Node, trail: Arc<Trail>) -> Result<()> {
        let mut entries = Vec::new();
        let listed = self.packing.source.list(node, &mut |name, node| entries.push((name, node)));
        entries.sort_by(|a, b| b.0.cmp(&a.0));
        self.stack.push(PackLevel { entries, len: self.prefix.len(), trail });
        listed
    }

    fn entry(&mut self, name: &[u8], node: &S::Node) {
        let meta = name::check(name).and_then(|()| self.packing.source.meta(node));
        let done = meta.and_then(|meta| self.add(name, node, &meta));
        self.packing.report.file();
        if let Err(trouble) = done {
            self.fail(node, &trouble);
        }
    }

    fn add(&mut self, name: &[u8], node: &S::Node, meta: &Meta) -> Result<()> {
        if meta.kind == Kind::Socket {
            let shown = self.packing.source.show(node);
            self.packing.report.note(&shown, "tar has no sockets; left out");
            return Ok(());
        }
        let Some(trail) = self.stack.last().map(|level| Trail::below(&level.trail, name)) else {
            return Ok(());
        };
        if meta.kind == Kind::Dir {
            self.entered.enter(meta)?;
            self.prefix.extend_from_slice(name);
            self.prefix.push(b'/');
            self.push(headers(&self.prefix, None, meta, None));
            return self.descend(node, trail);
        }
        let path = [self.prefix.as_slice(), name].concat();
        if meta.links > 1 {
            if let Some(first) = self.links.get(&meta.id) {
                self.push(headers(&path, Some(&first.path()), meta, None));
                return Ok(());
            }
            self.links.insert(meta.id, trail);
        }
        if meta.kind != Kind::File {
            self.push(headers(&path, None, meta, None));
            return Ok(());
        }
        let done = self.file(&path, node, meta);
        if done.is_err() {
            // Other names cannot be links to an entry that is not in the stream.
            self.links.remove(&meta.id);
        }
        done
    }

    fn file(&mut self, path: &[u8], node: &S::Node, meta: &Meta) -> Result<()> {
        let file = self.packing.source.open(node, meta)?;
        let data = self.packing.source.data(&file, meta)?;
        let whole = data.first() == Some(&(0..meta.size)) || meta.size == 0;
        let (sparse, map) = if whole { (None, 0) } else { self::sparse(&data, meta.size) };
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        let stored = bytes + to_u64(map);
        let header = headers(path, None, meta, sparse.map(|map| (map, stored)));
        self.push(header);
        let file = Arc::new(file);
        let piece = |range| PackPiece { file: Arc::clone(&file), node: node.clone(), range };
        self.pieces.extend(data.into_iter().map(piece));
        self.tail = Some(padding(bytes));
        Ok(())
    }
}

/// The map of a sparse file in pax's format 1.0, and the stored length in whole blocks. An empty
/// piece at the end marks a hole there.
fn sparse(data: &[Range<u64>], size: u64) -> (Option<Vec<u8>>, usize) {
    let end = (data.last().is_none_or(|range| range.end < size)).then_some(size..size);
    let ranges: Vec<_> = data.iter().cloned().chain(end).collect();
    let mut text = format!("{}\n", ranges.len());
    for range in ranges {
        text.push_str(&format!("{}\n{}\n", range.start, range.end - range.start));
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    let len = map.len();
    (Some(map), len)
}

/// All headers of one entry; `sparse` is its map and the number of stored bytes, map included.
fn headers(
    path: &[u8],
    link: Option<&[u8]>,
    meta: &Meta,
    sparse: Option<(Vec<u8>, u64)>,
) -> Vec<u8> {
    let mut more = Records::default();
    let mut header = tar::Header::new_ustar();
    let target = link.or(match &meta.kind {
        Kind::Symlink(target) => Some(target.as_slice()),
        _ => None,
    });
    let mut shown = path.to_vec();
    if sparse.is_some() {
        more.add(b"GNU.sparse.major", b"1");
        more.add(b"GNU.sparse.minor", b"0");
        more.add(b"GNU.sparse.name", path);
        more.add(b"GNU.sparse.realsize", meta.size.to_string().as_bytes());
        let slash = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        shown.splice(slash..slash, *b"GNUSparseFile.0/");
    }
    text_field(&mut header.as_mut_bytes()[..100], &shown, || more.add(b"path", &shown));
    if let Some(target) = target {
        text_field(&mut header.as_mut_bytes()[157..257], target, || more.add(b"linkpath", target));
    }
    let stored = match (&sparse, &meta.kind, link) {
        (Some((_, stored)), ..) => *stored,
        (None, Kind::File, None) => meta.size,
        _ => 0,
    };
    numbers(&mut header, &mut more, meta, stored);
    header.set_entry_type(entry_type(&meta.kind, link.is_some()));
    if let (Kind::Char(DeviceNo { major, minor }) | Kind::Block(DeviceNo { major, minor }), None) =
        (&meta.kind, link)
    {
        octal(&mut header.as_mut_bytes()[329..337], u64::from(*major));
        octal(&mut header.as_mut_bytes()[337..345], u64::from(*minor));
    }
    header.set_cksum();
    let mut out = extended(&more);
    out.extend_from_slice(header.as_bytes());
    if let Some((map, _)) = sparse {
        out.extend_from_slice(&map);
    }
    out
}

/// Sets the numeric fields. Numbers that do not fit go to records.
fn numbers(header: &mut tar::Header, more: &mut Records, meta: &Meta, stored: u64) {
    header.set_mode(u32::from(meta.mode));
    let mut field = |at: Range<usize>, max: u64, key: &[u8], value: u64| {
        let fits = value <= max;
        octal(&mut header.as_mut_bytes()[at], if fits { value } else { 0 });
        if !fits {
            more.add(key, value.to_string().as_bytes());
        }
    };
    field(108..116, 0o7_777_777, b"uid", u64::from(meta.uid));
    field(116..124, 0o7_777_777, b"gid", u64::from(meta.gid));
    field(124..136, OCTAL_MAX, b"size", stored);
    let time = meta.mtime;
    let plain = u64::try_from(time.seconds).ok().filter(|s| *s <= OCTAL_MAX);
    octal(&mut header.as_mut_bytes()[136..148], plain.unwrap_or(0));
    if time.nanos != 0 || plain.is_none() {
        more.add(b"mtime", moment_text(time).as_bytes());
    }
    for (name, value) in &meta.xattrs {
        let (key, value) = attribute_record(name, value);
        more.add(&key, &value);
    }
}

/// Octal digits and a zero byte.
fn octal(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    field[..digits].copy_from_slice(format!("{value:0digits$o}").as_bytes());
    field[digits] = 0;
}

/// Puts `text` into a field; calls `long` if only its start fits.
fn text_field(field: &mut [u8], text: &[u8], mut long: impl FnMut()) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
    if text.len() > field.len() {
        long();
    }
}

fn entry_type(kind: &Kind, link: bool) -> tar::EntryType {
    match kind {
        _ if link => tar::EntryType::Link,
        Kind::Dir => tar::EntryType::Directory,
        Kind::Symlink(_) => tar::EntryType::Symlink,
        Kind::Char(_) => tar::EntryType::Char,
        Kind::Block(_) => tar::EntryType::Block,
        Kind::Fifo => tar::EntryType::Fifo,
        Kind::File | Kind::Socket => tar::EntryType::Regular,
    }
}

/// The extended header with `records`; empty without records.
fn extended(records: &Records) -> Vec<u8> {
    if records.is_empty() {
        return Vec::new();
    }
    let bytes = records.bytes();
    let mut header = tar::Header::new_ustar();
    text_field(&mut header.as_mut_bytes()[..100], b"././@PaxHeader", || ());
    header.set_mode(0o644);
    octal(&mut header.as_mut_bytes()[108..116], 0);
    octal(&mut header.as_mut_bytes()[116..124], 0);
    octal(&mut header.as_mut_bytes()[124..136], to_u64(bytes.len()));
    octal(&mut header.as_mut_bytes()[136..148], 0);
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len() + padding(to_u64(bytes.len())), 0);
    out
}
