//! Images mounted over FUSE by the command itself: every operation against the model, trees,
//! processes side by side, kills, bad input. Needs root and /dev/fuse.

mod errors;
mod faults;
mod kills;
mod operations;
mod support;
mod trees;
mod words;
