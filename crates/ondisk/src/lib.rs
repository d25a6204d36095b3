//! ext4 and jbd2 structures as checked types over bytes.
#![forbid(unsafe_code)]

mod ids;

pub use ids::{BlockNo, FileBlock, GroupNo, InodeNo, Tid};
