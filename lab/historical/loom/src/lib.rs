//! The package of `tests/gates.rs`. It stands alone: the engine and its tests do not compile under
//! loom.
