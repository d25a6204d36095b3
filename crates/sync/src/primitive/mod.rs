//! The seam between back ends: what the rest of the crate is built from.

mod real;

pub(crate) use real::*;
