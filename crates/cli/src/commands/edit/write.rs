//! The verb `write`: a file with the given text.

use crate::commands::change::create;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::scope::Scope;
use nextent::inodes::{Inodes, SetAttr};
use nextent::{Error, FileType};
use nextent_num::to_u64;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

#[derive(Debug, clap::Args)]
pub(super) struct Write {
    /// Keep the contents, and write behind them
    #[arg(short, long)]
    append: bool,
    /// A path inside the image
    path: OsString,
    /// The new contents, to which nothing is added
    #[arg(allow_hyphen_values = true)]
    text: OsString,
}

/// Gives a file the text as its contents; makes the file if it is missing.
pub(super) fn run(args: &Write, scope: Scope<'_>) -> Result<()> {
    let inside = scope.inside(&args.path)?;
    scope.change(&inside, |volume| {
        let found = match volume.resolve(&cred(), &inside.path, true) {
            Err(Error::NotFound) => create(volume, &inside),
            found => found,
        };
        let attr = at("write", &inside, found)?;
        if attr.kind != FileType::Regular {
            return Err(Failure::new(format!("write {inside}: is not a regular file")));
        }
        let mut offset = attr.size;
        if !args.append {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            at("write", &inside, volume.setattr(&cred(), attr.ino, &set))?;
            offset = 0;
        }
        let done = write_all(volume, attr.ino, offset, args.text.as_bytes());
        at("write", &inside, done)
    })
}

fn write_all(
    volume: &Inodes,
    ino: nextent::inodes::InodeNo,
    mut offset: u64,
    mut text: &[u8],
) -> nextent::Result<()> {
    while !text.is_empty() {
        let n = volume.write(&cred(), ino, offset, text)?;
        offset += to_u64(n);
        text = &text[n..];
    }
    Ok(())
}
