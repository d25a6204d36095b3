//! The parser of load files: a line is `[SECONDS] OPERATION ARGUMENT... STATUS` or a `#` comment.

use std::collections::HashMap;

/// How an operation is expected to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Success,
    /// The name does not exist.
    Missing,
    /// Any other failure.
    Failure,
}

/// A path, by its number in [`Load::paths`].
pub(crate) type PathNo = u32;
/// An open file, by a small number.
pub(crate) type HandleNo = u32;

/// What a file operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Open {
        path: PathNo,
        handle: HandleNo,
        how: Opening,
        dir: bool,
    },
    Close(HandleNo),
    Read {
        handle: HandleNo,
        offset: u64,
        len: u32,
    },
    Write {
        handle: HandleNo,
        offset: u64,
        len: u32,
    },
    Flush(HandleNo),
    Lock {
        handle: HandleNo,
        on: bool,
    },
    StatOpen(HandleNo),
    SetTimes(HandleNo),
    Stat(PathNo),
    Space,
    /// Lists names in a directory that match the last component of the path.
    Find {
        path: PathNo,
        most: u32,
    },
    Rename {
        from: PathNo,
        to: PathNo,
    },
    Unlink(PathNo),
    MakeDir(PathNo),
    RemoveDir(PathNo),
    RemoveTree(PathNo),
}

/// What an open does with an existing or a missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The file must exist.
    Existing,
    /// The file must not exist.
    New,
    /// An open of an existing or a new file.
    Either,
    /// The file must exist and is truncated.
    Emptied,
    /// An open of an existing file, which is truncated, or of a new one.
    EitherEmptied,
}

/// One line of a load file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) action: Action,
    pub(crate) expect: Expect,
}

/// A load file.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) ops: Vec<Op>,
    /// Paths without a leading slash; `client1` stands for the client's own name.
    pub(crate) paths: Vec<String>,
    /// Number of distinct handles.
    pub(crate) handles: usize,
    /// The longest read or write in bytes.
    pub(crate) longest: u32,
}

/// The option bit of an open of a directory.
const OPTION_DIRECTORY: u64 = 1;

impl Load {
    /// Parses a load file.
    ///
    /// # Errors
    /// The first line with an error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser::default();
        for (number, line) in text.lines().enumerate() {
            let parsed = parser.line(&words(line));
            parsed.map_err(|why| format!("line {}: {why}: {line}", number + 1))?;
        }
        let mut load = parser.load;
        load.handles = parser.handles.len();
        if load.ops.is_empty() {
            return Err("no operation in it".into());
        }
        Ok(load)
    }
}

#[derive(Default)]
struct Parser {
    load: Load,
    paths: HashMap<String, PathNo>,
    handles: HashMap<u64, HandleNo>,
}

impl Parser {
    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        let timed = words.first().is_some_and(|word| word.parse::<f64>().is_ok());
        let words = &words[usize::from(timed)..];
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        if name.starts_with('#') {
            return Ok(());
        }
        let (status, arguments) = arguments.split_last().ok_or("no status")?;
        let expect = expected(status)?;
        if let Some(action) = self.action(name, arguments)? {
            self.load.ops.push(Op { action, expect });
        }
        Ok(())
    }

    fn action(&mut self, name: &str, args: &[&str]) -> Result<Option<Action>, String> {
        let action = match name {
            "NTCreateX" => {
                let (options, disposition) = (number(args, 1)?, number(args, 2)?);
                let (path, handle) = (self.path(args, 0)?, self.handle(args, 3)?);
                let how = opening(disposition)?;
                Action::Open { path, handle, how, dir: options & OPTION_DIRECTORY != 0 }
            }
            "Close" => Action::Close(self.handle(args, 0)?),
            "ReadX" => {
                let (handle, offset, len) = self.transfer(args)?;
                Action::Read { handle, offset, len }
            }
            "WriteX" => {
                let (handle, offset, len) = self.transfer(args)?;
                Action::Write { handle, offset, len }
            }
            "Flush" => Action::Flush(self.handle(args, 0)?),
            "LockX" => Action::Lock { handle: self.handle(args, 0)?, on: true },
            "UnlockX" => Action::Lock { handle: self.handle(args, 0)?, on: false },
            "QUERY_FILE_INFORMATION" => Action::StatOpen(self.handle(args, 0)?),
            "SET_FILE_INFORMATION" => Action::SetTimes(self.handle(args, 0)?),
            "QUERY_PATH_INFORMATION" => Action::Stat(self.path(args, 0)?),
            "QUERY_FS_INFORMATION" => Action::Space,
            "FIND_FIRST" => {
                let most = number(args, 2)? as u32;
                Action::Find { path: self.path(args, 0)?, most }
            }
            "Rename" => Action::Rename { from: self.path(args, 0)?, to: self.path(args, 1)? },
            "Unlink" => Action::Unlink(self.path(args, 0)?),
            "Mkdir" => Action::MakeDir(self.path(args, 0)?),
            "Rmdir" => Action::RemoveDir(self.path(args, 0)?),
            "Deltree" => Action::RemoveTree(self.path(args, 0)?),
            "Sleep" => return Ok(None),
            _ => return Err("an operation that is not known".into()),
        };
        Ok(Some(action))
    }

    fn path(&mut self, args: &[&str], at: usize) -> Result<PathNo, String> {
        let text = args.get(at).ok_or("an argument is missing")?;
        let text = text.replace('\\', "/").to_lowercase();
        let text = text.trim_matches('/').to_owned();
        if text.is_empty() || text.contains('\0') {
            return Err("a path without a name".into());
        }
        let next = self.paths.len() as PathNo;
        let number = *self.paths.entry(text.clone()).or_insert(next);
        if number == next {
            self.load.paths.push(text);
        }
        Ok(number)
    }

    fn handle(&mut self, args: &[&str], at: usize) -> Result<HandleNo, String> {
        let next = self.handles.len() as HandleNo;
        Ok(*self.handles.entry(number(args, at)?).or_insert(next))
    }

    fn transfer(&mut self, args: &[&str]) -> Result<(HandleNo, u64, u32), String> {
        let (offset, len) = (number(args, 1)?, number(args, 2)?);
        let len = u32::try_from(len).ok().filter(|len| *len <= 1 << 24);
        let len = len.ok_or("a length of more than 16 MiB")?;
        self.load.longest = self.load.longest.max(len);
        Ok((self.handle(args, 0)?, offset, len))
    }
}

fn opening(disposition: u64) -> Result<Opening, String> {
    match disposition {
        0 | 5 => Ok(Opening::EitherEmptied),
        1 => Ok(Opening::Existing),
        2 => Ok(Opening::New),
        3 => Ok(Opening::Either),
        4 => Ok(Opening::Emptied),
        _ => Err("a disposition above 5".into()),
    }
}

fn expected(status: &str) -> Result<Expect, String> {
    match status {
        "NT_STATUS_OK" | "SUCCESS" => Ok(Expect::Success),
        "NT_STATUS_OBJECT_NAME_NOT_FOUND"
        | "NT_STATUS_OBJECT_PATH_NOT_FOUND"
        | "NT_STATUS_NO_SUCH_FILE" => Ok(Expect::Missing),
        status if status.starts_with("NT_STATUS_") => Ok(Expect::Failure),
        _ => Err("no status at its end".into()),
    }
}

fn number(args: &[&str], at: usize) -> Result<u64, String> {
    let text = args.get(at).ok_or("an argument is missing")?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text} is not a number"))
}

/// Splits a line at spaces; a quoted string is one word.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# a comment\n\
        Deltree \"\\clients\\client1\" NT_STATUS_OK\n\
        Mkdir \"\\clients\" NT_STATUS_OK\n\
        0.125 NTCreateX \"\\clients\\client1\\~A B.TXT\" 0x40 0x2 16385 NT_STATUS_OK\n\
        WriteX 16385 65534 1 1 NT_STATUS_OK\n\
        NTCreateX \"\\x\" 0x1 0x1 7 NT_STATUS_OBJECT_NAME_NOT_FOUND\n\
        FIND_FIRST \"\\clients\\client1\\FILLER.*\" 260 1366 0 NT_STATUS_NO_SUCH_FILE\n\
        Close 16385 NT_STATUS_OK\n";

    #[test]
    fn a_load_file_is_parsed() {
        let load = Load::parse(SAMPLE).expect("a good file");
        assert_eq!(load.handles, 2);
        assert_eq!(load.longest, 1);
        assert_eq!(load.paths[2], "clients/client1/~a b.txt");
        let open = Action::Open { path: 2, handle: 0, how: Opening::New, dir: false };
        assert_eq!(load.ops[2], Op { action: open, expect: Expect::Success });
        let write = Action::Write { handle: 0, offset: 65534, len: 1 };
        assert_eq!(load.ops[3].action, write);
        assert_eq!(load.ops[4].expect, Expect::Missing);
        assert_eq!(load.ops.len(), 7);
    }

    #[test]
    fn an_error_names_its_line() {
        let error = Load::parse("Close 1 NT_STATUS_OK\nFly 1 NT_STATUS_OK\n").expect_err("no");
        assert!(error.starts_with("line 2: an operation"), "{error}");
        assert!(Load::parse("ReadX 1 NT_STATUS_OK\n").is_err());
        assert!(Load::parse("Close x NT_STATUS_OK\n").is_err());
        assert!(Load::parse("Close 1\n").is_err());
        assert!(Load::parse("").is_err());
    }
}
