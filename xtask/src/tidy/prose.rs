//! Prose: words that comments, strings and Markdown avoid, and the width of Markdown.
//!
//! The words are data, in `phrases.rs`. A phrase is matched word by word, so a line break in the
//! middle of it does not hide it. An identifier is one word: `put_off` is not "put off".

use super::Finding;
use super::phrases::{PEOPLE, PHRASES, Phrase};
use super::source::Source;
use super::table::COLUMNS;
use std::collections::HashMap;
use std::path::Path;

/// Checks the Rust sources and the Markdown among the `files` under `root`.
pub(super) fn check(
    root: &Path,
    sources: &[Source],
    files: &[String],
    findings: &mut Vec<Finding>,
) {
    let phrases = by_first_word();
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask/src/tidy/")) {
        check_words(&source.path, &rust_words(source), &phrases, findings);
    }
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        check_words(path, &markdown_words(&text), &phrases, findings);
        check_columns(path, &text, findings);
    }
}

/// The phrases that may begin with a word.
type ByFirstWord = HashMap<&'static str, Vec<&'static Phrase>>;

fn by_first_word() -> ByFirstWord {
    let mut map = ByFirstWord::new();
    for phrase in &PHRASES {
        for first in phrase.words.split(' ').next().into_iter().flat_map(|one| one.split('|')) {
            map.entry(first).or_default().push(phrase);
        }
    }
    map
}

/// A word, in lower case, and its line. Code between two words is an empty word.
type Word = (String, usize);

/// The words of the comments and strings of a file.
fn rust_words(source: &Source) -> Vec<Word> {
    let prose = |(text, code): (u8, u8)| text != code;
    words_where(&source.text, source.text.bytes().zip(source.code.bytes()).map(prose))
}

fn markdown_words(text: &str) -> Vec<Word> {
    words_where(text, text.bytes().map(|_| true))
}

/// The words of `text`; `prose` is true for the bytes of prose.
fn words_where(text: &str, prose: impl Iterator<Item = bool>) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut line, mut open) = (1, false);
    for (byte, prose) in text.bytes().zip(prose) {
        let part = prose && (matches!(byte, b'_' | b'\'') || byte.is_ascii_alphanumeric());
        match (part, open) {
            (true, true) => {
                let last = words.last_mut().expect("an open word is the last");
                last.0.push(char::from(byte.to_ascii_lowercase()));
            }
            (true, false) => words.push((char::from(byte.to_ascii_lowercase()).into(), line)),
            (false, _) if !prose && !byte.is_ascii_whitespace() && byte != b'"' => {
                words.push((String::new(), line));
            }
            (false, _) => {}
        }
        open = part;
        line += usize::from(byte == b'\n');
    }
    words
}

fn check_words(path: &str, words: &[Word], phrases: &ByFirstWord, findings: &mut Vec<Finding>) {
    let mut report = |line: usize, rule, text| {
        findings.push(Finding { path: path.into(), line, rule, text });
    };
    for (at, (word, line)) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| words[before].0.as_str());
        if word == "who" && !PEOPLE.contains(&before) {
            report(
                *line,
                "prose",
                "\"who\" without its actor: name the actor, or write \"that\"".into(),
            );
        }
        let here = phrases.get(word.as_str()).into_iter().flatten();
        for phrase in here.filter(|phrase| is_at(phrase, &words[at..])) {
            let len = phrase.words.split(' ').count();
            let said: Vec<&str> = words[at..at + len].iter().map(|(word, _)| &**word).collect();
            let text = format!("\"{}\": {}", said.join(" "), phrase.instead);
            report(*line, "prose", text);
        }
    }
}

/// Whether `words` begin with the phrase.
fn is_at(phrase: &Phrase, words: &[Word]) -> bool {
    let mut words = words.iter();
    let mut wanted = phrase.words.split(' ');
    wanted.all(|one| words.next().is_some_and(|(word, _)| one.split('|').any(|alt| alt == word)))
}

/// Lines of Markdown are as narrow as code; tables and code blocks cannot be broken.
fn check_columns(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let mut fenced = false;
    for (n, line) in text.lines().enumerate() {
        let start = line.trim_start();
        fenced ^= start.starts_with("```");
        let columns = line.chars().count();
        let breakable = start.contains(' ') && !start.starts_with(['|', '[']);
        if columns > COLUMNS && !fenced && breakable {
            let text = format!("{columns} columns, at most {COLUMNS}");
            findings.push(Finding { path: path.into(), line: n + 1, rule: "line-length", text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check_words(
            "a.rs",
            &rust_words(&Source::new("a.rs", text)),
            &by_first_word(),
            &mut findings,
        );
        findings.iter().map(|finding| finding.line).collect()
    }

    fn wide(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check_columns("a.md", text, &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn phrases_are_found_in_comments_and_strings() {
        assert_eq!(found("//! Whoever asks.\nfn f() {}\n// Nobody.\n"), [1, 3]);
        assert_eq!(found("/* Somebody */ let a = \"nobody\";"), [1, 1]);
        assert_eq!(found("/// It is put\n/// off until later."), [1]);
        assert_eq!(found("a(\"put \\\n off\")"), [1]);
    }

    #[test]
    fn identifiers_and_words_on_both_sides_of_code_are_not_phrases() {
        assert_eq!(found("let nobody = settled; // `put_off`, a nobody_else"), [0; 0]);
        assert_eq!(found("// put\nf();\n// off"), [0; 0]);
        assert_eq!(found("a(\"put\", \"off\")"), [0; 0]);
    }

    #[test]
    fn who_needs_its_actor() {
        assert_eq!(found("// Who asks? A user who reads."), [1]);
        assert_eq!(found("// for\n// those who wait"), [2]);
        assert_eq!(found("// whose lock it is"), [0; 0]);
    }

    #[test]
    fn markdown_is_checked_word_by_word_and_for_its_width() {
        let mut findings = Vec::new();
        check_words("a.md", &markdown_words("It is put\noff.\n"), &by_first_word(), &mut findings);
        assert_eq!(findings.len(), 1);
        let long = "x ".repeat(51);
        assert_eq!(wide(&format!("{long}\n")), [1]);
        assert_eq!(wide(&format!("| {long} |\n")), [0; 0]);
        assert_eq!(wide(&format!("```\n{long}\n```\n{long}")), [4]);
        assert_eq!(wide(&"x".repeat(101)), [0; 0]);
    }
}
