//! The protocol's own structures: requests to calls of the server, results to answers.
//!
//! A request is what all have ([`layout::InHeader`]), what those of its kind have (at most
//! [`OP`](nextent_fuse_sys::OP) bytes), and the rest: names and data. The rest and the answer share
//! memory, so an answer is put down after the last use of the rest. The kernel is believed, but
//! no length of it: what is too short is refused with EINVAL.
//!
//! Numbers are in the machine's byte order, times in seconds and nanoseconds that count forwards.

mod attributes;
mod call;
mod contents;
mod init;
mod layout;
mod listing;
mod names;
#[cfg(test)]
mod tests;

pub(crate) use call::{answer, is_answered, split};
pub(crate) use contents::is_write_back;
pub(crate) use init::{Agreed, Offer, PAYLOAD};
pub(crate) use layout::{InHeader, InvalInode, Opcode, OutHeader};
