//! A volume served as a mounted file system: translation only.
//!
//! [`Server`] speaks the language of the kernel's file system in user space (nodes by number,
//! lookups that are counted, error numbers) and calls the engine; it has no locks and no state of
//! its own but options and what it has to tell the kernel late. A [`Transport`] carries the
//! kernel's requests to it: [`FuserMount`] and [`DirectMount`] over `/dev/fuse`, [`RingMount`] over
//! io_uring. No rule of the file system lives here.
//!
//! Permissions are the kernel's: every mount has `default_permissions`, since requests do not say
//! which groups their caller belongs to. Who may enter a mount at all is decided in one place,
//! [`Admission`].
#![forbid(unsafe_code)]

mod admission;
mod cores;
mod device;
mod direct_mount;
mod errno;
mod kernel;
mod mount;
mod node;
mod offer;
mod refusal;
mod rings;
mod sentry;
mod server;
mod stream;
mod table;
mod transport;
mod wire;

pub use admission::{Admission, Allow};
pub use direct_mount::DirectMount;
pub use errno::Errno;
pub use mount::FuserMount;
pub use rings::RingMount;
pub use server::{Caller, Served, Server};
pub use table::Mounted;
pub use transport::{BlockSource, MountError, MountFlag, Setup, Transport, Unmount};
