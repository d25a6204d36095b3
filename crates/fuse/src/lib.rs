#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! A volume served as a mounted file system: translation only.
//!
//! [`Server`] speaks the FUSE protocol (nodes by number, counted lookups, error numbers) and calls
//! the engine. Its only state is its options and the files that may be mapped. A [`Transport`]
//! carries the kernel's requests to it: [`DeviceMount`] over `/dev/fuse`, [`RingMount`] over
//! io_uring. Both use the same implementation of the protocol. No rule of the file system is here.
//!
//! The kernel checks permissions: every mount has `default_permissions`, since requests do not name
//! their caller's groups. [`Admission`] decides which users may enter a mount at all.
#![forbid(unsafe_code)]

mod admission;
mod attachment;
mod connection;
mod control;
mod cores;
mod device;
mod device_mount;
mod errno;
mod forget_reader;
mod in_flight;
mod mount_table;
mod mounting;
mod node;
mod offer;
mod refusal;
mod registration;
mod request_counts;
mod ring_mount;
mod server;
mod setup;
mod space_wait;
mod statistics;
mod stream;
mod transport;
mod wire;
mod write_out;

pub use admission::{Admission, Allow};
pub use attachment::Attachment;
pub use control::Control;
pub use device_mount::DeviceMount;
pub use errno::Errno;
pub use mount_table::Mounted;
pub use mounting::{Detach, unmount};
pub use request_counts::{BOUNDS, BUCKETS};
pub use ring_mount::RingMount;
pub use server::{AccessTimes, Caller, Served, Server};
pub use setup::{BlockSource, MountError, MountFlag, Setup};
pub use statistics::RequestStatistics;
pub use transport::Transport;
