//! Random schedules: a model checker for whole operations of the engine.
//!
//! A *schedule* is a number. It determines a small volume, three threads with a few operations
//! each, which thread runs at each step (see `nextent_sim`), and where the power is cut
//! afterwards. The store's own threads commit in between. The oracles are:
//!
//! | oracle | module |
//! |---|---|
//! | a model in memory of each thread's own directory | `worker` |
//! | linearizability of the calls on a shared directory | `linearizability` |
//! | our check, sometimes e2fsck, and the counts of free space | `judge` |
//! | the image of a volume that is closed during the operations | `closed` |
//! | the recovered image after a power cut, and what fsync guarantees | `crash`, `durability` |
//! | permission checks and calls by stale inode numbers during changes | `unlocked` |
//! | no sound volume reports damage | `schedule` |
//! | no deadlock: some thread can always run | `nextent_sim` |
//!
//! The same number gives the same schedule. In a build with the feature `mutants` a bug can be
//! injected by its name (`bugs`); `nextent-lab mutants` checks that schedules find each of them.

#![forbid(unsafe_code)]

mod base_volumes;
pub mod bugs;
mod closed;
mod crash;
mod durability;
mod explore;
mod judge;
mod linearizability;
mod plan;
mod schedule;
mod unlocked;
mod worker;

pub use base_volumes::BaseVolumes;
pub use explore::{Passed, explore};
pub use schedule::{Failure, run};
