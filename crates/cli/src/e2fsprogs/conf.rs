//! Reads mke2fs.conf(5): sections in brackets, relations `tag = value`, and groups of relations in
//! braces.

use std::fmt;

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Conf {
    /// Each relation: its path from the section down, and its value.
    relations: Vec<(Vec<String>, String)>,
    /// The path of each group in braces.
    groups: Vec<Vec<String>>,
}

/// Where a file is not what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The line, from 1.
    line: usize,
    what: &'static str,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line #{}: {}", self.line, self.what)
    }
}

impl Conf {
    /// Parses the text of a file.
    pub(super) fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut conf = Self::default();
        let mut path: Vec<String> = Vec::new();
        // A tag whose brace is on the next line.
        let mut open: Option<String> = None;
        for (at, line) in text.lines().enumerate() {
            let fail = |what| SyntaxError { line: at + 1, what };
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            if let Some(tag) = open.take() {
                if line != "{" {
                    return Err(fail("a value or { is missing"));
                }
                conf.open(&mut path, tag);
            } else if let Some(rest) = line.strip_prefix('[') {
                let (name, _) = rest.split_once(']').ok_or(fail("] is missing"))?;
                if path.len() > 1 {
                    return Err(fail("a section begins inside braces"));
                }
                path = vec![name.trim().to_owned()];
            } else if line.trim_end_matches('*') == "}" {
                if path.len() < 2 {
                    return Err(fail("} without {"));
                }
                path.pop();
            } else {
                let (tag, value) = line.split_once('=').ok_or(fail("= is missing"))?;
                let tag = unquoted(tag.trim().trim_end_matches('*').trim_end());
                if path.is_empty() {
                    return Err(fail("a relation before the first section"));
                }
                match value.trim() {
                    "" => open = Some(tag),
                    "{" => conf.open(&mut path, tag),
                    value => {
                        let full = [path.as_slice(), &[tag]].concat();
                        conf.relations.push((full, unquoted(value)));
                    }
                }
            }
        }
        let end = SyntaxError { line: text.lines().count(), what: "} is missing" };
        if path.len() > 1 || open.is_some() { Err(end) } else { Ok(conf) }
    }

    fn open(&mut self, path: &mut Vec<String>, tag: String) {
        path.push(tag);
        self.groups.push(path.clone());
    }

    /// The first value of a relation.
    pub(super) fn value(&self, path: &[&str]) -> Option<&str> {
        let found = self.relations.iter().find(|(full, _)| full == path);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether a group in braces exists.
    pub(super) fn has(&self, path: &[&str]) -> bool {
        self.groups.iter().any(|group| group == path)
    }
}

fn without_comment(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, letter) in line.char_indices() {
        match letter {
            ';' | '#' if !quoted => return &line[..at],
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
    }
    line
}

/// A word without its quotes, and with its escapes replaced.
fn unquoted(word: &str) -> String {
    let Some(inner) = word.strip_prefix('"') else { return word.to_owned() };
    let mut text = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => text.extend(letters.next().map(|letter| match letter {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                other => other,
            })),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_groups_quotes_and_comments() {
        let text = "; a comment\n[defaults]\n\tblocksize = 4096 # bytes\n\
            errors = \"a \\\"b\\\\\"\n\
            [fs_types]\n ext4 = {\n  features = extent,64bit\n  features = none\n }\n big =\n {\n\
            inode_ratio = 32768\n }\n";
        let conf = Conf::parse(text).unwrap();
        assert_eq!(conf.value(&["defaults", "blocksize"]), Some("4096"));
        assert_eq!(conf.value(&["defaults", "errors"]), Some("a \"b\\"));
        assert_eq!(conf.value(&["fs_types", "ext4", "features"]), Some("extent,64bit"));
        assert_eq!(conf.value(&["fs_types", "big", "inode_ratio"]), Some("32768"));
        assert_eq!(conf.value(&["fs_types", "ext4", "blocksize"]), None);
        assert!(conf.has(&["fs_types", "big"]) && !conf.has(&["fs_types", "small"]));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("[defaults]\n foo\n", 2),
            ("[defaults\n", 1),
            ("a = b\n", 1),
            ("[a]\n}\n", 2),
            ("[a]\nb = {\n", 2),
            ("[a]\nb = {\n[c]\n", 3),
            ("[a]\nb =\nc = d\n", 3),
        ] {
            assert_eq!(Conf::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
