//! The bytes of a tar stream, which are read twice for an image whose size follows from them.
//!
//! A regular file is read again from its start. Any other stream is copied to a file without a name
//! in the image's directory while it is read for the first time.

use super::scratch::scratch_file;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;

/// Bytes of the buffer for reading.
const BUFFER: usize = 1 << 20;

/// A tar stream.
pub(super) enum Tape<'a> {
    /// It can be read once.
    Stream(Box<dyn Read + 'a>),
    /// What was read of a stream, and the rest of it.
    Kept { copy: File, rest: Box<dyn Read + 'a> },
    /// It can be read again and again.
    File(File),
}

impl<'a> Tape<'a> {
    /// A stream that can be read once.
    pub(super) fn stream(input: impl Read + 'a) -> Self {
        Self::Stream(Box::new(BufReader::with_capacity(BUFFER, input)))
    }

    /// The stream in an open file, which may be a pipe.
    pub(super) fn file(file: File) -> io::Result<Self> {
        match file.metadata()?.is_file() {
            true => Ok(Self::File(file)),
            false => Ok(Self::stream(file)),
        }
    }

    /// Makes it possible to read it again, with a file without a name in `dir` if necessary.
    pub(super) fn keep(&mut self, dir: &Path) -> io::Result<()> {
        if let Self::Stream(input) = self {
            let copy = scratch_file(dir)?;
            let rest = std::mem::replace(input, Box::new(io::empty()));
            *self = Self::Kept { copy, rest };
        }
        Ok(())
    }

    /// Reads it, from the start if possible.
    pub(super) fn read<R>(&mut self, read: impl FnOnce(&mut dyn Read) -> R) -> io::Result<R> {
        match self {
            Self::Stream(input) => Ok(read(input)),
            Self::Kept { copy, rest } => {
                copy.rewind()?;
                // The copy ends where the rest begins, so what is read there is appended.
                let kept = BufReader::with_capacity(BUFFER, &*copy);
                Ok(read(&mut kept.chain(Keeping { input: rest, copy })))
            }
            Self::File(file) => {
                file.rewind()?;
                Ok(read(&mut BufReader::with_capacity(BUFFER, &*file)))
            }
        }
    }
}

/// Appends what is read to a file.
struct Keeping<'a> {
    input: &'a mut dyn Read,
    copy: &'a File,
}

impl Read for Keeping<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.input.read(buf)?;
        self.copy.write_all(&buf[..got]).map_err(|error| {
            io::Error::new(error.kind(), format!("keeping the stream beside the image: {error}"))
        })?;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that was read in part is whole the next time.
    #[test]
    fn a_kept_stream_is_read_again() {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
        let mut tape = Tape::stream(&bytes[..]);
        tape.keep(dir.path()).expect("the directory can be written");
        for part in [0, 10, 1_500_000, 700_000, 2_999_999, 3_000_000, 5] {
            let mut got = vec![0; part];
            let read = tape.read(|input| input.read_exact(&mut got)).expect("it can be rewound");
            read.expect("it is long enough");
            assert!(got == bytes[..part], "{part}");
        }
        let mut all = Vec::new();
        let read = tape.read(|input| input.read_to_end(&mut all)).expect("it can be rewound");
        assert_eq!(read.expect("it can be read"), bytes.len());
        assert!(all == bytes);
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0, "no name");
    }

    #[test]
    fn a_file_is_read_again() {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let path = dir.path().join("file");
        std::fs::write(&path, "text").expect("it can be written");
        let mut tape = File::open(path).and_then(Tape::file).expect("it was made");
        for _ in 0..2 {
            let mut text = String::new();
            let read = tape.read(|input| input.read_to_string(&mut text));
            read.expect("it can be rewound").expect("it can be read");
            assert_eq!(text, "text");
        }
    }
}
