//! Mounting, and serving until the end.

use crate::server::Server;
use fuser::{Config, MountOption, Session, SessionACL};
use nextent::Volume;
use nextent_sync::Arc;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An option that the kernel itself carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOption {
    /// Device nodes work.
    Dev,
    /// Device nodes do not work.
    NoDev,
    /// Set-id bits count.
    Suid,
    /// Set-id bits do not count.
    NoSuid,
    /// Programs may be run.
    Exec,
    /// Programs may not be run.
    NoExec,
    /// Reading changes no time.
    NoAtime,
    /// Directories change durably.
    DirSync,
    /// Everything changes durably.
    Sync,
}

/// How a volume is to be mounted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The directory.
    pub mountpoint: PathBuf,
    /// The image, as /proc/mounts shall name it.
    pub source: String,
    /// Whether the kernel refuses changes.
    pub read_only: bool,
    /// Whether other users than the one who mounts may look in.
    pub allow_other: bool,
    /// Whether access lists count.
    pub lists: bool,
    /// Threads that read requests; each has a descriptor of its own.
    pub threads: usize,
    /// What the kernel is asked for.
    pub options: Vec<KernelOption>,
}

impl Plan {
    /// Mounts `source` at `mountpoint`, for changes, for the caller alone, a thread a core.
    #[must_use]
    pub fn new(mountpoint: PathBuf, source: String) -> Self {
        Self {
            mountpoint,
            source,
            read_only: false,
            allow_other: false,
            lists: true,
            threads: nextent_sync::available_cores(),
            options: Vec::new(),
        }
    }
}

/// Why a volume was not mounted, or not served to the end.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount was refused.
    #[error("{mountpoint}: cannot be mounted on: {source}")]
    Refused {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel has no FUSE, or the caller may not use it.
    #[error("FUSE is not available: {0}")]
    Unavailable(io::Error),
    /// The channel to the kernel broke.
    #[error("serving ended: {0}")]
    Broken(io::Error),
}

/// A way for requests to come in.
pub trait Transport {
    /// What serves.
    type Serving: Serving;
    /// Mounts `volume`; requests wait until it is served.
    ///
    /// # Errors
    /// [`MountError::Unavailable`] and [`MountError::Refused`].
    fn mount(&self, volume: Arc<Volume>, plan: &Plan) -> Result<Self::Serving, MountError>;
}

/// A mounted volume.
pub trait Serving {
    /// Ends it from another thread.
    fn stopper(&self) -> Stopper;
    /// Answers requests until it is unmounted. The volume stays open.
    ///
    /// # Errors
    /// [`MountError::Broken`].
    fn serve(self) -> Result<(), MountError>;
}

/// Over /dev/fuse, with crate `fuser`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fuser;

/// A session of [`Fuser`].
pub struct FuserSession {
    session: Session<Server>,
    mountpoint: PathBuf,
}

impl Transport for Fuser {
    type Serving = FuserSession;

    fn mount(&self, volume: Arc<Volume>, plan: &Plan) -> Result<FuserSession, MountError> {
        if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
            return Err(MountError::Unavailable(error));
        }
        let refused = |source| MountError::Refused { mountpoint: plan.mountpoint.clone(), source };
        let mountpoint = plan.mountpoint.canonicalize().map_err(refused)?;
        let server = Server::new(volume, plan.lists);
        let session = Session::new(server, &mountpoint, &config(plan)).map_err(refused)?;
        Ok(FuserSession { session, mountpoint })
    }
}

impl Serving for FuserSession {
    fn stopper(&self) -> Stopper {
        Stopper { mountpoint: self.mountpoint.clone() }
    }

    fn serve(self) -> Result<(), MountError> {
        self.session.run().map_err(MountError::Broken)
    }
}

/// Unmounts, so that [`Serving::serve`] comes to its end.
#[derive(Clone, Debug)]
pub struct Stopper {
    mountpoint: PathBuf,
}

impl Stopper {
    /// Takes the mount out of the tree at once; files that are open stay usable, and it is served
    /// until they are closed.
    ///
    /// # Errors
    /// What umount2(2) or fusermount3 says.
    pub fn stop(&self) -> io::Result<()> {
        use rustix::mount::{UnmountFlags, unmount};
        match unmount(&self.mountpoint, UnmountFlags::DETACH) {
            Err(rustix::io::Errno::PERM) => fusermount(&self.mountpoint),
            done => Ok(done?),
        }
    }
}

fn fusermount(mountpoint: &Path) -> io::Result<()> {
    let status = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(mountpoint).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("fusermount3: {status}"))) }
}

fn config(plan: &Plan) -> Config {
    let mut options = vec![
        MountOption::FSName(plan.source.clone()),
        // Not `Subtype`, which the crate passes to fusermount3 only.
        MountOption::CUSTOM("subtype=nextent".to_owned()),
        MountOption::DefaultPermissions,
        if plan.read_only { MountOption::RO } else { MountOption::RW },
    ];
    options.extend(plan.options.iter().map(|option| match option {
        KernelOption::Dev => MountOption::Dev,
        KernelOption::NoDev => MountOption::NoDev,
        KernelOption::Suid => MountOption::Suid,
        KernelOption::NoSuid => MountOption::NoSuid,
        KernelOption::Exec => MountOption::Exec,
        KernelOption::NoExec => MountOption::NoExec,
        KernelOption::NoAtime => MountOption::NoAtime,
        KernelOption::DirSync => MountOption::DirSync,
        KernelOption::Sync => MountOption::Sync,
    }));
    let mut config = Config::default();
    config.mount_options = options;
    config.acl = if plan.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(plan.threads.max(1));
    config.clone_fd = true;
    config
}
