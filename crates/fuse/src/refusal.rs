//! Explains why the system refuses a mount, and what to do about it.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) const DEVICE: &str = "/dev/fuse";
/// The helper that mounts for users without root.
const HELPER: &str = "fusermount3";

/// Explains why opening [`DEVICE`] failed.
pub(crate) fn device(error: &io::Error) -> io::Error {
    let text = match (error.raw_os_error(), error.kind()) {
        (Some(libc::ENOENT), _) => {
            "is not there: load the module with `modprobe fuse`, or give the device to the \
             container (`--device /dev/fuse`)"
                .to_owned()
        }
        (Some(libc::ENODEV | libc::ENXIO), _) => {
            "belongs to no driver: load the module with `modprobe fuse`".to_owned()
        }
        (Some(libc::EPERM), _) => {
            "may not be opened: the control group of the container or service forbids the device \
             (`--device /dev/fuse`, DeviceAllow=)"
                .to_owned()
        }
        (_, ErrorKind::PermissionDenied) => not_for_user(Path::new(DEVICE)),
        _ => plain(error),
    };
    io::Error::new(error.kind(), format!("{DEVICE} {text}"))
}

/// Explains which users may open `node`.
fn not_for_user(node: &Path) -> String {
    let user = rustix::process::geteuid().as_raw();
    let Ok(meta) = std::fs::metadata(node) else {
        return format!("may not be reached by user {user}");
    };
    let (mode, owner, group) = (meta.permissions().mode() & 0o7777, meta.uid(), meta.gid());
    let (owner, name) = (named("/etc/passwd", owner), named("/etc/group", group));
    // Only where the group may open it.
    let join = match mode & 0o060 == 0o060 {
        true => format!("be in its group {name}, or "),
        false => String::new(),
    };
    format!(
        "may not be opened by user {user}: its mode is {mode:04o}, its owner {owner}, its group \
         {name}; {join}have root set the usual mode with `chmod 666 {}`",
        node.display()
    )
}

/// The name of a user or group in a table such as `/etc/group`; the number if it has none.
fn named(table: &str, number: u32) -> String {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let number = number.to_string();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).unwrap_or(&number).to_owned()
}

/// Explains why the kernel or [`HELPER`] refused to mount at `point`.
pub(crate) fn mounting(error: &io::Error, point: &Path) -> io::Error {
    let text = plain(error);
    let is = |number| error.raw_os_error() == Some(number);
    let says = |words: &str| text.contains(words);
    let root = rustix::process::geteuid().is_root();
    // The error is EACCES, too, where a directory of PATH may not be searched.
    let not_run = !root && (is(libc::ENOENT) || is(libc::EACCES));
    let (kind, line) = if not_run {
        let line = format!(
            "{HELPER} is not there or may not be run, which mounts for users without root: install \
            the package fuse3, or mount as root"
        );
        (ErrorKind::NotFound, line)
    } else if says("user_allow_other") {
        let line = "allow_other and allow_root are for root, unless /etc/fuse.conf has the line \
            `user_allow_other`";
        (ErrorKind::PermissionDenied, line.to_owned())
    } else if says("no write access") || says("not owned") || says("not owner") {
        let line = format!(
            "the mount point {} is not yours: without root it must be a directory that you own and \
             may write to",
            point.display()
        );
        (ErrorKind::PermissionDenied, line)
    } else if is(libc::EPERM) || says("Operation not permitted") {
        (ErrorKind::PermissionDenied, not_permitted(root))
    } else if is(libc::ENODEV) || says("No such device") {
        let line = "the kernel has no FUSE: load the module with `modprobe fuse`";
        (ErrorKind::NotFound, line.to_owned())
    } else {
        (error.kind(), text)
    };
    io::Error::new(kind, line)
}

/// Explains which right the caller of mount(2) lacks.
fn not_permitted(root: bool) -> String {
    let set_id = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o4000 != 0)
    };
    match in_path(HELPER) {
        Some(helper) if !root && !set_id(&helper) => format!(
            "{} is not set-user-ID root, so it may not mount: have root call `chmod u+s` on it, or \
             mount as root",
            helper.display()
        ),
        _ => "mount(2) is not permitted here: it needs CAP_SYS_ADMIN, which this container or \
              service does not have (`--cap-add SYS_ADMIN --device /dev/fuse`)"
            .to_owned(),
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH");
    let path = path.as_deref().unwrap_or(OsStr::new("/usr/bin:/bin"));
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|path| path.exists())
}

/// The text of an error without its number, on one line.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.trim().replace('\n', "; ")
}
