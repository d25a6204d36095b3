//! Listings that are kept from measuring a tree, so that copying it need not read them again.
//!
//! An entry takes about 50 bytes, see [`put_entry`]. At most [`MOST`] bytes are kept; directories
//! beyond that are read again.
//!
//! A listing is used if its directory has not changed since: it has the same time of change, and
//! had it for at least [`UNAMBIGUOUS`] when it was read. Without that, a change within the same
//! tick of the host's clock could be missed. Attributes of files are those of the time when their
//! directory was read.

use super::super::entry::Xattr;
use super::super::{FileId, Kind, Meta};
use nextent::{DeviceNo, DiskTime};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::coarse_unix_time;
use rustix::fs::Stat;
use std::collections::HashMap;
use std::ops::Range;

/// The most bytes that are kept.
const MOST: usize = 96 << 20;
/// Seconds after which a second change of a directory gets another time: more than the ticks of any
/// file system.
const UNAMBIGUOUS: i64 = 2;

/// The listings of a tree, by directory.
#[derive(Default)]
pub struct KeptListings {
    by_dir: HashMap<FileId, KeptListing>,
    bytes: usize,
}

impl KeptListings {
    /// Keeps the listing of the directory `dir`, if there is room.
    pub(super) fn keep(&mut self, dir: FileId, listing: KeptListing) {
        let bytes = self.bytes + listing.bytes.len();
        if bytes <= MOST {
            self.bytes = bytes;
            self.by_dir.insert(dir, listing);
        }
    }

    /// The listing of `dir`, which is no longer kept.
    pub(super) fn take(&mut self, dir: FileId) -> Option<KeptListing> {
        self.by_dir.remove(&dir)
    }
}

/// The listing of a directory.
pub(super) struct KeptListing {
    /// When the directory was changed last.
    changed: DiskTime,
    entries: usize,
    bytes: Box<[u8]>,
}

/// An entry without errors.
pub(super) struct KeptEntry {
    pub(super) name: Vec<u8>,
    pub(super) meta: Meta,
    /// The data ranges of a file with holes.
    pub(super) holes: Option<Vec<Range<u64>>>,
}

impl KeptListing {
    /// Whether a directory with these attributes has the entries of this listing.
    pub(super) fn is_of(&self, dir: &Stat) -> bool {
        self.changed == time_of_change(dir)
    }

    /// The number of its entries.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Its entries in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = KeptEntry> + '_ {
        let mut rest = Reader(&self.bytes);
        (0..self.entries).map_while(move |_| rest.entry())
    }
}

/// Packs the listing of a directory.
pub(super) struct Packer {
    changed: DiskTime,
    entries: usize,
    bytes: Vec<u8>,
}

impl Packer {
    /// For a directory with these attributes, before its entries are read. None if it changed just
    /// now.
    pub(super) fn new(dir: &Stat) -> Option<Self> {
        let now = coarse_unix_time();
        let changed = time_of_change(dir);
        let is_old = changed.seconds + UNAMBIGUOUS < i64::try_from(now.as_secs()).ok()?;
        is_old.then(|| Self { changed, entries: 0, bytes: Vec::new() })
    }

    /// The same for a directory of any age.
    #[cfg(test)]
    pub(super) fn unchecked(dir: &Stat) -> Self {
        Self { changed: time_of_change(dir), entries: 0, bytes: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &[u8], meta: &Meta, holes: Option<&[Range<u64>]>) {
        self.entries += 1;
        put_entry(&mut self.bytes, name, meta, holes);
    }

    pub(super) fn finish(self) -> KeptListing {
        let Self { changed, entries, bytes } = self;
        KeptListing { changed, entries, bytes: bytes.into() }
    }
}

fn time_of_change(stat: &Stat) -> DiskTime {
    let nanos = |nanos: i128| u32::try_from(nanos).unwrap_or(0);
    DiskTime::new(stat.st_ctime, nanos(stat.st_ctime_nsec.into()))
}

/// Appends an entry: integers of 7 bits a byte, the lowest first, and strings after their lengths.
fn put_entry(out: &mut Vec<u8>, name: &[u8], meta: &Meta, holes: Option<&[Range<u64>]>) {
    put_bytes(out, name);
    match &meta.kind {
        Kind::File => out.push(0),
        Kind::Dir => out.push(1),
        Kind::Symlink(target) => {
            out.push(2);
            put_bytes(out, target);
        }
        Kind::Char(device) => put_device(out, 3, *device),
        Kind::Block(device) => put_device(out, 4, *device),
        Kind::Fifo => out.push(5),
        Kind::Socket => out.push(6),
    }
    let Meta { id, mode, uid, gid, links, size, allocated, atime, mtime, .. } = meta;
    let (mode, uid, gid) = (u64::from(*mode), u64::from(*uid), u64::from(*gid));
    for number in [id.volume, id.ino, mode, uid, gid, *links, *size, *allocated] {
        put(out, number);
    }
    for time in [atime, mtime] {
        put(out, time.seconds.cast_unsigned());
        put(out, u64::from(time.nanos));
    }
    put(out, to_u64(meta.xattrs.len()));
    for (name, value) in &meta.xattrs {
        put_bytes(out, name);
        put_bytes(out, value);
    }
    // One more than the ranges of a file with holes.
    put(out, holes.map_or(0, |holes| to_u64(holes.len()) + 1));
    for range in holes.unwrap_or_default() {
        put(out, range.start);
        put(out, range.end);
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(must_fit(number & 0x7f | 0x80));
        number >>= 7;
    }
    out.push(must_fit(number));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, to_u64(bytes.len()));
    out.extend_from_slice(bytes);
}

fn put_device(out: &mut Vec<u8>, kind: u8, device: DeviceNo) {
    out.push(kind);
    put(out, device.major.into());
    put(out, device.minor.into());
}

/// What is left of packed entries. `None` is a defect of the packer.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn half(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = to_usize(self.number()?);
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn device(&mut self) -> Option<DeviceNo> {
        Some(DeviceNo { major: self.half()?, minor: self.half()? })
    }

    fn time(&mut self) -> Option<DiskTime> {
        Some(DiskTime { seconds: self.number()?.cast_signed(), nanos: self.half()? })
    }

    fn kind(&mut self) -> Option<Kind> {
        Some(match self.byte()? {
            0 => Kind::File,
            1 => Kind::Dir,
            2 => Kind::Symlink(self.bytes()?),
            3 => Kind::Char(self.device()?),
            4 => Kind::Block(self.device()?),
            5 => Kind::Fifo,
            _ => Kind::Socket,
        })
    }

    fn entry(&mut self) -> Option<KeptEntry> {
        let (name, kind) = (self.bytes()?, self.kind()?);
        let mut meta = Meta {
            kind,
            id: FileId { volume: self.number()?, ino: self.number()? },
            mode: self.number()?.try_into().ok()?,
            uid: self.half()?,
            gid: self.half()?,
            links: self.number()?,
            size: self.number()?,
            allocated: self.number()?,
            atime: self.time()?,
            mtime: self.time()?,
            xattrs: Vec::new(),
            stream: false,
        };
        meta.xattrs = self.xattrs()?;
        let holes = match self.number()? {
            0 => None,
            more => Some((1..more).map(|_| self.range()).collect::<Option<_>>()?),
        };
        Some(KeptEntry { name, meta, holes })
    }

    fn xattrs(&mut self) -> Option<Vec<Xattr>> {
        let count = self.number()?;
        (0..count).map(|_| Some((self.bytes()?, self.bytes()?))).collect()
    }

    fn range(&mut self) -> Option<Range<u64>> {
        Some(self.number()?..self.number()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(kind: Kind, xattrs: Vec<Xattr>) -> Meta {
        Meta {
            id: FileId { volume: u64::MAX, ino: 12345 },
            kind,
            mode: 0o4755,
            uid: u32::MAX,
            gid: 7,
            links: 1 << 40,
            size: 128,
            allocated: 4096,
            atime: DiskTime { seconds: -5, nanos: 999_999_999 },
            mtime: DiskTime { seconds: 1 << 33, nanos: 1 },
            xattrs,
            stream: false,
        }
    }

    #[test]
    fn entries_are_unpacked_as_they_were_packed() {
        let device = DeviceNo { major: 4095, minor: 1 << 20 };
        let xattr = (b"user.a".to_vec(), vec![0; 300]);
        let none: &[Range<u64>] = &[];
        let cases = [
            (Kind::File, vec![xattr.clone()], Some(&[0..1, 4096..u64::MAX][..])),
            (Kind::File, vec![], Some(none)),
            (Kind::Dir, vec![xattr.clone(), xattr], None),
            (Kind::Symlink(b"../target".to_vec()), vec![], None),
            (Kind::Char(device), vec![], None),
            (Kind::Block(device), vec![], None),
            (Kind::Fifo, vec![], None),
            (Kind::Socket, vec![], None),
        ];
        let changed = DiskTime { seconds: 1, nanos: 2 };
        let mut packer = Packer { changed, entries: 0, bytes: Vec::new() };
        for (at, (kind, xattrs, holes)) in cases.iter().enumerate() {
            let name = vec![b'n'; at * 60];
            packer.add(&name, &meta(kind.clone(), xattrs.clone()), *holes);
        }
        let listing = packer.finish();
        assert_eq!(listing.len(), cases.len());
        let mut unpacked = listing.entries();
        for (at, (kind, xattrs, holes)) in cases.into_iter().enumerate() {
            let entry = unpacked.next().expect("as many as were packed");
            assert_eq!(entry.name, vec![b'n'; at * 60]);
            assert_eq!(format!("{:?}", entry.meta), format!("{:?}", meta(kind, xattrs)));
            assert_eq!(entry.holes.as_deref(), holes);
        }
        assert!(unpacked.next().is_none());
    }

    /// A tree of a million files must not take hundreds of bytes for each.
    #[test]
    fn an_entry_is_small() {
        let mut bytes = Vec::new();
        let time = DiskTime { seconds: 1_800_000_000, nanos: 999_999_999 };
        let id = FileId { volume: 66_305, ino: 10_000_000 };
        let meta = Meta {
            id,
            uid: 65_534,
            gid: 65_534,
            links: 1,
            atime: time,
            mtime: time,
            ..meta(Kind::File, Vec::new())
        };
        put_entry(&mut bytes, b"file0000000.txt", &meta, None);
        assert!(bytes.len() <= 64, "{}", bytes.len());
    }

    #[test]
    fn the_most_bytes_are_kept() {
        let changed = DiskTime { seconds: 1, nanos: 2 };
        let listing = |bytes| KeptListing { changed, entries: 0, bytes: vec![0; bytes].into() };
        let dir = |ino| FileId { volume: 1, ino };
        let mut kept = KeptListings::default();
        kept.keep(dir(1), listing(MOST - 1));
        kept.keep(dir(2), listing(2));
        kept.keep(dir(3), listing(1));
        assert!(kept.take(dir(2)).is_none());
        assert!(kept.take(dir(1)).is_some() && kept.take(dir(3)).is_some());
        assert!(kept.take(dir(1)).is_none(), "it was taken");
    }
}
