//! `cat`.

use super::each::go_on;
use crate::args::Paths;
use crate::failure::{Failure, Result};
use crate::image::{at, cred};
use crate::location::Inside;
use crate::scope::Scope;
use nextent::FileType;
use nextent::inodes::Inodes;
use nextent_num::to_u64;
use std::io::{self, Write};

const CHUNK: usize = 1 << 20;

/// `nextent cat`.
pub(crate) fn cat(args: &Paths, scope: Scope<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut buf = vec![0; CHUNK];
    go_on(&args.paths, |path| {
        let inside = scope.inside(path)?;
        scope.read(&inside, |volume| copy(volume, &inside, &mut out, &mut buf))
    })?;
    Ok(out.flush()?)
}

/// Writes the contents of a file to `out`.
fn copy(volume: &Inodes, inside: &Inside, out: &mut impl Write, buf: &mut [u8]) -> Result<()> {
    let attr = at("cat", inside, volume.resolve(&cred(), &inside.path, true))?;
    match attr.kind {
        FileType::Regular => {}
        FileType::Directory => {
            return Err(Failure::new(format!("cat {inside}: is a directory")));
        }
        _ => return Err(Failure::new(format!("cat {inside}: is not a regular file"))),
    }
    let mut offset = 0;
    loop {
        let n = at("cat", inside, volume.read(attr.ino, offset, buf))?;
        if n == 0 {
            return Ok(());
        }
        out.write_all(&buf[..n])?;
        offset += to_u64(n);
    }
}
