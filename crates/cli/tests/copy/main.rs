//! `cp`, `tar` and `mkfs -d` in every direction, checked by e2fsck, the kernel's mount and GNU tar.

mod coreutils;
mod dialects;
mod directions;
mod errors;
mod faked;
mod fitted_layers;
mod fitting;
mod habits;
mod host_trees;
mod layers;
mod names;
mod odd_streams;
mod overwriting;
mod owners;
mod pipes;
mod reproducible;
mod support;
mod torn;
