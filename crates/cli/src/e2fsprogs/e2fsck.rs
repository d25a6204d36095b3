//! `e2fsck`, `fsck.ext2`, `fsck.ext3` and `fsck.ext4`: e2fsck's arguments, for `nextent fsck`.

use super::getopt::Words;
use super::{Call, getopt, misused, to_stderr, version};
use crate::args::{Args, Command};
use crate::commands::fsck;
use crate::failure::{Failure, Result};
use crate::show;
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// Letters, with a colon after those that take a value.
const LETTERS: &str = "panyrcC:B:dE:fvtFVb:j:l:L:DTkz:";

/// Letters that cannot be honoured, and why.
const REFUSED: [(char, &str); 5] = [
    ('c', "blocks are not tested; use badblocks(8)"),
    ('D', "directories are not optimized"),
    ('l', "lists of bad blocks are not supported"),
    ('L', "lists of bad blocks are not supported"),
    ('z', "undo files are not supported"),
];

/// The arguments are wrong.
const USAGE: u8 = 16;
/// The check cannot be done.
const OPERATIONAL: u8 = 8;

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [-panyfvtV] [-b superblock] [-B blocksize] [-C fd]\n\
         \t[-j external-journal] [-E extended-options] device\n\n\
         Emergency help:\n\
         \x20 -p, -a, -y     replay the journal, check, and print one line; no other repairs\n\
         \x20 -n             change nothing\n\
         \x20 -f             check even if the file system is marked clean\n\
         \x20 -v             print more\n\
         \x20 -b superblock  use this superblock\n\
         \x20 -B blocksize   the size of its blocks\n\
         \x20 -j device      the external journal\n\
         Not supported: -c -D -l -L -z."
    )
}

/// The arguments of `nextent fsck`. `-p` and `-a` are the same, and may both be given.
fn arguments(words: &Words) -> Vec<OsString> {
    let mut list = ["nextent", "fsck"].map(OsString::from).to_vec();
    let both = words.has('p');
    list.extend(words.arguments(|letter, _| (letter != 'a' || !both).then_some(letter)));
    list.push("--".into());
    list.extend(words.operands.iter().cloned());
    list
}

/// Checks as e2fsck does.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    let name = &call.name;
    let words = getopt::split(&call.args, LETTERS).map_err(|error| {
        to_stderr(&format!("{name}: {}", show::line(&error)));
        misused(&usage(name), USAGE)
    })?;
    if words.has('V') {
        to_stderr(&version("e2fsck"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((letter, why)) = REFUSED.iter().find(|(letter, _)| words.has(*letter)) {
        let text = format!("-{letter} is not supported: {why}");
        return Err(Failure::new(text).with_code(USAGE));
    }
    if words.operands.len() != 1 {
        return Err(misused(&usage(name), USAGE));
    }
    let preen = words.has('p') || words.has('a');
    if [preen, words.has('n'), words.has('y')].into_iter().filter(|given| *given).count() > 1 {
        let text = "only one of the options -p/-a, -n or -y may be specified";
        return Err(Failure::new(text).with_code(OPERATIONAL));
    }
    if !preen {
        to_stderr(&version("e2fsck"));
    }
    match Args::try_parse_from(arguments(&words)).map(|args| args.command) {
        Ok(Command::Fsck(args)) => fsck::run(&args),
        Ok(_) => Err(misused(&usage(name), USAGE)),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            Err(Failure::new(line).with_code(USAGE))
        }
    }
}
