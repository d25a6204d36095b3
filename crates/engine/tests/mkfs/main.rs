//! mkfs against mke2fs, e2fsck and the kernel.

mod args;
mod fill;
mod same_as_mke2fs;
mod valid;
