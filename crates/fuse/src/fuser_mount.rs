//! A mount over `/dev/fuse`, by the crate `fuser`: threads with a descriptor each.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use fuser::{Config, MountOption, Session, SessionACL};
use nextent_sync::{Arc, thread};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::fuser_adapter::Adapter;
use crate::mount_table;
use crate::scheduling::{Watchdog, WorkerSlots};
use crate::transport::{MountError, MountFlag, Setup, Transport, Unmount};
use crate::{Server, fuser_adapter, refusal};

/// A mount that the crate `fuser` serves.
pub struct FuserMount {
    session: Session<Adapter>,
    point: PathBuf,
    threads: usize,
    /// Where the threads register, if one of them may become the leader.
    slots: Option<WorkerSlots>,
}

impl Transport for FuserMount {
    fn check(point: &Path) -> Result<(), MountError> {
        check_point(point)?;
        check_device()
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        assert!(!setup.is_ours(), "another transport serves this");
        let slots = WorkerSlots::default();
        let adapter = Adapter::new(
            Arc::clone(&server),
            fuser_adapter::Wants { acl: setup.acl },
            slots.clone(),
        );
        let config = config(setup);
        let threads = config.n_threads.unwrap_or(1);
        let session = Session::new(adapter, point, &config);
        let session = session.map_err(|error| refused(&error, point))?;
        let point = std::fs::canonicalize(point).unwrap_or_else(|_| point.into());
        mount_table::tune(&point);
        Ok(Self { session, point, threads, slots: setup.idle.then_some(slots) })
    }

    fn unmounter(&mut self) -> Unmount {
        // Not the session's own: that tries once, and detaches busy mounts of users.
        let point = self.point.clone();
        Box::new(move || unmount(&point))
    }

    fn serve(self) -> io::Result<()> {
        let watchdog = self.slots.and_then(|slots| {
            let watchdog = Watchdog::over_queue(self.threads, mount_table::waiting(&self.point))?;
            slots.connect(&watchdog);
            Some(watchdog)
        });
        let ended = self.session.run();
        // After the threads that it watched.
        drop(watchdog);
        ended
    }
}

pub(crate) fn unmount(point: &Path) -> io::Result<()> {
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
        // Unmounted already.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::PERM) => {
            let done = Command::new("fusermount3").arg("-u").arg(point).output()?;
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            if done.status.success() { Ok(()) } else { Err(io::Error::other(text)) }
        }
        Err(error) => Err(error.into()),
    }
}

/// Explains why the kernel or the helper refused to mount.
pub(crate) fn refused(error: &io::Error, point: &Path) -> MountError {
    MountError::Refused(refusal::mounting(error, point))
}

pub(crate) fn check_point(point: &Path) -> Result<(), MountError> {
    let bad = |error| MountError::Point(point.into(), error);
    let meta = std::fs::metadata(point).map_err(bad)?;
    if meta.is_dir() { Ok(()) } else { Err(bad(ErrorKind::NotADirectory.into())) }
}

/// Opens the device and closes it again, so that its error is not taken for another.
pub(crate) fn check_device() -> Result<(), MountError> {
    let how = std::fs::OpenOptions::new().read(true).write(true).open(refusal::DEVICE);
    how.map(|_| ()).map_err(|error| MountError::NoFuse(refusal::device(&error)))
}

fn config(setup: &Setup) -> Config {
    let mut options = vec![
        MountOption::FSName(setup.source.clone()),
        // Not `Subtype`, which fuser passes to fusermount3 only.
        MountOption::CUSTOM("subtype=nextent".into()),
        if setup.read_only { MountOption::RO } else { MountOption::RW },
    ];
    if !setup.admission.everyone_may {
        options.push(MountOption::DefaultPermissions);
    }
    options.extend(setup.flags.iter().map(|flag| match flag {
        MountFlag::Suid => MountOption::Suid,
        MountFlag::NoSuid => MountOption::NoSuid,
        MountFlag::Dev => MountOption::Dev,
        MountFlag::NoDev => MountOption::NoDev,
        MountFlag::Exec => MountOption::Exec,
        MountFlag::NoExec => MountOption::NoExec,
        MountFlag::NoAtime => MountOption::NoAtime,
        MountFlag::Sync => MountOption::Sync,
        MountFlag::DirSync => MountOption::DirSync,
    }));
    let mut config = Config::default();
    config.mount_options = options;
    config.acl = match setup.admission.opens_to_all() {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some(setup.threads.unwrap_or_else(cores).max(1));
    config.clone_fd = true;
    config
}
