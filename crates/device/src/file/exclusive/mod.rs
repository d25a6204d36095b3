//! Exclusive access of a writer to a file or block device.
//!
//! Three mechanisms prevent two concurrent users of the same bytes:
//!
//! | mechanism | excludes |
//! |---|---|
//! | locks of the file or device, and of the files and devices below it ([`locks`]) | other processes of this program |
//! | an open with `O_EXCL` of the block device, and of the loop devices over it | the kernel (mounts, swap, device-mapper, md), and programs that do the same |
//! | a check of mounts, swap files and record locks | kernel and programs that use a file without a loop device |
//!
//! The same bytes have several names: a file and the loop devices over it, a disk and its
//! partitions, a device and its members ([`layers`]). Files are identified by device and inode,
//! block devices by their number. Paths are used in messages only.
//!
//! A writer of a part of a file, of a loop device over a part, or of a partition locks only the
//! bytes of that part, since other parts may have their own writers. Below a device with several
//! members it takes a shared lock: the part of a member that it uses is not known. Any of these
//! excludes a writer of the whole file.
//!
//! The locks and claims live as long as the device is open. Two later users cannot be excluded: a
//! loop device that root attaches to an image file, and a mount.

mod layers;
mod locks;
mod users;

use super::{options::OpenError, sys};
use locks::{Access, lock};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) use layers::{Loop, Node, device_path, partition_device, sys_path};
pub(super) use users::{Mounted, shown};
pub use users::{User, Users};

/// The largest number of layers to search. More than two loop devices over each other are rare.
const LAYERS: usize = 8;

/// The locks and claims of an open device.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// Locked files and devices below the device.
    under: Vec<File>,
    /// Loop devices over it, opened exclusively.
    over: Vec<File>,
    /// The device itself, opened exclusively.
    pub(super) own: Option<File>,
}

/// The requested access.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a Path,
    pub(super) writes: bool,
    /// Whether a reader takes no lock.
    pub(super) unlocked: bool,
    /// Whether record locks of other processes are accepted.
    pub(super) record_locks: bool,
    /// The byte range of the file that is used.
    pub(super) bytes: Range<u64>,
    /// Whether other bytes of the file may have other users.
    pub(super) is_part: bool,
    /// The part's name after the path and `@`, as the table of mounts shows it.
    pub(super) part: Option<&'a str>,
}

impl Wanted<'_> {
    /// The name for messages.
    fn shown(&self) -> PathBuf {
        users::shown(self.path, self.part)
    }

    fn access(&self) -> Access {
        let bytes = self.is_part.then(|| self.bytes.clone());
        Access { exclusive: self.writes, bytes, others: false }
    }
}

/// Opens the block device at `path` exclusively. `None` if this process may not open it.
///
/// # Errors
///
/// [`OpenError::Busy`] if the kernel or another process has claimed it.
pub(super) fn claim_device(path: &Path) -> Result<Option<File>, OpenError> {
    match open_exclusively(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let device = std::fs::metadata(path).map(|meta| Node::of(&meta));
            let users = match device {
                Ok(Node::Block(device)) => users_of_busy(device),
                _ => Users::default(),
            };
            Err(OpenError::Busy { path: path.into(), users })
        }
        // The caller's own open of the device reports the error.
        Err(_) => Ok(None),
    }
}

/// Locks the open `file` and the files and devices that hold the same bytes.
///
/// # Errors
///
/// The conflicting use.
pub(super) fn claim(file: &File, meta: &Metadata, want: &Wanted<'_>) -> Result<Claim, OpenError> {
    let mut claim = Claim::default();
    if want.unlocked && !want.writes {
        return Ok(claim);
    }
    lock(file, &want.access(), want)?;
    let node = Node::of(meta);
    let mut places = vec![(node, want.bytes.clone())];
    if let Node::Block(device) = node {
        claim.lock_under(device, &want.access(), want, &mut places)?;
    }
    if !want.writes {
        return Ok(claim);
    }
    let mut seen = places.iter().map(|(one, _)| *one).collect();
    for place in places {
        claim.take_over(place, &want.shown(), &mut seen)?;
    }
    if let Node::File(..) = node {
        refuse_used_file(file, node, want)?;
    }
    Ok(claim)
}

impl Claim {
    /// Locks the files and devices below `device` and adds them, with the bytes that it uses, to
    /// `places`.
    fn lock_under(
        &mut self,
        device: u64,
        access: &Access,
        want: &Wanted<'_>,
        places: &mut Vec<(Node, Range<u64>)>,
    ) -> Result<(), OpenError> {
        if places.len() > LAYERS {
            return Ok(());
        }
        if let Some(over) = Loop::of(device) {
            // If the path now leads to another file, the backing file cannot be locked by it.
            let Some(node) = over.backing.filter(|node| Node::at(&over.path) == Some(*node)) else {
                return Ok(());
            };
            let access = access.within(over.start, over.end);
            let Ok(file) = open_to_lock(&over.path, &access) else { return Ok(()) };
            lock(&file, &access, want)?;
            self.under.push(file);
            places.push((node, access.range()));
            return match node {
                Node::Block(device) => self.lock_under(device, &access, want, places),
                Node::File(..) => Ok(()),
            };
        }
        if let Some((disk, bytes)) = layers::disk_of(device).zip(layers::place_of(device)) {
            let access = Access { others: true, ..access.within(bytes.start, bytes.end) };
            places.push((Node::Block(disk), access.range()));
            self.lock_under(disk, &access, want, places)?;
        }
        for below in layers::members_of(device) {
            places.push((Node::Block(below), Access::READ.range()));
            self.lock_under(below, &Access::READ, want, places)?;
        }
        Ok(())
    }

    /// Opens each loop device over the given bytes of `node` exclusively, except those in `seen`,
    /// so that the kernel cannot start to use one.
    fn take_over(
        &mut self,
        (node, bytes): (Node, Range<u64>),
        path: &Path,
        seen: &mut Vec<Node>,
    ) -> Result<(), OpenError> {
        let related = match node {
            Node::Block(device) => layers::family(device).into_iter().map(Node::Block).collect(),
            Node::File(..) => vec![node],
        };
        for over in Loop::all() {
            let is_over = over.backing.is_some_and(|backing| related.contains(&backing));
            let apart = over.end <= bytes.start || bytes.end <= over.start;
            let known = seen.contains(&Node::Block(over.device)) || seen.len() > LAYERS * 4;
            if !is_over || apart || known {
                continue;
            }
            seen.push(Node::Block(over.device));
            let device = layers::device_path(over.device);
            let busy =
                |users| OpenError::Attached { path: path.into(), device: device.clone(), users };
            match open_exclusively(&device) {
                Ok(file) => self.over.push(file),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(busy(users_of_busy(over.device)));
                }
                // Without the right to open it, the visible users decide.
                Err(_) => match users::of_device(over.device) {
                    users if users.0.is_empty() => {}
                    users => return Err(busy(users)),
                },
            }
            self.take_over((Node::Block(over.device), 0..u64::MAX), path, seen)?;
        }
        Ok(())
    }
}

/// The users of a device that cannot be opened exclusively: the kernel, or a writer of this
/// program, which has the device or the file below it locked.
fn users_of_busy(device: u64) -> Users {
    let found = users::of_busy_device(device);
    if !found.0.is_empty() {
        return found;
    }
    let under = Loop::of(device).map(|over| over.path);
    let place = under.unwrap_or_else(|| layers::device_path(device));
    std::fs::metadata(&place).map(|meta| users::of_locked(&place, &meta)).unwrap_or_default()
}

/// Refuses an image that is swap space, that another server has mounted, or that has record locks.
/// Virtual machine monitors take record locks.
fn refuse_used_file(file: &File, node: Node, want: &Wanted<'_>) -> Result<(), OpenError> {
    let found = users::of_file(node, want.path);
    if !found.0.is_empty() {
        return Err(OpenError::Used { path: want.shown(), users: found });
    }
    if want.record_locks || !sys::has_record_locks(file, &(0..locks::SPACE)) {
        return Ok(());
    }
    let users = file.metadata().map(|meta| users::of_locked(want.path, &meta)).unwrap_or_default();
    Err(OpenError::Locked { path: want.shown(), users })
}

fn open_exclusively(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path)
}

fn open_quietly(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Opens a file below a device for a lock. An exclusive lock of bytes needs a file that is open for
/// writing.
fn open_to_lock(path: &Path, access: &Access) -> io::Result<File> {
    if access.exclusive && access.bytes.is_some() {
        let both = OpenOptions::new().read(true).write(true).open(path);
        if both.is_ok() {
            return both;
        }
    }
    open_quietly(path)
}
