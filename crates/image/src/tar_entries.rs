//! Reads the entries of a tar stream, with their extended headers: ustar, GNU and pax, and all
//! kinds of sparse files that GNU tar writes.

use super::entry::{Kind, Meta};
use super::tar_header::{SPARSE_BLOCK, SparseMap, check, not_packed, path_of, size_of, text};
use super::tar_number::{does_not_fit, header_number};
use super::tarball::{BLOCK, Extended, map, number, padding, records};
use super::{EntryError, FileId, Result};
use nextent::{DeviceNo, DiskTime};
use nextent_num::{must_fit, to_u64, to_usize};
use std::io::Read;
use std::ops::Range;
use tar::{EntryType, Header};

/// The longest extended header, as a guard against hostile streams.
const EXTENDED_MAX: u64 = 16 << 20;
/// The most pieces of one sparse file.
const MAP_MAX: usize = 1 << 22;

/// One entry with all its headers.
pub(super) struct TarEntry {
    pub(super) path: Vec<u8>,
    /// Its attributes, or why an inode cannot hold them.
    pub(super) meta: Result<Meta>,
    /// Attributes that cannot be kept.
    pub(super) lost: Vec<EntryError>,
    pub(super) link: Option<Vec<u8>>,
    /// Bytes in the stream.
    pub(super) stored: u64,
    pub(super) sparse: Option<Vec<Range<u64>>>,
}

/// A stream of entries.
pub(super) struct Entries<'a> {
    input: &'a mut dyn Read,
    global: Extended,
    /// Nothing was read.
    first: bool,
}

impl<'a> Entries<'a> {
    pub(super) fn new(input: &'a mut dyn Read) -> Self {
        Self { input, global: Extended::default(), first: true }
    }

    /// The next entry, with its extended headers; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>> {
        let mut more = self.global.clone();
        loop {
            let mut block = [0; BLOCK];
            let got = fill(self.input, &mut block)?;
            if std::mem::take(&mut self.first) {
                if got == 0 {
                    return Err(EntryError::fatal("the tar stream is empty"));
                }
                not_packed(&block[..got])?;
            }
            if got == 0 || (got == BLOCK && block == [0; BLOCK]) {
                // Read the rest of the input, so that its writer does not get a broken pipe.
                std::io::copy(&mut self.input, &mut std::io::sink())?;
                return Ok(None);
            }
            if got < BLOCK {
                return Err(cut_short());
            }
            let header = Header::from_byte_slice(&block);
            check(header)?;
            match header.entry_type() {
                // Solaris has the type `X` for the same.
                kind if matches!(kind.as_byte(), b'x' | b'X') => {
                    let bytes = self.extension(header)?;
                    take_all(&mut more, &bytes)?;
                }
                EntryType::XGlobalHeader => {
                    let bytes = self.extension(header)?;
                    take_all(&mut self.global, &bytes)?;
                    take_all(&mut more, &bytes)?;
                }
                // The label of a volume.
                kind if kind.as_byte() == b'V' => {
                    let size = size_of(header)?;
                    self.skip(size + to_u64(padding(size)))?;
                }
                EntryType::GNULongName => more.long_path = Some(self.long(header)?),
                EntryType::GNULongLink => more.long_target = Some(self.long(header)?),
                _ => return self.finished(header, more).map(Some),
            }
        }
    }

    /// The contents of an extended header.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        let len = size_of(header)?;
        if len > EXTENDED_MAX {
            return Err(EntryError::fatal("an extended header is too long"));
        }
        let mut bytes = vec![0; to_usize(len)];
        self.exactly(&mut bytes)?;
        self.skip(to_u64(padding(len)))?;
        Ok(bytes)
    }

    fn long(&mut self, header: &Header) -> Result<Vec<u8>> {
        // It ends at the first zero byte, as in GNU tar.
        Ok(text(&self.extension(header)?).to_vec())
    }

    /// The entry of `header` and of the extended headers before it.
    fn finished(&mut self, header: &Header, mut more: Extended) -> Result<TarEntry> {
        let mut stored = match more.size {
            Some(size) => size,
            None => size_of(header)?,
        };
        let kind = header.entry_type();
        let has_data =
            matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse)
                || !matches!(kind.as_byte(), b'0'..=b'7' | 0);
        if !has_data {
            stored = 0;
        }
        let mut size = more.sparse.size.unwrap_or(stored);
        let mapped = if kind == EntryType::GNUSparse && header.as_gnu().is_some() {
            self.old_map(header).map(|(ranges, real)| {
                size = real;
                Some(ranges)
            })
        } else if more.sparse.map_first {
            let mut used = 0;
            let ranges = self.first_map(size, stored, &mut used);
            stored -= used;
            ranges.map(Some)
        } else if !more.sparse.numbers.is_empty() {
            map(&more.sparse.numbers, size).map(Some)
        } else {
            Ok(None)
        };
        // The length of the data is known, so a damaged map fails only this entry.
        let sparse = match mapped {
            Err(trouble) if trouble.fatal => return Err(trouble),
            Err(trouble) => {
                more.refused.get_or_insert(trouble);
                None
            }
            Ok(sparse) => sparse,
        };
        // As in GNU tar: a pax record wins, in any order.
        let name = more.sparse.name.take().or(more.path.take()).or(more.long_path.take());
        let path = name.unwrap_or_else(|| path_of(header));
        let target = more.target.take().or(more.long_target.take());
        let target = target.or_else(|| header.link_name_bytes().map(Into::into));
        let mut lost = std::mem::take(&mut more.lost);
        if !KNOWN.contains(&kind.as_byte()) {
            let shown = [kind.as_byte()].escape_ascii().to_string();
            lost.push(EntryError::note(format!("its type '{shown}' is unknown; made a file")));
        }
        let meta = meta(header, more, size, target.clone().unwrap_or_default(), &path);
        let link = (kind == EntryType::Link).then(|| target.unwrap_or_default());
        Ok(TarEntry { path, meta, lost, link, stored, sparse })
    }

    /// The map of the old GNU format, in the header and in further blocks.
    fn old_map(&mut self, header: &Header) -> Result<(Vec<Range<u64>>, u64)> {
        let mut pieces = SparseMap::new(header);
        while pieces.goes_on() {
            let mut block = [0; SPARSE_BLOCK];
            self.exactly(&mut block)?;
            pieces.add(&block)?;
        }
        let (numbers, size) = pieces.numbers()?;
        Ok((map(&numbers, size)?, size))
    }

    /// Reads the map before the data: in whole blocks, lines of numbers, the first their count.
    ///
    /// `used` counts the bytes that were read, also after an error.
    fn first_map(&mut self, size: u64, stored: u64, used: &mut u64) -> Result<Vec<Range<u64>>> {
        let bad = || EntryError::new("damaged map of a sparse file");
        let (mut text, mut lines) = (Vec::new(), 0usize);
        let mut want = None;
        loop {
            if want.is_some_and(|want| lines > want) {
                break;
            }
            if *used + to_u64(BLOCK) > stored || text.len() > to_usize(EXTENDED_MAX) * 4 {
                return Err(bad());
            }
            let mut block = [0; BLOCK];
            self.exactly(&mut block)?;
            *used += to_u64(BLOCK);
            lines += block.iter().filter(|byte| **byte == b'\n').count();
            text.extend_from_slice(&block);
            if want.is_none() {
                let Some(line) = text.iter().position(|byte| *byte == b'\n') else { continue };
                let count: usize = number(&text[..line]).ok_or_else(bad)?;
                want = Some(count.checked_mul(2).filter(|w| *w <= MAP_MAX).ok_or_else(bad)?);
            }
        }
        let numbers = text.split(|byte| *byte == b'\n').skip(1).take(want.unwrap_or(0));
        let numbers: Vec<u64> = numbers.map(number).collect::<Option<_>>().ok_or_else(bad)?;
        map(&numbers, size)
    }

    /// Fills `buf`.
    pub(super) fn exactly(&mut self, buf: &mut [u8]) -> Result<()> {
        if fill(self.input, buf)? < buf.len() { Err(cut_short()) } else { Ok(()) }
    }

    /// Skips so many bytes.
    pub(super) fn skip(&mut self, len: u64) -> Result<()> {
        let skipped = std::io::copy(&mut self.input.take(len), &mut std::io::sink())?;
        if skipped < len { Err(cut_short()) } else { Ok(()) }
    }
}

fn cut_short() -> EntryError {
    EntryError::fatal("the tar stream ends in the middle of an entry")
}

fn take_all(more: &mut Extended, bytes: &[u8]) -> Result<()> {
    records(bytes)?.into_iter().try_for_each(|(key, value)| more.take(key, value))
}

/// Reads until `buf` is full or the stream ends; returns the number of bytes.
fn fill(input: &mut dyn Read, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match input.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(EntryError::fatal(error.to_string())),
        }
    }
    Ok(done)
}

/// The supported types of entries.
const KNOWN: &[u8] = b"\x0001234567DSM";
/// The largest device numbers that an inode holds.
const DEVICE_MAX: (u32, u32) = (0xfff, 0xf_ffff);
/// The times that an inode holds, in seconds since 1970.
const SECONDS: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7fff_ffff;

fn meta(header: &Header, more: Extended, size: u64, target: Vec<u8>, path: &[u8]) -> Result<Meta> {
    if let Some(refused) = more.refused {
        return Err(refused);
    }
    let field = |range: Range<usize>| &header.as_bytes()[range];
    let device = || -> Result<DeviceNo> {
        let major = header_number(field(329..337), "device number")?;
        let minor = header_number(field(337..345), "device number")?;
        if major > DEVICE_MAX.0 || minor > DEVICE_MAX.1 {
            return Err(does_not_fit("device number", format!("{major}:{minor}")));
        }
        Ok(DeviceNo { major, minor })
    };
    let kind = match header.entry_type() {
        EntryType::Symlink => {
            super::name::check_target(&target)?;
            Kind::Symlink(target)
        }
        EntryType::Directory => Kind::Dir,
        // A directory with a list of its names, in GNU tar's incremental archives.
        kind if kind.as_byte() == b'D' => Kind::Dir,
        kind if kind.as_byte() == b'M' => {
            return Err(EntryError::new("is continued from another volume; left out"));
        }
        // Before ustar a directory was a file with a slash, and some writers still write that.
        EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Dir,
        EntryType::Char => Kind::Char(device()?),
        EntryType::Block => Kind::Block(device()?),
        EntryType::Fifo => Kind::Fifo,
        _ => Kind::File,
    };
    let header_time =
        || -> Result<DiskTime> { Ok(DiskTime::new(header_number(field(136..148), "time")?, 0)) };
    let mtime = more.mtime.map_or_else(header_time, Ok)?;
    let atime = more.atime.unwrap_or(mtime);
    for time in [mtime, atime] {
        if !SECONDS.contains(&time.seconds) {
            return Err(does_not_fit("time", time.seconds));
        }
    }
    let mode: u32 = header_number(field(100..108), "mode")?;
    let owner = |name, range| header_number(field(range), name);
    Ok(Meta {
        kind,
        mode: must_fit(mode & 0o7777),
        uid: more.uid.map_or_else(|| owner("owner", 108..116), Ok)?,
        gid: more.gid.map_or_else(|| owner("group", 116..124), Ok)?,
        size,
        allocated: size,
        atime,
        mtime,
        xattrs: more.xattrs,
        ..plain_dir()
    })
}

/// The attributes of a directory without an entry.
pub(super) fn plain_dir() -> Meta {
    let zero = DiskTime::default();
    Meta {
        id: FileId::default(),
        kind: Kind::Dir,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        size: 0,
        allocated: 0,
        atime: zero,
        mtime: zero,
        xattrs: Vec::new(),
        stream: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_beyond_32_bits_are_refused() {
        let meta = |uid: u64, gid: u64| {
            let mut header = Header::new_gnu();
            header.set_uid(uid);
            header.set_gid(gid);
            header.set_mode(0o644);
            header.set_mtime(0);
            meta(&header, Extended::default(), 0, Vec::new(), b"f")
        };
        let most = meta(u64::from(u32::MAX), 7).expect("it fits");
        assert_eq!((most.uid, most.gid), (u32::MAX, 7));
        for (uid, gid) in [(1 << 32, 0), (0, (1 << 32) + 7), (u64::MAX >> 2, 0)] {
            let refused = meta(uid, gid).expect_err("an inode has no room for it");
            assert!(refused.to_string().contains("does not fit"), "{refused}");
            assert!(!refused.fatal, "the stream goes on");
        }
    }
}
