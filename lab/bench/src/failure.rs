//! Errors of requests and runs.

use thiserror::Error;

/// The reason why there are no figures.
#[derive(Debug, Error)]
pub enum Failure {
    /// The request cannot be carried out. The line names the alternatives.
    #[error("{0}")]
    Usage(String),
    /// A run failed.
    #[error("{0}")]
    Broken(String),
}

impl Failure {
    /// A request that cannot be carried out.
    #[must_use]
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Something that broke.
    #[must_use]
    pub fn broken(text: impl Into<String>) -> Self {
        Self::Broken(text.into())
    }
}
