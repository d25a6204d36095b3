#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! ext4 and jbd2 on-disk structures as checked types over bytes.
//!
//! Invariants:
//!
//! - Everything is a pure function of bytes: no I/O, no locks, and no allocation whose size the
//!   bytes control.
//! - No input panics a parser. Bytes that break the format give a [`Corrupt`] that names structure,
//!   rule and value.
//! - No other crate of the workspace knows a field's offset or byte order.
//!
//! Each structure has one module: the raw fields with their names, the checks, and the checksum.
//! `docs/FORMAT.md` lists all fields in one place.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod capability;
pub mod checksum;
pub mod dirent;
mod error;
pub mod extent;
pub mod fast_commit;
mod features;
mod foreign;
pub mod fscrypt;
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
pub use foreign::{Foreign, Partition, PartitionTable, PartitionType};
pub use geometry::{Geometry, InodeLocation};
pub use group_desc::GroupDesc;
pub use ids::{BlockNo, FileBlock, GroupNo, InodeNo, Tid};
pub use inode::{FileType, Inode};
pub use superblock::Superblock;
pub use time::{DiskTime, MAX_SECONDS, MIN_SECONDS};
