//! `tune2fs`: shows and changes the superblock.

use super::fields::Sizes;
use super::{Call, fields, misused, overview, split, superblock, to_stderr, utf8, version};
use crate::commands::tune::{self, Wrong};
use crate::failure::{Failure, Result, complain, say};
use crate::target::ImageSpec;
use clap::Parser;
use nextent_ondisk::Incompat;
use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "Usage: tune2fs [-c max_mounts_count] [-e errors_behavior] [-f] [-g group]\n\
    \t[-i interval[d|m|w]] [-j] [-J journal_options] [-l]\n\
    \t[-m reserved_blocks_percent] [-o [^]mount_options[,...]]\n\
    \t[-r reserved_blocks_count] [-u user] [-C mount_count]\n\
    \t[-L volume_label] [-M last_mounted_dir]\n\
    \t[-O [^]feature[,...]] [-E extended-option[,...]]\n\
    \t[-T last_check_time] [-U UUID] [-I new_inode_size] device\n\
    Not supported: -Q -z. `nextent tune --help` describes the others.";

const EXTENDED: &str = "\nBad options specified.\n\n\
    Extended options are separated by commas, and may take an argument which\n\
    \tis set off by an equals ('=') sign.\n\n\
    Valid extended options are:\n\
    \tclear_mmp\n\
    \thash_alg=<hash algorithm>\n\
    \tmount_opts=<extended default mount options>\n\
    \tmmp_update_interval=<mmp update interval in seconds>\n\
    \tstride=<RAID per-disk chunk size in blocks>\n\
    \tstripe_width=<RAID stride*data disks in blocks>\n\
    \tforce_fsck\n\
    \ttest_fs\n\
    \t^test_fs\n";

/// Letters that cannot be honoured, and what to do instead.
const REFUSED: [(char, &str); 2] = [
    ('Q', "make the file system with mke2fs -O quota of e2fsprogs"),
    ('z', "undo files are not supported; copy the image before"),
];

/// Shows or changes what tune2fs shows and changes.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    say!("{}", version("tune2fs"));
    let words = split(call, "c:e:fg:i:jlm:o:r:s:u:C:E:I:J:L:M:O:Q:T:U:z:", USAGE)?;
    if let Some((letter, why)) = REFUSED.iter().find(|(letter, _)| words.has(*letter)) {
        return Err(Failure::new(format!("-{letter} is not supported: {why}")));
    }
    if words.has('s') {
        return Err(Failure::new("-s is not supported: use -O sparse_super"));
    }
    let [image] = &words.operands[..] else { return Err(misused(USAGE, 1)) };
    if words.options.iter().all(|(letter, _)| *letter == 'f') {
        return Err(misused(USAGE, 1));
    }
    let volume = overview(image, None)?;
    if let Some(size) = words.last('I') {
        let flexible = volume.superblock().features().has(Incompat::FLEX_BG);
        let now = u32::from(volume.superblock().inode_size_bytes());
        // tune2fs has this reason only for sizes that are possible.
        let larger = utf8("-I", size)?.parse::<u32>().is_ok_and(|size| {
            let block = volume.geometry().block_size;
            size.is_power_of_two() && size > now && size <= block
        });
        if flexible && larger {
            let text = "Changing the inode size not supported for filesystems with the flex_bg";
            to_stderr(&format!("{text}\nfeature enabled."));
            return Ok(ExitCode::FAILURE);
        }
    }
    let mut list: Vec<OsString> = vec!["tune".into()];
    list.extend(words.arguments(|letter, _| Some(letter)));
    list.extend(["--".into(), image.clone()]);
    let args = tune::Args::try_parse_from(list).map_err(|error| {
        let text = crate::failure::usage_text(&error);
        Failure::new(text)
    })?;
    let wrong = match tune::change(&args, volume.superblock()) {
        Ok(()) => return Ok(ExitCode::SUCCESS),
        Err(wrong) => wrong,
    };
    match wrong {
        Wrong::Failed(failure) => return Err(failure),
        Wrong::Plain(text) => complain(&text),
        Wrong::Raw(text) => to_stderr(&text),
        Wrong::Value(text) => {
            complain(&text);
            to_stderr(USAGE);
        }
        Wrong::Extended { line, .. } => {
            line.iter().for_each(|line| to_stderr(line));
            to_stderr(EXTENDED);
        }
    }
    Ok(ExitCode::FAILURE)
}

/// What `tune2fs -l` prints of an image.
pub(super) fn listing(image: &ImageSpec) -> Result<String> {
    let volume = superblock(image, None).map_err(Failure::new)?;
    let text = fields::superblock(volume.superblock(), &Sizes::of(volume.geometry()));
    // Without a blank line at the end, unlike dumpe2fs.
    Ok(text.trim_end_matches('\n').to_owned())
}
