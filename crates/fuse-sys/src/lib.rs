#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! The FUSE system layer: clones of `/dev/fuse`, and the memory and commands of FUSE over io_uring
//! (Linux 6.14 and later).
//!
//! Over io_uring the kernel has one request queue for each core. A queue has entries: memory into
//! which the kernel writes one request and from which it reads the reply. A [`Ring`] holds the
//! entries of one thread. One system call hands in replies and waits for requests.
//!
//! Invariants:
//!
//! - An entry's memory is borrowed by the server's function only between the completion of the
//!   entry's command and its next submission. The kernel owns it otherwise.
//! - This crate does not interpret requests and does not mount anything.
//! - Unsafe code is confined to the modules `clone`, `entry`, `inherited` and `ring`.

#![deny(unsafe_code)]

mod clone;
mod entry;
mod inherited;
mod ring;

pub use clone::clone_device;
pub use entry::{HEADER, OP, Request};
pub use inherited::duplicate;
pub use ring::{Reply, Ring, usable};
