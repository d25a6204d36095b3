//! Directories of the host, each opened relative to its parent and never by its path.
//!
//! The system resolves a path from its start at each use. A path may be longer than the system
//! accepts (4096 bytes), and another program may replace a component by a symbolic link.
//! Invariants:
//!
//! - A name is one component. Links are followed only in paths that the user gave.
//! - A directory that is opened again has the same device and inode as the first time, or the
//!   operation fails.
//! - Each thread keeps a bounded number of descriptors open, the last used ones. It opens another
//!   directory from one below it that is still open (`..`), or from the nearest open parent.
//!
//! Descriptors are per thread, since workers of `mkfs -d` have descriptor tables of their own.

use super::entry::FileId;
use super::host_sys;
use super::{EntryError, Result};
use crate::escape;
use nextent_num::{must_fit, to_usize};
use nextent_sync::{Arc, OnceLock, Weak, available_cores};
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Flags to open files and directories for reading; never through a link.
pub(super) const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A directory of the host.
pub(crate) struct HostDirRef {
    /// The parent; none for a path that the user gave.
    up: Option<Arc<Self>>,
    /// The name in `up`, or that path.
    name: Box<OsStr>,
    /// Its identity when it was first opened.
    id: OnceLock<FileId>,
}

/// A descriptor of a directory.
pub(super) struct Held {
    fd: OwnedFd,
    /// Whether it was opened for reading, not only to look up names.
    pub(super) readable: bool,
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl HostDirRef {
    /// The directory at `path`, through links. It is opened at its first use.
    pub(crate) fn top(path: &Path) -> Arc<Self> {
        Arc::new(Self { up: None, name: path.as_os_str().into(), id: OnceLock::new() })
    }

    /// The directory `name` in `up`, opened at its first use.
    pub(super) fn below(up: &Arc<Self>, name: &OsStr) -> Arc<Self> {
        Arc::new(Self { up: Some(Arc::clone(up)), name: name.into(), id: OnceLock::new() })
    }

    /// The calling thread's descriptor of it.
    pub(super) fn held(self: &Arc<Self>) -> Result<Rc<Held>> {
        if let Some(held) = OPENED.with_borrow_mut(|opened| opened.find(self)) {
            return Ok(held);
        }
        if let Some(below) = OPENED.with_borrow_mut(|opened| opened.below(self))
            && let Ok(held) = open(below.as_fd(), OsStr::new(".."), OFlags::NOFOLLOW)
            && self.is(&held).is_ok()
        {
            return Ok(self.keep(held));
        }
        // From the nearest open parent.
        let mut missing = vec![self];
        let mut above = None;
        while let Some(up) = &missing[missing.len() - 1].up {
            above = OPENED.with_borrow_mut(|opened| opened.find(up));
            if above.is_some() {
                break;
            }
            missing.push(up);
        }
        for dir in missing.into_iter().rev() {
            let held = match &above {
                Some(above) => open(above.as_fd(), &dir.name, OFlags::NOFOLLOW)?,
                None => open(CWD, &dir.name, OFlags::empty())?,
            };
            dir.is(&held)?;
            above = Some(dir.keep(held));
        }
        Ok(above.expect("the directory itself was missing"))
    }

    /// Fails if `held` is not the directory that was opened first.
    fn is(&self, held: &Held) -> Result<()> {
        let id = id_of(&fstat(held)?);
        if *self.id.get_or_init(|| id) == id {
            return Ok(());
        }
        let shown = escape::path(self.path());
        Err(EntryError::new(format!("another program replaced the directory '{shown}'")))
    }

    fn keep(self: &Arc<Self>, held: Held) -> Rc<Held> {
        let held = Rc::new(held);
        OPENED.with_borrow_mut(|opened| opened.add(self, &held));
        held
    }

    /// Its path, for messages only: it may be too long for the system.
    pub(super) fn path(&self) -> PathBuf {
        let mut names = vec![&*self.name];
        let mut up = &self.up;
        while let Some(dir) = up {
            names.push(&dir.name);
            up = &dir.up;
        }
        let mut path = OsString::new();
        for name in names.into_iter().rev() {
            if !path.is_empty() && !path.as_bytes().ends_with(b"/") {
                path.push("/");
            }
            path.push(name);
        }
        path.into()
    }
}

impl Drop for HostDirRef {
    /// Iterative, since a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some(mut dir) = up.and_then(Arc::into_inner) {
            up = dir.up.take();
        }
    }
}

/// Opens a directory for reading; without that permission, to look up names.
fn open(dir: impl AsFd, name: &OsStr, follow: OFlags) -> Result<Held> {
    let flags = OPEN.difference(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(follow);
    let attempt = |flags| openat(&dir, name, flags, Mode::empty());
    let once = || match attempt(flags) {
        Err(Errno::ACCESS) => {
            let flags = host_sys::PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
            attempt(flags).map(|fd| Held { fd, readable: false })
        }
        opened => opened.map(|fd| Held { fd, readable: true }),
    };
    match once() {
        Err(Errno::MFILE | Errno::NFILE) => {
            OPENED.with_borrow_mut(|opened| opened.0.clear());
            Ok(once()?)
        }
        held => Ok(held?),
    }
}

/// A path to an open file, for calls that take no descriptor; none without `/proc`. It leads to the
/// open file, also if its name means another file by now.
pub(super) fn by_descriptor(fd: impl AsFd) -> Option<PathBuf> {
    // Not `/proc/self`: threads may have descriptor tables of their own.
    const HERE: &str = "/proc/thread-self/fd";
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| Path::new(HERE).is_dir());
    there.then(|| Path::new(HERE).join(fd.as_fd().as_raw_fd().to_string()))
}

/// The identity of a file of the host.
pub(super) fn id_of(stat: &Stat) -> FileId {
    FileId { volume: must_fit(stat.st_dev), ino: must_fit(stat.st_ino) }
}

/// The descriptors that a thread keeps, the last used one last.
#[derive(Default)]
struct OpenDirs(Vec<(Weak<HostDirRef>, Rc<Held>)>);

thread_local! {
    static OPENED: RefCell<OpenDirs> = RefCell::default();
}

/// The most descriptors that a thread keeps: all threads together use half of the process's limit.
fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20);
        (to_usize(limit) / 2 / available_cores().max(1)).clamp(4, 64)
    })
}

impl OpenDirs {
    /// The descriptor of `dir`, which becomes the last used one.
    fn find(&mut self, dir: &Arc<HostDirRef>) -> Option<Rc<Held>> {
        let at = self.0.iter().rposition(|(of, _)| of.as_ptr() == Arc::as_ptr(dir))?;
        self.0[at..].rotate_left(1);
        self.0.last().map(|(_, held)| Rc::clone(held))
    }

    /// The descriptor of a directory in `dir`.
    fn below(&mut self, dir: &Arc<HostDirRef>) -> Option<Rc<Held>> {
        let lies_in = |of: &Weak<HostDirRef>| {
            let up = of.upgrade().and_then(|of| of.up.clone());
            up.is_some_and(|up| Arc::ptr_eq(&up, dir))
        };
        // Without an identity yet, `..` of a child could not be checked against it.
        dir.id.get()?;
        let found = self.0.iter().rev().find(|(of, _)| lies_in(of))?;
        Some(Rc::clone(&found.1))
    }

    fn add(&mut self, dir: &Arc<HostDirRef>, held: &Rc<Held>) {
        if self.0.len() >= most() {
            self.0.remove(0);
        }
        self.0.push((Arc::downgrade(dir), Rc::clone(held)));
    }
}
