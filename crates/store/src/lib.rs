//! Placeholder of the crate's documentation; see Cargo.toml.
