//! Compares maps with a naive model, in small geometries, with exact credits.

mod fixture;
mod hostile;
mod images;
mod model;
mod sequences;
mod torture;

pub(super) use fixture::geometry;
