//! Rules about lines and words: lengths, characters, banned names, headers.

use super::Finding;
use super::source::{Source, line_of};
use super::table::{CODE_WORDS, COLUMNS, FILE_LINES, NOTES, SAFE, Words};

/// A crate's documentation may start with its README.
const README: &str = "#![doc = include_str!(\"../README.md\")]\n";

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let mut report = |line: usize, rule, text: String| {
        findings.push(Finding { path: source.path.clone(), line, rule, text });
    };
    let lines = source.text.lines().count();
    if lines > FILE_LINES {
        report(1, "file-length", format!("{lines} lines, at most {FILE_LINES}"));
    }
    for (n, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        // The row of a table in a comment cannot be broken.
        if columns > COLUMNS && !line.trim_start().starts_with("//! |") {
            report(n + 1, "line-length", format!("{columns} columns, at most {COLUMNS}"));
        }
        if !line.is_ascii() {
            report(n + 1, "ascii", "a character that is not ASCII; write an escape".into());
        }
        for note in NOTES {
            if has_word(line, note) {
                report(n + 1, "left-over", format!("{note}: not for the main branch"));
            }
        }
    }
    let header = source.text.strip_prefix(README).unwrap_or(&source.text);
    if needs_header(&source.path) && !header.starts_with("//!") {
        report(1, "header", "the file must begin with a //! header".into());
    }
    if SAFE.contains(&source.path.as_str()) && !source.code.contains("#![forbid(unsafe_code)]") {
        report(1, "unsafe", "must have #![forbid(unsafe_code)]".into());
    }
    for words in &CODE_WORDS {
        for (line, word) in find(source, words) {
            report(line, words.rule, format!("{word}: {}", words.why));
        }
    }
}

fn needs_header(path: &str) -> bool {
    !path.contains("/tests/")
        && ["/mod.rs", "/lib.rs", "/main.rs"].iter().any(|f| path.ends_with(f))
}

fn find<'w>(source: &Source, words: &'w Words) -> Vec<(usize, &'w str)> {
    if words.except.iter().any(|prefix| source.path.starts_with(prefix))
        || (words.tests && source.is_test)
    {
        return Vec::new();
    }
    let code = if words.tests { &source.shipped } else { &source.code };
    let hits = words
        .words
        .iter()
        .flat_map(|word| code.match_indices(word).map(|(at, _)| (line_of(code, at), *word)));
    hits.collect()
}

/// Whether `line` has `word` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c == '_' || c.is_alphanumeric());
    line.match_indices(word).any(|(at, _)| {
        !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn locks_belong_to_sync() {
        assert_eq!(rules("crates/store/src/a.rs", "use std::sync::Mutex;"), ["sync"]);
        assert_eq!(rules("crates/store/src/a.rs", "// std::sync::Mutex"), [""; 0]);
        assert_eq!(rules("crates/sync/src/a.rs", "use std::sync::Mutex;"), [""; 0]);
        assert_eq!(rules("crates/store/tests/a.rs", "use std::sync::Mutex;"), [""; 0]);
        let tests = "#[cfg(test)]\nmod tests { use std::thread; }";
        assert_eq!(rules("crates/store/src/a.rs", tests), [""; 0]);
    }

    #[test]
    fn byte_order_belongs_to_ondisk() {
        assert_eq!(rules("crates/engine/src/a.rs", "u32::from_le_bytes(x)"), ["byte-order"]);
        assert_eq!(rules("crates/ondisk/src/a.rs", "u32::from_le_bytes(x)"), [""; 0]);
    }

    #[test]
    fn headers_and_forbidden_unsafe() {
        assert_eq!(rules("crates/sync/src/lib.rs", "mod a;"), ["header"]);
        assert_eq!(rules("crates/store/src/lib.rs", "//! It.\nmod a;"), ["unsafe"]);
        let good = "//! It.\n#![forbid(unsafe_code)]\n";
        assert_eq!(rules("crates/store/src/lib.rs", &format!("{README}{good}")), [""; 0]);
        assert_eq!(rules("crates/store/src/lib.rs", good), [""; 0]);
    }

    #[test]
    fn lengths_and_left_overs() {
        let long = format!("//! {}", "x".repeat(97));
        assert_eq!(rules("crates/sync/src/a.rs", &long), ["line-length"]);
        assert_eq!(rules("crates/sync/src/a.rs", &"\n".repeat(801)), ["file-length"]);
        let left = format!("// {}: later", NOTES[0]);
        assert_eq!(rules("crates/sync/tests/a.rs", &left), ["left-over"]);
        let call = CODE_WORDS[3].words[0];
        assert_eq!(rules("crates/sync/tests/a.rs", call), ["left-over"]);
        assert_eq!(rules("crates/sync/src/a.rs", "let a = \"\u{e4}\";"), ["ascii"]);
    }
}
