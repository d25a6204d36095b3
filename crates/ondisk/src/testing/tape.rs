//! Fixtures as files: a compressed sequence of images and texts.
//!
//! | record | bytes |
//! |---|---|
//! | command | `C`, length, text |
//! | image | `I`, size, number of runs; each run has offset, length and bytes |
//! | text | `T`, length, text |
//!
//! Numbers are 64 bits, little endian. An image has only the runs that differ from the image
//! before; before the first image all bytes are zeros.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Equal bytes that end a run.
const GAP: usize = 16;

/// A fixture that is replayed or recorded.
pub(super) struct Tape {
    path: PathBuf,
    bytes: Vec<u8>,
    at: usize,
    image: Vec<u8>,
    recorded: bool,
}

impl Tape {
    fn at(name: &str, bytes: Vec<u8>, recorded: bool) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
        let path = dir.join(format!("{name}.gz"));
        Self { path, bytes, at: 0, image: Vec::new(), recorded }
    }

    /// Starts a recording of the image that `command` makes.
    pub(super) fn create(name: &str, command: &str) -> Self {
        let mut tape = Self::at(name, Vec::new(), true);
        tape.put_text(b'C', command);
        tape
    }

    /// Opens a recording and checks that it was made by `command`.
    pub(super) fn open(name: &str, command: &str) -> Self {
        let mut tape = Self::at(name, Vec::new(), false);
        let file = std::fs::File::open(&tape.path)
            .unwrap_or_else(|error| panic!("{}: {error}", tape.path.display()));
        GzDecoder::new(file).read_to_end(&mut tape.bytes).unwrap();
        assert_eq!(tape.take_text(b'C'), command, "record {name} again");
        tape
    }

    /// Records `image`, or returns the recorded one.
    pub(super) fn image(&mut self, image: Option<Vec<u8>>) -> Vec<u8> {
        match image {
            Some(image) => self.put_image(image),
            None => self.take_image(),
        }
        self.image.clone()
    }

    /// Records `text`, or returns the recorded one.
    pub(super) fn text(&mut self, text: Option<String>) -> String {
        match text {
            Some(text) => {
                self.put_text(b'T', &text);
                text
            }
            None => self.take_text(b'T'),
        }
    }

    fn put(&mut self, number: usize) {
        self.bytes.extend((number as u64).to_le_bytes());
    }

    fn put_text(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        self.put(text.len());
        self.bytes.extend(text.as_bytes());
    }

    fn put_image(&mut self, image: Vec<u8>) {
        self.image.resize(image.len(), 0);
        let runs = changed(&self.image, &image);
        self.bytes.push(b'I');
        self.put(image.len());
        self.put(runs.len());
        for run in runs {
            self.put(run.start);
            self.put(run.len());
            self.bytes.extend(&image[run]);
        }
        self.image = image;
    }

    fn take(&mut self) -> usize {
        let bytes = self.bytes[self.at..self.at + 8].try_into().unwrap();
        self.at += 8;
        u64::from_le_bytes(bytes) as usize
    }

    fn take_kind(&mut self, kind: u8) {
        assert_eq!(self.bytes.get(self.at), Some(&kind), "{}", self.path.display());
        self.at += 1;
    }

    fn take_text(&mut self, kind: u8) -> String {
        self.take_kind(kind);
        let len = self.take();
        self.at += len;
        String::from_utf8(self.bytes[self.at - len..self.at].to_vec()).unwrap()
    }

    fn take_image(&mut self) {
        self.take_kind(b'I');
        let (size, runs) = (self.take(), self.take());
        self.image.resize(size, 0);
        for _ in 0..runs {
            let (start, len) = (self.take(), self.take());
            self.image[start..start + len].copy_from_slice(&self.bytes[self.at..self.at + len]);
            self.at += len;
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if self.recorded && !std::thread::panicking() {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&self.bytes).unwrap();
            std::fs::write(&self.path, encoder.finish().unwrap()).unwrap();
        }
    }
}

/// The ranges in which two images of equal size differ.
fn changed(old: &[u8], new: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    // Whole blocks first: most are equal.
    for start in (0..new.len()).step_by(512) {
        let end = new.len().min(start + 512);
        if old[start..end] == new[start..end] {
            continue;
        }
        for at in (start..end).filter(|at| old[*at] != new[*at]) {
            match runs.last_mut() {
                Some(run) if at < run.end + GAP => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
    }
    runs
}
