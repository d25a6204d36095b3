//! What the kernel keeps of a mount beside its connection: its device's number, its source, and
//! how far it reads ahead.
//!
//! Nothing here asks the mount itself, which nobody may serve yet.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How far the kernel reads ahead of a reader: one request of the largest size.
///
/// Half of what two requests take is waking who answers, so longer ones are worth more here than
/// on a disk, and the kernel's own 128 KiB are a disk's.
const AHEAD: usize = crate::wire::PAYLOAD / 1024;

/// Where the kernel says what connections it has.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// A mount, as the kernel's table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The number of its device: major and minor.
    pub(crate) device: (u64, u64),
    /// What it says it was mounted from.
    pub source: PathBuf,
}

impl Mounted {
    /// The newest mount at `point`, an absolute path; none if there is none, or no table.
    #[must_use]
    pub fn at(point: &Path) -> Option<Self> {
        find(&std::fs::read("/proc/self/mountinfo").ok()?, point)
    }
}

/// The same, in a table that has the newest mounts last.
fn find(table: &[u8], point: &Path) -> Option<Mounted> {
    let fields = table.rsplit(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b' '));
    let is_it = |field: &[u8]| unescaped(field) == point.as_os_str().as_bytes();
    let mut line = fields.into_iter().find(|line| line.clone().nth(4).is_some_and(is_it))?;
    let (major, minor) = std::str::from_utf8(line.nth(2)?).ok()?.split_once(':')?;
    // As many words as there may be, a dash, the type, the source.
    let source = unescaped(line.skip_while(|field| *field != b"-").nth(2)?);
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mounted { device, source: OsString::from_vec(source).into() })
}

/// A field of the table, in which blanks and backslashes are octal: `\040`.
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

/// Has the kernel read ahead as far as one request goes, where this process may say so: after
/// kernel and server have agreed, which sets it. Also has it keep to the mount's own share of dirty
/// memory (1 % of the limit of all), as most kernels do of their own: that bounds what write(2)
/// takes before the server hears of it, and can find that the volume is full.
pub(crate) fn tune(point: &Path) {
    if let Some(Mounted { device: (major, minor), .. }) = Mounted::at(point) {
        // The second is of a mount that has a block device.
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

/// What the kernel keeps of the connection of the mount at `point`: a folder that is there if
/// somebody has mounted it.
pub(crate) fn connection(point: &Path) -> Option<PathBuf> {
    // Its number is the device's, as the kernel has it.
    let (major, minor) = Mounted::at(point)?.device;
    let number = major << 20 | minor;
    Some(Path::new(CONNECTIONS).join(number.to_string()))
}

/// Where the kernel says how many requests of the mount at `point` have no answer.
pub(crate) fn waiting(point: &Path) -> Option<File> {
    File::open(connection(point)?.join("waiting")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mount_at_a_point() {
        let table = b"24 1 0:22 / /a rw - tmpfs none rw\n\
            25 1 0:23 / /a\\040b\\134c rw - fuse.nextent an\\040image rw\n\
            26 1 7:1 / /a rw - ext4 /dev/loop1 rw\n";
        let at = |point: &str| find(table, Path::new(point));
        let mounted = |device, source: &str| Some(Mounted { device, source: source.into() });
        assert_eq!(at("/a"), mounted((7, 1), "/dev/loop1"));
        assert_eq!(at("/a b\\c"), mounted((0, 23), "an image"));
        assert_eq!(at("/b"), None);
        assert_eq!(find(b"26 1 x / /a rw", Path::new("/a")), None);
        assert_eq!(unescaped(b"\\04\\999z"), b"\x04\\999z");
    }
}
