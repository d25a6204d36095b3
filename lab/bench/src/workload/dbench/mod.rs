//! `dbench`: a load file, replayed by each client in a tree of its own, over and over.
//!
//! Names are taken in small letters: the load comes from a server whose names had no case. Opens
//! that the load says failed must fail here too; what ends otherwise is counted and told. Times in
//! a load file are not kept: every client runs as fast as it can.

mod load;
mod replay;

pub(crate) use load::Load;
pub(crate) use replay::Dbench;
