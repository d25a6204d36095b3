//! Images, and parts of disk images, as arguments name them: `IMAGE` or `IMAGE@PART`.
//!
//! | argument | is |
//! |---|---|
//! | the path of an existing file | that file, whatever its name |
//! | `IMAGE@2` | a partition by its number |
//! | `IMAGE@label=root` | a partition by its name in a GPT |
//! | `IMAGE@uuid=UUID` | a partition by its PARTUUID |
//! | `IMAGE@offset=1m,size=64m` | a range of bytes; without a size up to the end |
//! | `IMAGE?offset=1048576` | the same in the form of e2fsprogs, of a file that exists |
//! | `nbd://HOST:PORT/EXPORT` | an export of an NBD server; see [`crate::disk`] |
//! | `overlay:BASE+DELTA` | a copy-on-write image; see [`crate::overlay`] |
//!
//! Partition numbers, names and identifiers may be followed by `,sector=4096` for an MBR that
//! counts sectors of that size.
//!
//! [`ImageSpec`] is the only code that decides which bytes a command opens. Each open reads the
//! table again. A table is read without a lock, since other partitions may be in use.
//!
//! A partition of a block device for which the kernel has a device is opened by that device, so
//! that the kernel's claims of partitions apply.

use crate::disk::{self, Disk, RemoteOptions};
use crate::failure::{Failure, Result};
use crate::overlay::{self, OverlaySpec};
use crate::{show, size};
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser, ValueParserFactory};
use nextent::Foreign;
use nextent_device::{BlockDevice, FileDevice, FileOptions, OpenError};
use nextent_ondisk::{Partition, PartitionTable};
use nextent_sync::Duration;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The accepted forms, for `--help` and the manual.
pub(crate) const HELP: &str = "\
Images:

  disk.img, /dev/sda    a file or a block device; an existing file of that name, also with an @
  disk.img@2            its second partition, as fdisk(8) numbers them (GPT or MBR)
  disk.img@label=root   its partition of that name in a GPT
  disk.img@uuid=UUID    its partition with that identifier (PARTUUID)
  disk.img@2,sector=4096
                        its second partition in an MBR with sectors of 4096 bytes
  disk.img@offset=1m,size=64m
                        those bytes of it; without size= all up to its end
  disk.img?offset=BYTES the bytes from there on, as for debugfs(8)
  disk.img@2:/path      a path inside its second partition
  nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH
                        an export of an NBD server; also with an @. Other users of it are not
                        noticed: make sure that there are none
  nbds://HOST[:PORT]/EXPORT?tls-certificates=DIR, nbds+unix:///EXPORT?socket=PATH
                        the same with TLS; DIR has ca-cert.pem, and client-cert.pem and
                        client-key.pem if the server requires them; & is between parameters.
                        timeout=SECONDS: when a silent server counts as lost (default: 60)
  overlay:BASE+DELTA    a copy-on-write image: BASE, an image of any of these forms, is only read;
                        the file DELTA holds what was written, and the first writer makes it
  overlay:BASE+DELTA@2:/path
                        a path inside its second partition";

/// What an argument names: a file or block device, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageSpec {
    /// The argument.
    text: OsString,
    path: PathBuf,
    part: Option<Part>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// The text after `@`.
    text: String,
    which: Which,
    /// Bytes of a sector of the partition table.
    sector: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Number(u32),
    Label(String),
    Uuid(String),
    Bytes { offset: u64, size: Option<u64> },
}

/// The bytes of a file that are an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path, or the address of an export.
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    /// `None`: up to the end.
    pub(crate) size: Option<u64>,
    /// The part's name, unless it is all of the file.
    pub(crate) part: Option<String>,
    /// For how long a lost connection to a server is made again.
    pub(crate) reconnect: Duration,
    /// After which time without progress a server counts as lost.
    pub(crate) timeout: Option<Duration>,
}

impl ValueParserFactory for ImageSpec {
    type Parser = ValueParser;

    fn value_parser() -> ValueParser {
        OsStringValueParser::new().try_map(|arg| Self::parse(&arg)).into()
    }
}

impl AsRef<OsStr> for ImageSpec {
    fn as_ref(&self) -> &OsStr {
        &self.text
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show::path(&self.text))
    }
}

impl ImageSpec {
    /// All of the file at `path`.
    pub(crate) fn whole(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { text: path.clone().into(), path, part: None }
    }

    /// All of an existing file, which may be called as an overlay is written.
    fn file(name: &OsStr) -> Self {
        match overlay::is_overlay(name) {
            true => Self { text: name.into(), path: Path::new(".").join(name), part: None },
            false => Self::whole(name),
        }
    }

    /// Parses an argument.
    ///
    /// # Errors
    /// The text after the `@` of an existing file is no part.
    pub(crate) fn parse(arg: &OsStr) -> std::result::Result<Self, String> {
        if std::fs::symlink_metadata(arg).is_ok() {
            return Ok(Self::file(arg));
        }
        if disk::is_address(arg) {
            return Self::remote(arg);
        }
        let is_overlay = overlay::is_overlay(arg);
        if is_overlay && is_delta(Path::new(arg)) {
            return Ok(Self::whole(arg));
        }
        let bytes = arg.as_bytes();
        if let Some(found) = Self::with_offset(arg) {
            return Ok(found);
        }
        let (mut wrong, mut missing) = (None, None);
        for at in (0..bytes.len()).rev().filter(|at| *at > 0 && bytes[*at] == b'@') {
            let path = Path::new(OsStr::from_bytes(&bytes[..at]));
            let is_image = || match is_overlay {
                true => is_delta(path),
                false => std::fs::metadata(path).is_ok_and(|meta| !meta.is_dir()),
            };
            // The name of a base may have an `@`.
            if is_overlay && OverlaySpec::parse(path.as_os_str()).is_err() {
                continue;
            }
            let Ok(text) = std::str::from_utf8(&bytes[at + 1..]) else { continue };
            // The name of a directory may have an `@`.
            if text.contains('/') && !is_image() {
                continue;
            }
            match Part::parse(text) {
                Ok(part) => {
                    let (text, path) = (arg.to_owned(), path.to_owned());
                    let found = Self { text, path, part: Some(part) };
                    // A label may have an `@`.
                    if is_image() {
                        return Ok(found);
                    }
                    missing.get_or_insert(found);
                }
                Err(why) if wrong.is_none() && is_image() => {
                    wrong = Some(format!("{}: {why}", show::path(arg)));
                }
                Err(_) => {}
            }
        }
        match (wrong, missing) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(missing)) => Ok(missing),
            (None, None) if is_overlay => match OverlaySpec::parse(arg) {
                Ok(_) => Ok(Self::whole(arg)),
                Err(why) => Err(format!("{}: {why}", show::path(arg))),
            },
            (None, None) => Ok(Self::whole(arg)),
        }
    }

    /// Parses the address of an export, perhaps with a part of it.
    fn remote(arg: &OsStr) -> std::result::Result<Self, String> {
        let bytes = arg.as_bytes();
        let wrong = |why: String| format!("{}: {why}", show::path(arg));
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'@')
            && let Ok(text) = std::str::from_utf8(&bytes[at + 1..])
            && let Ok(part) = Part::parse(text)
        {
            let path = OsStr::from_bytes(&bytes[..at]);
            disk::address(path).map_err(wrong)?;
            return Ok(Self { text: arg.to_owned(), path: path.into(), part: Some(part) });
        }
        disk::address(arg).map_err(wrong)?;
        Ok(Self::whole(arg))
    }

    /// Parses `IMAGE?offset=BYTES`, if the image exists.
    fn with_offset(arg: &OsStr) -> Option<Self> {
        let bytes = arg.as_bytes();
        let at = bytes.iter().rposition(|byte| *byte == b'?')?;
        let path = PathBuf::from(OsStr::from_bytes(&bytes[..at]));
        let text = std::str::from_utf8(&bytes[at + 1..]).ok()?;
        let part = Part::parse(text).ok()?;
        let is_offset = matches!(part.which, Which::Bytes { size: None, .. });
        let exists = std::fs::metadata(&path).is_ok_and(|meta| !meta.is_dir());
        let part = Some(part).filter(|_| is_offset && exists);
        part.map(|part| Self { text: arg.to_owned(), path, part: Some(part) })
    }

    /// The path of the file or device.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that holds its bytes: for an overlay its delta.
    pub(crate) fn host_file(&self) -> PathBuf {
        overlay::host_file(&self.path)
    }

    /// Whether it is a part of a file.
    pub(crate) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// The same of another path of the file.
    pub(crate) fn with_path(&self, path: PathBuf) -> Self {
        let mut text = path.clone().into_os_string();
        if let Some(part) = &self.part {
            text.push("@");
            text.push(&part.text);
        }
        Self { text, path, part: self.part.clone() }
    }

    /// Whether `other` has the same bytes, by any path and by any name of the part.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let id = |path: &Path| {
            let meta = std::fs::metadata(overlay::host_file(path)).ok();
            meta.map(|meta| (meta.dev(), meta.ino()))
        };
        if self.part.is_none() && other.part.is_none() {
            return id(&self.path).is_some_and(|this| id(&other.path) == Some(this));
        }
        let place = |spec: &Self| {
            let place = spec.resolve().ok()?;
            Some((id(&place.path)?, place.offset, place.size))
        };
        place(self).is_some_and(|this| place(other) == Some(this))
    }

    /// Opens it.
    ///
    /// # Errors
    /// There is no such part, or it cannot be opened.
    pub(crate) fn open(&self, how: FileOptions) -> Result<Disk> {
        let place = self.resolve()?;
        place.open(how).map_err(|error| Failure::new(error.to_string()))
    }

    /// Finds the bytes.
    ///
    /// # Errors
    /// There is no such part, or it cannot be used.
    pub(crate) fn resolve(&self) -> Result<Place> {
        let Some(part) = &self.part else {
            return Ok(Place { path: self.path.clone(), ..Place::default() });
        };
        let place = |offset, size| {
            let (path, part) = (self.path.clone(), Some(part.text.clone()));
            Place { path, offset, size, part, ..Place::default() }
        };
        if let Which::Bytes { offset, size } = part.which {
            return Ok(place(offset, size));
        }
        let how = FileOptions::new().read_only(true).unlocked(true);
        let whole = Place { path: self.path.clone(), ..Place::default() };
        let device = whole.open(how).map_err(|error| Failure::new(error.to_string()))?;
        let refused = |why: String| Failure::new(format!("{self}: {why}"));
        let found = part.find(&self.path, &device).map_err(refused)?;
        if let Some(path) = device.partition_device(found.offset, found.size) {
            return Ok(Place { path, ..Place::default() });
        }
        Ok(place(found.offset, Some(found.size)))
    }

    /// The text of an error of opening the image, without its name. For a disk it says which
    /// partitions to use.
    pub(crate) fn explain(&self, error: &nextent::Error) -> String {
        let advice = match error {
            nextent::Error::Foreign(Foreign::Disk(table)) if self.part.is_none() => {
                self.part_advice(table)
            }
            _ => String::new(),
        };
        format!("{error}{advice}")
    }

    /// Which part of a disk to use, to be appended to a message.
    pub(crate) fn part_advice(&self, table: &PartitionTable) -> String {
        /// The most partitions to name.
        const NAMED: usize = 3;
        let usable = |part: &&Partition| part.fault.is_none() && table.fault.is_none();
        let with = table.partitions.iter().filter(|part| part.ext).filter(usable);
        let with: Vec<_> = with.map(|part| format!("{self}@{}", part.number)).collect();
        if !with.is_empty() {
            return format!("; use {}", with[..with.len().min(NAMED)].join(" or "));
        }
        match table.partitions.iter().find(usable) {
            Some(part) => format!(
                "; none has an ext file system; `nextent mkfs {self}@{}` makes one",
                part.number
            ),
            None => format!("; {self}@offset=BYTES,size=BYTES is a part of it"),
        }
    }
}

impl Place {
    /// Its name in errors of [`open`](Self::open).
    pub(crate) fn shown(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if let Some(part) = &self.part {
            name.push("@");
            name.push(part);
        }
        name.into()
    }

    /// Opens the bytes.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub(crate) fn open(&self, how: FileOptions) -> std::result::Result<Disk, OpenError> {
        let read_only = how.is_read_only();
        if overlay::is_overlay(self.path.as_os_str()) {
            return self.open_overlay(&how);
        }
        match self.remote(read_only) {
            None => FileDevice::open(&self.path, &self.options(how)).map(Disk::File),
            Some(opened) => opened.map_err(|source| OpenError::Io { path: self.shown(), source }),
        }
    }

    /// Whether it is a file or a block device: no export of a server, and no overlay.
    pub(crate) fn is_file(&self) -> bool {
        is_file(&self.path)
    }

    fn open_overlay(&self, how: &FileOptions) -> std::result::Result<Disk, OpenError> {
        let wrong = |why| std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
        let fail = |why| OpenError::Io { path: self.shown(), source: wrong(why) };
        let spec = OverlaySpec::parse(self.path.as_os_str()).map_err(fail)?;
        spec.open(self, how)
    }

    /// Opens the export, if it is one.
    fn remote(&self, read_only: bool) -> Option<std::io::Result<Disk>> {
        let wrong = |why| std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
        let address = disk::address(self.path.as_os_str()).map_err(wrong).transpose()?;
        let how = RemoteOptions { read_only, reconnect: self.reconnect, timeout: self.timeout };
        Some(address.and_then(|address| Disk::open_remote(&address, self.offset, self.size, &how)))
    }

    /// The options that open these bytes of the file.
    pub(crate) fn options(&self, how: FileOptions) -> FileOptions {
        let mut how = how.offset(self.offset);
        if let Some(size) = self.size {
            how = how.size(size);
        }
        match &self.part {
            Some(part) => how.part(part.clone()),
            None => how,
        }
    }
}

impl Part {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (which, sector) = match text.split_once(",sector=") {
            Some((which, sector)) => (which, Some(sector)),
            None => (text, None),
        };
        let sector = match sector {
            None => None,
            Some("512") => Some(512),
            Some("4096") => Some(4096),
            Some(_) => return Err("sector= is 512 or 4096".into()),
        };
        let parsed = match which.split_once('=') {
            Some(("label", name)) => Which::Label(name.to_owned()),
            Some(("uuid", id)) => Which::Uuid(id.to_ascii_lowercase()),
            Some(("offset", _)) if sector.is_none() => bytes(which)?,
            Some(_) => return Err(UNKNOWN.into()),
            None => {
                let is_number = which.bytes().all(|byte| byte.is_ascii_digit());
                let number = which.parse().ok().filter(|number| *number > 0 && is_number);
                Which::Number(number.ok_or(UNKNOWN)?)
            }
        };
        Ok(Self { text: text.to_owned(), which: parsed, sector })
    }

    /// The partition of `device`, the file at `path`.
    fn find(&self, path: &Path, device: &Disk) -> std::result::Result<Partition, String> {
        let name = show::path(path);
        let sector = self.sector.or_else(|| device.sector_size());
        let read = &mut |at, buf: &mut [u8]| device.read_at(at, buf).is_ok();
        let table = PartitionTable::read(device.size(), sector, read)
            .ok_or_else(|| format!("{name} has no partition table"))?;
        if let Some(fault) = &table.fault {
            return Err(format!("the partition table ({}) is damaged: {fault}", table.form));
        }
        let is_it = |part: &&Partition| match &self.which {
            Which::Number(number) => part.number == *number,
            Which::Label(label) => part.name == *label && !part.name.is_empty(),
            Which::Uuid(id) => part.uuid == *id,
            Which::Bytes { .. } => false,
        };
        let found: Vec<&Partition> = table.partitions.iter().filter(is_it).collect();
        match found[..] {
            [part] => match &part.fault {
                Some(fault) => Err(format!("partition {} cannot be used: {fault}", part.number)),
                None => Ok(part.clone()),
            },
            [one, two, ..] => {
                let (one, two) = (one.number, two.number);
                Err(format!("several partitions are that: use {name}@{one} or {name}@{two}"))
            }
            [] => Err(format!("{name} has no such partition; {}", self.others(&table))),
        }
    }

    /// What could have been meant.
    fn others(&self, table: &PartitionTable) -> String {
        /// The most partitions to name.
        const NAMED: usize = 16;
        let all = table.partitions.iter();
        let words: Vec<String> = match &self.which {
            Which::Label(_) => {
                let named = all.filter(|part| !part.name.is_empty());
                named.map(|part| format!("{:?}", part.name)).take(NAMED).collect()
            }
            Which::Uuid(_) => all.map(|part| part.uuid.clone()).take(NAMED).collect(),
            _ => all.map(|part| part.number.to_string()).take(NAMED).collect(),
        };
        match words.is_empty() {
            true => format!("the table ({}) has none", table.form),
            false => format!("there are {}", words.join(", ")),
        }
    }
}

/// Whether `path` names an overlay whose delta exists.
fn is_delta(path: &Path) -> bool {
    OverlaySpec::parse(path.as_os_str())
        .is_ok_and(|spec| std::fs::metadata(spec.delta).is_ok_and(|meta| !meta.is_dir()))
}

/// Whether an image's path is that of a file or a block device.
pub(crate) fn is_file(path: &Path) -> bool {
    !disk::is_address(path.as_os_str()) && !overlay::is_overlay(path.as_os_str())
}

/// What a part can be.
const UNKNOWN: &str = "after @ there must be a partition's number, label=NAME, uuid=UUID, or \
    offset=BYTES[,size=BYTES]";

/// Parses `offset=BYTES[,size=BYTES]`.
fn bytes(text: &str) -> std::result::Result<Which, String> {
    let (mut offset, mut size) = (0, None);
    for word in text.split(',') {
        match word.split_once('=') {
            Some(("offset", value)) => offset = size::bytes(value)?,
            Some(("size", value)) => size = Some(size::bytes(value)?),
            _ => return Err(UNKNOWN.into()),
        }
    }
    match size.and_then(|size| size.checked_add(offset)) {
        None if size.is_some() => Err("offset and size are too large".into()),
        _ if size == Some(0) => Err("size=0 has no bytes".into()),
        _ => Ok(Which::Bytes { offset, size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<ImageSpec, String> {
        ImageSpec::parse(OsStr::new(text))
    }

    #[test]
    fn parts_are_parsed() {
        let part = |text: &str| {
            let spec = parse(text).unwrap();
            (
                spec.path.to_str().unwrap().to_owned(),
                spec.part.map(|part| (part.which, part.sector)),
            )
        };
        let whole = |text: &str| (text.to_owned(), None);
        for text in
            ["a.img", "a@b/c.img", "@2", "a@", "a@0", "a@x", "a@99999999999", "a@-1", "a@+1"]
        {
            assert_eq!(part(text), whole(text));
        }
        let of = |which| ("a.img".to_owned(), Some((which, None)));
        assert_eq!(part("a.img@2"), of(Which::Number(2)));
        assert_eq!(
            part("a.img@label=a@2"),
            ("a.img@label=a".into(), Some((Which::Number(2), None)))
        );
        assert_eq!(part("a.img@label=root fs"), of(Which::Label("root fs".into())));
        assert_eq!(part("a.img@uuid=12AB-01"), of(Which::Uuid("12ab-01".into())));
        let bytes = |offset, size| of(Which::Bytes { offset, size });
        assert_eq!(part("a.img@offset=1m"), bytes(1 << 20, None));
        assert_eq!(part("a.img@offset=1m,size=64k"), bytes(1 << 20, Some(65536)));
        let wide = Some((Which::Number(2), Some(4096)));
        assert_eq!(part("a.img@2,sector=4096"), ("a.img".into(), wide));
        assert_eq!(part("x@y/a.img@2").0, "x@y/a.img");
    }

    #[test]
    fn parts_of_overlays_are_parsed() {
        let part = |text: &str| {
            let spec = parse(text).unwrap();
            (spec.path.to_str().unwrap().to_owned(), spec.part.map(|part| part.text))
        };
        for (path, of) in [
            ("overlay:b+d", "2"),
            ("overlay:b@1.img+x@3/d", "label=a b"),
            ("overlay:nbd+unix:///e?socket=/s+d", "offset=1m"),
        ] {
            assert_eq!(part(path), (path.to_owned(), None));
            assert_eq!(part(&format!("{path}@{of}")), (path.to_owned(), Some(of.to_owned())));
        }
        for wrong in ["overlay:b", "overlay:b@2", "overlay:"] {
            let said = parse(wrong).unwrap_err();
            assert!(said.ends_with("an overlay is overlay:BASE+DELTA"), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let text = format!("overlay:b+{}", at("d@2"));
        assert_eq!(part(&text).1, Some("2".to_owned()));
        std::fs::write(at("d@2"), "").unwrap();
        assert_eq!(part(&text), (text.clone(), None));
        assert_eq!(parse(&text).unwrap().host_file(), Path::new(&at("d@2")));
        std::fs::write(at("d"), "").unwrap();
        assert!(parse(&format!("overlay:b+{}@lable=x", at("d"))).is_err());
        assert!(
            parse(&text).unwrap().is_same(&parse(&format!("overlay:c+{}", at("d@2"))).unwrap())
        );
    }

    #[test]
    fn an_existing_file_is_itself() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        for name in ["a@2", "a", "b"] {
            std::fs::write(at(name), "").unwrap();
        }
        assert_eq!(parse(&at("a@2")).unwrap().path, Path::new(&at("a@2")));
        assert_eq!(parse(&at("b@2")).unwrap().path, Path::new(&at("b")));
        assert_eq!(parse(&at("a@2@1")).unwrap().path, Path::new(&at("a@2")));
        assert_eq!(parse(&at("b@label=x/y")).unwrap().path, Path::new(&at("b")));
        assert_eq!(parse(&at("b@label=x@2")).unwrap().path, Path::new(&at("b")));
        for wrong in ["x", "0", "", "label", "offset=x", "2,sector=1", "offset=1,size=0", "size=1"]
        {
            let said = parse(&at(&format!("b@{wrong}"))).unwrap_err();
            assert!(said.contains(&at("b")), "{said}");
        }
        assert!(parse(&at("b@offset=18446744073709551615,size=2")).is_err());
        let offset = parse(&at("b?offset=1048576")).unwrap();
        assert!(offset.is_same(&parse(&at("b@offset=1m")).unwrap()) && offset.is_part());
        assert!(!parse(&at("c?offset=1")).unwrap().is_part());
        assert!(!parse(&at("b?2")).unwrap().is_part());
        assert!(
            parse(&at("a")).unwrap().is_same(&parse(&at("../a").replace("../", "./")).unwrap())
        );
    }
}
