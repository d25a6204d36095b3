//! `cp`, `tar` and `mkfs -d`: every direction, judged by e2fsck, the kernel's mount and GNU tar.

mod coreutils;
mod dialects;
mod directions;
mod errors;
mod names;
mod overwriting;
mod reproducible;
mod support;
mod torn;
