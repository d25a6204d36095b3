//! Modes as in chmod(1): octal, or clauses `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`.
//!
//! | rule | source |
//! |---|---|
//! | without `u`, `g`, `o`, `a` the bits of the umask do not change | POSIX chmod |
//! | a directory keeps set-user-id and set-group-id unless the mode mentions them | GNU chmod |
//! | octal with five digits or more mentions all bits | GNU chmod |
//! | `[-+=]` and octal digits change those bits | GNU chmod |

/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;

/// A change of a mode.
#[derive(Debug)]
pub(super) struct Change {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Remove,
    Set,
}

/// Where the bits of a step come from.
#[derive(Clone, Copy, Debug)]
enum Bits {
    These(u16),
    /// The bits of the class with its `rwx` at this shift.
    Copy(u16),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    /// Bits of the named classes; 0 without any.
    who: u16,
    bits: Bits,
    /// `X`: execute, for directories and files with any execute bit.
    execute_if: bool,
    /// Bits that the step mentions, for directories.
    mentioned: u16,
    /// The step is octal.
    octal: bool,
}

impl Change {
    /// Parses a mode; none if `text` is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let bits = octal(text)?;
            let mentioned = if text.len() > 4 { 0o7777 } else { bits & SET_ID | 0o1777 };
            let bits = Bits::These(bits);
            let (op, execute_if) = (Op::Set, false);
            let step = Step { op, who: 0o7777, bits, execute_if, mentioned, octal: true };
            return Some(Self { steps: vec![step] });
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '='])?;
            let who = clause[..at].bytes().try_fold(0, |who, class| {
                Some(
                    who | match class {
                        b'u' => 0o4700,
                        b'g' => 0o2070,
                        b'o' => 0o1007,
                        b'a' => 0o7777,
                        _ => return None,
                    },
                )
            })?;
            let mut rest = &clause[at..];
            while let Some(op) = rest.chars().next() {
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |end| end + 1);
                steps.push(step(op, who, &rest[1..end])?);
                rest = &rest[end..];
                // Nothing may follow octal digits in a clause.
                if !rest.is_empty() && steps.last().is_some_and(|step| step.octal) {
                    return None;
                }
            }
        }
        Some(Self { steps })
    }

    /// The mode after the change, for a caller with this umask.
    pub(super) fn apply(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        self.steps.iter().fold(mode, |mode, step| {
            // A directory keeps these bits because the step does not mention them.
            let kept = if is_dir { SET_ID & !step.mentioned } else { 0 };
            let mut bits = match step.bits {
                Bits::These(bits) => bits,
                Bits::Copy(shift) => (mode >> shift & 7) * 0o111,
            };
            if step.execute_if && (is_dir || mode & 0o111 != 0) {
                bits |= 0o111;
            }
            let who = if step.who == 0 { !umask } else { step.who };
            bits &= who & !kept & 0o7777;
            match step.op {
                Op::Add => mode | bits,
                Op::Remove => mode & !bits,
                Op::Set => {
                    let untouched = if step.who == 0 { 0 } else { !step.who };
                    mode & (untouched | kept) | bits
                }
            }
        })
    }
}

fn octal(text: &str) -> Option<u16> {
    u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777)
}

fn step(op: char, who: u16, letters: &str) -> Option<Step> {
    let op = match op {
        '+' => Op::Add,
        '-' => Op::Remove,
        _ => Op::Set,
    };
    let execute_if = false;
    let octal_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let copy = |shift| {
        let bits = Bits::Copy(shift);
        Some(Step { op, who, bits, execute_if, mentioned: 0, octal: false })
    };
    match letters {
        "u" => return copy(6),
        "g" => return copy(3),
        "o" => return copy(0),
        _ => {}
    }
    if octal_digits(letters) {
        let (bits, who, whole) = (Bits::These(octal(letters)?), 0o7777, who == 0);
        return whole.then_some(Step { op, who, bits, execute_if, mentioned: who, octal: true });
    }
    let (mut bits, mut execute_if) = (0, false);
    for letter in letters.bytes() {
        match letter {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= 0o111,
            b's' => bits |= SET_ID,
            b't' => bits |= 0o1000,
            b'X' => execute_if = true,
            _ => return None,
        }
    }
    let mentioned = if who == 0 { bits } else { who & bits };
    Some(Step { op, who, bits: Bits::These(bits), execute_if, mentioned, octal: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;

    const TEXTS: [&str; 34] = [
        "755",
        "0755",
        "00755",
        "2755",
        "u+x,go-w",
        "a=rX",
        "u=rwX,go=rX",
        "g+s",
        "+t",
        "u+s",
        "-s",
        "a-x+w",
        "u=g",
        "g=u-w",
        "o=u",
        "+w",
        "-w",
        "=r",
        "=",
        "u=",
        "g=s",
        "a=rwxst",
        "+x",
        "-X",
        "u=rws,g=rx",
        "o+t",
        "u-s,g+x",
        "=755",
        "+111",
        "-7000",
        "go=u,o-w",
        "ug=o",
        "a=",
        "+rwxXst",
    ];

    /// The mode after chmod(1) of `path` with mode `old`; none without a shell.
    fn chmod(path: &Path, old: u16, text: &str, umask: u16) -> Option<u16> {
        let script = "umask $1; chmod $2 $4; chmod -- $3 $4 2> /dev/null";
        let (umask, old) = (format!("{umask:o}"), format!("0{old:04o}"));
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", &umask, &old, text]).arg(path);
        command.status().ok()?;
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        u16::try_from(mode & 0o7777).ok()
    }

    /// Every text gives the same result as chmod(1), for every kind of old mode.
    #[test]
    fn changes_are_those_of_chmod() {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let (file, sub) = (dir.path().join("file"), dir.path().join("sub"));
        std::fs::write(&file, b"").expect("as above");
        std::fs::create_dir(&sub).expect("as above");
        let modes = [0, 0o644, 0o755, 0o2755, 0o4711, 0o7777, 0o1700, 0o640];
        for (umask, is_dir) in
            [(0o022, false), (0o077, false), (0, false), (0o022, true), (0, true)]
        {
            for (old, text) in modes.iter().flat_map(|old| TEXTS.map(|text| (*old, text))) {
                let path = if is_dir { &sub } else { &file };
                let Some(theirs) = chmod(path, old, text, umask) else {
                    return println!("skipped: no sh");
                };
                let ours = Change::parse(text).expect(text).apply(old, is_dir, umask);
                let what = format!("chmod {text} of {old:o}, umask {umask:o}, directory {is_dir}");
                assert_eq!(ours, theirs, "{what}: {ours:o} for {theirs:o}");
            }
        }
        for bad in [
            "9",
            "u*x",
            "",
            "888",
            "10000",
            "u=q",
            "u=755",
            "rwx",
            "u",
            "+6+u",
            "+755-w,o=",
            "=7=u",
        ] {
            assert!(Change::parse(bad).is_none(), "{bad}");
        }
    }
}
