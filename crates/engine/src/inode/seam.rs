//! The seam of direct writes: which lock a replacement takes, and what the engine lends it.
//!
//! Only a build with the feature `lab` has this module.
//!
//! A replaced write takes the inode's lock shared or exclusively, finds out by [`Write::extents`]
//! where its data goes, and holds the lock until its data is on the device. A queue releases the
//! lock once the transfer is in flight, and counts the transfer instead (`rw_lock::word_count`). An
//! exclusive holder that shortens the file waits for those transfers too.

#![allow(missing_debug_implementations)] // guards and borrows of the inside

use super::rw_lock::Plan;
use super::{Fs, Inode};
use crate::alloc::Window;
use crate::cred::Cred;
use crate::error::Result;
use nextent_sync::{Arc, BiasedRwLockReadGuard, BiasedRwLockWriteGuard};
use std::fmt;
use std::ops::Range;

/// How the direct writes of a volume begin: the engine's way, or a replacement's.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectChoice(Option<&'static dyn DirectWrites>);

impl DirectChoice {
    /// Direct writes begin as `rule` says.
    #[must_use]
    pub fn replaced(rule: &'static dyn DirectWrites) -> Self {
        Self(Some(rule))
    }

    #[inline]
    pub(crate) fn get(self) -> Option<&'static dyn DirectWrites> {
        self.0
    }
}

/// A rule by which direct writes begin.
pub trait DirectWrites: fmt::Debug + Send + Sync {
    /// Takes the file's lock and finds out where the data of `write` goes.
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) where the write must not wait; the errors of
    /// [`Write`].
    fn begin<'i>(&self, write: &Write<'i>) -> Result<Begun<'i>>;
}

/// A direct write that is about to begin. Its methods take the file's lock and look up its map.
pub struct Write<'i> {
    pub(crate) fs: &'i Fs,
    pub(crate) cred: &'i Cred,
    pub(crate) inode: &'i Arc<Inode>,
    pub(crate) range: Range<u64>,
    pub(crate) may_wait: bool,
    pub(crate) has_transfers: bool,
}

/// Properties of the blocks that a write covers.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// The range begins and ends at block boundaries.
    pub aligned: bool,
    /// The blocks are one run on the device.
    pub one_run: bool,
    /// Some blocks are unwritten.
    pub unwritten: bool,
}

/// The inode's lock, held.
pub enum Held<'i> {
    /// Held shared.
    Shared(BiasedRwLockReadGuard<'i, Window>),
    /// Held exclusively; other transfers may be in flight.
    Exclusive(BiasedRwLockWriteGuard<'i, Window>),
}

/// How a write began.
pub enum Begun<'i> {
    /// The data may be written as the plan says.
    Planned(Held<'i>, Plan),
    /// The exclusive holder does the whole write; no transfer is in flight.
    ExclusiveDrained(BiasedRwLockWriteGuard<'i, Window>),
    /// It did not: the caller has transfers in flight and would have to wait for a lock.
    Blocked,
}
