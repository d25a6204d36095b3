//! `cat`.

use super::each::go_on;
use crate::args::Paths;
use crate::failure::{Failure, Result};
use crate::image::{Image, Purpose, at, cred};
use crate::location::Inside;
use nextent::FileType;
use nextent_num::to_u64;
use std::io::{self, Write};

const CHUNK: usize = 1 << 20;

/// `nextent cat`.
pub(crate) fn cat(args: &Paths) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut buf = vec![0; CHUNK];
    go_on(&args.paths, |path| {
        let inside = Inside::parse(path)?;
        let image = Image::of(&inside, Purpose::Read)?;
        let attr = at("cat", &inside, image.volume.resolve(&cred(), &inside.path, true))?;
        match attr.kind {
            FileType::Regular => {}
            FileType::Directory => {
                return Err(Failure::new(format!("cat {inside}: is a directory")));
            }
            _ => return Err(Failure::new(format!("cat {inside}: is not a regular file"))),
        }
        let mut offset = 0;
        loop {
            let n = at("cat", &inside, image.volume.read(attr.ino, offset, &mut buf))?;
            if n == 0 {
                return Ok(());
            }
            out.write_all(&buf[..n])?;
            offset += to_u64(n);
        }
    })?;
    Ok(out.flush()?)
}
