//! What systemd is told of a service that says itself how far it is (`Type=notify`).

use std::ffi::OsStr;
use std::io::Result;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Mounted: whoever needs the files may start.
pub(super) const READY: &str = "READY=1\n";
/// The mount has ended; the image is being closed.
pub(super) const STOPPING: &str = "STOPPING=1\n";

/// Tells whoever started this, if they want to know. That it cannot be told changes nothing.
pub(super) fn tell(state: &str) {
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
