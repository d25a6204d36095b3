//! A cell written once, whose initialiser may contain scheduling points.

use super::Mutex;
use crate::primitive::constant;
use std::fmt;

/// A cell that is written at most once, as [`std::sync::OnceLock`].
///
/// The standard one would block the whole model if a second thread came while the first runs the
/// initialiser.
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// Held while initialising.
    writer: Mutex<()>,
}

impl<T> OnceLock<T> {
    constant! {
        /// An empty cell.
        pub const fn new() -> Self {
            Self { value: std::sync::OnceLock::new(), writer: Mutex::new(()) }
        }
    }

    /// The value, if there is one yet.
    pub fn get(&self) -> Option<&T> {
        // By this lock loom knows that the reader sees what the writer did.
        #[cfg(feature = "model-loom")]
        drop(self.writer.lock());
        self.value.get()
    }

    /// The value by exclusive ownership, if there is one yet.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// Writes the value.
    ///
    /// # Errors
    /// Returns `value` if the cell has one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _writer = self.writer.lock();
        self.value.set(value)
    }

    /// The value, made by `f` if there is none yet; other threads wait meanwhile.
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _writer = self.writer.lock();
        // The lock keeps other threads out.
        self.value.get_or_init(f)
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
