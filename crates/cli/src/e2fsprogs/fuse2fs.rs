//! `fuse2fs` and `fuse4fs`: fuse2fs's arguments, for `nextent mount`.
//!
//! apptainer calls it with an image as `/proc/self/fd/3`, a mount point as `/dev/fd/N` (an open
//! `/dev/fuse` that it has mounted itself), and the start of a partition in two environment
//! variables. They are for a library that it preloads, which a static program does not load.

use super::getopt::{self, Words};
use super::{Call, to_stderr, version};
use crate::failure::Failure;
use crate::show;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// The file that has an offset, and the offset in bytes.
const PRELOAD_FILE: &str = "OFFSETPRELOAD_FILE";
const PRELOAD_OFFSET: &str = "OFFSETPRELOAD_OFFSET";

/// What the arguments ask for.
enum Asked {
    Version,
    Help,
    Mount(Words),
}

fn usage(name: &str) -> String {
    format!(
        "usage: {name} device/image mountpoint [options]\n\n\
         general options:\n\
         \x20   -o opt,[opt...]  mount options\n\
         \x20   -f               stay in the foreground\n\
         \x20   -d               stay in the foreground, with messages about mounts\n\
         \x20   -s               serve by one thread\n\
         \x20   -h   --help      print this help\n\
         \x20   -V   --version   print the version\n\n\
         mount options: ro, norecovery, offset=<bytes>, errors=<what>, fakeroot, allow_other,\n\
         minixdf, acl, noacl, kernel, directio, cache_size=<bytes>; `nextent mount --help` has all."
    )
}

fn asked(args: &[OsString]) -> Result<Asked, String> {
    let long = args.iter().filter_map(|arg| arg.to_str());
    for word in long {
        match word {
            "--version" => return Ok(Asked::Version),
            "--help" | "--helpfull" => return Ok(Asked::Help),
            _ => {}
        }
    }
    let words = getopt::split(args, "o:fsdhV")?;
    Ok(match (words.has('V'), words.has('h')) {
        (true, _) => Asked::Version,
        (_, true) => Asked::Help,
        _ => Asked::Mount(words),
    })
}

/// Answers what is no mount. `None` if the arguments ask for a mount; [`words`] then has them.
pub(super) fn answered(call: &Call) -> Option<Result<ExitCode, Failure>> {
    let failed = |text: &str| {
        to_stderr(&format!("{text}\nSee '{} -h' for usage", call.name));
        Some(Err(Failure::reported(1)))
    };
    match asked(&call.args) {
        Ok(Asked::Version) => {
            to_stderr(&version(&call.name));
            Some(Ok(ExitCode::SUCCESS))
        }
        Ok(Asked::Help) => {
            to_stderr(&usage(&call.name));
            Some(Err(Failure::reported(1)))
        }
        Ok(Asked::Mount(words)) => match words.operands.len() {
            0 => failed("Missing ext4 device/image"),
            1 => failed("Missing mountpoint"),
            2 => None,
            _ => failed("Too many arguments"),
        },
        Err(text) => failed(&format!("{}: {}", call.name, show::line(&text))),
    }
}

/// The arguments of `nextent mount`.
pub(super) fn words(args: &[OsString]) -> Vec<OsString> {
    let mut list = ["nextent", "mount", "--caller-locks"].map(OsString::from).to_vec();
    let Ok(Asked::Mount(words)) = asked(args) else { return list };
    let mut foreground = words.has('f') || words.has('d');
    let mut talks = words.has('d');
    for (letter, value) in &words.options {
        let (Some(value), 'o') = (value, letter) else { continue };
        let Some(text) = value.to_str() else {
            list.extend(["-o".into(), value.clone()]);
            continue;
        };
        // These two only add messages.
        foreground |= text.split(',').any(|word| word == "debug");
        talks |= text.split(',').any(|word| matches!(word, "debug" | "fuse2fs_debug"));
        let kept = text.split(',').filter(|word| !matches!(*word, "debug" | "fuse2fs_debug"));
        list.extend(["-o".into(), kept.collect::<Vec<_>>().join(",").into()]);
    }
    if talks {
        list.extend(["-o".into(), "log_level=info".into()]);
    }
    let source = words.operands.first();
    if let Some(offset) = source.and_then(|source| preloaded(source)) {
        let mut word = OsString::from("offset=");
        word.push(offset);
        list.extend(["-o".into(), word]);
    }
    if words.has('s') {
        list.extend(["--threads".into(), "1".into()]);
    }
    if foreground {
        list.push("-f".into());
    }
    list.push("--".into());
    list.extend(words.operands);
    list
}

/// The offset that the environment gives for `source`.
fn preloaded(source: &OsStr) -> Option<OsString> {
    let file = std::env::var_os(PRELOAD_FILE).filter(|file| file == source);
    file.and_then(|_| std::env::var_os(PRELOAD_OFFSET)).filter(|offset| !offset.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_mount() {
        for (args, expected) in [
            ("-f -o allow_other,ro,fakeroot a b", "-o allow_other,ro,fakeroot -f -- a b"),
            ("a b -oro", "-o ro -- a b"),
            ("a b -s -d", "-o log_level=info --threads 1 -f -- a b"),
            ("-o fuse2fs_debug,ro a b", "-o ro -o log_level=info -- a b"),
            ("-o debug a b", "-o  -o log_level=info -f -- a b"),
        ] {
            let args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
            let expected: Vec<&str> = expected.split(' ').collect();
            assert_eq!(words(&args)[3..], expected);
        }
    }
}
