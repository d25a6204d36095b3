//! Resizes volumes of many kinds. After each resize e2fsck and the check find nothing, and the tree
//! is the one from before.
//!
//! | module | what it tries |
//! |---|---|
//! | `matrix` | features and sizes; counts as resize2fs makes them |
//! | `minimum` | the fewest blocks |
//! | `crash` | power cuts |
//! | `faults` | reads, writes and flushes that fail |
//! | `hostile` | damaged images |
//! | `random` | sequences of resizes and changes of files |

#[path = "../common/mod.rs"]
mod common;
#[path = "../damage/mod.rs"]
mod damage;

mod contents;
mod crash;
mod faults;
mod files;
mod hostile;
mod matrix;
mod minimum;
mod random;
mod volume;
