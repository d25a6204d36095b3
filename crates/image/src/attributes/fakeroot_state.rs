//! State files of fakeroot (`fakeroot -s FILE`): what it pretends of files, by device and inode.
//!
//! A line is `dev=HEX,ino=N,mode=OCTAL,uid=N,gid=N,nlink=N,rdev=N`; later versions may add fields.
//! `mode` has the type's bits. A device that fakeroot pretends is a regular file on the host.

use super::list_file::{AttributesError, ListFile, shown};
use crate::entry::{FileId, Kind, Meta};
use crate::{EntryError, Result};
use nextent::DeviceNo;
use nextent_num::must_fit;
use std::collections::HashMap;
use std::path::Path;

/// The bits of `mode` for the type, and their values.
const TYPE: u32 = 0o170_000;
const FIFO: u32 = 0o010_000;
const CHAR: u32 = 0o020_000;
const DIR: u32 = 0o040_000;
const BLOCK: u32 = 0o060_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;

#[derive(Clone, Copy, Debug)]
struct Faked {
    mode: u32,
    uid: u32,
    gid: u32,
    device: DeviceNo,
}

/// A state file of `fakeroot -s`.
///
/// Files that are not in it belong to root, as fakeroot shows them.
#[derive(Debug)]
pub struct FakerootState(HashMap<FileId, Faked>);

impl FakerootState {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`AttributesError`]
    pub fn read(path: impl AsRef<Path>) -> std::result::Result<Self, AttributesError> {
        Self::parse(&ListFile::read(path.as_ref())?)
    }

    /// Whether `file` looks like one.
    pub(super) fn recognises(file: &ListFile) -> bool {
        file.begins(|line| line.starts_with(b"dev=") && line.contains(&b','))
    }

    pub(super) fn parse(file: &ListFile) -> std::result::Result<Self, AttributesError> {
        let mut all = HashMap::new();
        file.each_line(|_, line| {
            let line = line.trim_ascii();
            if !line.is_empty() {
                let (id, faked) = faked(line)?;
                all.insert(id, faked);
            }
            Ok(())
        })?;
        Ok(Self(all))
    }

    /// Gives `meta` what fakeroot pretends of the file.
    pub(super) fn apply(&self, meta: &mut Meta) -> Result<()> {
        let Some(faked) = self.0.get(&meta.id) else {
            (meta.uid, meta.gid) = (0, 0);
            return Ok(());
        };
        match (faked.mode & TYPE, &meta.kind) {
            (FILE, Kind::File)
            | (DIR, Kind::Dir)
            | (SYMLINK, Kind::Symlink(_))
            | (FIFO, Kind::Fifo)
            | (SOCKET, Kind::Socket) => {}
            (CHAR, Kind::File | Kind::Char(_)) => meta.kind = Kind::Char(faked.device),
            (BLOCK, Kind::File | Kind::Block(_)) => meta.kind = Kind::Block(faked.device),
            _ => {
                return Err(EntryError::new(
                    "has another type in fakeroot's state file: the file is not of this tree",
                ));
            }
        }
        meta.mode = must_fit(faked.mode & 0o7777);
        (meta.uid, meta.gid) = (faked.uid, faked.gid);
        Ok(())
    }
}

/// Parses a line.
fn faked(line: &[u8]) -> std::result::Result<(FileId, Faked), String> {
    let field = |name: &str, radix: u32| -> std::result::Result<u64, String> {
        let mut fields = line.split(|byte| *byte == b',');
        let value =
            fields.find_map(|field| field.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        let value = value.ok_or_else(|| format!("no '{name}=': not a line of fakeroot's state"))?;
        let digits = value.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(value).ok().filter(|_| digits);
        text.and_then(|text| u64::from_str_radix(text, radix).ok())
            .ok_or_else(|| format!("{name}='{}' is not a number", shown(value)))
    };
    let small = |name: &str, radix: u32| {
        u32::try_from(field(name, radix)?).map_err(|_| format!("{name}= is too large"))
    };
    let id = FileId { volume: field("dev", 16)?, ino: field("ino", 10)? };
    let rdev = field("rdev", 10)?;
    let device = DeviceNo { major: rustix::fs::major(rdev), minor: rustix::fs::minor(rdev) };
    let faked =
        Faked { mode: small("mode", 8)?, uid: small("uid", 10)?, gid: small("gid", 10)?, device };
    Ok((id, faked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = b"dev=fe00,ino=9978453,mode=60644,uid=7,gid=8,nlink=1,rdev=1050668";
        let (id, faked) = faked(line).unwrap();
        assert_eq!(id, FileId { volume: 0xfe00, ino: 9_978_453 });
        assert_eq!((faked.mode, faked.uid, faked.gid), (0o60644, 7, 8));
        assert_eq!(faked.device, DeviceNo { major: 8, minor: 300 });
        for (bad, words) in [
            (&b"dev=fe00,ino=1"[..], "no 'rdev='"),
            (b"dev=fg,ino=1,rdev=0", "dev='fg' is not a number"),
            (b"dev=1,ino=1,mode=8,uid=0,gid=0,rdev=0", "mode='8'"),
            (b"dev=1,ino=1,mode=7,uid=4294967296,gid=0,rdev=0", "uid= is too large"),
            (b"dev=1,ino=-1,mode=7,uid=0,gid=0,rdev=0", "ino='-1'"),
            (b"dev=1,ino=,mode=7,uid=0,gid=0,rdev=0", "ino=''"),
        ] {
            let text = super::faked(bad).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }
}
