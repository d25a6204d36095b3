//! The scratch directory and the mounts in it, which are unmounted in any case.

use super::steps::Steps;
use crate::shell::command;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A directory for all files. When dropped, everything that is mounted below is unmounted.
pub(super) struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    pub(super) fn new() -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("nextent-overlay-").tempdir();
        Ok(Self(Some(dir.map_err(|error| error.to_string())?)))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.as_ref().expect("only a drop takes it").path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(dir) = self.0.take() else { return };
        unmount_below(dir.path());
        if is_below(dir.path()) {
            // To remove the directory would remove the files of the mount.
            let kept = dir.keep();
            eprintln!("{} is left: something is still mounted in it", kept.display());
        }
    }
}

/// Detaches all mounts at and below `dir`, the newest first.
pub(super) fn unmount_below(dir: &Path) {
    for point in points(dir).iter().rev() {
        let _ = command("umount", ["-l", point]).output();
    }
}

/// Whether something is mounted at or below `dir`.
pub(super) fn is_below(dir: &Path) -> bool {
    !points(dir).is_empty()
}

fn points(dir: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(dir)).map(str::to_owned).collect()
}

/// A server in the foreground, and its mount.
pub(super) struct Served {
    server: Child,
    point: PathBuf,
}

impl Served {
    /// Mounts at `point` by `command`.
    pub(super) fn start(mut command: Command, point: &Path, steps: &Steps) -> Result<Self, String> {
        let server = command.spawn().map_err(|error| error.to_string())?;
        let mut served = Self { server, point: point.into() };
        steps.wait_until("mount", || match served.server.try_wait() {
            Ok(None) => Ok(is_below(&served.point)),
            Ok(Some(status)) => Err(format!("the server ended: {status}")),
            Err(error) => Err(error.to_string()),
        })?;
        Ok(served)
    }

    /// Unmounts, and waits for the server, which must succeed.
    pub(super) fn unmount(mut self, steps: &Steps) -> Result<(), String> {
        steps.run("umount of the mount", command("umount", [&self.point]))?;
        let mut ended = None;
        steps.wait_until("the server's end", || {
            ended = self.server.try_wait().map_err(|error| error.to_string())?;
            Ok(ended.is_some())
        })?;
        match ended {
            Some(status) if !status.success() => Err(format!("the server ended: {status}")),
            _ => Ok(()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server has ended, unless something has failed. It is killed first: commands that wait
        // for its answers, and the overlay above it, could not end otherwise.
        if !matches!(self.server.try_wait(), Ok(Some(_))) {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }
}
