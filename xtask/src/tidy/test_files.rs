//! Test files that no test target compiles: their tests would never run.
//!
//! A target is a file of a directory `tests`, or a `main.rs` of a directory in it. A target with a
//! directory of its own must compile every file of that directory, even if another target compiles
//! the file as well (`#[path]`). Any other file must be compiled by some target.

use super::Finding;
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Reports files below a directory `tests` that a target leaves out.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let files: BTreeMap<&str, &str> = sources
        .iter()
        .filter(|source| source.path.contains("/tests/") && !source.path.contains("/src/"))
        .map(|source| (source.path.as_str(), source.text.as_str()))
        .collect();
    let targets: Vec<_> = files
        .keys()
        .filter(|path| is_target(path))
        .map(|path| (*path, compiled(path, &files)))
        .collect();
    for path in files.keys() {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let main = format!("{dir}/main.rs");
        let left_out = match targets.iter().find(|(target, _)| *target == main) {
            Some((target, compiled)) if !compiled.contains(*path) => format!("by {target}"),
            None if !targets.iter().any(|(_, all)| all.contains(*path)) => "by any test".into(),
            _ => continue,
        };
        let text = format!("not compiled {left_out}");
        findings.push(Finding { path: (*path).into(), line: 1, rule: "test-files", text });
    }
}

/// Whether cargo makes a program of the file.
fn is_target(path: &str) -> bool {
    let inner = path.rsplit_once("/tests/").map_or("", |(_, inner)| inner);
    !inner.contains('/') || inner.matches('/').count() == 1 && inner.ends_with("/main.rs")
}

/// The files that the target `root` compiles.
fn compiled(root: &str, files: &BTreeMap<&str, &str>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // Each file, and the directory of the modules that it declares.
    let dir_of = |path: &str| path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
    let mut open = vec![(root.to_owned(), dir_of(root))];
    while let Some((path, dir)) = open.pop() {
        let Some(text) = files.get(path.as_str()) else { continue };
        if !found.insert(path.clone()) {
            continue;
        }
        for (name, own_path) in declared(text) {
            let named = match own_path {
                // Relative to the file that declares it; its own modules lie beside it.
                Some(own) => normal(&format!("{}/{own}", dir_of(&path))),
                None => format!("{dir}/{name}.rs"),
            };
            let inner = if own_path.is_some() { dir_of(&named) } else { format!("{dir}/{name}") };
            open.push((named, inner.clone()));
            if own_path.is_none() {
                open.push((format!("{inner}/mod.rs"), inner));
            }
        }
    }
    found
}

/// The modules in files of their own that `text` declares, each with its `#[path]`.
fn declared(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut own_path = None;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let name = line.split_once("mod ").filter(|(before, _)| is_visibility(before));
        let name = name.and_then(|(_, rest)| rest.strip_suffix(';'));
        if let Some(value) = line.strip_prefix("#[path = \"") {
            own_path = value.strip_suffix("\"]");
        } else if let Some(name) = name {
            found.push((name, own_path.take()));
        } else if !line.starts_with("#[") {
            own_path = None;
        }
    }
    found
}

fn is_visibility(before: &str) -> bool {
    before.is_empty() || before.starts_with("pub")
}

/// A path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.iter().map(|finding| format!("{}: {}", finding.path, finding.text)).collect()
    }

    #[test]
    fn a_file_that_no_target_declares_is_found() {
        let files = [
            ("crates/x/tests/a.rs", "mod common;\n#[path = \"c/one.rs\"]\n#[allow(x)]\nmod one;"),
            ("crates/x/tests/common/mod.rs", "pub mod deep;"),
            ("crates/x/tests/common/deep.rs", "// mod lost;"),
            ("crates/x/tests/common/lost.rs", ""),
            ("crates/x/tests/c/one.rs", ""),
            ("crates/x/tests/c/two.rs", ""),
            ("crates/x/src/tests/any.rs", ""),
        ];
        let lost = ["common/lost.rs", "c/two.rs"];
        let mut lost = lost.map(|path| format!("crates/x/tests/{path}: not compiled by any test"));
        lost.sort();
        assert_eq!(found(&files), lost);
    }

    #[test]
    fn a_target_compiles_all_of_its_directory() {
        let files = [
            ("crates/x/tests/other.rs", "#[path = \"d/two.rs\"]\nmod two;"),
            ("crates/x/tests/d/main.rs", "mod one;"),
            ("crates/x/tests/d/one.rs", ""),
            ("crates/x/tests/d/two.rs", ""),
        ];
        let text = "crates/x/tests/d/two.rs: not compiled by crates/x/tests/d/main.rs";
        assert_eq!(found(&files), [text]);
    }
}
