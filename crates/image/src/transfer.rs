//! Copies of trees between the host, images and tar streams, on all cores.
//!
//! A copy has a [`Source`], a [`Sink`], and one of four engines between them:
//!
//! | engine | from | to | order |
//! |---|---|---|---|
//! | `tree` | host, image | host, image | none: each worker takes the next job |
//! | `plan` | host | new image, before it is written | one thread makes names and allocates, workers copy bytes |
//! | `untar` | tar stream | image | one thread reads headers, workers write contents |
//! | `mktar` | image | tar stream | one thread writes by name, workers read ahead |
//!
//! Rules:
//!
//! - Sources are copied in the order in which they are given; the last one wins. Workers share only
//!   the work of one source.
//! - An inode of the target has at most one writer at a time (`writers`). A file is open while it
//!   is written, so its number cannot be reused.
//! - An entry of a stream that replaces, links or removes a name first waits for the writers of
//!   the file with that name.
//! - Attributes are applied in one place for images (`apply`) and in one for the host
//!   (`host_sink`), after the data: owner, mode, access lists, other attributes, times.
//! - Pipes, devices and directories are never removed for a file; a symbolic link is replaced.
//! - Holes and hard links are kept. A directory gets its attributes after its contents.
//! - The target is checked before a source is opened, which waits if the source is a pipe.
//! - A name from an image must be one component of a path (`name`); other entries are refused.
//! - A failed entry is a call of the [`Observer`](crate::Observer), and the copy goes on; a full
//!   disk ends it.
//! - Queues bound memory, not the size of the tree. Exceptions: a record for each file with names
//!   to come, a record for each directory of a tar stream, and a number for each directory of a
//!   source image.
//! - A directory of an image is entered once: in a damaged image it may have several names or be
//!   below itself (`entered`).
//!
//! Locks: `locks.rs`; none is held while a source or a sink is called.

pub use crate::attributes::Adjust;
pub use crate::entry::{FileId, Kind, Meta, Xattr};
pub use crate::error::Result;
pub use crate::fill::{FillFile, FillSink};
pub use crate::host_sink::{HostDir, HostFile, HostName, HostSink};
pub use crate::host_source::{HostNode, HostSource, id as host_id};
pub use crate::image_sink::{ImageDir, ImageFile, ImageSink};
pub use crate::image_source::{ImageNode, ImageSource};
pub use crate::mktar::{Packing, pack};
pub use crate::plan::{KeptListings, measure, plan};
pub use crate::report::Report;
pub use crate::sink::{Created, Made, Order, Sink};
pub use crate::source::Source;
pub use crate::tree::{Links, Tree};
pub use crate::untar::{Extractable, Unpacking, unpack};

/// The most bytes of a job; larger files are copied in parts of this size.
pub const PART: u64 = 8 << 20;
