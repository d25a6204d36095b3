//! Why a run cannot be done, or was done and is not good.

use thiserror::Error;

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum Failure {
    /// What was asked for cannot be: the line says what can.
    #[error("{0}")]
    Usage(String),
    /// Something broke on the way.
    #[error("{0}")]
    Broken(String),
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn broken(text: impl Into<String>) -> Self {
        Self::Broken(text.into())
    }
}
