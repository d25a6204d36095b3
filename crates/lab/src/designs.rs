//! The designs that can be chosen, as `nextent designs` shows them.

use crate::failure::Failure;
pub use nextent::Design;

/// The design of that name, options behind slashes.
///
/// # Errors
/// [`Failure::Usage`], naming those that exist.
pub(crate) fn named(name: &str) -> Result<Design, Failure> {
    Design::named(name).map_err(|error| Failure::usage(error.to_string()))
}

/// All presets, by date, those with options followed by each of them.
#[must_use]
pub fn all() -> Vec<Design> {
    let mut all: Vec<Design> = Vec::new();
    for preset in Design::all() {
        let options = preset.options().iter();
        let with = options.filter_map(|option| Design::named(&format!("{preset}/{option}")).ok());
        // An option that is the preset's own choice makes no other design.
        for design in std::iter::once(*preset).chain(with) {
            if !all.contains(&design) {
                all.push(design);
            }
        }
    }
    all
}
