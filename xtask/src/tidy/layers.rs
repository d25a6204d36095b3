//! Layers: a module uses only modules of lower layers.
//!
//! A reference is a path that begins with `crate::`, or with the `super::`s that lead to the
//! crate's root. A name that the root re-exports counts as its module.

use super::Finding;
use super::source::{Source, line_of};
use super::table::{LAYERS, Layers};
use std::collections::BTreeMap;

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    for layers in &LAYERS {
        check_crate(sources, layers, findings);
    }
}

fn check_crate(sources: &[Source], layers: &Layers, findings: &mut Vec<Finding>) {
    let of_crate: Vec<&Source> =
        sources.iter().filter(|source| source.path.starts_with(layers.dir)).collect();
    let root = of_crate.iter().find(|source| source.path.ends_with("src/lib.rs"));
    let exports = root.map(|root| exports(&root.code)).unwrap_or_default();
    for source in of_crate {
        check_file(source, layers, &exports, findings);
    }
}

fn check_file(
    source: &Source,
    layers: &Layers,
    exports: &BTreeMap<String, String>,
    findings: &mut Vec<Finding>,
) {
    let module = module_path(&source.path[layers.dir.len()..]);
    let Some(own) = module.first().filter(|_| !source.is_test) else { return };
    let layer_of = |name: &str| layers.modules.iter().find(|(module, _)| *module == name);
    let mut report = |line, text| {
        findings.push(Finding { path: source.path.clone(), line, rule: "layers", text });
    };
    let Some((_, own_layer)) = layer_of(own) else {
        report(1, format!("module {own} has no layer in xtask/src/tidy/table.rs"));
        return;
    };
    for (at, name) in references(&source.shipped, module.len()) {
        let target = exports.get(&name).unwrap_or(&name);
        let Some((_, layer)) = layer_of(target) else { continue };
        if target != own && layer >= own_layer {
            let line = line_of(&source.shipped, at);
            let text = format!("{own} (layer {own_layer}) uses {target} (layer {layer})");
            report(line, text);
        }
    }
}

/// The module path of a file below `src/`; empty for the crate's root.
fn module_path(file: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(String::from).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Names that follow `crate::`, or the `super::`s that lead to the root.
fn references(code: &str, depth: usize) -> Vec<(usize, String)> {
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for head in ["crate::", to_root.as_str()] {
        for (at, _) in code.match_indices(head) {
            let before = code[..at].trim_end_matches(' ');
            let after = &code[at + head.len()..];
            let longer = before.ends_with(['_', '$', ':']);
            if !longer && !after.starts_with("super::") {
                found.extend(heads(after).into_iter().map(|name| (at, name)));
            }
        }
    }
    found
}

/// The first names of a path or of a `{...}` group of paths.
fn heads(after: &str) -> Vec<String> {
    let ident = |text: &str| {
        text.chars().take_while(|c| *c == '_' || c.is_alphanumeric()).collect::<String>()
    };
    let Some(group) = after.strip_prefix('{') else { return vec![ident(after)] };
    let mut names = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(ident(group[start..at].trim_start()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(ident(group[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Names that the crate's root re-exports, and from which module.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for (at, _) in root.match_indices("use ") {
        let statement = root[at + 4..].split(';').next().unwrap_or_default();
        let statement = statement.trim_start_matches("crate::").trim_start_matches("self::");
        let Some((module, names)) = statement.split_once("::") else { continue };
        for name in names.split(|c: char| !(c == '_' || c.is_alphanumeric())) {
            if !name.is_empty() {
                map.insert(name.to_owned(), module.trim().to_owned());
            }
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "crates/engine/src/";
    const TABLE: Layers = Layers {
        dir: ENGINE,
        modules: &[
            ("error", 0),
            ("alloc", 4),
            ("map", 5),
            ("dir", 6),
            ("xattr", 6),
            ("inode", 7),
            ("volume", 10),
        ],
    };

    fn findings(file: &str, text: &str) -> Vec<String> {
        let root = Source::new(
            &format!("{ENGINE}lib.rs"),
            "mod map; mod volume; pub use volume::{Volume, OpenOptions}; pub use error::Error;",
        );
        let sources = [root, Source::new(&format!("{ENGINE}{file}"), text)];
        let mut found = Vec::new();
        check_crate(&sources, &TABLE, &mut found);
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn lower_layers_may_be_used() {
        assert_eq!(findings("map/a.rs", "use crate::alloc::Run;\nuse crate::Error;"), [""; 0]);
        assert_eq!(findings("map/a.rs", "use crate::map::b; use super::b;"), [""; 0]);
    }

    #[test]
    fn higher_layers_may_not() {
        let wrong = ["map (layer 5) uses inode (layer 7)"];
        assert_eq!(findings("map/a.rs", "use crate::inode::Inode;"), wrong);
        assert_eq!(findings("map/a.rs", "use crate::{alloc::B, inode::{C, D}};"), wrong);
        assert_eq!(findings("map/a.rs", "fn f() { crate::inode::g() }"), wrong);
        assert_eq!(findings("map/a.rs", "use super::super::inode::g;"), wrong);
        assert_eq!(findings("map/mod.rs", "use super::inode::g;"), wrong);
        assert_eq!(findings("map/a.rs", "// crate::inode::g"), [""; 0]);
        assert_eq!(findings("map/tests.rs", "use crate::inode::Inode;"), [""; 0]);
    }

    #[test]
    fn re_exports_count_as_their_module() {
        let wrong = ["map (layer 5) uses volume (layer 10)"];
        assert_eq!(findings("map/a.rs", "use crate::{Error, Volume};"), wrong);
    }

    #[test]
    fn modules_of_one_layer_do_not_use_each_other() {
        let wrong = ["dir (layer 6) uses xattr (layer 6)"];
        assert_eq!(findings("dir/a.rs", "use crate::xattr::Name;"), wrong);
    }

    #[test]
    fn every_module_needs_a_layer() {
        assert!(findings("novel.rs", "")[0].contains("novel has no layer"));
    }
}
