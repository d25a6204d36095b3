//! The check must agree with e2fsck on which images are clean.

mod bounds;
mod clean_images;
mod debugfs_damage;
mod field_damage;
mod random_damage;
mod support;
mod valid_volumes;
