//! Requests of the kernel's FUSE over io_uring (Linux 6.14 and later): memory and commands.
//!
//! The kernel has a queue for each core, and a queue has entries: memory into which the kernel
//! puts one request and from which it takes its answer. A [`Ring`] is one thread's entries. It
//! lends an entry's memory to a function while the request is the server's and never while it is
//! the kernel's, and hands the answer in and waits for the next request in one system call. What
//! requests mean is not known here, nor how a mount is made. [`ThreadNo`] is how a thread that
//! serves a ring stands with the scheduler.
//!
//! Unsafe code is confined to the modules `class`, `entry` and `ring`.

#![deny(unsafe_code)]

mod class;
mod entry;
mod ring;

pub use class::{Class, ThreadNo, sleeps_of_caller};
pub use entry::{HEADER, OP, Request};
pub use ring::{Reply, Ring, usable};
