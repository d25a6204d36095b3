//! Injected bugs: each name in the code has a row in the laboratory's table, each row a name.

use super::Finding;
use super::source::{Source, line_of};
use std::collections::BTreeSet;
use std::path::Path;

/// The table.
const TABLE: &str = "lab/schedules/src/bugs.rs";
/// The call that asks for a bug. Its argument must be a literal.
const CALL: &str = "injected(";
/// The file that declares it.
const DECLARATION: &str = "crates/sync/src/injection.rs";

pub(super) fn check(root: &Path, sources: &[Source], findings: &mut Vec<Finding>) {
    let table = std::fs::read_to_string(root.join(TABLE)).unwrap_or_default();
    let rows = rows(&table);
    let mut asked = BTreeSet::new();
    let product = |source: &&Source| {
        source.path.starts_with("crates/") && source.path != DECLARATION && source.path != TABLE
    };
    for source in sources.iter().filter(product) {
        for (at, name) in names(source) {
            let text = match name {
                Some(name) if rows.contains(name) => {
                    asked.insert(name);
                    continue;
                }
                Some(name) => format!("{name}: not in {TABLE}"),
                None => format!("{CALL}: the name must be a literal"),
            };
            let line = line_of(&source.text, at);
            findings.push(Finding { path: source.path.clone(), line, rule: "bugs", text });
        }
    }
    for name in rows.difference(&asked) {
        let text = format!("{name}: no code asks for it");
        findings.push(Finding { path: TABLE.into(), line: 1, rule: "bugs", text });
    }
}

/// The names in the table.
fn rows(table: &str) -> BTreeSet<&str> {
    table.lines().filter_map(|line| line.trim().strip_prefix("bug(\"")?.split('"').next()).collect()
}

/// Places where a file asks for a bug, with the name if it is a literal.
fn names(source: &Source) -> impl Iterator<Item = (usize, Option<&str>)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let calls = source.code.match_indices(CALL);
    let calls = calls.filter(move |(at, _)| !source.code[..*at].ends_with(is_part));
    calls.map(|(at, call)| {
        let argument = &source.text[at + call.len()..];
        (at, argument.strip_prefix('"').and_then(|rest| rest.split('"').next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_literal_names() {
        let text = "if injected(\"a-b\") || is_injected(x) || injected(x) {} // injected(\"c\")";
        let source = Source::new("crates/engine/src/a.rs", text);
        let names: Vec<_> = names(&source).map(|(_, name)| name).collect();
        assert_eq!(names, [Some("a-b"), None]);
    }

    #[test]
    fn rows_are_names() {
        let table = "const X: &[B] = &[\n    bug(\"a-b\", \"does c\"),\n    bug(\"d\", \"e\"),\n];";
        assert_eq!(rows(table), BTreeSet::from(["a-b", "d"]));
    }
}
