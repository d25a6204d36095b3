//! mkfs against mke2fs, e2fsck and the kernel.

mod args;
mod same;
mod valid;
