//! Splits a script into commands and words.
//!
//! A line is a command. The quotes are those of a POSIX shell, and those of `$'...'`:
//!
//! | text | meaning |
//! |---|---|
//! | space, tab | ends a word |
//! | `#` at the start of a word | a comment to the end of the line |
//! | `\` and a character | that character; `\` at the end of a line joins the next one |
//! | `'...'` | the characters as they are |
//! | `"..."` | as they are, but `\` before `\`, `"`, `$` and a backquote is removed |
//! | `$'...'` | with `\n \t \r \a \b \e \f \v \\ \' \"`, `\xHH` and `\` with three octal digits |
//!
//! No other character is special, and nothing is expanded. Words are bytes. A quoted text may have
//! several lines.

use std::io::{self, BufRead};

/// The most bytes of a command's words.
const MOST: usize = 16 << 20;

/// A command of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// The line where it begins, from 1.
    pub(super) line: u64,
    /// Its words, at least one.
    pub(super) words: Vec<Vec<u8>>,
}

/// Why a command cannot be read.
#[derive(Debug)]
pub(super) enum Error {
    /// The input failed.
    Read(io::Error),
    /// The text at this line is wrong.
    Text(u64, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
    Dollar,
}

/// Reads the commands of a script one after the other.
pub(super) struct Script<R> {
    input: R,
    line: u64,
    text: Vec<u8>,
}

/// A command that is being read.
struct Splitter {
    words: Vec<Vec<u8>>,
    /// The word that is being read; none between words.
    word: Option<Vec<u8>>,
    quote: Quote,
    bytes: usize,
}

impl<R: BufRead> Script<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 0, text: Vec::new() }
    }

    /// The next command; none at the end.
    ///
    /// # Errors
    /// Text that is wrong: the script goes on behind it. A failed read.
    pub(super) fn next(&mut self) -> Result<Option<Command>, Error> {
        loop {
            let mut splitter = Splitter::new();
            let begin = self.line + 1;
            loop {
                if !self.read()? {
                    return match splitter.is_open() {
                        true => Err(Error::Text(begin, "the quote has no end")),
                        false => Ok(splitter.finish(begin)),
                    };
                }
                match splitter.line(&self.text) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(what) => return Err(Error::Text(self.line, what)),
                }
            }
            if let Some(command) = splitter.finish(begin) {
                return Ok(Some(command));
            }
        }
    }

    /// Reads a line; false at the end.
    fn read(&mut self) -> Result<bool, Error> {
        self.text.clear();
        let mut limited = io::Read::take(&mut self.input, nextent_num::to_u64(MOST));
        if limited.read_until(b'\n', &mut self.text).map_err(Error::Read)? == 0 {
            return Ok(false);
        }
        self.line += 1;
        if self.text.len() == MOST {
            // What follows would be read as another line.
            let text = "the line is too long";
            return Err(Error::Read(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        Ok(true)
    }
}

impl Splitter {
    fn new() -> Self {
        Self { words: Vec::new(), word: None, quote: Quote::None, bytes: 0 }
    }

    fn is_open(&self) -> bool {
        self.quote != Quote::None
    }

    fn finish(mut self, line: u64) -> Option<Command> {
        self.words.extend(self.word.take());
        (!self.words.is_empty()).then_some(Command { line, words: self.words })
    }

    fn push(&mut self, byte: u8) {
        self.word.get_or_insert_default().push(byte);
    }

    /// Reads a line; true if the command ends with it.
    fn line(&mut self, text: &[u8]) -> Result<bool, &'static str> {
        self.bytes += text.len();
        if self.bytes > MOST {
            return Err("the command is too long");
        }
        let mut rest = text;
        while let [byte, behind @ ..] = rest {
            rest = behind;
            match (self.quote, *byte) {
                (Quote::None, b'\n') => return Ok(true),
                (Quote::None, b'\\') => match behind {
                    // The next line continues this one.
                    [] | [b'\n'] => return Ok(false),
                    [next, behind @ ..] => {
                        self.push(*next);
                        rest = behind;
                    }
                },
                (Quote::Single, b'\'') | (Quote::Double, b'"') | (Quote::Dollar, b'\'') => {
                    self.quote = Quote::None;
                }
                (Quote::Double, b'\\') => match behind {
                    [b'\n'] => return Ok(false),
                    [next @ (b'\\' | b'"' | b'$' | b'`'), behind @ ..] => {
                        self.push(*next);
                        rest = behind;
                    }
                    _ => self.push(b'\\'),
                },
                (Quote::Dollar, b'\\') => {
                    let (byte, behind) = escape(behind).ok_or(BAD_ESCAPE)?;
                    self.push(byte);
                    rest = behind;
                }
                (Quote::None, byte) => match self.plain(byte, behind) {
                    Some(behind) => rest = behind,
                    None => return Ok(true),
                },
                (_, byte) => self.push(byte),
            }
        }
        // The last line of a script may lack its end.
        Ok(self.quote == Quote::None)
    }

    /// Reads a byte outside quotes; returns what follows, or none behind a comment.
    fn plain<'t>(&mut self, byte: u8, behind: &'t [u8]) -> Option<&'t [u8]> {
        match (byte, behind) {
            (b' ' | b'\t', _) => self.words.extend(self.word.take()),
            (b'#', _) if self.word.is_none() => return None,
            (b'$', [b'\'', behind @ ..]) => {
                self.begin(Quote::Dollar);
                return Some(behind);
            }
            (b'\'', _) => self.begin(Quote::Single),
            (b'"', _) => self.begin(Quote::Double),
            (byte, _) => self.push(byte),
        }
        Some(behind)
    }

    fn begin(&mut self, quote: Quote) {
        self.quote = quote;
        // An empty quoted text is a word.
        self.word.get_or_insert_default();
    }
}

const BAD_ESCAPE: &str =
    "wrong escape in $'...': \\n \\t \\r \\a \\b \\e \\f \\v \\\\ \\' \\\" \\xHH \\OOO";

/// The byte of an escape, and what follows it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |digit: u8, base| {
        char::from(digit).to_digit(base).and_then(|value| u8::try_from(value).ok())
    };
    let (first, rest) = text.split_first()?;
    let byte = match first {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'e' => 27,
        b'f' => 12,
        b'v' => 11,
        b'\\' | b'\'' | b'"' => *first,
        b'x' => {
            let [high, low, rest @ ..] = rest else { return None };
            return Some((digit(*high, 16)? << 4 | digit(*low, 16)?, rest));
        }
        b'0'..=b'3' => {
            let [middle, low, rest @ ..] = rest else { return None };
            let high = first - b'0';
            return Some((high << 6 | digit(*middle, 8)? << 3 | digit(*low, 8)?, rest));
        }
        _ => return None,
    };
    Some((byte, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line and its words, or the number of a wrong line.
    type Line = Result<(u64, Vec<Vec<u8>>), u64>;

    fn read(text: &[u8]) -> Vec<Line> {
        let mut script = Script::new(text);
        let mut all = Vec::new();
        loop {
            match script.next() {
                Ok(None) => return all,
                Ok(Some(command)) => all.push(Ok((command.line, command.words))),
                Err(Error::Text(line, _)) => all.push(Err(line)),
                Err(Error::Read(error)) => panic!("{error}"),
            }
        }
    }

    fn words(text: &str) -> Vec<Vec<u8>> {
        match &read(text.as_bytes())[..] {
            [Ok((1, words))] => words.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn quotes() {
        for (text, expected) in [
            ("a b", &[&b"a"[..], b"b"][..]),
            ("  a\t b  # c", &[b"a", b"b"]),
            ("a#b '#' \\# #", &[b"a#b", b"#", b"#"]),
            ("'a b' \"c d\" e\\ f", &[b"a b", b"c d", b"e f"]),
            ("'' \"\" $''", &[b"", b"", b""]),
            ("a'b'\"c\"$'d'", &[b"abcd"]),
            ("'\\n' \"\\n\\\\\\\"\\$\"", &[b"\\n", b"\\n\\\"$"]),
            ("$'\\n\\x41\\101\\377\\'\\\\'", &[b"\nAA\xff'\\"]),
            ("$x ${y} * ; ~ | &", &[b"$x", b"${y}", b"*", b";", b"~", b"|", b"&"]),
            ("a\\\nb \\\n c", &[b"ab", b"c"]),
            ("'a\nb' \"c\\\nd\"", &[b"a\nb", b"cd"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
        assert_eq!(words("\u{e4}"), ["\u{e4}".as_bytes()]);
    }

    #[test]
    fn lines_are_counted() {
        let one = |line, word: &str| Ok((line, vec![word.as_bytes().to_vec()]));
        assert_eq!(read(b"\n# c\na\n\n'b\n'\nc"), [one(3, "a"), one(5, "b\n"), one(7, "c")]);
        assert_eq!(read(b"a\\\nb\nc"), [one(1, "ab"), one(3, "c")]);
        assert_eq!(read(b""), []);
        assert_eq!(read(b"a\n$'\\q'\nb\n\"x\ny"), [one(1, "a"), Err(2), one(3, "b"), Err(4)]);
        assert_eq!(read(b"\xff\\"), [Ok((1, vec![vec![0xff]]))]);
    }

    /// A shell splits the words in the same way.
    #[test]
    fn words_are_those_of_a_shell() {
        for text in [
            "a 'b c' \"d \\\" e\" f\\'g",
            "$'\\x41\\t\\e\\\\' x$'y'z \"a$'b'\"",
            "a#b \\#c '#d' # e",
            "\"a\\bc\" 'x'\\''y' \"\" ''",
            "a\\\nb \"c\\\nd\" 'e\\\nf'",
        ] {
            let mut command = std::process::Command::new("bash");
            command.args(["-c", &format!("set -f; printf '%s\\0' {text}\n")]);
            let Ok(output) = command.output() else { return println!("skipped: no bash") };
            let ours: Vec<u8> = words(text).iter().flat_map(|w| [&w[..], b"\0"].concat()).collect();
            assert_eq!(ours, output.stdout, "{text}");
        }
    }
}
