//! Blocks and inode numbers.
mod bits;
mod buddy;
#[cfg(test)]
mod buddy_model;
