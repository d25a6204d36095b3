//! A file, with its code separated from comments and strings.

use super::is_test_path;
use super::table::ROOTS;
use super::tree::is_build_output;
use std::path::Path;

/// One Rust file.
pub(super) struct Source {
    /// Path from the repository's root, with forward slashes.
    pub(super) path: String,
    /// The contents of the file.
    pub(super) text: String,
    /// The same length, with comments and contents of strings blanked.
    pub(super) code: String,
    /// As `code`, with test modules blanked, too.
    pub(super) shipped: String,
    /// Whether the whole file is a test.
    pub(super) is_test: bool,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let code = blank_comments_and_strings(text);
        let shipped = blank_test_modules(&code);
        Self { path: path.into(), text: text.into(), code, shipped, is_test: is_test_path(path) }
    }
}

/// The line of a byte of `text`, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Reads every Rust file of the repository.
pub(super) fn collect(root: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for dir in ROOTS {
        collect_dir(root, &root.join(dir), &mut sources)?;
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    mark_declared_tests(&mut sources);
    Ok(sources)
}

/// Marks the files of modules that exist only for tests.
fn mark_declared_tests(sources: &mut [Source]) {
    let modules: Vec<String> = sources.iter().flat_map(declared_tests).collect();
    for source in sources {
        let stem = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let within = |module: &String| stem == module || stem.starts_with(&format!("{module}/"));
        source.is_test |= modules.iter().any(within);
    }
}

/// The paths, without extension, of the test modules that a file declares.
fn declared_tests(source: &Source) -> Vec<String> {
    let stem = source.path.trim_end_matches(".rs");
    let own = ["/mod", "/lib", "/main"].iter().find_map(|name| stem.strip_suffix(name));
    let dir = own.unwrap_or(stem);
    let mut found = Vec::new();
    for (start, _) in source.code.match_indices("#[cfg(") {
        let Some((cfg, after)) = source.code[start..].split_once(']') else { continue };
        let Some((_, name)) = after.split_once("mod ").filter(|(head, _)| is_visibility(head))
        else {
            continue;
        };
        let name = name.split([';', '{']).next().unwrap_or_default();
        if needs_test(cfg) && after.contains(&format!("mod {name};")) {
            found.push(format!("{dir}/{}", name.trim()));
        }
    }
    found
}

/// Whether the text before `mod` has only a visibility and attributes.
fn is_visibility(head: &str) -> bool {
    let last = head.rsplit(']').next().unwrap_or_default().trim();
    !head.contains([';', '{', '}']) && matches!(last, "" | "pub" | "pub(crate)" | "pub(super)")
}

fn needs_test(cfg: &str) -> bool {
    cfg.contains("test") && !cfg.contains("not(test")
}

fn collect_dir(root: &Path, dir: &Path, sources: &mut Vec<Source>) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            if !is_build_output(&path) && !path.ends_with("corpus") {
                collect_dir(root, &path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let from_root = path.strip_prefix(root).unwrap_or(&path);
            let name = from_root.to_string_lossy().replace('\\', "/");
            sources.push(Source::new(&name, &text));
        }
    }
    Ok(())
}

/// Replaces a range by spaces, except line ends.
fn blank(bytes: &mut [u8], from: usize, to: usize) {
    let end = to.min(bytes.len());
    for byte in &mut bytes[from.min(end)..end] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("whole comments and strings were replaced by spaces")
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn blank_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let in_word = at > 0 && is_word(bytes[at - 1]);
        at = if rest.starts_with(b"//") {
            let end = rest.iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n);
            blank(&mut out, at, end);
            end
        } else if rest.starts_with(b"/*") {
            let end = at + comment_len(rest);
            blank(&mut out, at, end);
            end
        } else if let Some((head, hashes)) = raw_string(rest).filter(|_| !in_word) {
            let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            let inside = &rest[head..];
            let len = inside.windows(close.len()).position(|w| w == close).unwrap_or(inside.len());
            blank(&mut out, at + head, at + head + len);
            at + head + len + close.len()
        } else if rest[0] == b'"' {
            let len = quoted_len(rest, b'"');
            blank(&mut out, at + 1, at + len - 1);
            at + len
        } else if rest[0] == b'\'' && is_char(rest) {
            let len = quoted_len(rest, b'\'');
            blank(&mut out, at + 1, at + len - 1);
            at + len
        } else {
            at + 1
        };
    }
    into_text(out)
}

/// Length of a block comment, nested ones included.
fn comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// For `r"`, `r#"`, `br"`: the length up to the quote, and the number of hashes.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let start = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[start..].iter().take_while(|&&byte| byte == b'#').count();
    (rest.get(start + hashes) == Some(&b'"')).then_some((start + hashes + 1, hashes))
}

/// Length of a quoted literal, both quotes included.
fn quoted_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Whether a single quote begins a character, not a lifetime.
fn is_char(rest: &[u8]) -> bool {
    match rest {
        [_, b'\\', ..] | [_, _, b'\'', ..] => true,
        // A character of more than one byte.
        [_, first, ..] => *first >= 0x80,
        _ => false,
    }
}

/// Blanks `mod` blocks whose attribute is a `cfg` that needs `test`.
fn blank_test_modules(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(") {
        let start = from + found;
        let Some(close) = code[start..].find(']').map(|n| start + n + 1) else { break };
        from = close;
        if !needs_test(&code[start..close]) {
            continue;
        }
        let head = code[close..].split_once("mod ").map(|(head, _)| head);
        let is_module = head.is_some_and(is_visibility);
        let body = close + code[close..].find(['{', ';']).unwrap_or(0);
        if is_module && code.as_bytes().get(body) == Some(&b'{') {
            let end = block_end(code, body);
            blank(&mut out, start, end);
            from = end;
        }
    }
    into_text(out)
}

/// The byte after the brace that closes the one at `open`.
pub(super) fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        let text = "let a = \"x // y\"; // std::sync\nlet b = 'c'; fn f<'a>() {} /* { /* } */ */ z";
        let code = blank_comments_and_strings(text);
        assert_eq!(code.len(), text.len());
        assert!(!code.contains("std::sync") && !code.contains("x //"));
        assert!(code.contains("fn f<'a>() {}") && code.ends_with('z'));
        assert_eq!(code.matches(['{', '}']).count(), 2);
    }

    #[test]
    fn raw_strings_and_escapes() {
        let text = r####"let a = r#"a " { "#; let b = "\"{"; let c = '\''; let d = b'{'; end"####;
        let code = blank_comments_and_strings(text);
        assert!(!code.contains('{') && code.ends_with("end"), "{code}");
    }

    #[test]
    fn characters_beyond_ascii() {
        let code = blank_comments_and_strings("let a = '\u{e4}'; \"\u{1f600}\" // \u{e4}\nend");
        assert!(code.is_ascii() && code.ends_with("end"));
    }

    #[test]
    fn declared_test_modules_are_tests() {
        let root =
            "#[cfg(test)]\n#[allow(dead_code)]\nmod testing;\n#[cfg(test)] mod inner {}\nmod a;";
        let mut sources = [
            Source::new("crates/x/src/lib.rs", root),
            Source::new("crates/x/src/testing.rs", ""),
            Source::new("crates/x/src/testing/b.rs", ""),
            Source::new("crates/x/src/a.rs", ""),
        ];
        mark_declared_tests(&mut sources);
        assert_eq!(sources.map(|source| source.is_test), [false, true, true, false]);
    }

    #[test]
    fn test_modules_are_not_shipped() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c() }\n}\nfn d() {}\n\
            #[cfg(all(test, feature = \"x\"))] mod more { e }\n#[cfg(not(test))] mod f { g }";
        let shipped = Source::new("crates/x/src/y.rs", text).shipped;
        assert!(shipped.contains("fn a") && shipped.contains("fn d") && shipped.contains('g'));
        assert!(!shipped.contains("fn b") && !shipped.contains(" e "));
    }
}
