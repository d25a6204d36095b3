//! Notifies systemd of the state of a service (`Type=notify`).

use std::ffi::OsStr;
use std::io::Result;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The mount is ready: services that need its files may start.
pub(super) const READY: &str = "READY=1\n";
/// The mount has ended; the image is being closed.
pub(super) const STOPPING: &str = "STOPPING=1\n";

/// Sends `state` to the service manager, if there is one. Errors are ignored.
pub(super) fn send_state(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&socket, state);
    }
}

fn send(socket: &OsStr, state: &str) -> Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}
