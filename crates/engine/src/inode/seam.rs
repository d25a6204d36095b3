//! The seam of direct writes: by which lock a replacement begins them, and what it is lent.
//!
//! Only a build with the feature `lab` has this module.
//!
//! A write of a replacement takes the inode's lock shared or exclusively, finds out by
//! [`Write::extents`] where its data goes, and keeps the lock until its data is on the device. A
//! queue lets the lock go when the transfer is under way and counts the transfer instead
//! (`long::counted`). An exclusive holder that cuts the file waits for counted transfers too.

#![allow(missing_debug_implementations)] // guards and borrows of the inside

use super::long::Plan;
use super::{Fs, Inode};
use crate::alloc::Window;
use crate::cred::Cred;
use crate::error::Result;
use nextent_sync::{Arc, BiasedRwLockReadGuard, BiasedRwLockWriteGuard};
use std::fmt;
use std::ops::Range;

/// How the direct writes of a volume begin: as the engine's own, or as a replacement's.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectChoice(Option<&'static dyn DirectWrites>);

impl DirectChoice {
    /// Writes begin as `rule` says.
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
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) where the write may not wait; those of
    /// [`Write`].
    fn begin<'i>(&self, write: &Write<'i>) -> Result<Begun<'i>>;
}

/// A direct write that is to begin. Its methods are the locks that it may take and what it may
/// ask of the file's map.
pub struct Write<'i> {
    pub(crate) fs: &'i Fs,
    pub(crate) cred: &'i Cred,
    pub(crate) inode: &'i Arc<Inode>,
    pub(crate) range: Range<u64>,
    pub(crate) may_wait: bool,
    pub(crate) has_transfers: bool,
}

/// What the range of a write is made of.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// Whole blocks of the file.
    pub aligned: bool,
    /// One run of the device.
    pub one_run: bool,
    /// Some blocks are unwritten.
    pub unwritten: bool,
}

/// The inode's lock.
pub enum Held<'i> {
    /// Held shared.
    Shared(BiasedRwLockReadGuard<'i, Window>),
    /// Held exclusively, while transfers of others may be in flight.
    Exclusive(BiasedRwLockWriteGuard<'i, Window>),
}

/// How a write began.
pub enum Begun<'i> {
    /// The data may go where the plan says.
    Planned(Held<'i>, Plan),
    /// All is to be done by the exclusive holder, with no transfer in flight.
    Alone(BiasedRwLockWriteGuard<'i, Window>),
    /// Not at all: the caller has transfers in flight and would have to wait for a lock.
    Blocked,
}
