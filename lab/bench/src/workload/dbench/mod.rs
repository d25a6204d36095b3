//! `dbench`: each client replays a load file again and again in a tree of its own.
//!
//! Names become lower case, since the load was recorded on a server that ignores case. An operation
//! that failed in the load must fail here, too; the report counts different results. The replay
//! ignores the times in a load file: each client runs as fast as it can.

mod load;
mod replay;

pub(crate) use load::Load;
pub(crate) use replay::Dbench;
