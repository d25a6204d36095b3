//! `tune2fs -l`: the superblock. What changes a superblock is not supported.

use super::{Call, fields, misused, overview, split, version};
use crate::failure::{Failure, Result, say};
use std::process::ExitCode;

const USAGE: &str = "Usage: tune2fs [-f] -l device\n\
    Other options of tune2fs are not supported: they change a superblock. e2label changes a label.";

/// Prints what `tune2fs -l` prints.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    say!("{}", version("tune2fs"));
    let words = split(call, "c:e:fg:i:jlm:o:r:s:u:C:E:I:J:L:M:O:Q:T:U:z:", USAGE)?;
    let other = words.options.iter().find(|(letter, _)| !matches!(letter, 'f' | 'l'));
    if let Some((letter, _)) = other {
        return Err(Failure::new(format!("-{letter} is not supported")));
    }
    let ([image], true) = (&words.operands[..], words.has('l')) else {
        return Err(misused(USAGE, 1));
    };
    let volume = overview(image, None)?;
    let text = fields::superblock(volume.superblock(), volume.geometry());
    // Without a blank line at the end, unlike dumpe2fs.
    say!("{}", text.trim_end_matches('\n'));
    Ok(ExitCode::SUCCESS)
}
