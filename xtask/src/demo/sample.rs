//! A sample tree: many small files, some large files, links of both kinds, a sparse file. It is the
//! same in each run.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// Counts of the tree.
pub(super) struct Made {
    files: usize,
    bytes: u64,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, {:.1} MB", self.files, self.bytes as f64 / 1e6)
    }
}

/// Makes about `files` files below `root`.
pub(super) fn make(root: &Path, files: usize) -> io::Result<Made> {
    const DIRS: usize = 8;
    let mut made = Made { files: 0, bytes: 0 };
    let mut state = 1;
    for dir in 0..DIRS {
        let dir = root.join(format!("dir{dir}"));
        fs::create_dir_all(dir.join("sub"))?;
        for n in 0..files / DIRS {
            let parent = if n % 3 == 0 { dir.join("sub") } else { dir.clone() };
            // Mostly small, sometimes large.
            let size = if n % 50 == 0 { 1 << 20 } else { n * n % 20_000 };
            let bytes = noise(&mut state, size);
            fs::write(parent.join(format!("file-{n}")), &bytes)?;
            made.files += 1;
            made.bytes += bytes.len() as u64;
        }
        symlink("sub/file-0", dir.join("link"))?;
        symlink("long/".repeat(60), dir.join("long-link"))?;
        fs::hard_link(dir.join("file-1"), dir.join("hard-link"))?;
        let sparse = fs::File::create(dir.join("sparse"))?;
        sparse.write_all_at(b"in the middle", 5_000_000)?;
        sparse.set_len(10_000_000)?;
        made.files += 4;
    }
    Ok(made)
}

/// Bytes that do not compress, by an xorshift generator.
fn noise(state: &mut u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        bytes.extend(state.to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}
