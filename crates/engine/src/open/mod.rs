//! Opens and closes volumes.
//!
//! Opening takes these steps in order:
//!
//! | step | may write | module |
//! |---|---|---|
//! | read the superblock, check it, refuse unknown features | no | `lifecycle`, `supported` |
//! | with a backup of the superblock: put it in place in memory | no | `backup` |
//! | find the journal; replay it and its fast commits, into memory for a read-only volume | yes | `journal`, `replay`, `fast_commit` |
//! | mark the volume in use, outside of any transaction | yes | `lifecycle` |
//! | build the layers from the journal to the inodes; nothing is read before it is needed | no | `lifecycle` |
//! | free or truncate orphans, in transactions | yes | `orphans` |
//!
//! `remount` makes an open volume read-only, and writable again. `staged` applies changes of a
//! volume all or not at all.

mod backup;
mod fast_commit;
mod journal;
mod lifecycle;
mod options;
mod orphans;
mod remount;
mod replacements;
mod replay;
mod staged;
mod supported;

pub(crate) use journal::{Located, locate as locate_journal};
pub(crate) use lifecycle::{read_super, write_super};
pub use options::OpenOptions;
pub use replacements::Replacements;
pub(crate) use replay::fast_commits;
pub use staged::{Applied, Staged};
