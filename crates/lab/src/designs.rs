//! The designs that can be chosen.

/// A design, as a person chooses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// When it came.
    pub date: String,
    /// What it changes.
    pub change: String,
}

/// The name of the design that is used unless another is chosen.
#[must_use]
pub fn default_name() -> &'static str {
    "nextent"
}

/// All designs, by date.
#[must_use]
pub fn all() -> Vec<Described> {
    let change = "leased regions, a journal gate for each core, no freed lists (the default)";
    vec![Described {
        name: default_name().to_owned(),
        date: "2026".to_owned(),
        change: change.to_owned(),
    }]
}
