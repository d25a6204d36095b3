//! Access times.
//!
//! The kernel leaves them to the server and does not report reads that its cache answers. The
//! server therefore takes an open for reading as a read, and every request that reads:
//!
//! | what is read | `relatime`: updated at | `strictatime`: updated at |
//! |---|---|---|
//! | file | an open for reading, a read request | each read: the kernel caches no contents |
//! | directory | a listing that the kernel does not have | each listing: the kernel caches none |
//! | symbolic link | the first `readlink` | each: the kernel caches no target |
//!
//! By `relatime`, an update is due when the access time is not later than the last change, or is a
//! day old. A change of a directory's entries makes the kernel ask for the listing again.

use nextent::inodes::InodeNo;
use nextent::{DiskTime, FileType};
use nextent_sync::atomic::{AtomicU8, Ordering};

use super::Server;

/// The reads that update access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessTimes {
    /// None does (`noatime`).
    pub never: bool,
    /// Each does (`strictatime`), and not only the first after a change or after a day.
    pub strict: bool,
    /// None of a directory does (`nodiratime`).
    pub not_of_directories: bool,
}

/// The rules of a server, which a remount changes. Relaxed: a read that a change races with may
/// follow either.
pub(super) struct Rules(AtomicU8);

const NEVER: u8 = 1;
const STRICT: u8 = 2;
const NOT_OF_DIRECTORIES: u8 = 4;

impl Rules {
    pub(super) fn new(rules: AccessTimes) -> Self {
        let own = Self(AtomicU8::new(0));
        own.set(rules);
        own
    }

    fn set(&self, rules: AccessTimes) {
        let bits = [
            (rules.never, NEVER),
            (rules.strict, STRICT),
            (rules.not_of_directories, NOT_OF_DIRECTORIES),
        ];
        let bits = bits.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit);
        self.0.store(bits, Ordering::Relaxed);
    }

    fn get(&self) -> AccessTimes {
        let bits = self.0.load(Ordering::Relaxed);
        AccessTimes {
            never: bits & NEVER != 0,
            strict: bits & STRICT != 0,
            not_of_directories: bits & NOT_OF_DIRECTORIES != 0,
        }
    }
}

impl Server {
    /// Changes the reads that update access times. The kernel reports each read only if the two
    /// agreed on that when it connected, so `strict` has its full effect only on such a server.
    pub fn set_access_times(&self, rules: AccessTimes) {
        self.access_times.set(rules);
    }

    /// Whether each read must be a request, for as long as the mount lasts.
    pub(crate) fn sees_reads(&self) -> bool {
        self.how.access_times.strict
    }

    /// Updates the access time of an inode that is read, if that is due. Returns whether it did.
    /// That an access time cannot be stored is no reason to refuse a read.
    pub(super) fn touch(&self, ino: InodeNo) -> bool {
        let rules = self.access_times.get();
        if rules.never || self.volume.is_read_only() {
            return false;
        }
        const DAY: i64 = 24 * 60 * 60;
        let Ok(attr) = self.volume.getattr(ino) else { return false };
        if rules.not_of_directories && attr.kind == FileType::Directory {
            return false;
        }
        let newest = attr.mtime.max(attr.ctime);
        let due = rules.strict || attr.atime <= newest || now().seconds - attr.atime.seconds >= DAY;
        due && self.volume.touch_atime(ino).is_ok()
    }
}

fn now() -> DiskTime {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    DiskTime::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
