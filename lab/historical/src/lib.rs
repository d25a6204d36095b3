//! The designs of ext3, ext4 and jbd2 since 2002, to be measured beside the present one.
//!
//! Each replaces a part of the engine through a seam of the engine. They differ in locks and
//! searches, never in the format on disk.
#![forbid(unsafe_code)]

pub mod gates;
