//! The designs that a request can choose, as `nextent-lab designs` lists them.

use crate::failure::Failure;
pub use nextent_historical::Design;
use nextent_historical::design::{self, Gate};
use nextent_sync::LockKind;

/// The design of that name, with options after slashes.
///
/// # Errors
/// [`Failure::Usage`], which names the designs.
pub fn named(name: &str) -> Result<Design, Failure> {
    Design::named(name).map_err(|error| Failure::usage(error.to_string()))
}

/// The design as simulations run it: its historical locks spin, as in kernels.
///
/// # Errors
/// As [`named`].
pub(crate) fn as_in_kernels(name: &str) -> Result<Design, Failure> {
    let design = named(name)?;
    Ok(if design.has_historical_locks() { design.with_locks(LockKind::Spin) } else { design })
}

/// All presets by date, each followed by its variants with options.
#[must_use]
pub fn all() -> Vec<Design> {
    let mut all: Vec<Design> = Vec::new();
    for preset in Design::all() {
        let options = preset.choices().iter();
        let with = options.filter_map(|option| Design::named(&format!("{preset}/{option}")).ok());
        // An option that the preset has anyway is not another design.
        for design in std::iter::once(*preset).chain(with) {
            if !all.contains(&design) {
                all.push(design);
            }
        }
    }
    all
}

/// The journal gates: option, date, what it changes, and the presets with that gate.
#[must_use]
pub fn gates() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let of = |gate: &Gate| {
        let presets = Design::all().iter().filter(|one| one.gate == gate.admission);
        let names: Vec<&str> = presets.map(Design::preset).collect();
        (gate.option, gate.date, gate.about, names.join(", "))
    };
    design::GATES.iter().map(of).collect()
}
