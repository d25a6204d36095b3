//! The structures of the FUSE protocol: decodes requests into calls of the server, and encodes
//! results as answers.
//!
//! A request has a common header ([`layout::InHeader`]), an argument structure of its kind (at most
//! [`OP`](nextent_fuse_sys::OP) bytes), and a rest: names and data. The rest and the answer share a
//! buffer, so the answer is written after the last use of the rest. The kernel is trusted except
//! for lengths: a request that is too short fails with EINVAL.
//!
//! Numbers are in the machine's byte order. Nanoseconds of times count forwards, also before 1970.

mod attributes;
mod call;
mod contents;
mod init;
mod layout;
mod listing;
mod names;
#[cfg(test)]
mod tests;

pub(crate) use call::{answer, count, is_answered, split};
pub(crate) use init::{Agreed, Offer, PAYLOAD};
pub(crate) use layout::{ForgetCachedOut, InHeader, Opcode, OutHeader};
