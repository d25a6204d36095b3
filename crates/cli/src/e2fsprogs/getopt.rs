//! Splits arguments as getopt(3) does: letters may be joined, and options may follow operands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The options and operands of a command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// Each letter with its value, in order.
    pub(super) options: Vec<(char, Option<OsString>)>,
    /// The other arguments, in order.
    pub(super) operands: Vec<OsString>,
}

impl Words {
    /// Whether a letter was given.
    pub(super) fn has(&self, letter: char) -> bool {
        self.options.iter().any(|(given, _)| *given == letter)
    }

    /// The last value of a letter.
    pub(super) fn last(&self, letter: char) -> Option<&OsStr> {
        let mut of = self.options.iter().filter(|(given, _)| *given == letter);
        of.next_back().and_then(|(_, value)| value.as_deref())
    }

    /// The options as arguments of another command, each with the letter that `letter` gives it
    /// there, or left out.
    pub(super) fn arguments(
        &self,
        letter: impl Fn(char, Option<&OsStr>) -> Option<char>,
    ) -> Vec<OsString> {
        let word = |(given, value): &(char, Option<OsString>)| {
            let mut word = OsString::from(format!("-{}", letter(*given, value.as_deref())?));
            if let Some(value) = value {
                word.push("=");
                word.push(value);
            }
            Some(word)
        };
        self.options.iter().filter_map(word).collect()
    }
}

/// Splits `args`. In `letters`, a colon follows each letter that takes a value.
///
/// # Errors
/// The text that getopt(3) prints after the name of the program.
pub(super) fn split(args: &[OsString], letters: &str) -> Result<Words, String> {
    let mut words = Words::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            words.operands.extend(args.cloned());
            break;
        }
        if bytes.len() < 2 || bytes[0] != b'-' {
            words.operands.push(arg.clone());
            continue;
        }
        let mut rest = &bytes[1..];
        while let [byte, after @ ..] = rest {
            let letter = char::from(*byte);
            let at = letters.find(letter).filter(|_| letter != ':');
            let Some(at) = at else { return Err(format!("invalid option -- '{letter}'")) };
            if letters[at + 1..].starts_with(':') {
                let value = match after {
                    [] => args.next().cloned(),
                    value => Some(OsString::from_vec(value.to_vec())),
                };
                let missing = || format!("option requires an argument -- '{letter}'");
                words.options.push((letter, Some(value.ok_or_else(missing)?)));
                break;
            }
            words.options.push((letter, None));
            rest = after;
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Words, String> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        split(&args, "Fqb:L:")
    }

    #[test]
    fn letters_values_and_operands() {
        let all = words("-Fq a -b4096 1g -L x -- -q").unwrap();
        assert_eq!(all.operands, ["a", "1g", "-q"]);
        let options =
            [('F', None), ('q', None), ('b', Some("4096".into())), ('L', Some("x".into()))];
        assert_eq!(all.options, options);
        assert_eq!((all.has('F'), all.has('b'), all.has('V')), (true, true, false));
        assert_eq!(all.last('L'), Some(OsStr::new("x")));
        assert_eq!(words("-L x -Ly -").unwrap().last('L'), Some(OsStr::new("y")));
    }

    #[test]
    fn options_become_arguments() {
        let all = words("-Fq -b4096 -L x -b -1 a").unwrap();
        let arguments = all.arguments(|letter, value| match (letter, value) {
            ('q', _) => None,
            ('b', Some(value)) if value == "-1" => None,
            ('L', _) => Some('l'),
            (letter, _) => Some(letter),
        });
        assert_eq!(arguments, ["-F", "-b=4096", "-l=x"]);
    }

    #[test]
    fn errors_are_those_of_getopt() {
        assert_eq!(words("--help").unwrap_err(), "invalid option -- '-'");
        assert_eq!(words("-q:").unwrap_err(), "invalid option -- ':'");
        assert_eq!(words("a -b").unwrap_err(), "option requires an argument -- 'b'");
    }
}
