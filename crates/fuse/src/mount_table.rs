//! Reads and sets the kernel's properties of a mount: its device number, source and read-ahead.
//!
//! No function here sends a request to the mount, since no thread may serve it yet.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The kernel's read-ahead in KiB: one request of the largest size.
///
/// The kernel's default of 128 KiB is made for disks. Here half the cost of two requests is waking
/// the thread that answers, so longer requests are worth more.
const AHEAD: usize = crate::wire::PAYLOAD / 1024;

/// A mount, as in the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Major and minor number of its device.
    pub device: (u64, u64),
    /// Its type: `fuse.nextent` or `fuseblk.nextent` for a mount of this crate.
    kind: String,
    /// Its source, as the mount gave it.
    pub source: PathBuf,
    /// The mount's own flags, such as `rw,nosuid`.
    pub flags: String,
    /// The options of its file system, such as `rw,user_id=0`.
    pub options: String,
    /// The user that mounted it, by FUSE's option `user_id`; root (0) for other file systems.
    pub owner: u32,
}

impl Mounted {
    /// The newest mount at the absolute path `point`; none without a mount or a table.
    #[must_use]
    pub fn at(point: &Path) -> Option<Self> {
        find(&std::fs::read("/proc/self/mountinfo").ok()?, point, |_| true)
    }

    /// The newest mount of this crate at the absolute path `point`, also below other mounts.
    pub(crate) fn of_this_crate(point: &Path) -> Option<Self> {
        find(&std::fs::read("/proc/self/mountinfo").ok()?, point, Self::is_nextent)
    }

    /// Whether a server of this crate made it.
    #[must_use]
    pub fn is_nextent(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.nextent" | "fuseblk.nextent")
    }
}

/// The mount points, in this process' table, of the mounts with this device number.
pub(crate) fn points_of(device: (u64, u64)) -> Vec<PathBuf> {
    points(&std::fs::read("/proc/self/mountinfo").unwrap_or_default(), device)
}

fn points(table: &[u8], device: (u64, u64)) -> Vec<PathBuf> {
    let of_line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let is_it = fields.next().and_then(number) == Some(device);
        fields.nth(1).filter(|_| is_it).map(|point| OsString::from_vec(unescaped(point)).into())
    };
    table.split(|byte| *byte == b'\n').filter_map(of_line).collect()
}

/// A device number: `MAJOR:MINOR`.
fn number(field: &[u8]) -> Option<(u64, u64)> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The newest mount at `point` that `fits`, in a table whose newest mounts are last.
fn find(table: &[u8], point: &Path, fits: impl Fn(&Mounted) -> bool) -> Option<Mounted> {
    let mut lines = table.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| parse(line, point).filter(&fits))
}

/// The mount in a line of the table, if it is at `point`.
fn parse(line: &[u8], point: &Path) -> Option<Mounted> {
    let mut line = line.split(|byte| *byte == b' ');
    if unescaped(line.clone().nth(4)?) != point.as_os_str().as_bytes() {
        return None;
    }
    let device = number(line.nth(2)?)?;
    let flags = String::from_utf8_lossy(line.nth(2)?).into_owned();
    // Optional fields, a dash, the type, the source, the options.
    let mut line = line.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(line.next()?).into_owned();
    let source = OsString::from_vec(unescaped(line.next()?)).into();
    let words = String::from_utf8_lossy(line.next()?).into_owned();
    let owner = words.split(',').find_map(|word| word.strip_prefix("user_id=")?.parse().ok());
    let owner = owner.unwrap_or(0);
    Some(Mounted { device, kind, source, flags, options: words, owner })
}

/// A field of the table, where blanks and backslashes are octal: `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(3));
        let text = std::str::from_utf8(digits).unwrap_or_default();
        match u8::from_str_radix(text, 8) {
            Ok(byte) => out.push(byte),
            Err(_) => out.extend([b"\\", digits].concat()),
        }
        out.extend(rest);
    }
    out
}

/// Sets the read-ahead to one request, where this process may; after the agreement of kernel and
/// server, which sets it, too. Also enforces the mount's own share of dirty memory (1 % of the
/// global limit), as most kernels do by default: that bounds the data that write(2) takes before
/// the server sees it and can find that the volume is full.
pub(crate) fn tune(device: Option<(u64, u64)>) {
    if let Some((major, minor)) = device {
        // The second name is that of a mount of a block device.
        for kind in ["", "-fuseblk"] {
            let set = |name: &str, value: &str| {
                let place = format!("/sys/class/bdi/{major}:{minor}{kind}/{name}");
                let there = File::options().write(true).open(place);
                let _ = there.and_then(|mut file| file.write_all(value.as_bytes()));
            };
            set("read_ahead_kb", &AHEAD.to_string());
            set("strict_limit", "1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mount_at_a_point() {
        let table = b"24 1 0:22 / /a rw - tmpfs none rw\n\
            25 1 0:23 / /a\\040b\\134c ro,nodev - fuse.nextent an\\040image rw,user_id=7,gid=8\n\
            26 1 7:1 / /a rw - ext4 /dev/loop1 rw\n\
            27 1 0:24 / /c rw - fuse.nextent old rw\n\
            28 1 0:25 / /c rw - fuse.nextent new rw\n\
            29 1 0:26 / /c rw - tmpfs none rw\n";
        let at = |point: &str| find(table, Path::new(point), |_| true);
        let mounted = |device, (flags, kind, source, options): (&str, &str, &str, &str), owner| {
            let (flags, options) = (flags.to_owned(), options.to_owned());
            Some(Mounted {
                device,
                kind: kind.into(),
                source: source.into(),
                flags,
                options,
                owner,
            })
        };
        assert_eq!(at("/a"), mounted((7, 1), ("rw", "ext4", "/dev/loop1", "rw"), 0));
        let words = ("ro,nodev", "fuse.nextent", "an image", "rw,user_id=7,gid=8");
        assert_eq!(at("/a b\\c"), mounted((0, 23), words, 7));
        assert!(at("/a b\\c").unwrap().is_nextent() && !at("/a").unwrap().is_nextent());
        assert_eq!(at("/b"), None);
        assert_eq!(points(table, (0, 23)), [Path::new("/a b\\c")]);
        assert_eq!(points(table, (0, 99)), [] as [&Path; 0]);
        assert_eq!(find(b"26 1 x / /a rw", Path::new("/a"), |_| true), None);
        let ours = |point: &str| find(table, Path::new(point), Mounted::is_nextent);
        assert_eq!(ours("/c"), mounted((0, 25), ("rw", "fuse.nextent", "new", "rw"), 0));
        assert_eq!((ours("/a"), at("/c").unwrap().device), (None, (0, 26)));
        assert_eq!(unescaped(b"\\04\\999z"), b"\x04\\999z");
    }
}
