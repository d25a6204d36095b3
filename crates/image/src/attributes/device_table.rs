//! Device tables, in the format of genext2fs:
//!
//! ```text
//! # name      type mode uid gid major minor start inc count
//! /dev        d    755  0   0   -     -     -     -   -
//! /dev/null   c    666  0   0   1     3     0     0   -
//! /dev/hda    b    640  0   6   3     1     1     1   16
//! ```
//!
//! The types are `f` (file), `d` (directory), `c` and `b` (devices), `p` (pipe), `s` (socket) and
//! `l` (symbolic link). The mode is octal, other numbers are decimal, and `-` or no field is 0.
//! With a `count`, a line is about the devices `NAMEstart` to `NAMEcount-1`, of which the one with
//! the number `i` has the minor number `minor + i * inc - start`.
//!
//! A line about an existing name sets mode and owner. Otherwise it makes a device, a pipe, a socket
//! or a directory.

use super::list_file::{AttributesError, ListFile, NAME_MAX};
use super::list_file::{mode, number, owner, path, shown, words};
use crate::entry::Kind;
use nextent::{DeviceNo, FileType};
use std::path::{Path, PathBuf};

/// The largest device numbers that an inode holds.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;
/// The most devices of one line: as many as there are minor numbers.
const DEVICES_MAX: u32 = MINOR_MAX + 1;

/// The devices of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    start: u32,
    inc: u32,
    count: u32,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(super) struct TableLine {
    pub(super) line: usize,
    path: Vec<u8>,
    pub(super) kind: FileType,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    major: u32,
    minor: u32,
    numbers: Option<Numbers>,
}

/// A device table of genext2fs.
#[derive(Debug)]
pub struct DeviceTable {
    pub(super) path: PathBuf,
    pub(super) lines: Vec<TableLine>,
}

impl DeviceTable {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`AttributesError`]
    pub fn read(path: impl AsRef<Path>) -> Result<Self, AttributesError> {
        Self::parse(&ListFile::read(path.as_ref())?)
    }

    pub(super) fn parse(file: &ListFile) -> Result<Self, AttributesError> {
        let mut lines = Vec::new();
        file.each_line(|line, text| {
            let words = words(text);
            if !words.is_empty() {
                lines.push(TableLine::parse(line, &words)?);
            }
            Ok(())
        })?;
        if lines.is_empty() {
            return Err(file.whole("the device table has no lines"));
        }
        Ok(Self { path: file.path.clone(), lines })
    }
}

impl TableLine {
    fn parse(line: usize, words: &[&[u8]]) -> Result<Self, String> {
        let [name, kind, bits, uid, gid, rest @ ..] = words else {
            return Err("fewer than the fields NAME TYPE MODE UID GID".into());
        };
        if rest.len() > 5 {
            return Err(format!("'{}' is a field too many", shown(rest[5])));
        }
        let kind = match *kind {
            b"f" => FileType::Regular,
            b"d" => FileType::Directory,
            b"c" => FileType::CharDevice,
            b"b" => FileType::BlockDevice,
            b"p" => FileType::Fifo,
            b"s" => FileType::Socket,
            b"l" => FileType::Symlink,
            other => return Err(format!("the type '{}' is none of f d c b p s l", shown(other))),
        };
        let field = |at: usize, what: &str| match rest.get(at).copied() {
            None | Some(b"-") => Ok(0),
            Some(word) => number(what, word, 10),
        };
        let (major, minor) = (field(0, "major number")?, field(1, "minor number")?);
        let (start, inc, count) = (field(2, "start")?, field(3, "increment")?, field(4, "count")?);
        let path = path(name)?;
        let (mode, uid, gid) = (mode(bits)?, owner("owner", uid)?, owner("group", gid)?);
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        // The fields of devices mean nothing to other types.
        let numbers = (is_device && count > 0).then_some(Numbers { start, inc, count });
        let it = Self { line, path, kind, mode, uid, gid, major, minor, numbers };
        if is_device {
            it.check_devices()?;
        }
        Ok(it)
    }

    fn check_devices(&self) -> Result<(), String> {
        if self.path == b"/" {
            return Err("the root is a directory".into());
        }
        if let Some(Numbers { start, count, .. }) = self.numbers {
            if start >= count {
                return Err(format!("no device: its numbers go from {start} to below {count}"));
            }
            if count - start > DEVICES_MAX {
                return Err(format!("more than {DEVICES_MAX} devices"));
            }
            let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if name.len() + (count - 1).to_string().len() > NAME_MAX {
                return Err(format!("a name has more than {NAME_MAX} bytes"));
            }
        }
        // The numbers rise.
        for number in self.numbers.map_or(vec![0], |all| vec![all.start, all.count - 1]) {
            let minor = self.minor_of(number).filter(|minor| *minor <= MINOR_MAX);
            if self.major > MAJOR_MAX || minor.is_none() {
                return Err(format!(
                    "an inode holds device numbers up to {MAJOR_MAX}:{MINOR_MAX} only"
                ));
            }
        }
        Ok(())
    }

    /// The minor number of the device with the number `number`.
    fn minor_of(&self, number: u32) -> Option<u32> {
        let Some(Numbers { start, inc, .. }) = self.numbers else { return Some(self.minor) };
        let raised = u64::from(self.minor) + u64::from(number) * u64::from(inc);
        u32::try_from(raised.checked_sub(u64::from(start))?).ok()
    }

    /// The paths that the line is about, with what is made there; no kind for what cannot be made.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Vec<u8>, Option<Kind>)> + '_ {
        let range = self.numbers.map_or(0..1, |numbers| numbers.start..numbers.count);
        range.map(|number| {
            let mut path = self.path.clone();
            if self.numbers.is_some() {
                path.extend_from_slice(number.to_string().as_bytes());
            }
            // Parsing checked that there is such a number.
            let minor = self.minor_of(number).unwrap_or_default();
            let device = DeviceNo { major: self.major, minor };
            let kind = match self.kind {
                FileType::Directory => Some(Kind::Dir),
                FileType::CharDevice => Some(Kind::Char(device)),
                FileType::BlockDevice => Some(Kind::Block(device)),
                FileType::Fifo => Some(Kind::Fifo),
                FileType::Socket => Some(Kind::Socket),
                _ => None,
            };
            (path, kind)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<TableLine, String> {
        TableLine::parse(1, &words(text.as_bytes()))
    }

    fn devices(text: &str) -> Vec<(String, u32)> {
        let each = line(text).unwrap();
        let each = each.entries().map(|(path, kind)| match kind {
            Some(Kind::Char(device) | Kind::Block(device)) => {
                (String::from_utf8(path).unwrap(), device.minor)
            }
            _ => panic!("{text}"),
        });
        each.collect()
    }

    #[test]
    fn lines_with_counts_are_many_devices() {
        assert_eq!(devices("/dev/null c 666 0 0 1 3"), [("/dev/null".into(), 3)]);
        assert_eq!(devices("dev/tty c 666 0 0 5 9 7 1 -"), [("/dev/tty".into(), 9)]);
        let hda = devices("/dev/hda b 640 0 6 3 1 1 1 4");
        assert_eq!(
            hda,
            [("/dev/hda1".into(), 1), ("/dev/hda2".into(), 2), ("/dev/hda3".into(), 3)]
        );
        let odd = devices("/tt c 666 0 0 5 6 1 2 4");
        assert_eq!(odd, [("/tt1".into(), 7), ("/tt2".into(), 9), ("/tt3".into(), 11)]);
        let same = devices("/z c 666 0 0 5 6 0 0 2");
        assert_eq!(same, [("/z0".into(), 6), ("/z1".into(), 6)]);
        // The fields of devices mean nothing to a directory.
        assert_eq!(line("/d d 755 1 2 - - 0 1 3").unwrap().entries().count(), 1);
    }

    #[test]
    fn bad_lines_are_refused() {
        for (text, words) in [
            ("/a", "fewer than the fields"),
            ("/a f 644 0", "fewer than the fields"),
            ("/a f 644 0 0 - - - - - 7", "'7' is a field too many"),
            ("/a x 644 0 0", "the type 'x'"),
            ("/a f 648 0 0", "the mode '648'"),
            ("/a f 100644 0 0", "more bits than 7777"),
            ("/a f 644 root 0", "the owner 'root'"),
            ("/a f 644 0 4294967295", "too large"),
            ("/../a f 644 0 0", "'..'"),
            ("/a c 644 0 0 1 2 3 4 x", "the count 'x'"),
            ("/a c 644 0 0 4096 0", "up to 4095:1048575"),
            ("/a c 644 0 0 1 1048576", "up to 4095:1048575"),
            ("/a c 644 0 0 1 0 0 1 4294967295", "more than 1048576 devices"),
            ("/a c 644 0 0 1 5 0 1 1048575", "up to 4095:1048575"),
            ("/a c 644 0 0 1 0 5 0 9", "up to 4095:1048575"),
            ("/a c 644 0 0 1 0 4 1 4", "no device"),
            ("/ c 644 0 0 1 0", "the root is a directory"),
        ] {
            let text = line(text).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }
}
