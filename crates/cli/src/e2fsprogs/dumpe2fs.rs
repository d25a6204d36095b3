//! `dumpe2fs`: the superblock, the journal's superblock and the groups.

use super::fields::Sizes;
use super::getopt::Words;
use super::groups::{self, Numbers};
use super::{
    Call, e2mmpstatus, external_journal, fields, misused, overview, split, to_stderr, utf8, version,
};
use crate::failure::{Failure, Result, say};
use nextent::check::At;
use nextent_ondisk::Incompat;
use std::process::ExitCode;

const USAGE: &str = "Usage: dumpe2fs [-bfhimxV] [-o superblock=number] [-o blocksize=bytes] \
    device\nNot supported: -g, and -i without -m.";

/// Prints what dumpe2fs prints.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    let words = split(call, "bfghimxVo:", USAGE)?;
    if words.has('V') {
        to_stderr(&version("dumpe2fs"));
        return Ok(ExitCode::SUCCESS);
    }
    if words.has('g') {
        return Err(Failure::new("-g is not supported"));
    }
    if words.has('i') && !words.has('m') {
        return Err(Failure::new("-i is not supported without -m: it reads files of e2image"));
    }
    let [image] = &words.operands[..] else { return Err(misused(USAGE, 1)) };
    let at = backup(&words)?;
    to_stderr(&version("dumpe2fs"));
    if words.has('m') {
        return e2mmpstatus::status(call, image, at, words.has('i'));
    }
    if let Some((sb, journal)) = external_journal(image).filter(|_| at.is_none()) {
        let sizes = Sizes::of_journal(journal.block_size());
        let text = fields::superblock(&sb, &sizes);
        say!("{text}{}", fields::journal(&journal, sizes.block_size).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let volume = overview(image, at)?;
    if words.has('b') {
        for block in volume.bad_blocks().into_iter().flatten() {
            say!("{block}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = fields::superblock(volume.superblock(), &Sizes::of(volume.geometry()));
    if let Some(journal) = volume.journal() {
        text.push_str(&fields::journal(&journal, volume.geometry().block_size));
    }
    if let Some(block) = volume.multi_mount() {
        text.push_str(&fields::multi_mount(&block));
    }
    say!("{text}");
    if !words.has('h') {
        say!();
        let wide = volume.geometry().features.has(Incompat::BIT64);
        let digits = words.has('x').then_some(if wide { 8 } else { 4 });
        groups::print(&volume, Numbers { digits })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The superblock that `-o` names.
pub(super) fn backup(words: &Words) -> Result<Option<At>> {
    let (mut superblock, mut block_size) = (None, None);
    for (letter, value) in &words.options {
        let (Some(value), 'o') = (value, letter) else { continue };
        let text = utf8("-o", value)?;
        let bad = || Failure::new(format!("-o {}: invalid", crate::show::line(text)));
        match text.split_once('=') {
            Some(("superblock", number)) => {
                superblock = Some(number.parse::<u64>().map_err(|_| bad())?);
            }
            Some(("blocksize", number)) => {
                block_size = Some(number.parse::<u32>().map_err(|_| bad())?);
            }
            _ => return Err(bad()),
        }
    }
    Ok(superblock.map(|block| At { block, block_size }))
}
