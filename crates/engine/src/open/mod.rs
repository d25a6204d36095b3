//! From a device to a volume: gate, recovery, orphans; and back to a clean image.
//!
//! | step | may write |
//! |---|---|
//! | read and check the superblock, refuse what is not understood | no |
//! | find the journal, replay it and its fast commits (into memory when the volume is only read) | yes |
//! | mark the volume in use, outside of any transaction | yes |
//! | build the floors; nothing is read that does not have to be | no |
//! | finish orphans, in transactions | yes |

mod fast_commit;
mod journal;
mod lifecycle;
mod options;
mod orphans;
mod replay;
mod supported;

pub(crate) use lifecycle::read_super;
pub use options::OpenOptions;
pub(crate) use replay::fast_commits;
