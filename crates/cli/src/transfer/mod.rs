//! Copies of trees between the host, images and tar streams, on all cores.
//!
//! A copy has a [`Source`], a [`Sink`], and one of four engines between them:
//!
//! | engine | from | to | order |
//! |---|---|---|---|
//! | [`tree`] | host, image | host, image | none: each worker takes the next job |
//! | [`mod@plan`] | host | new image, before it is written | one thread makes names and allocates, workers copy bytes |
//! | [`untar`] | tar stream | image | one thread reads headers, workers write contents |
//! | [`mktar`] | image | tar stream | one thread writes by name, workers read ahead |
//!
//! Rules:
//!
//! - Sources are copied in the order in which they are given; the last one wins. Workers share only
//!   the work of one source.
//! - An inode of the target has at most one writer at a time ([`writers`]). A file is open while it
//!   is written, so its number cannot be reused.
//! - An entry of a stream that replaces, links or removes a name first waits for the writers of
//!   the file with that name.
//! - Attributes are applied in one place for images ([`apply`]) and in one for the host
//!   ([`host_sink`]), after the data: owner, mode, access lists, other attributes, times.
//! - Pipes, devices and directories are never removed for a file; a symbolic link is replaced.
//! - Holes and hard links are kept. A directory gets its attributes after its contents.
//! - The target is checked before a source is opened, which waits if the source is a pipe.
//! - A name from an image must be one component of a path ([`name`]); other entries are refused.
//! - A failed entry is one line on standard error, and the copy goes on; a full disk ends it.
//! - Queues bound memory, not the size of the tree. Exceptions: a record for each file with names
//!   to come, a record for each directory of a tar stream, and a number for each directory of a
//!   source image.
//! - A directory of an image is entered once: in a damaged image it may have several names or be
//!   below itself ([`entered`]).
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
mod host_sys;
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

/// The most bytes of a job; larger files are copied in parts of this size.
pub(crate) const PART: u64 = 8 << 20;
/// Bytes of a worker's buffer.
pub(crate) const BUFFER: usize = 1 << 20;
