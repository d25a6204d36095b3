//! A volume served over FUSE.
//!
//! Promises:
//! - every request becomes one call of the library, on the thread that read it; nothing here is
//!   locked or kept between requests but the volume itself;
//! - the kernel checks permissions (it knows the caller's groups, the server does not) and owns
//!   the page cache; the server is the only one who changes the image, so the kernel may keep
//!   names and attributes for long;
//! - a file without names lives until its last close;
//! - error numbers are made in `errno` and nowhere else in this crate.
//!
//! [`Transport`] is how requests come in. [`Fuser`] is the one there is, over /dev/fuse.
//!
//! ```no_run
//! # use nextent_fuse::MountError;
//! # fn example(volume: nextent_sync::Arc<nextent::Volume>) -> Result<(), MountError> {
//! use nextent_fuse::{Fuser, Plan, Serving, Transport};
//! let plan = Plan::new("/mnt".into(), "disk.img".into());
//! let mounted = Fuser.mount(volume.clone(), &plan)?;
//! mounted.serve()?; // until it is unmounted
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod convert;
mod errno;
mod requests;
mod server;
mod transport;

pub use transport::{Fuser, KernelOption, MountError, Plan, Serving, Stopper, Transport};
