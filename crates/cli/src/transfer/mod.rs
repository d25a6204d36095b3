//! Copies of trees between the host, images and tar streams, on all cores.
//!
//! A copy has a [`Source`] and a [`Sink`] and one of four engines between them:
//!
//! | engine | from | to | order |
//! |---|---|---|---|
//! | [`tree`] | host, image | host, image | none: each worker takes what there is |
//! | [`plan`] | host | new image, before it is written | one thread makes names and places, workers move bytes |
//! | [`untar`] | tar stream | image | one thread reads headers, workers write contents |
//! | [`mktar`] | image | tar stream | one thread writes by name, workers read ahead |
//!
//! Rules:
//!
//! - Sources take effect in the order in which they are given; the last one wins. Workers share
//!   only what belongs to one source.
//! - An inode of the target has at most one writer at a time ([`writers`]). A file is open while it
//!   is written, so its number cannot become another file's.
//! - An entry of a stream that replaces, links or removes a name first waits for the writers of
//!   what the name led to.
//! - Attributes are applied in one place for images ([`apply`]) and in one for the host
//!   ([`host_sink`]), after the data: owner, mode, access lists, other attributes, times.
//! - What is no regular file is never removed to be written; a symbolic link is replaced.
//! - Holes stay holes, names of one file stay names of one file, a directory gets its attributes
//!   after everything in it.
//! - A name that comes out of an image is one component of a path ([`name`]); the entry is refused
//!   otherwise.
//! - An entry that fails is one line on standard error and the rest goes on; a full disk ends
//!   everything. Memory is bounded by queues, not by the tree (but for one record for each file
//!   that still has names to come, for each directory of a tar stream, and a number for each
//!   directory of an image that is read).
//! - A directory of an image is entered once: in a damaged one it may have several names or lie
//!   below itself ([`Entered`]).
//!
//! Locks: [`locks`]; none is held while a source or a sink is called.

mod acl_text;
mod apply;
mod entered;
mod entry;
mod fill;
mod host_dirs;
mod host_sink;
mod host_source;
mod image_sink;
mod image_source;
mod locks;
mod mktar;
mod name;
mod plan;
mod progress;
mod queue;
mod report;
mod sink;
mod source;
mod tar_header;
mod tar_number;
mod tarball;
mod trail;
mod tree;
mod trouble;
mod untar;
mod writers;

pub(crate) use entry::{FileId, Kind, Meta};
pub(crate) use fill::FillSink;
pub(crate) use host_sink::{HostDir, HostSink};
pub(crate) use host_source::{HostNode, HostSource, id as host_id};
pub(crate) use image_sink::{ImageDir, ImageSink};
pub(crate) use image_source::{ImageNode, ImageSource};
pub(crate) use mktar::{Packing, pack};
pub(crate) use plan::plan;
pub(crate) use progress::Progress;
pub(crate) use report::Report;
pub(crate) use sink::Sink;
pub(crate) use source::Source;
pub(crate) use tree::{Links, Tree};
pub(crate) use trouble::{Result, Trouble};
pub(crate) use untar::{Unpacking, unpack};

/// Most bytes moved at once; larger files are shared out in parts of this size.
pub(crate) const PART: u64 = 8 << 20;
/// Bytes of one worker's buffer.
pub(crate) const BUFFER: usize = 1 << 20;
