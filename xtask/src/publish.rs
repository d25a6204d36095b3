//! Checks that the product's crates can be published.
//!
//! Three steps, so that the first two work without a network:
//!
//! 1. `cargo package --offline` packages each crate.
//! 2. The packages are unpacked into a workspace of their own, in which they take the place of
//!    those of the registry, and `cargo check --offline` builds each, with its own features only.
//!    Cargo's own verification has a target directory for each package, and so builds all
//!    dependencies many times.
//! 3. `cargo publish --dry-run` checks the packages against the registry. Without a network it is
//!    skipped.

use crate::shell::{cargo, command, root, target_dir};
use std::path::Path;
use std::process::Command;

/// The outcome of a check that found no fault.
pub(crate) enum Outcome {
    /// All steps passed.
    Publishable,
    /// The last step was skipped, because the registry cannot be reached.
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

/// Runs all steps.
///
/// # Errors
///
/// Cargo's messages.
pub(crate) fn check() -> Result<Outcome, String> {
    let names = published(&root().join("crates"));
    let target = target_dir().join("publish");
    let _ = std::fs::remove_dir_all(&target);
    let to = target.display().to_string();
    let packages = names.iter().flat_map(|name| ["-p", name]);
    // Sources that are not committed yet are checked too.
    let local = ["package", "--offline", "--allow-dirty", "--no-verify", "--quiet"];
    run(cargo(local.into_iter().chain(["--target-dir", &to]).chain(packages)))?;
    build(&names, &target.join("package"), &target.join("unpacked"))?;
    let _ = std::fs::remove_dir_all(&target);
    let registry = ["publish", "--dry-run", "--workspace", "--no-verify", "--allow-dirty"];
    match run(cargo(registry)) {
        Ok(()) => Ok(Outcome::Publishable),
        Err(text) if NO_NETWORK.iter().any(|part| text.contains(part)) => Ok(Outcome::Packaged),
        Err(text) => Err(text),
    }
}

/// Builds each package in `packed` from its contents alone, in the new directory `to`.
fn build(names: &[String], packed: &Path, to: &Path) -> Result<(), String> {
    std::fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    for name in names {
        let package = packed.join(format!("{name}-{VERSION}.crate"));
        // Files get the time of now. Cargo compares times, so none is taken for one that an
        // earlier check built.
        let mut unpack = command("tar", ["-xzmf"]);
        run({
            unpack.arg(package).arg("-C").arg(to);
            unpack
        })?;
    }
    let read =
        |name| std::fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}"));
    let write =
        |name, text| std::fs::write(to.join(name), text).map_err(|e| format!("{name}: {e}"));
    write("Cargo.toml", workspace(names, &read("Cargo.toml")?))?;
    write("Cargo.lock", read("Cargo.lock")?)?;
    for name in names {
        let mut check = cargo(["check", "--offline", "--quiet", "-p", name, "--target-dir"]);
        // The registry's dependencies are those that Clippy and the tests have built.
        run({
            check.arg(target_dir()).current_dir(to);
            check
        })
        .map_err(|text| format!("package {name}: {text}"))?;
    }
    Ok(())
}

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The manifest of a workspace of unpacked packages, with the profiles of the manifest `own`.
fn workspace(names: &[String], own: &str) -> String {
    let dirs = names.iter().map(|name| format!("{name}-{VERSION}"));
    let members: Vec<_> = dirs.clone().map(|dir| format!("{dir:?}")).collect();
    let patches =
        names.iter().zip(dirs).map(|(name, dir)| format!("{name} = {{ path = {dir:?} }}\n"));
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{}\n{}",
        members.join(", "),
        patches.collect::<String>(),
        profiles(own)
    )
}

/// The tables of a manifest about profiles.
fn profiles(manifest: &str) -> String {
    let mut inside = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            inside = line.starts_with("[profile.");
        }
        inside
    });
    lines.map(|line| format!("{line}\n")).collect()
}

fn run(mut command: Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
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
    fn packages_take_the_place_of_the_registrys() {
        let own =
            "[workspace]\na = 1\n\n[profile.dev]\nb = 2\n[other]\nc = 3\n[profile.x.y]\nd = 4";
        let text = workspace(&["a".to_owned(), "b-c".to_owned()], own);
        let (rest, profiles) = text.split_at(text.find("[profile").expect("it has profiles"));
        assert!(rest.contains(&format!("members = [\"a-{VERSION}\", \"b-c-{VERSION}\"]\n")));
        assert!(rest.contains(&format!("\nb-c = {{ path = \"b-c-{VERSION}\" }}\n")), "{rest}");
        assert_eq!(profiles, "[profile.dev]\nb = 2\n[profile.x.y]\nd = 4\n");
    }

    #[test]
    fn the_products_crates_are_published() {
        let names = published(&root().join("crates"));
        assert!(names.contains(&"nextent".to_owned()) && names.contains(&"nextent-cli".to_owned()));
        assert!(!names.contains(&"nextent-testkit".to_owned()));
    }
}
