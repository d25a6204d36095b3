//! `chmod`, and walking trees for it and `chown`.

use super::change::each;
use super::list::entries;
use crate::args::Chmod;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::location::Inside;
use nextent::{Attr, FileType, SetAttr, Volume};

/// `nextent chmod`.
pub(crate) fn chmod(args: &Chmod) -> Result<()> {
    let change = Change::parse(&args.mode)
        .ok_or_else(|| Failure::usage(format!("chmod: `{}` is not a mode", args.mode)))?;
    each(&args.paths.paths, |volume, inside| {
        let attr = at("chmod", inside, volume.resolve(&cred(), &inside.path, true))?;
        walk(volume, inside, attr, args.recursive, &mut |inside, attr| {
            if attr.kind == FileType::Symlink {
                return Ok(());
            }
            let mode = change.apply(attr.mode, attr.kind == FileType::Directory);
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            at("chmod", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
        })
    })
}

/// Calls `each` for an inode and, if asked, for all below it.
pub(super) fn walk(
    volume: &Volume,
    inside: &Inside,
    attr: Attr,
    recursive: bool,
    each: &mut dyn FnMut(&Inside, &Attr) -> Result<()>,
) -> Result<()> {
    let mut todo = vec![(inside.clone(), attr)];
    while let Some((inside, attr)) = todo.pop() {
        if recursive && attr.kind == FileType::Directory {
            for entry in at("list", &inside, entries(volume, attr.ino))? {
                let below = inside.join(&entry.name);
                let attr = at("stat", &below, volume.getattr_listed(attr.ino, entry.ino))?;
                todo.push((below, attr));
            }
        }
        each(&inside, &attr)?;
    }
    Ok(())
}

/// What to do to a mode.
enum Change {
    /// These bits.
    Exactly(u16),
    /// Each in turn.
    Steps(Vec<Step>),
}

/// `[ugoa]*[+-=][rwxXst]*`.
struct Step {
    /// Bits of the classes it speaks of, set-id and sticky included.
    who: u16,
    op: u8,
    /// The bits for every class.
    bits: u16,
    /// `X`: execute for directories and what someone may execute already.
    execute_if: bool,
}

impl Change {
    fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            let mode = u16::from_str_radix(text, 8).ok()?;
            return (mode <= 0o7777).then_some(Self::Exactly(mode));
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '='])?;
            let mut who = 0;
            for class in clause[..at].bytes() {
                who |= match class {
                    b'u' => 0o4700,
                    b'g' => 0o2070,
                    b'o' => 0o1007,
                    b'a' => 0o7777,
                    _ => return None,
                };
            }
            let (mut bits, mut execute_if) = (0, false);
            for letter in clause[at + 1..].bytes() {
                match letter {
                    b'r' => bits |= 0o444,
                    b'w' => bits |= 0o222,
                    b'x' => bits |= 0o111,
                    b's' => bits |= 0o6000,
                    b't' => bits |= 0o1000,
                    b'X' => execute_if = true,
                    _ => return None,
                }
            }
            let who = if who == 0 { 0o7777 } else { who | 0o1000 & bits };
            steps.push(Step { who, op: clause.as_bytes()[at], bits, execute_if });
        }
        Some(Self::Steps(steps))
    }

    fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        let steps = match self {
            Self::Exactly(bits) => return *bits,
            Self::Steps(steps) => steps,
        };
        steps.iter().fold(mode, |mode, step| {
            let execute = step.execute_if && (is_dir || mode & 0o111 != 0);
            let bits = (step.bits | if execute { 0o111 } else { 0 }) & step.who;
            match step.op {
                b'+' => mode | bits,
                b'-' => mode & !bits,
                _ => mode & !step.who | bits,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        let apply = |text, mode, dir| Change::parse(text).map(|c| c.apply(mode, dir));
        assert_eq!(apply("755", 0, false), Some(0o755));
        assert_eq!(apply("u+x,go-w", 0o666, false), Some(0o744));
        assert_eq!(apply("a=rX", 0o600, false), Some(0o444));
        assert_eq!(apply("a=rX", 0o600, true), Some(0o555));
        assert_eq!(apply("g+s", 0o755, false), Some(0o2755));
        assert_eq!(apply("+t", 0o777, true), Some(0o1777));
        assert_eq!(apply("9", 0, false), None);
        assert_eq!(apply("u*x", 0, false), None);
    }
}
