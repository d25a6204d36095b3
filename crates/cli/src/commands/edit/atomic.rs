//! `edit --atomic`: all changes of a script or none.

use super::play;
use crate::failure::{Context, Failure, Result, complain};
use crate::image::{Purpose, device};
use crate::location::Inside;
use crate::show;
use crate::target::ImageSpec;
use nextent::inodes::Staged;
use nextent::{Error, OpenOptions};
use std::fs::{File, OpenOptions as HowToOpen};
use std::io::{self, BufRead, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The directory of scratch files without TMPDIR: unlike /tmp it is not in memory.
const SCRATCH: &str = "/var/tmp";

/// Runs the script on a staged volume, and applies its changes if no line failed.
pub(super) fn run(image: &ImageSpec, name: &str, input: impl BufRead) -> Result<()> {
    let shown = show::path(image);
    let directory = match std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()) {
        None if Path::new(SCRATCH).is_dir() => PathBuf::from(SCRATCH),
        _ => std::env::temp_dir(),
    };
    let file = scratch(&directory);
    let file = file.context(|| format!("scratch file in {}", show::path(&directory)))?;
    let staged = Staged::begin(device(image, Purpose::Change)?, file, &OpenOptions::new())
        .map_err(|error| Failure::new(format!("edit {shown}: {}", image.explain(&error))))?;
    let unchanged = || complain(&format!("{shown}: nothing was changed"));
    if let Err(failure) = play(name, input, false, staged.volume(), &Inside::root(image)) {
        failure.print();
        unchanged();
        return Err(Failure::reported(failure.code()));
    }
    let applied = staged.apply().map(drop);
    applied.map_err(|error| match error {
        Error::JournalTooSmall(_) => Failure::new(format!(
            "edit {shown}: {error}; nothing was changed: divide the script, or run it without \
             --atomic"
        )),
        error => Failure::new(format!(
            "edit {shown}: {error}; the next program that recovers the image completes all \
             changes, or finds none"
        )),
    })
}

/// An empty file without a name.
fn scratch(directory: &Path) -> io::Result<File> {
    let mut number = 0u32;
    loop {
        let path = directory.join(format!(".nextent-{}-{number}", std::process::id()));
        let how = HowToOpen::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match how {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => {
                let file = opened?;
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}
