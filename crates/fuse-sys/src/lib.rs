#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! The FUSE system layer: the memory, commands and scheduling calls of FUSE over io_uring (Linux
//! 6.14 and later).
//!
//! The kernel has one request queue for each core. A queue has entries: memory into which the
//! kernel writes one request and from which it reads the reply. A [`Ring`] holds the entries of one
//! thread. One system call hands in replies and waits for requests.
//!
//! Invariants:
//!
//! - An entry's memory is borrowed by the server's function only between the completion of the
//!   entry's command and its next submission. The kernel owns it otherwise.
//! - This crate does not interpret requests and does not mount anything.
//! - Unsafe code is confined to the modules `class`, `entry` and `ring`.
//!
//! [`ThreadNo`] sets the scheduling class and the cores of a thread that serves a ring.

#![deny(unsafe_code)]

mod class;
mod entry;
mod ring;

pub use class::{Class, ThreadNo, sleeps_of_caller};
pub use entry::{HEADER, OP, Request};
pub use ring::{Reply, Ring, usable};
