//! The checker held against e2fsck: clean where it is clean, not clean where it is not.

mod agree;
mod bounds;
mod clean;
mod directed;
mod named;
mod sound;
mod support;
