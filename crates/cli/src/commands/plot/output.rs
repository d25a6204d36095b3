//! Writes the picture to its file: all of it or nothing.
//!
//! A regular file is written under another name beside its place and then renamed, so an older
//! picture stays if the disk is full. Pipes and devices are written as they are.

use crate::failure::{Context, Failure, Result};
use crate::show;
use crate::target::ImageSpec;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where a picture went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Output {
    File,
    Standard,
}

/// The file for a picture. `-` is standard output.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// As the user wrote it, for messages.
    shown: &'a Path,
    /// Behind symbolic links.
    path: PathBuf,
    /// The file that is there.
    old: Option<Metadata>,
}

impl<'a> Target<'a> {
    /// The file at `path`, which must not be the image.
    ///
    /// # Errors
    /// It is the image, by any name, or it cannot be written.
    pub(super) fn new(path: &'a Path, image: &ImageSpec) -> Result<Self> {
        let context = || format!("plot {}", show::path(path));
        if path == Path::new("-") {
            return Ok(Self { shown: path, path: path.to_owned(), old: None });
        }
        let old = match fs::metadata(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).context(context),
        };
        let Some(found) = old.as_ref() else {
            return Ok(Self { shown: path, path: path.to_owned(), old });
        };
        let names = [Some(image.host_file()), image.resolve().ok().map(|place| place.path)];
        if names.iter().flatten().any(|name| is_same(found, name)) {
            let text = format!("{} is the image, which a plot would overwrite", show::path(path));
            return Err(Failure::new(text));
        }
        if found.is_dir() {
            return Err(io::Error::from(ErrorKind::IsADirectory)).context(context);
        }
        if found.file_type().is_block_device() {
            return Err(Failure::new(format!("{} is a block device", show::path(path))));
        }
        if found.is_file() {
            OpenOptions::new().write(true).open(path).context(context)?;
        }
        let real =
            if found.is_file() { fs::canonicalize(path).context(context)? } else { path.into() };
        Ok(Self { shown: path, path: real, old })
    }

    /// Writes the picture.
    ///
    /// # Errors
    /// It cannot be written. Nothing of it is left then.
    pub(super) fn write(self, text: &str) -> Result<Output> {
        if self.path == Path::new("-") {
            io::stdout().write_all(text.as_bytes())?;
            return Ok(Output::Standard);
        }
        let done = match &self.old {
            Some(old) if !old.is_file() => {
                let file = OpenOptions::new().write(true).open(&self.path);
                file.and_then(|mut file| file.write_all(text.as_bytes()))
            }
            _ => self.replace(text),
        };
        done.context(|| format!("plot {}", show::path(self.shown)))?;
        Ok(Output::File)
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let (mut file, name) = beside(directory)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| match &self.old {
            Some(old) => file.set_permissions(old.permissions()),
            None => Ok(()),
        });
        let done = written.and_then(|()| fs::rename(&name, &self.path));
        if done.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&name);
        }
        done
    }
}

/// A new file in `directory`.
fn beside(directory: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 0u32;
    loop {
        let path = directory.join(format!(".nextent-plot-{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Whether `found` is the file or block device at `name`.
fn is_same(found: &Metadata, name: &Path) -> bool {
    let Ok(other) = fs::metadata(name) else { return false };
    let block = |meta: &Metadata| meta.file_type().is_block_device();
    (found.dev(), found.ino()) == (other.dev(), other.ino())
        || (block(found) && block(&other) && found.rdev() == other.rdev())
}
