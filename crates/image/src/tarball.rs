//! Extended tar headers, read and written: GNU's and pax's extensions of ustar.

use super::entry::Xattr;
use super::{EntryError, Result};
use nextent::DiskTime;
use nextent_num::{to_u64, to_usize};
use std::ops::Range;

/// The unit of a tar stream, in bytes.
pub(super) const BLOCK: usize = 512;

/// The most attributes of an entry. More names would not fit in the 64 KiB of listxattr(2).
const XATTRS_MAX: usize = 8192;

/// The padding of `len` bytes to whole blocks.
pub(super) fn padding(len: u64) -> usize {
    to_usize(len.wrapping_neg() % to_u64(BLOCK))
}

/// Records of a pax header: `length key=value\n`.
#[derive(Clone, Debug, Default)]
pub(super) struct Records(Vec<u8>);

impl Records {
    /// Adds a record.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        // The length includes its own digits.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        self.0.extend_from_slice(format!("{len} ").as_bytes());
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The record of an attribute, with the key that GNU tar, bsdtar and star use.
pub(super) fn attribute_record(name: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let list = match name {
        b"system.posix_acl_access" => Some(&b"SCHILY.acl.access"[..]),
        b"system.posix_acl_default" => Some(&b"SCHILY.acl.default"[..]),
        _ => None,
    };
    if let Some((key, text)) = list.zip(super::acl_text::text_of(value)) {
        return (key.to_vec(), text.into_bytes());
    }
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            other => key.push(*other),
        }
    }
    (key, value.to_vec())
}

/// Decodes the name in a record of GNU tar, which escapes these two characters only.
fn schily_name(name: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match rest.get(..3) {
            Some(b"%25") => (b'%', &rest[3..]),
            Some(b"%3D") => (b'=', &rest[3..]),
            _ => (byte, after),
        };
        plain.push(byte);
        rest = after;
    }
    plain
}

/// The records in `bytes`.
pub(super) fn records(bytes: &[u8]) -> Result<Vec<(&[u8], &[u8])>> {
    let bad = || EntryError::fatal("damaged pax header");
    let mut all = Vec::new();
    let mut rest = bytes;
    while let Some(space) = rest.iter().position(|byte| *byte == b' ') {
        let len: usize = number(&rest[..space]).ok_or_else(bad)?;
        if len <= space + 2 || len > rest.len() || rest[len - 1] != b'\n' {
            return Err(bad());
        }
        let record = &rest[space + 1..len - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        all.push((&record[..equals], &record[equals + 1..]));
        rest = &rest[len..];
    }
    Ok(all)
}

/// A decimal number.
pub(super) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// A length or offset that a file can have.
fn length(text: &[u8]) -> Option<u64> {
    number(text).filter(|number| i64::try_from(*number).is_ok())
}

/// Parses a time of pax: seconds with a fraction, possibly negative.
pub(super) fn moment(text: &[u8]) -> Option<DiskTime> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    Some(match (whole.starts_with('-'), nanos) {
        (true, 1..) => DiskTime::new(seconds - 1, 1_000_000_000 - nanos),
        _ => DiskTime::new(seconds, nanos),
    })
}

/// Formats a time for pax.
pub(super) fn moment_text(time: DiskTime) -> String {
    let DiskTime { seconds, nanos } = time;
    let text = match (seconds, nanos) {
        (_, 0) => return seconds.to_string(),
        (0.., _) => format!("{seconds}.{nanos:09}"),
        (-1, _) => format!("-0.{:09}", 1_000_000_000 - nanos),
        _ => format!("{}.{:09}", seconds + 1, 1_000_000_000 - nanos),
    };
    text.trim_end_matches('0').to_owned()
}

/// The extended headers of the next entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    /// The path from an entry of GNU tar.
    pub(super) long_path: Option<Vec<u8>>,
    pub(super) long_target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<DiskTime>,
    pub(super) atime: Option<DiskTime>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) sparse: Sparse,
    /// Why the entry cannot be made: an inode cannot hold a number.
    pub(super) refused: Option<EntryError>,
    /// Attributes that cannot be kept; the entry is made without them.
    pub(super) lost: Vec<EntryError>,
    /// The entry has more than [`XATTRS_MAX`] attributes.
    too_many: bool,
}

/// The map of a sparse file, as far as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    /// pax format 1.0: the map precedes the data.
    pub(super) map_first: bool,
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// The map of formats 0.0 and 0.1: alternating offsets and lengths.
    pub(super) numbers: Vec<u64>,
}

impl Extended {
    /// Takes one record; keys that do not concern a file are ignored.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let shown = key.escape_ascii();
        let bad = || EntryError::fatal(format!("damaged pax record '{shown}'"));
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            // POSIX: an empty value deletes earlier ones, also those of a global header.
            b"size" if value.is_empty() => self.size = None,
            b"uid" if value.is_empty() => self.uid = None,
            b"gid" if value.is_empty() => self.gid = None,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"atime" if value.is_empty() => self.atime = None,
            b"size" => self.size = Some(length(value).ok_or_else(bad)?),
            b"uid" => self.uid = self.fitting("owner", value, number(value)),
            b"gid" => self.gid = self.fitting("group", value, number(value)),
            b"mtime" => self.mtime = self.fitting("time", value, moment(value)),
            b"atime" => self.atime = self.fitting("time", value, moment(value)),
            b"SCHILY.acl.access" => self.add_list(b"system.posix_acl_access", value),
            b"SCHILY.acl.default" => self.add_list(b"system.posix_acl_default", value),
            // The kernel stores the label with its terminating zero.
            b"RHT.security.selinux" => self.add(b"security.selinux", [value, b"\0"].concat()),
            b"GNU.sparse.major" => self.sparse.map_first = value == b"1",
            b"GNU.sparse.name" => self.sparse.name = Some(value.to_vec()),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                self.sparse.size = Some(length(value).ok_or_else(bad)?);
            }
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                self.sparse.numbers.push(length(value).ok_or_else(bad)?);
            }
            b"GNU.sparse.map" => {
                let numbers = value.split(|byte| *byte == b',').map(length);
                self.sparse.numbers = numbers.collect::<Option<_>>().ok_or_else(bad)?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.add(&schily_name(name), value.to_vec());
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    self.add_encoded(name, value);
                }
            }
        }
        Ok(())
    }

    /// The parsed `number`; without one the entry is refused.
    fn fitting<N>(&mut self, what: &str, value: &[u8], number: Option<N>) -> Option<N> {
        if number.is_none() {
            let refused = super::tar_number::does_not_fit(what, value.escape_ascii());
            self.refused.get_or_insert(refused);
        }
        number
    }

    /// Adds an attribute; the last value of a name counts.
    fn add(&mut self, name: &[u8], value: Vec<u8>) {
        self.xattrs.retain(|(other, _)| other != name);
        match self.xattrs.len() {
            0..XATTRS_MAX => self.xattrs.push((name.to_vec(), value)),
            _ if self.too_many => {}
            _ => {
                self.too_many = true;
                let text = format!("it has more than {XATTRS_MAX} attributes; the rest left out");
                self.lost.push(EntryError::new(text));
            }
        }
    }

    fn add_list(&mut self, name: &[u8], text: &[u8]) {
        match super::acl_text::attribute_of(text) {
            Ok(Some(value)) => self.add(name, value),
            Ok(None) => self.xattrs.retain(|(other, _)| other != name),
            Err(lost) => self.lost.push(lost),
        }
    }

    /// Adds an attribute in bsdtar's form: the name with `%` escapes, the value in base 64. bsdtar
    /// writes the plain form, too, where that can hold the attribute.
    fn add_encoded(&mut self, name: &[u8], value: &[u8]) {
        let decoded = percent(name).zip(base_64(value));
        match decoded {
            Some((name, value)) => self.add(&name, value),
            None => self.lost.push(EntryError::new(format!(
                "its attribute {} cannot be read; left out",
                name.escape_ascii()
            ))),
        }
    }
}

/// Decodes the `%` escapes of `text`.
fn percent(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (high, low) = (*rest.first()?, *rest.get(1)?);
        out.push(digit(high)? << 4 | digit(low)?);
        rest = &rest[2..];
    }
    Some(out)
}

/// Decodes base 64, with or without padding.
fn base_64(text: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
    STANDARD_NO_PAD.decode(&text[..end]).ok()
}

/// Converts pairs of offset and length to ranges. They must rise, not overlap, and be within
/// `size`. Empty ranges, which mark the end, are left out.
pub(super) fn map(numbers: &[u64], size: u64) -> Result<Vec<Range<u64>>> {
    let bad = || EntryError::new("damaged map of a sparse file");
    let mut reached = 0;
    let mut ranges = Vec::new();
    let (pairs, rest) = numbers.as_chunks::<2>();
    for &[offset, len] in pairs {
        let end = offset.checked_add(len).ok_or_else(bad)?;
        if offset < reached || end > size {
            return Err(bad());
        }
        reached = end;
        if len > 0 {
            ranges.push(offset..end);
        }
    }
    if rest.is_empty() { Ok(ranges) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_includes_its_digits() {
        let mut all = Records::default();
        all.add(b"path", &[b'a'; 90]);
        all.add(b"k", b"v=w\n");
        all.add(b"path", &[b'b'; 91]);
        let read = records(all.bytes()).expect("as written");
        assert_eq!(read.len(), 3);
        assert_eq!(read[1], (&b"k"[..], &b"v=w\n"[..]));
        assert_eq!(read[2].1.len(), 91);
        assert!(records(b"9999 a=b\n").is_err() && records(b"x a=b\n").is_err());
    }

    #[test]
    fn names_of_attributes_as_gnu_tar_escapes_them() {
        for name in [&b"user.a"[..], b"user.with=sign", b"user.%41", b"user.%25", b"user.%"] {
            let (key, value) = attribute_record(name, b"v");
            assert!(!key.contains(&b'='), "{}", name.escape_ascii());
            let mut all = Extended::default();
            all.take(&key, &value).expect("as written");
            assert_eq!(all.xattrs, [(name.to_vec(), b"v".to_vec())]);
        }
        assert_eq!(schily_name(b"user.%41%3d%3D"), b"user.%41%3d=");
    }

    #[test]
    fn times_are_read_and_written() {
        for (time, text) in [
            (DiskTime::new(5, 0), "5"),
            (DiskTime::new(5, 120_000_000), "5.12"),
            (DiskTime::new(-1, 500_000_000), "-0.5"),
            (DiskTime::new(-2, 1), "-1.999999999"),
            (DiskTime::new(-7, 0), "-7"),
        ] {
            assert_eq!(moment_text(time), text);
            assert_eq!(moment(text.as_bytes()), Some(time));
        }
    }

    #[test]
    fn attributes_of_all_writers_are_read() {
        let mut all = Extended::default();
        for (key, value) in [
            (&b"SCHILY.xattr.user.a"[..], &b"one"[..]),
            (b"LIBARCHIVE.xattr.user.a", b"b25l"),
            (b"LIBARCHIVE.xattr.user.%C3%A4", b"AAE="),
            (b"RHT.security.selinux", b"u:r:t:s0"),
            (b"uid", b"4294967296"),
            (b"SCHILY.acl.access", b"user::rwx,user:joe:r--,group::r--,mask::r--,other::---"),
            (b"LIBARCHIVE.xattr.user.b", b"!"),
        ] {
            all.take(key, value).expect("none of these ends the stream");
        }
        let want: [(&[u8], &[u8]); 3] = [
            (b"user.a", b"one"),
            (b"user.\xc3\xa4", b"\0\x01"),
            (b"security.selinux", b"u:r:t:s0\0"),
        ];
        let found: Vec<(&[u8], &[u8])> =
            all.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(found, want);
        assert_eq!(all.lost.len(), 2);
        assert!(all.refused.expect("33 bits").to_string().contains("4294967296"));
    }

    #[test]
    fn maps_are_checked() {
        assert_eq!(map(&[0, 5, 10, 0], 10).expect("fine").first(), Some(&(0..5)));
        assert!(map(&[5, 5, 0, 1], 20).is_err() && map(&[0, 30], 20).is_err());
        assert!(map(&[1], 20).is_err() && map(&[u64::MAX, 2], u64::MAX).is_err());
    }
}
