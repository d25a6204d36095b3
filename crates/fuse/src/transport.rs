//! The interface of a transport, which carries a kernel's requests to a [`Server`].

use std::io;
use std::path::Path;

use nextent_sync::Arc;

use crate::Server;
use crate::attachment::Attachment;
use crate::setup::{MountError, Setup};

/// Carries a kernel's requests to a server, from mounting to unmounting.
pub trait Transport: Sized {
    /// Says why there can be no mount at `point`, as far as that is known beforehand. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`MountError::Point`] and [`MountError::NoFuse`].
    fn check(point: &Path) -> Result<(), MountError>;

    /// Mounts. From here on the kernel queues requests; [`serve`](Self::serve) answers them.
    ///
    /// # Errors
    /// Why there is no mount.
    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError>;

    /// The mount point and the connection.
    fn attachment(&self) -> Arc<Attachment>;

    /// Answers requests, on [`Setup::threads`] threads, until the mount is unmounted by any
    /// process.
    ///
    /// # Errors
    /// Why serving ended early.
    fn serve(self) -> io::Result<()>;
}
