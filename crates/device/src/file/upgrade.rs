//! Allows writes to a device that was opened for reading.
//!
//! A second open of the same file, for writing, replaces the first under the same descriptor. So
//! transfers that run meanwhile need no lock: each uses either open.
//!
//! An exclusive lock needs the end of the shared one, so another process may lock, change and
//! unlock the file in between. The caller must compare what it has read with the device afterwards.
//! If writing is refused and the shared lock cannot be taken again, another process is writing.
//! Then all transfers fail from then on.

use super::exclusive::{self, Claim};
use super::options::OpenError;
use super::{FileDevice, Opened, sys};
use nextent_sync::atomic::Ordering;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

impl FileDevice {
    /// Allows writes from now on. Does nothing if they are allowed already.
    ///
    /// Another process may have changed the device between its open and this call; compare what was
    /// read before with the device.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open) for writing; writes stay refused. If another process has begun to
    /// write meanwhile, all later transfers fail.
    pub fn allow_writes(&self) -> Result<(), OpenError> {
        self.opened.allow_writes(true)
    }

    /// Like [`allow_writes`](Self::allow_writes), for a block device that the kernel has claimed
    /// for a mount whose server is this process.
    ///
    /// # Errors
    ///
    /// As [`allow_writes`](Self::allow_writes).
    pub fn allow_writes_for_mount(&self) -> Result<(), OpenError> {
        self.opened.allow_writes(false)
    }
}

impl Opened {
    fn allow_writes(&self, claims: bool) -> Result<(), OpenError> {
        let mut claim = self.claim.lock();
        if !self.read_only.load(Ordering::Acquire) {
            return Ok(());
        }
        let fail = |source| OpenError::Io { path: self.path.clone(), source };
        let meta = self.file.metadata().map_err(fail)?;
        if self.block_device && sys::refuses_writes(meta.rdev()) {
            return Err(fail(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        // By the descriptor: the path may lead to another file by now.
        let same = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let own = match self.block_device && claims {
            true => exclusive::claim_device(&same).map_err(|error| error.of(&self.path))?,
            false => None,
        };
        let flags = sys::direct_flag(self.direct.is_some());
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).custom_flags(flags).open(&same).map_err(fail)?;
        let mut want = self.locked.wanted(&self.path, true, self.unlocked);
        *claim = Claim::default();
        if !self.unlocked {
            sys::unlock(&self.file).map_err(fail)?;
        }
        let claimed = exclusive::claim(&file, &meta, &want).and_then(|claimed| {
            let replaced = sys::replace(&self.file, &file).map_err(fail);
            replaced.map(|()| claimed)
        });
        match claimed {
            Ok(claimed) => {
                *claim = claimed;
                claim.own = own;
            }
            Err(error) => {
                drop((file, own));
                want.writes = false;
                match exclusive::claim(&self.file, &meta, &want) {
                    Ok(shared) => *claim = shared,
                    Err(_) => self.lost.store(true, Ordering::Release),
                }
                return Err(error);
            }
        }
        self.read_only.store(false, Ordering::Release);
        Ok(())
    }

    /// Refuses transfers after the shared lock was lost.
    pub(super) fn check_lock(&self) -> io::Result<()> {
        match self.lost.load(Ordering::Acquire) {
            true => Err(io::Error::other("another process began to write to the device")),
            false => Ok(()),
        }
    }
}
