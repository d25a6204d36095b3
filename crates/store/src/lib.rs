#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! Cached metadata blocks and atomic changes to them.
//!
//! Two layers:
//!
//! - `cache` holds the current image of every metadata block in use. It knows transactions only as
//!   marks on a block.
//! - `journal` decides which images belong to which transaction, makes transactions durable in
//!   jbd2's format, and checkpoints their blocks. Neither layer knows inodes: the objects that a
//!   commit renders into blocks come through [`Dirty`].
//!
//! A metadata change always happens under a [`Handle`]. File data does not pass through this crate.
#![forbid(unsafe_code)]

mod cache;
mod error;
mod flushes;
mod journal;
mod locks;
mod store;

pub use cache::{BLOCK_OVERHEAD, BlockRef, Buf, MetaBlock, Seal};
pub use error::{Error, Result};
#[doc(hidden)]
pub use journal::AdmissionFactory;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use journal::{Access, Admission, Joined, Joiner};
pub use journal::{
    Dirty, Handle, JournalRun, JournalStatistics, JournalUse, Phase, REVOKES_PER_CREDIT, Recovery,
    RenderSink, Reservation,
};
pub use store::{
    JournalSpec, JournalState, Store, StoreOptions, clear_journal_error, empty_log,
    inspect_journal, log_blocks, log_room, recover, supersede,
};
