//! Random trees as lists of entries, each made by one call. So a failing case can be reduced by
//! removing entries.

use super::paths::{join, name};
use crate::differential::cases::Rng;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat,
    linkat, lsetxattr, makedev, mknodat, utimensat,
};
use std::ffi::OsStr;
use std::fs::{File, create_dir};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// The kind of an entry.
#[derive(Clone, Debug)]
pub(super) enum What {
    Dir,
    /// Length, and ranges of data as start, end and fill byte.
    File(u64, Vec<(u64, u64, u8)>),
    /// Target.
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    /// Character device, or block device if true; major and minor number.
    Device(bool, u32, u32),
    /// A hard link to an earlier entry.
    Link(Vec<u8>),
}

/// One entry of a tree.
#[derive(Clone, Debug)]
pub(super) struct SpecEntry {
    pub(super) path: Vec<u8>,
    pub(super) what: What,
    pub(super) mode: u16,
    pub(super) owner: (u32, u32),
    /// Access and modification.
    pub(super) times: [(i64, i64); 2],
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

impl SpecEntry {
    /// Gives a link a name that no source has. cp(1) writes through links in a target directory; on
    /// the host this program replaces them, since sources are not trusted.
    pub(super) fn own_name_of_link(&mut self) {
        if matches!(self.what, What::Symlink(_)) {
            let start = self.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            self.path.insert(start, b'l');
        }
    }

    /// Removes attributes that bsdtar reads differently from GNU tar's form: names with `%` and
    /// `=`, and fractions of times before 1970.
    pub(super) fn for_bsdtar(&mut self) {
        self.xattrs.retain(|(name, _)| !name.contains(['%', '=']));
        for (seconds, nanos) in &mut self.times {
            if *seconds < 0 {
                *nanos = 0;
            }
        }
    }
}

/// Entries, directories before their contents.
pub(super) type Spec = Vec<SpecEntry>;

/// Draws a tree of about `count` entries.
pub(super) fn tree(rng: &mut Rng, count: usize) -> Spec {
    let mut spec: Spec = Vec::new();
    for _ in 0..count {
        let dirs: Vec<&SpecEntry> = spec.iter().filter(|e| matches!(e.what, What::Dir)).collect();
        let above = match dirs.is_empty() || rng.chance(35) {
            true => Vec::new(),
            false => rng.pick(&dirs).path.clone(),
        };
        let what = what(rng, &spec);
        let path = join(&above, &name(rng, &what));
        if spec.iter().any(|other| other.path == path) {
            continue;
        }
        let plain = matches!(what, What::Dir | What::File(..));
        let mode = mode(rng, &what);
        let owner = match rng.below(4) {
            0 => (*rng.pick(&[0, 1, 1000, 65_534, 70_000, 4_294_967_294]), 0),
            1 => (1000, *rng.pick(&[1000, 100, 4_294_967_290])),
            _ => (0, 0),
        };
        let times = [time(rng), time(rng)];
        let mut xattrs = Vec::new();
        if rng.chance(25) {
            attributes(rng, &what, plain, &mut xattrs);
        }
        spec.push(SpecEntry { path, what, mode, owner, times, xattrs });
    }
    spec
}

fn what(rng: &mut Rng, spec: &Spec) -> What {
    let others: Vec<&SpecEntry> =
        spec.iter().filter(|e| !matches!(e.what, What::Dir | What::Link(_))).collect();
    match rng.below(100) {
        0..27 => What::Dir,
        27..40 if !others.is_empty() => What::Link(rng.pick(&others).path.clone()),
        40..58 => What::Symlink(target(rng, spec)),
        58..62 => What::Fifo,
        62..65 => What::Socket,
        65..70 => {
            // Numbers that no driver has; the mounts have `nodev` besides.
            let numbers = [(1, 3), (3000, 7), (4095, 0xf_ffff), (250, 255), (300, 256)];
            let (major, minor) = *rng.pick(&numbers);
            What::Device(rng.chance(50), major, minor)
        }
        _ => file(rng),
    }
}

fn file(rng: &mut Rng) -> What {
    let byte = |rng: &mut Rng| u8::try_from(1 + rng.below(255)).expect("a byte");
    let mut data = Vec::new();
    let size = match rng.below(20) {
        0..3 => 0,
        3..12 => 1 + rng.below(300),
        12..16 => rng.below(100_000),
        16..18 => {
            // Holes at the start, in the middle and at the end.
            let (mut at, unit) = (0, 4096);
            for _ in 0..1 + rng.below(6) {
                at += unit * rng.below(9);
                let end = at + 1 + rng.below(3 * unit);
                data.push((at, end, byte(rng)));
                at = end;
            }
            return What::File(at + rng.below(9) * unit, data);
        }
        18 => {
            // Larger than a part of a copy, and mostly hole.
            let size = (8 << 20) + rng.below(14 << 20);
            data.push(((7 << 20) + 4096, (8 << 20) + 5000, byte(rng)));
            return What::File(size, data);
        }
        _ => (8 << 20) + rng.below(1 << 20),
    };
    if size > 0 {
        data.push((0, size, byte(rng)));
        data.push((size / 2, size / 2 + 1, byte(rng)));
    }
    What::File(size, data)
}

/// Draws the target of a link: a path of the tree, a missing path, or the link itself.
fn target(rng: &mut Rng, spec: &Spec) -> Vec<u8> {
    match rng.below(10) {
        0 => b"nothing".to_vec(),
        1 => b"/nonexistent/absolute".to_vec(),
        2 => vec![b'l'; *rng.pick(&[59, 60, 61, 500, 4000])],
        3 => rng.pick(&[&b"loop"[..], b".", b"./a", b"a/", b"a/.", b"a//b"]).to_vec(),
        _ if spec.is_empty() => b"a".to_vec(),
        _ => {
            let path = &rng.pick(spec).path;
            match rng.chance(60) {
                true => path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec(),
                false => path.clone(),
            }
        }
    }
}

fn mode(rng: &mut Rng, what: &What) -> u16 {
    let usual: &[u16] = match what {
        What::Dir => &[0o755, 0o700, 0o2755, 0o1777, 0o775, 0o777, 0o500, 0o4755],
        _ => &[0o644, 0o600, 0o755, 0o4755, 0o2755, 0o6711, 0o1644, 0o666, 0o000, 0o444, 0o2644],
    };
    *rng.pick(usual)
}

fn time(rng: &mut Rng) -> (i64, i64) {
    // Before 1970, after 2038, and the first and the last time of ext4.
    let seconds =
        [0, 1, 1_000_000_000, 1_500_000_007, -1, -2_000_000_000, -0x8000_0000, 2_147_483_648];
    let late = [4_000_000_000, 6_442_450_944, 15_032_385_535];
    let seconds = if rng.chance(85) { *rng.pick(&seconds) } else { *rng.pick(&late) };
    (seconds, *rng.pick(&[0, 0, 1, 500_000_000, 999_999_999, 123_456_789]))
}

fn attributes(rng: &mut Rng, what: &What, plain: bool, to: &mut Vec<(String, Vec<u8>)>) {
    let value = |rng: &mut Rng| match rng.below(5) {
        0 => Vec::new(),
        1 => vec![b'v'; rng.count(100, 900)],
        2 => vec![0, 1, 255, b'\n', 0],
        _ => b"value".to_vec(),
    };
    for _ in 0..1 + rng.below(2) {
        if plain && rng.chance(60) {
            let names = ["user.a", "user.b", "user.with=sign", "user.%41", "user.long-name-of-it"];
            to.push(((*rng.pick(&names)).to_owned(), value(rng)));
        } else if !matches!(what, What::Link(_)) {
            to.push(((*rng.pick(&["trusted.a", "trusted.b"])).to_owned(), value(rng)));
        }
    }
    if matches!(what, What::File(..)) && rng.chance(40) {
        let mut capability = vec![1, 0, 0, 2, 0, 4, 0, 0];
        capability.resize(20, 0);
        to.push(("security.capability".into(), capability));
    }
    if plain && rng.chance(40) {
        to.push(("system.posix_acl_access".into(), list(rng)));
    }
    if matches!(what, What::Dir) && rng.chance(50) {
        to.push(("system.posix_acl_default".into(), list(rng)));
    }
    let mut seen = Vec::new();
    to.retain(|(name, _)| {
        let new = !seen.contains(name);
        seen.push(name.clone());
        new
    });
}

/// The lowest `len` bytes of a number in little-endian order, which the kernel expects.
fn low_first(number: u64, len: u32) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(number >> (8 * at) & 0xff).expect("a byte")).collect()
}

/// An access list in the kernel's format: owner, two users, group, mask, others.
fn list(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = low_first(2, 4);
    let none = u64::from(u32::MAX);
    let user = if rng.chance(50) { (0x02, 1000) } else { (0x08, 70_000) };
    for (tag, id) in [(0x01, none), user, (0x04, none), (0x10, none), (0x20, none)] {
        // Named groups come after the owning group.
        let (tag, id) = match (tag, user.0) {
            (0x08, _) => (0x04, none),
            (0x04, 0x08) => user,
            other => (other.0, id),
        };
        let bits = rng.below(8);
        bytes.extend(low_first(tag, 2));
        bytes.extend(low_first(bits, 2));
        bytes.extend(low_first(id, 4));
    }
    bytes
}

fn host(top: &Path, path: &[u8]) -> PathBuf {
    top.join(OsStr::from_bytes(path))
}

/// Makes `spec` below `top`. An entry is skipped if its parent is missing or its name exists.
///
/// # Errors
/// The file system is full, or refuses a valid entry.
pub(super) fn make(top: &Path, spec: &Spec) -> io::Result<()> {
    let mut made: Vec<&SpecEntry> = Vec::new();
    for entry in spec {
        let path = host(top, &entry.path);
        let there = path.parent().is_some_and(|dir| dir.is_dir());
        if !there || path.symlink_metadata().is_ok() {
            continue;
        }
        if let What::Link(old) = &entry.what {
            let old = host(top, old);
            if old.symlink_metadata().is_ok() {
                linkat(CWD, old, CWD, path, AtFlags::empty())?;
            }
            continue;
        }
        match contents(&path, &entry.what) {
            // Longer than a block of 1 KiB.
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => continue,
            done => done?,
        }
        attribute(&path, entry)?;
        made.push(entry);
    }
    for entry in made.iter().rev() {
        let spec = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let [access, modification] = entry.times;
        let times = Timestamps { last_access: spec(access), last_modification: spec(modification) };
        utimensat(CWD, host(top, &entry.path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn contents(path: &Path, what: &What) -> io::Result<()> {
    let node = |kind, device| Ok(mknodat(CWD, path, kind, Mode::RUSR, device)?);
    match what {
        What::Dir => create_dir(path),
        What::Symlink(target) => symlink(OsStr::from_bytes(target), path),
        What::Fifo => node(FileType::Fifo, 0),
        What::Socket => node(FileType::Socket, 0),
        What::Device(false, major, minor) => {
            node(FileType::CharacterDevice, makedev(*major, *minor))
        }
        What::Device(true, major, minor) => node(FileType::BlockDevice, makedev(*major, *minor)),
        What::File(size, data) => {
            let file = File::create_new(path)?;
            file.set_len(*size)?;
            for (start, end, byte) in data {
                let len = usize::try_from(end - start).expect("files are small");
                // Blocks that repeat one byte would hide exchanged parts.
                let mut bytes = vec![*byte; len];
                for (at, chunk) in bytes.chunks_mut(512).enumerate() {
                    let stamp = low_first(at as u64, 8);
                    let len = chunk.len().min(8);
                    chunk[..len].copy_from_slice(&stamp[..len]);
                }
                file.write_all_at(&bytes, *start)?;
            }
            Ok(())
        }
        What::Link(_) => Ok(()),
    }
}

fn attribute(path: &Path, entry: &SpecEntry) -> io::Result<()> {
    let (uid, gid) = entry.owner;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if !matches!(entry.what, What::Symlink(_)) {
        chmod(path, Mode::from_raw_mode(entry.mode.into()))?;
    }
    for (name, value) in &entry.xattrs {
        match lsetxattr(path, name.as_str(), value, XattrFlags::empty()) {
            // Inodes of 128 bytes and blocks of 1 KiB may have no more space for attributes.
            Err(rustix::io::Errno::NOSPC) => {}
            done => done?,
        }
    }
    Ok(())
}
