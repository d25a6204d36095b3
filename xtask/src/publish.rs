//! Checks that the product's crates can be published.
//!
//! Two steps, so that the first one works without a network:
//!
//! 1. `cargo package --offline` packages each crate and builds it from its package.
//! 2. `cargo publish --dry-run` checks the packages against the registry. Without a network it is
//!    skipped.

use crate::shell::{cargo, root};
use std::path::Path;

/// The outcome of a check that found no fault.
pub(crate) enum Outcome {
    /// Both steps passed.
    Publishable,
    /// Only the first step ran, because the registry cannot be reached.
    Packaged,
}

/// Parts of cargo's messages about a registry that it cannot reach.
const NO_NETWORK: [&str; 5] = [
    "--offline was specified",
    "Could not resolve host",
    "Could not connect",
    "failed to connect",
    "Timeout was reached",
];

/// Runs both steps.
///
/// # Errors
///
/// Cargo's messages.
pub(crate) fn check() -> Result<Outcome, String> {
    let names = published(&root().join("crates"));
    let packages = names.iter().flat_map(|name| ["-p", name]);
    // Sources that are not committed yet are checked too.
    let local = ["package", "--offline", "--allow-dirty", "--quiet"];
    run(local.into_iter().chain(packages))?;
    let registry = ["publish", "--dry-run", "--workspace", "--no-verify", "--allow-dirty"];
    match run(registry) {
        Ok(()) => Ok(Outcome::Publishable),
        Err(text) if NO_NETWORK.iter().any(|part| text.contains(part)) => Ok(Outcome::Packaged),
        Err(text) => Err(text),
    }
}

fn run<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let output = cargo(args).output().map_err(|error| format!("cargo: {error}"))?;
    let text = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text()) }
}

/// The names of the packages in `dir` that are published.
fn published(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let manifests = entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("Cargo.toml")).ok());
    let mut names: Vec<_> = manifests.filter_map(|text| name_if_published(&text)).collect();
    names.sort();
    names
}

fn name_if_published(manifest: &str) -> Option<String> {
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
    let is_private = manifest.lines().any(|line| line == "publish = false");
    (!is_private).then(|| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_packages_are_left_out() {
        let text = "[package]\nname = \"a\"\n";
        assert_eq!(name_if_published(text).as_deref(), Some("a"));
        assert_eq!(name_if_published(&format!("{text}publish = false\n")), None);
    }

    #[test]
    fn the_products_crates_are_published() {
        let names = published(&root().join("crates"));
        assert!(names.contains(&"nextent".to_owned()) && names.contains(&"nextent-cli".to_owned()));
        assert!(!names.contains(&"nextent-testkit".to_owned()));
    }
}
