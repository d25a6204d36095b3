//! `e2label`: prints or changes the label.

use super::{Call, misused, overview, spec, split, to_stderr};
use crate::commands::tune;
use crate::failure::Result;
use nextent_ondisk::superblock::MAX_LABEL;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

const USAGE: &str = "Usage: e2label device [newlabel]";

/// Prints the label of an image, or changes it.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    let words = split(call, "", USAGE)?;
    match &words.operands[..] {
        [image] => {
            let volume = overview(image, None)?;
            let mut line = volume.superblock().label_bytes().to_vec();
            line.push(b'\n');
            std::io::stdout().write_all(&line)?;
        }
        [image, label] => {
            let volume = overview(image, None)?;
            let mut label = label.as_bytes();
            if label.len() > MAX_LABEL {
                to_stderr("Warning: label too long, truncating.");
                label = &label[..MAX_LABEL];
            }
            tune::relabel(&spec(image)?, label, volume.superblock())?;
        }
        _ => return Err(misused(USAGE, 1)),
    }
    Ok(ExitCode::SUCCESS)
}
