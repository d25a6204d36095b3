//! ext4 and jbd2 structures as checked types over bytes.
//!
//! Everything here is a pure function of bytes: no I/O, no locks, no allocation that the bytes
//! could make large. Any bytes may come in; none make it panic. What does not fit the format is a
//! [`Corrupt`] that names structure, rule and value. No other crate of the workspace knows where a
//! field lies or in which byte order.
//!
//! Each structure has one module: raw bytes with names, checks, and its checksum. `docs/FORMAT.md`
//! lists the bytes in one place.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod checksum;
pub mod dirent;
mod error;
pub mod extent;
pub mod fast_commit;
mod features;
mod foreign;
mod geometry;
pub mod group_desc;
pub mod htree;
mod ids;
pub mod indirect;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod numbers;
pub mod orphan;
pub mod superblock;
#[cfg(test)]
mod testing;
mod time;
pub mod xattr;

pub use error::{Corrupt, CorruptKind, CorruptLocation, Structure};
pub use features::{Compat, FeatureBit, Features, Incompat, RoCompat, UnknownFeature};
pub use foreign::{Foreign, Partition, PartitionTable};
pub use geometry::{Geometry, InodeLocation};
pub use group_desc::GroupDesc;
pub use ids::{BlockNo, FileBlock, GroupNo, InodeNo, Tid};
pub use inode::{FileType, Inode};
pub use superblock::Superblock;
pub use time::{DiskTime, MAX_SECONDS, MIN_SECONDS};
