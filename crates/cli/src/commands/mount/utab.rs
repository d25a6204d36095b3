//! An entry in util-linux's own table of mounts, so that umount(8) calls our helper.
//!
//! The kernel lets `umount(2)` return before a FUSE server has closed its image. The helper
//! waits for that (see [`unmount`](super::unmount)), but umount(8) looks for the helper of a
//! FUSE file system's full type only if the mount has an entry in `/run/mount/utab`. mount(8) and
//! umount(8) write that table themselves here, with nothing else done, since it is theirs and has
//! its locks.
//!
//! An entry lives from the mount to the server's end. Without root, without the helper in its
//! place or without util-linux there is none, and `umount` does not wait.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What umount(8) calls for the type below.
const HELPER: &str = "/sbin/umount.fuse.nextent";

/// The type of our mounts.
const TYPE: &str = "fuse.nextent";

/// An entry; removed when dropped.
pub(super) struct Entry(PathBuf);

impl Entry {
    /// Enters the mount of `source` at `point`, if umount(8) can make use of that.
    pub(super) fn new(source: &str, point: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new(HELPER).exists() {
            return None;
        }
        let point = point.canonicalize().ok()?;
        let how = format!("uhelper={TYPE}");
        let mut mount = only_the_table("mount");
        mount.args(["-t", TYPE, "-o", &how, "--", source]).arg(&point);
        done(mount).then_some(Self(point))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut umount = only_the_table("umount");
        umount.arg("--").arg(&self.0);
        // umount(8) may have been first.
        done(umount);
    }
}

/// `program`, which shall change its table only: no helper, no system call, no look at the paths.
fn only_the_table(program: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["-i", "--fake", "--no-canonicalize"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn done(mut command: Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
