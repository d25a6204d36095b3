//! Checks rules of the source that no compiler checks.
//!
//! A [`Source`] is one file, with its code separated from comments and strings. Each rule checks
//! all sources and reports [`Finding`]s. The data of the rules (layers, crates, limits, banned
//! words) is in `table.rs` and `phrases.rs`. A line of `xtask/tidy-allow.txt` excuses a finding.
//! That list only shrinks: an entry that excuses nothing is a finding, and so is a list longer than
//! the number in `table.rs`.

mod allow;
mod bugs;
mod casts;
mod conflicts;
mod copies;
mod functions;
mod layers;
mod phrases;
mod prose;
mod ranks;
mod references;
mod source;
mod table;
mod test_files;
mod tree;
mod words;

use crate::shell::root;
use source::Source;
use std::path::Path;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.text)
    }
}

/// Checks the whole repository.
pub(crate) fn run() -> Result<(), String> {
    let root = root();
    let sources = source::collect(&root)?;
    let mut findings = check(&sources);
    ["lab/copies/counted", "lab/copies/simulated"]
        .iter()
        .for_each(|dir| copies::check(&root, dir, &mut findings));
    bugs::check(&root, &sources, &mut findings);
    let files = tree::files(&root);
    conflicts::check(&root, &files, &mut findings);
    references::check(&root, &files, &mut findings);
    prose::check(&root, &sources, &files, &mut findings);
    ranks::check(&sources, &root.join("docs/LOCKS.md"), &mut findings);
    let list = std::fs::read_to_string(root.join(table::ALLOW_LIST)).unwrap_or_default();
    let left = allow::apply(findings, &list);
    if left.is_empty() {
        println!("tidy: {} files", sources.len());
        return Ok(());
    }
    let lines: Vec<String> = left.iter().map(Finding::to_string).collect();
    Err(format!("{}\ntidy: {} findings", lines.join("\n"), lines.len()))
}

/// All rules over all files.
fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        words::check(source, &mut findings);
        casts::check(source, &mut findings);
        functions::check(source, &mut findings);
    }
    layers::check(sources, &mut findings);
    test_files::check(sources, &mut findings);
    findings.sort();
    findings
}

/// Whether a file is a test: it is in a directory of integration tests, benches or fuzz targets, or
/// is a test module.
fn is_test_path(path: &str) -> bool {
    let file = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let dirs = ["/tests/", "/benches/", "/examples/", "/fuzz/", "/models/"];
    dirs.iter().any(|dir| path.contains(dir))
        || path.starts_with("fuzz/")
        || file == "tests.rs"
        || file == "models.rs"
        || file.ends_with("_tests.rs")
        || file.ends_with("_model.rs")
}
