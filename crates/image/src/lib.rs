//! Builds ext4 images from directories and tar streams, and copies trees into and out of images.
//!
//! Start with [`ImageBuilder`]. [`sync::TreeSync`] brings an image to a directory. The module
//! [`transfer`] has the parts of which all copies are made.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Messages are the program's part: see `Observer`.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod accounts;
mod acl_text;
mod apply;
mod attributes;
mod build_error;
mod builder;
mod contents;
pub mod diff;
mod entered;
mod entry;
mod error;
pub mod escape;
mod fill;
mod fitting;
mod host_dirs;
mod host_sink;
mod host_source;
mod host_sys;
mod image_device;
mod image_sink;
mod image_source;
mod layer;
mod listing;
mod locks;
mod mktar;
mod name;
mod names;
mod observer;
mod oci;
mod packed;
mod plan;
mod queue;
mod report;
mod scratch;
mod sink;
mod source;
mod superseded;
pub mod sync;
mod tape;
mod tar_entries;
mod tar_header;
mod tar_number;
mod tar_path;
mod tarball;
mod trail;
pub mod transfer;
mod tree;
mod umask;
mod untar;
mod watch;
mod writers;

use attributes::Adjust;
use entry::{FileId, Kind, Meta};
use error::Result;
use host_source::{HostNode, HostSource};
use report::Report;
use sink::Sink;
use source::Source;
use transfer::PART;

pub use attributes::{
    Attributes, AttributesError, DeviceTable, FakerootState, FileContexts, FsConfig, IdMap,
    IdMapError, IdRange,
};
pub use build_error::BuildError;
pub use builder::{Built, Draft, ImageBuilder};
pub use contents::Contents;
pub use error::EntryError;
pub use listing::{ListedEntry, Listing, sorted};
pub use observer::{Observer, Problem};
pub use oci::LayoutError;
pub use umask::{creator, umask};

/// Bytes of a worker's buffer.
const BUFFER: usize = 1 << 20;
