//! SELinux `file_contexts`: labels by path and type.
//!
//! A line is an expression, optionally a type (`--` file, `-d` directory, `-l` symbolic link, `-c`
//! and `-b` devices, `-p` pipe, `-s` socket), and a context or `<<none>>`. The expression must
//! match the whole path. As in libselinux, expressions without special characters come before the
//! others, and otherwise the last line that matches counts.
//!
//! As libselinux, this also reads the files beside it, if they exist: `.homedirs` and `.local` have
//! further lines, and `.subs` and `.subs_dist` have parts of paths that stand for others.
//!
//! libselinux uses PCRE, this module the crate `regex`. Both agree on what they have in common;
//! a line with another expression is refused: look-around, references, possessive repetition, and
//! sets within sets.

use super::list_file::{AttributesError, ListFile, shown};
use super::set_label;
use super::substitutes::Substitutes;
use crate::entry::{Kind, Meta};
use nextent_sync::OnceLock;
use regex::bytes::{Regex, RegexBuilder};
use std::borrow::Cow;
use std::path::Path;

/// The special characters of an expression, as libselinux lists them.
const SPECIAL: &[u8] = b".^$?*+|[({";

/// SELinux labels by path and type.
#[derive(Debug, Default)]
pub struct FileContexts {
    /// Later ones first, as they are tried.
    literal: Vec<Rule>,
    expressions: Vec<Rule>,
    /// Applied in this order.
    substitutes: Vec<Substitutes>,
}

/// A line.
#[derive(Debug)]
struct Rule {
    /// The whole path of a literal, or what each path that matches begins with.
    prefix: Vec<u8>,
    /// The expression, and the compiled form once a path with the prefix was seen: few lines of a
    /// policy are about paths that an image has.
    text: String,
    compiled: OnceLock<Regex>,
    /// None for all types.
    kind: Option<u8>,
    /// None for `<<none>>`.
    context: Option<Vec<u8>>,
}

impl FileContexts {
    /// Reads the file, and those beside it with the endings `.homedirs`, `.local`, `.subs` and
    /// `.subs_dist`.
    ///
    /// # Errors
    ///
    /// [`AttributesError`]
    pub fn read(path: impl AsRef<Path>) -> Result<Self, AttributesError> {
        let path = path.as_ref();
        let file = ListFile::read(path)?;
        let mut all = Self::default();
        all.add(&file)?;
        if all.literal.is_empty() && all.expressions.is_empty() {
            return Err(file.whole("the file has no contexts"));
        }
        for suffix in [".homedirs", ".local"] {
            if let Some(more) = ListFile::beside(path, suffix)? {
                all.add(&more)?;
            }
        }
        for suffix in [".subs", ".subs_dist"] {
            if let Some(file) = ListFile::beside(path, suffix)? {
                all.substitutes.push(Substitutes::parse(&file)?);
            }
        }
        all.literal.reverse();
        all.expressions.reverse();
        Ok(all)
    }

    /// Adds the lines of `file` at the end.
    fn add(&mut self, file: &ListFile) -> Result<(), AttributesError> {
        file.each_line(|_, line| {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let words: Vec<&[u8]> = words.collect();
            if words.first().is_none_or(|word| word.starts_with(b"#")) {
                return Ok(());
            }
            let (rule, is_literal) = Rule::parse(&words)?;
            let rules = if is_literal { &mut self.literal } else { &mut self.expressions };
            rules.push(rule);
            Ok(())
        })
    }

    /// Gives `meta`, of the entry at `path`, its label in place of the source's.
    pub(super) fn apply(&self, path: &[u8], meta: &mut Meta) {
        let whole = Cow::Borrowed(path);
        let path = self.substitutes.iter().fold(whole, |path, some| some.apply(path));
        let path: &[u8] = &path;
        let kind = letter(&meta.kind);
        let fits = |rule: &&Rule| rule.kind.is_none_or(|other| other == kind);
        let mut literal = self.literal.iter().filter(fits);
        let found = literal.find(|rule| rule.prefix == path).or_else(|| {
            let mut others = self.expressions.iter().filter(fits);
            others.find(|rule| path.starts_with(&rule.prefix) && rule.expression().is_match(path))
        });
        set_label(meta, found.and_then(|rule| rule.context.as_deref()));
    }
}

impl Rule {
    /// Parses a line; whether its expression has no special characters.
    fn parse(words: &[&[u8]]) -> Result<(Self, bool), String> {
        let (text, kind, context) = match words {
            [text, context] => (text, None, context),
            [text, kind, context] => (text, Some(parse_kind(kind)?), context),
            [_] => return Err("an expression without a context".into()),
            _ => return Err("more than the fields EXPRESSION TYPE CONTEXT".into()),
        };
        let context = match *context {
            b"<<none>>" => None,
            context => Some(parse_context(context)?),
        };
        let text = std::str::from_utf8(text).map_err(|_| "the expression is not UTF-8")?;
        let (prefix, is_literal) = prefix(text.as_bytes());
        let text = if is_literal { String::new() } else { portable(text)? };
        if !is_literal {
            // A long message of several lines otherwise.
            compile(&text).map_err(|error| {
                let text = error.to_string();
                let last = text.trim().lines().last().unwrap_or_default();
                let why = last.trim_start_matches("error: ");
                format!("the expression '{}' is not supported: {why}", shown(text_of(words)))
            })?;
        }
        Ok((Self { prefix, text, compiled: OnceLock::new(), kind, context }, is_literal))
    }

    fn expression(&self) -> &Regex {
        let compiled = || compile(&self.text).expect("it was compiled when the file was read");
        self.compiled.get_or_init(compiled)
    }
}

fn text_of<'a>(words: &[&'a [u8]]) -> &'a [u8] {
    words.first().copied().unwrap_or_default()
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    // Names are bytes. libselinux has `.` match line ends, too.
    RegexBuilder::new(&format!("^(?:{text})$")).unicode(false).dot_matches_new_line(true).build()
}

fn parse_kind(word: &[u8]) -> Result<u8, String> {
    match word {
        [b'-', kind @ (b'-' | b'd' | b'l' | b'c' | b'b' | b'p' | b's')] => Ok(*kind),
        _ => Err(format!("the type '{}' is none of -- -d -l -c -b -p -s", shown(word))),
    }
}

/// The letter of a type in these files.
fn letter(kind: &Kind) -> u8 {
    match kind {
        Kind::File => b'-',
        Kind::Dir => b'd',
        Kind::Symlink(_) => b'l',
        Kind::Char(_) => b'c',
        Kind::Block(_) => b'b',
        Kind::Fifo => b'p',
        Kind::Socket => b's',
    }
}

/// A context is `USER:ROLE:TYPE`, with a level where the policy has levels.
fn parse_context(word: &[u8]) -> Result<Vec<u8>, String> {
    let parts: Vec<&[u8]> = word.splitn(4, |byte| *byte == b':').collect();
    match parts.len() >= 3 && parts.iter().all(|part| !part.is_empty()) {
        true => Ok(word.to_vec()),
        false => Err(format!("'{}' is not a context USER:ROLE:TYPE[:LEVEL]", shown(word))),
    }
}

/// What each path that matches `text` begins with, and whether that is all of it.
fn prefix(text: &[u8]) -> (Vec<u8>, bool) {
    // Alternatives at the top begin with anything.
    let several = has_alternatives(text);
    let cut = |prefix: Vec<u8>| if several { Vec::new() } else { prefix };
    let mut prefix = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (byte, next) = match text[at] {
            // An escaped letter or digit is a class or worse, and no literal.
            b'\\' => match text.get(at + 1) {
                Some(byte) if !byte.is_ascii_alphanumeric() => (*byte, at + 2),
                _ => return (cut(prefix), false),
            },
            byte if SPECIAL.contains(&byte) => {
                return (cut(prefix), false);
            }
            byte => (byte, at + 1),
        };
        // A repetition may leave out the character before it.
        if matches!(text.get(next), Some(b'?' | b'*' | b'{')) {
            return (cut(prefix), false);
        }
        prefix.push(byte);
        at = next;
    }
    (prefix, true)
}

/// Whether `text` has a `|` outside groups.
fn has_alternatives(text: &[u8]) -> bool {
    let (mut depth, mut set, mut bytes) = (0usize, false, text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b']' => set = false,
            b'[' => set = true,
            b'(' if !set => depth += 1,
            b')' if !set => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// The expression for the crate `regex`, which gives a few texts another meaning than PCRE does.
fn portable(text: &str) -> Result<String, String> {
    let refused = |what: &str| Err(format!("the expression '{text}' is not supported: {what}"));
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    // Within a set, and the character before; whether the last item was a repetition.
    let (mut set, mut before, mut repeated) = (false, '\0', false);
    while let Some(c) = chars.next() {
        let mut repeats = false;
        match c {
            '\\' => {
                let Some(next) = chars.next() else { return refused("it ends in a backslash") };
                // In PCRE these are plain characters, in `regex` the edges of words.
                if !matches!(next, '<' | '>') {
                    out.push('\\');
                }
                out.push(next);
                before = '\0';
                repeated = false;
                continue;
            }
            '[' if set && !matches!(chars.peek(), Some(':')) => return refused("a set in a set"),
            '&' | '~' | '-' if set && before == c => return refused("an operation on sets"),
            '[' if !set => {
                set = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket in the first place is a plain character.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
                before = '\0';
                repeated = false;
                continue;
            }
            '[' => {
                // `[:alnum:]`
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
                before = '\0';
                continue;
            }
            ']' if set => set = false,
            '+' if !set && repeated => return refused("a possessive repetition"),
            '*' | '?' | '+' | '}' if !set => repeats = true,
            _ => {}
        }
        out.push(c);
        (before, repeated) = (c, repeats);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(rules: &str, path: &str, kind: Kind) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file_contexts");
        std::fs::write(&file, rules).unwrap();
        let mut meta = super::super::finish::meta(kind, 0o644, 0, 0);
        meta.xattrs.push((b"security.selinux".to_vec(), b"old\0".to_vec()));
        FileContexts::read(&file).unwrap().apply(path.as_bytes(), &mut meta);
        let (_, value) = meta.xattrs.pop()?;
        assert_eq!(value.last(), Some(&0));
        Some(String::from_utf8(value[..value.len() - 1].to_vec()).unwrap())
    }

    const RULES: &str = "\
# a comment
/.*\t\tu:r:default:s0
/	-d	u:r:root:s0
/usr(/.*)?  u:r:usr:s0
/usr/bin/.* -- u:r:bin:s0
/usr/bin/ls -- u:r:ls:s0
/usr/bin/l.*  --  u:r:later:s0
/etc/.*\\.conf -- u:r:conf:s0
/a\\.b u:r:ab:s0
/proc <<none>>
/proc/.* <<none>>
/dev/[^/]* -c u:r:device:s0
/dev/[[:alpha:]]+[0-9]{1,2} -b u:r:disk:s0
/(lib|bin)/x u:r:either:s0
/x|/y u:r:top:s0:c0.c5
";

    #[test]
    fn the_last_match_counts_and_literals_before_all() {
        let device = || Kind::Char(nextent::DeviceNo::default());
        let disk = || Kind::Block(nextent::DeviceNo::default());
        for (path, kind, want) in [
            ("/", Kind::Dir, Some("u:r:root:s0")),
            ("/usr", Kind::Dir, Some("u:r:usr:s0")),
            ("/usrx", Kind::Dir, Some("u:r:default:s0")),
            ("/usr/bin", Kind::Dir, Some("u:r:usr:s0")),
            ("/usr/bin/cat", Kind::File, Some("u:r:bin:s0")),
            ("/usr/bin/cat", Kind::Symlink(Vec::new()), Some("u:r:usr:s0")),
            ("/usr/bin/ls", Kind::File, Some("u:r:ls:s0")),
            ("/usr/bin/lsx", Kind::File, Some("u:r:later:s0")),
            ("/etc/a\nb.conf", Kind::File, Some("u:r:conf:s0")),
            ("/etc/aconf", Kind::File, Some("u:r:default:s0")),
            ("/a.b", Kind::Fifo, Some("u:r:ab:s0")),
            ("/axb", Kind::Fifo, Some("u:r:default:s0")),
            ("/proc", Kind::Dir, None),
            ("/proc/x", Kind::File, None),
            ("/dev/tty", device(), Some("u:r:device:s0")),
            ("/dev/tty", Kind::Socket, Some("u:r:default:s0")),
            ("/dev/sda1", disk(), Some("u:r:disk:s0")),
            ("/dev/sda123", disk(), Some("u:r:default:s0")),
            ("/bin/x", Kind::File, Some("u:r:either:s0")),
            ("/y", Kind::File, Some("u:r:top:s0:c0.c5")),
        ] {
            assert_eq!(label(RULES, path, kind).as_deref(), want, "{path}");
        }
        assert_eq!(label("/a u:r:t\n", "/b", Kind::File), None);
    }

    #[test]
    fn files_beside_it_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fc");
        let label = |path: &str| {
            let mut meta = super::super::finish::meta(Kind::File, 0o644, 0, 0);
            FileContexts::read(&file).unwrap().apply(path.as_bytes(), &mut meta);
            meta.xattrs.pop().map(|(_, value)| String::from_utf8(value).unwrap())
        };
        for (suffix, text) in [
            ("", "/usr/lib(/.*)? u:r:lib\n/.* u:r:late\n/usr/lib/x.* u:r:x\n"),
            (".local", "/usr/lib/xy.* u:r:local\n"),
            (".homedirs", "/home/.* u:r:home\n/usr/lib/xy.* u:r:lost\n"),
            (".subs_dist", "# some\n/usr/lib64 /usr/lib/\n/usr/lib64/deep /home\n/root /\n"),
            (".subs", "/opt/ /usr/lib64\n"),
        ] {
            std::fs::write(dir.path().join(format!("fc{suffix}")), text).unwrap();
        }
        for (path, want) in [
            ("/usr/lib64/x", "u:r:x\0"),
            ("/usr/lib64/xy", "u:r:local\0"),
            ("/usr/lib64x/x", "u:r:late\0"),
            ("/usr/lib64/deep/x", "u:r:home\0"),
            ("/opt/x", "u:r:x\0"),
            ("/root/usr/lib/x", "u:r:x\0"),
            ("/root", "u:r:late\0"),
        ] {
            assert_eq!(label(path).as_deref(), Some(want), "{path}");
        }
        for bad in ["/a\n", "/a b\n", "/a /b /c\n"] {
            std::fs::write(dir.path().join("fc.subs"), bad).unwrap();
            let error = FileContexts::read(&file).unwrap_err().to_string();
            assert!(error.contains("fc.subs:1: "), "{error}");
        }
        std::fs::write(dir.path().join("fc.subs"), "").unwrap();
        assert!(FileContexts::read(&file).is_ok());
    }

    #[test]
    fn what_two_libraries_understand_differently() {
        for (rule, path, matches) in [
            ("/a\\<b.*", "/a<bc", true),
            ("/[]x].*", "/]y", true),
            ("/[^]x].*", "/]y", false),
            ("/a-b.*", "/a-bc", true),
            ("/a&&b.*", "/a&&bc", true),
            ("/[a&]+", "/a&", true),
            ("/[a-c-]+", "/-b", true),
            ("/a(b|c)?+d", "", false),
            ("/x{2}", "/xx", true),
            ("/\\d", "/7", true),
        ] {
            let text = format!("{rule} u:r:t");
            let words: Vec<&[u8]> = text.as_bytes().split(|byte| *byte == b' ').collect();
            match Rule::parse(&words) {
                Ok((parsed, false)) => {
                    let path = path.as_bytes();
                    let found =
                        path.starts_with(&parsed.prefix) && parsed.expression().is_match(path);
                    assert_eq!(found, matches, "{rule}");
                }
                Ok(_) => panic!("{rule} is no literal"),
                Err(_) => assert!(!matches, "{rule}"),
            }
        }
    }

    #[test]
    fn bad_lines_are_refused() {
        for (line, words) in [
            ("/a", "without a context"),
            ("/a -x u:r:t", "the type '-x'"),
            ("/a -- u:r:t more", "more than the fields"),
            ("/a u:r", "is not a context"),
            ("/a u::t", "is not a context"),
            ("/a(b u:r:t", "unclosed group"),
            ("/a(?=b) u:r:t", "look-around"),
            ("/(a)\\1 u:r:t", "backreferences"),
            ("/a*+b u:r:t", "possessive"),
            ("/[a[b]] u:r:t", "a set in a set"),
            ("/[a--b] u:r:t", "an operation on sets"),
            ("/a.\\ u:r:t", "ends in a backslash"),
            ("/[z-a] u:r:t", "is not supported"),
        ] {
            let parts: Vec<&[u8]> = line.as_bytes().split(|byte| *byte == b' ').collect();
            let text = Rule::parse(&parts).unwrap_err();
            assert!(text.contains(words) && !text.contains('\n'), "{line}: {text}");
        }
    }
}
