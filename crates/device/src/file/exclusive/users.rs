//! The users of a file or block device, for refusals and their messages.
//!
//! The result is what this process can see: mounts in other namespaces and processes of other users
//! may be missing.

use super::super::device_number;
use super::Wanted;
use super::layers::{self, Node};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One user of a file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum User {
    /// It is mounted.
    Mount {
        /// The mount point.
        point: PathBuf,
        /// The file system type.
        kind: String,
    },
    /// It is swap space.
    Swap,
    /// Another block device has it as a member.
    Device {
        /// The other device's name.
        name: String,
    },
    /// A process has it locked or open.
    Process {
        /// The process id.
        pid: u32,
        /// The process name.
        name: String,
    },
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { point, kind } => write!(f, "mounted on {} ({kind})", point.display()),
            Self::Swap => f.write_str("swap space"),
            Self::Device { name } => write!(f, "part of {name}"),
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
        }
    }
}

/// The users of one file or device. [`Display`](fmt::Display) gives one phrase with advice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(pub Vec<User>);

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_process = |user: &&User| matches!(user, User::Process { .. });
        let (by, how): (Vec<_>, Vec<_>) = self.0.iter().partition(is_process);
        let list =
            |users: &[&User]| users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match (how.is_empty(), by.is_empty()) {
            (true, true) => f.write_str("in use by the kernel or another process")?,
            (true, false) => write!(f, "in use by {}", list(&by))?,
            (false, true) => write!(f, "in use: {}", list(&how))?,
            (false, false) => write!(f, "in use: {} by {}", list(&how), list(&by))?,
        }
        f.write_str(match how.first().or(by.first()) {
            Some(User::Mount { .. }) => "; unmount it first",
            Some(User::Swap) => "; swapoff it first",
            Some(User::Device { .. }) => "; take that device down first",
            Some(User::Process { .. }) => "; wait until that process ends",
            None => "",
        })
    }
}

/// An entry of the mount table.
pub(in super::super) struct Mounted {
    /// The number of its device.
    pub(in super::super) device: u64,
    pub(in super::super) point: PathBuf,
    /// The file system type.
    pub(in super::super) kind: String,
    source: PathBuf,
}

impl Mounted {
    fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
        let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
        let device = device_number::makedev(major.parse().ok()?, minor.parse().ok()?);
        let end = fields.iter().position(|field| *field == b"-")?;
        let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescaped(field)));
        Some(Self {
            device,
            point: path(fields.get(4)?),
            kind: String::from_utf8_lossy(fields.get(end + 1)?).into_owned(),
            source: path(fields.get(end + 2)?),
        })
    }

    pub(in super::super) fn all() -> Vec<Self> {
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        table.split(|byte| *byte == b'\n').filter_map(Self::parse).collect()
    }

    /// Whether the mount's source is `node`, or a part of it.
    fn is_from(&self, node: Node) -> bool {
        let found = Node::at(&self.source).or_else(|| Node::at(self.source_of_part()?));
        self.source.is_absolute() && found == Some(node)
    }

    /// The file of a source like `disk.img@2`.
    fn source_of_part(&self) -> Option<&Path> {
        let source = self.source.as_os_str().as_bytes();
        let at = source.iter().rposition(|byte| *byte == b'@')?;
        Some(Path::new(std::ffi::OsStr::from_bytes(&source[..at])))
    }

    /// Whether the mount's server may have been started with a relative path to `path`: the file
    /// name is the same, and some process has `path` open.
    fn may_be_from(&self, path: &Path) -> bool {
        let name = self.source.file_name().filter(|_| self.source.is_relative());
        let is_named = name.is_some() && name == path.file_name();
        self.kind.starts_with("fuse") && is_named && !openers(path).is_empty()
    }

    /// Whether this program serves the mount. Its server holds a lock; without a lock the server is
    /// dead, so the mount must not block a writer.
    fn is_ours(&self) -> bool {
        self.kind.ends_with(".nextent")
    }

    fn user(self) -> User {
        User::Mount { point: self.point, kind: self.kind }
    }
}

/// Decodes a field of a kernel table, in which blanks and backslashes are octal, like `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(|_| *first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Whether the kernel swaps to `node`.
fn is_swap(node: Node) -> bool {
    let table = std::fs::read("/proc/swaps").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n').skip(1);
    let mut paths = lines.filter_map(|line| line.split(|byte| byte.is_ascii_whitespace()).next());
    paths.any(|path| {
        let path = PathBuf::from(OsString::from_vec(unescaped(path)));
        path.is_absolute() && Node::at(&path) == Some(node)
    })
}

/// The users of a regular file that have neither a lock nor a loop device: mounts of other image
/// servers, and swap.
pub(super) fn of_file(node: Node, path: &Path) -> Users {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let is_from = |mount: &Mounted| mount.is_from(node) || mount.may_be_from(&path);
    let mounts = Mounted::all().into_iter().filter(|mount| !mount.is_ours());
    let mut users: Vec<_> = mounts.filter(is_from).map(Mounted::user).collect();
    if is_swap(node) {
        users.push(User::Swap);
    }
    Users(users)
}

/// The kernel's uses of a block device, its disk or its partitions.
pub(super) fn of_device(device: u64) -> Users {
    let family = layers::family(device);
    let mut users = Vec::new();
    for mount in Mounted::all() {
        let named = || family.iter().any(|one| mount.is_from(Node::Block(*one)));
        if family.contains(&mount.device) || mount.source.starts_with("/dev") && named() {
            users.push(mount.user());
        }
    }
    if family.iter().any(|one| is_swap(Node::Block(*one))) {
        users.push(User::Swap);
    }
    for holder in family.iter().flat_map(|one| layers::holders_of(*one)) {
        let sys = layers::sys_path(holder);
        let given = std::fs::read_to_string(sys.join("dm/name")).unwrap_or_default();
        let name = layers::device_path(holder).display().to_string();
        let name = if given.is_empty() { name } else { format!("{name} ({})", given.trim()) };
        users.push(User::Device { name });
    }
    Users(users)
}

/// [`of_device`]; if that is empty, the processes that have the device open.
pub(super) fn of_busy_device(device: u64) -> Users {
    let users = of_device(device);
    match users.0.is_empty() {
        true => Users(openers(&layers::device_path(device))),
        false => users,
    }
}

/// The users of a locked file: its mounts, also through loop devices or under another name, and the
/// processes that hold the lock or, if none is visible, have the file open.
pub(super) fn of_locked(path: &Path, meta: &Metadata) -> Users {
    let nodes = layers::with_loops_over(Node::of(meta));
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let holders = lockers(meta);
    let processes = if holders.is_empty() { openers(&path) } else { holders };
    let served: BTreeSet<u64> = processes.iter().flat_map(connections_of).collect();
    let is_it = |mount: &Mounted| {
        served.contains(&mount.device) || nodes.iter().any(|node| mount.is_from(*node))
    };
    let mounts = Mounted::all().into_iter().filter(is_it);
    Users(mounts.map(Mounted::user).chain(processes).collect())
}

/// The users of locked bytes of a file: the processes that hold a lock on some of them and, as far
/// as the kernel says it, their mounts; also the mount of the part that is asked for.
pub(super) fn of_locked_bytes(want: &Wanted<'_>, meta: &Metadata, bytes: &Range<u64>) -> Users {
    // Without a visible holder the other processes that have the file open are not named: they may
    // use other bytes.
    let processes = lockers_of_bytes(&place_of(meta), bytes);
    let path = std::fs::canonicalize(want.path).unwrap_or_else(|_| want.path.into());
    let served: BTreeSet<u64> = processes.iter().flat_map(connections_of).collect();
    let name = want.part.map(|part| shown(&path, Some(part)));
    let is_it = |mount: &Mounted| {
        let is_named = name.as_ref().is_some_and(|name| *name == mount.source);
        served.contains(&mount.device) || is_named && mount.is_ours()
    };
    let mounts = Mounted::all().into_iter().filter(is_it);
    Users(mounts.map(Mounted::user).chain(processes).collect())
}

/// The name of a part of a file, or of all of it.
pub(in super::super) fn shown(path: &Path, part: Option<&str>) -> PathBuf {
    let Some(part) = part else { return path.into() };
    let mut name = path.as_os_str().to_owned();
    name.push("@");
    name.push(part);
    name.into()
}

/// The visible processes that have locked some of these bytes of the file at `place`, from the
/// locks of their descriptors: the kernel's table of locks does not name the holders.
fn lockers_of_bytes(place: &str, bytes: &Range<u64>) -> Vec<User> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = pids.filter(|pid| *pid != std::process::id());
    let holds = |pid: &u32| {
        let texts = descriptors(*pid).into_iter();
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).any(|line| {
            let lock = line.strip_prefix("lock:").map(str::trim);
            lock.is_some_and(|lock| locks_bytes(lock, place, bytes))
        })
    };
    others.filter(holds).map(process).collect()
}

/// Whether a line of `/proc/PID/fdinfo` says that a lock of an open file has some of these bytes.
fn locks_bytes(line: &str, place: &str, bytes: &Range<u64>) -> bool {
    let fields: Vec<_> = line.split_whitespace().collect();
    let is_it = fields.get(1) == Some(&"OFDLCK") && fields.get(5) == Some(&place);
    let number = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok());
    let last = number(7).unwrap_or(u64::MAX);
    is_it && number(6).is_some_and(|first| first < bytes.end && bytes.start <= last)
}

/// What the kernel says of each descriptor of a process.
fn descriptors(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect()
}

/// The device numbers of the FUSE mounts that a process serves, as far as the kernel says them
/// (from Linux 6.16 on) and this process may know them.
fn connections_of(user: &User) -> BTreeSet<u64> {
    let User::Process { pid, .. } = user else { return BTreeSet::new() };
    descriptors(*pid).iter().filter_map(|text| connection_in(text)).collect()
}

/// The device number in the text of a descriptor of a FUSE connection.
fn connection_in(text: &str) -> Option<u64> {
    let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    let number: u32 = number.trim().parse().ok()?;
    Some(device_number::makedev(number >> 20, number & 0xf_ffff))
}

/// The other processes that hold a lock on the file.
fn lockers(meta: &Metadata) -> Vec<User> {
    let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let place = place_of(meta);
    let pids: BTreeSet<u32> = table.lines().filter_map(|line| locker(line, &place)).collect();
    pids.into_iter().filter(|pid| *pid != std::process::id()).map(process).collect()
}

/// A file as the kernel's tables of locks name it.
fn place_of(meta: &Metadata) -> String {
    let (major, minor) = (device_number::major(meta.dev()), device_number::minor(meta.dev()));
    format!("{major:02x}:{minor:02x}:{}", meta.ino())
}

/// The process that holds the lock of a line of `/proc/locks`, if the lock is on the file `place`.
/// Waiters have `->` in the second field.
fn locker(line: &str, place: &str) -> Option<u32> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let held = fields.get(1) != Some(&"->") && fields.get(5) == Some(&place);
    fields.get(4).filter(|_| held)?.parse().ok().filter(|pid| *pid > 0)
}

fn process(pid: u32) -> User {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    User::Process { pid, name: name.trim().to_owned() }
}

/// The other processes that have `path` open.
fn openers(path: &Path) -> Vec<User> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = pids.filter(|pid| *pid != std::process::id());
    let has_open = |pid: &u32| {
        // Compares the text of the links: a stat of their targets may wait for a server.
        let Ok(links) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let targets = links.flatten().filter_map(|link| std::fs::read_link(link.path()).ok());
        targets
            .into_iter()
            .any(|target| target.as_os_str().as_bytes() == path.as_os_str().as_bytes())
    };
    others.filter(has_open).map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernels_tables_are_parsed() {
        let line = b"26 1 7:1 / /a\\040b\\134 rw shared:1 - ext4 /dev/loop1 rw";
        let mount = Mounted::parse(line).unwrap();
        assert_eq!(mount.device, device_number::makedev(7, 1));
        assert_eq!((mount.point, mount.kind), ("/a b\\".into(), "ext4".to_owned()));
        assert_eq!(mount.source, Path::new("/dev/loop1"));
        assert!(Mounted::parse(b"26 1 7:1 / /a rw").is_none());
        let place = "fe:00:123";
        let one = "1: FLOCK  ADVISORY  WRITE 77 fe:00:123 0 EOF";
        assert_eq!(locker(one, place), Some(77));
        assert_eq!(locker("1: -> FLOCK  ADVISORY  WRITE 78 fe:00:123 0 EOF", place), None);
        assert_eq!(locker("1: OFDLCK ADVISORY  READ -1 fe:00:123 0 EOF", place), None);
        assert_eq!(locker(one, "fe:00:12"), None);
        let line = "1: OFDLCK ADVISORY  WRITE -1 fe:00:123 1000 1999";
        let locks = |bytes: Range<u64>| locks_bytes(line, place, &bytes);
        assert!(locks(0..1001) && locks(1999..3000) && !locks(0..1000) && !locks(2000..3000));
        assert!(!locks_bytes(one, place, &(0..9)));
        assert!(locks_bytes("1: OFDLCK ADVISORY  READ -1 fe:00:123 7 EOF", place, &(9..10)));
        let descriptor = "pos:\t0\nfuse_connection:\t7340033\n";
        assert_eq!(connection_in(descriptor), Some(device_number::makedev(7, 1)));
        assert_eq!(connection_in("pos:\t0\n"), None);
    }

    #[test]
    fn messages_name_users_and_advice() {
        let mount = User::Mount { point: "/m".into(), kind: "ext4".into() };
        let process = User::Process { pid: 7, name: "nextent".into() };
        let text = |users: &[&User]| Users(users.iter().copied().cloned().collect()).to_string();
        let both = "in use: mounted on /m (ext4) by process 7 (nextent); unmount it first";
        assert_eq!(text(&[&process, &mount]), both);
        assert_eq!(
            text(&[&process]),
            "in use by process 7 (nextent); wait until that process ends"
        );
        assert_eq!(text(&[&User::Swap]), "in use: swap space; swapoff it first");
        assert_eq!(text(&[]), "in use by the kernel or another process");
    }
}
