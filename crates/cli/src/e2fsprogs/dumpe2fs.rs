//! `dumpe2fs`: the superblock, the journal's superblock and the groups.

use super::fields::Sizes;
use super::groups::{self, Numbers};
use super::{Call, external_journal, fields, misused, overview, split, to_stderr, utf8, version};
use crate::failure::{Failure, Result, say};
use nextent::check::At;
use nextent_ondisk::Incompat;
use std::process::ExitCode;

const USAGE: &str = "Usage: dumpe2fs [-bfhxV] [-o superblock=number] [-o blocksize=bytes] device\n\
    Not supported: -g -i -m.";

/// Prints what dumpe2fs prints.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    let words = split(call, "bfghimxVo:", USAGE)?;
    if words.has('V') {
        to_stderr(&version("dumpe2fs"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(letter) = ['g', 'i', 'm'].into_iter().find(|letter| words.has(*letter)) {
        return Err(Failure::new(format!("-{letter} is not supported")));
    }
    let [image] = &words.operands[..] else { return Err(misused(USAGE, 1)) };
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
    to_stderr(&version("dumpe2fs"));
    if let Some((sb, journal)) = external_journal(image).filter(|_| superblock.is_none()) {
        let sizes = Sizes::of_journal(journal.block_size());
        let text = fields::superblock(&sb, &sizes);
        say!("{text}{}", fields::journal(&journal, sizes.block_size).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let volume = overview(image, superblock.map(|block| At { block, block_size }))?;
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
