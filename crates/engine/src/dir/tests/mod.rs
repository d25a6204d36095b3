//! Directories against models.

mod basic;
mod fake;
mod hostile;
mod model;
mod oracle;

/// A hash seed under which names have one of four hashes only.
pub(super) const COLLIDE: [u32; 4] = [0xc0111de; 4];
