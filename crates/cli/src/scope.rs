//! Where the paths of a command lead.

use crate::failure::{Failure, Result};
use crate::image::{Image, Purpose};
use crate::location::{Inside, Location};
use crate::show;
use nextent::inodes::Inodes;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The images that the paths of a command lead into. Commands and the verbs of `edit` are the same
/// functions with different scopes.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'s> {
    /// Each path names its image, which the command opens: `IMAGE:/PATH`.
    EachPath,
    /// All paths lead into one open volume: `/PATH`.
    Open {
        /// The volume.
        volume: &'s Inodes,
        /// Its root directory.
        root: &'s Inside,
    },
}

impl Scope<'_> {
    /// The path in an image that `arg` is.
    ///
    /// # Errors
    /// An argument that is no such path.
    pub(crate) fn inside(self, arg: &OsStr) -> Result<Inside> {
        let Self::Open { root, .. } = self else { return Inside::parse(arg) };
        if !arg.as_bytes().starts_with(b"/") {
            let shown = show::path(arg);
            return Err(Failure::usage(format!("{shown}: paths begin with a slash: /{shown}")));
        }
        Ok(Inside { path: arg.as_bytes().to_vec(), ..root.clone() })
    }

    /// The file that `arg` is; it may be a path of the host if each path names its image.
    ///
    /// # Errors
    /// As [`inside`](Self::inside).
    pub(crate) fn location(self, arg: &OsStr) -> Result<Location> {
        match self {
            Self::EachPath => Location::parse(arg),
            Self::Open { .. } => self.inside(arg).map(Location::Image),
        }
    }

    /// Runs `read` with the volume of `inside`.
    ///
    /// # Errors
    /// Those of opening the image, and of `read`.
    pub(crate) fn read<T>(
        self,
        inside: &Inside,
        read: impl FnOnce(&Inodes) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::EachPath => read(&Image::of(inside, Purpose::Read)?.volume),
            Self::Open { volume, .. } => read(volume),
        }
    }

    /// Runs `change` with the volume of `inside`. Closes the image if it opened it, also after an
    /// error: the operations that were complete before the error stay.
    ///
    /// # Errors
    /// Those of opening and closing the image, and of `change`.
    pub(crate) fn change<T>(
        self,
        inside: &Inside,
        change: impl FnOnce(&Inodes) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::EachPath => Image::change(inside, change),
            Self::Open { volume, .. } => change(volume),
        }
    }
}
