//! The engine under turns by chance: a model checker for whole operations.
//!
//! A *schedule* is a number. From it come a tiny volume, three threads with a few operations
//! each, who has which turn at every step (see `nextent_sync::sim`), and where the power is cut
//! afterwards. The store's own threads commit in between. Judged are:
//!
//! - what each thread finds in its own directory, against a model in memory (`worker`);
//! - what all did to one directory they share: some order of the calls must explain all answers
//!   (`linear`);
//! - the volume: our check, e2fsck now and then, and the counts of free space (`judge`);
//! - where the volume is closed beside the operations, that the closed image has what they reported
//!   as done (`closed`);
//! - an image that a power cut could have left, recovered (`crash`);
//! - calls by users without rights and by old numbers, beside access lists that come and go and
//!   directories that are removed while they are open (`unlocked`);
//! - that no damage is noted of a volume that has none;
//! - that somebody can always go on.
//!
//! The same number gives the same schedule. In a build with the feature `mutants` a bug can be
//! injected by its name (`bugs`); `nextent-lab mutants` checks that schedules find each of them.

#![forbid(unsafe_code)]

pub mod bugs;
mod closed;
mod crash;
mod explore;
mod image;
mod judge;
mod linear;
mod plan;
mod promise;
mod schedule;
mod unlocked;
mod worker;

pub use explore::{Passed, explore};
pub use image::Bases;
pub use schedule::{Failure, run};
