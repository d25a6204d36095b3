//! Unpacks compressed streams: gzip (RFC 1952) and zstd (RFC 8878), distinguished by their
//! first bytes.
//!
//! A stream may consist of several gzip members or zstd frames, one after the other, as pigz, pzstd
//! and builders of container images write them.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

/// Bytes of the buffer for packed data.
const BUFFER: usize = 1 << 17;
/// How many bytes tell the form.
const MAGIC: u64 = 4;

type Start<R> = Chain<Cursor<Vec<u8>>, R>;

/// A stream that is unpacked while it is read, or read as it is.
pub(super) enum Unpacked<R: Read> {
    Plain(Start<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Start<R>>>>),
    Zstd(Box<Frames<BufReader<Start<R>>>>),
}

impl<R: Read> Unpacked<R> {
    /// Reads the first bytes of `input`.
    ///
    /// # Errors
    ///
    /// The error of `input`.
    pub(super) fn new(mut input: R) -> io::Result<Self> {
        let mut start = Vec::new();
        input.by_ref().take(MAGIC).read_to_end(&mut start)?;
        let begins = |magic: &[u8]| start.starts_with(magic);
        let (gzip, zstd) = (begins(b"\x1f\x8b"), begins(b"\x28\xb5\x2f\xfd"));
        let input = Cursor::new(start).chain(input);
        let buffered = |input| BufReader::with_capacity(BUFFER, input);
        Ok(match (gzip, zstd) {
            (true, _) => Self::Gzip(Box::new(MultiGzDecoder::new(buffered(input)))),
            (_, true) => Self::Zstd(Box::new(Frames::new(buffered(input)))),
            _ => Self::Plain(input),
        })
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (form, read) = match self {
            Self::Plain(input) => return input.read(buf),
            Self::Gzip(input) => ("gzip", input.read(buf)),
            Self::Zstd(input) => ("zstd", input.read(buf)),
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, format!("unpacking {form}: {error}")),
        })
    }
}

/// The contents of all frames of a zstd stream.
pub(super) struct Frames<R: BufRead> {
    input: R,
    decoder: FrameDecoder,
    /// Whether `decoder` has a frame.
    within: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(input: R) -> Self {
        Self { input, decoder: FrameDecoder::new(), within: false }
    }

    /// Begins the next frame that has contents; false at the end.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.input) {
                Ok(()) => {
                    self.within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Ends a frame.
    fn end(&mut self) -> io::Result<()> {
        self.within = false;
        let stored = self.decoder.get_checksum_from_data();
        let same = stored.is_none() || stored == self.decoder.get_calculated_checksum();
        if same { Ok(()) } else { Err(io::Error::other("the checksum of a frame is wrong")) }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !buf.is_empty() {
            if !self.within && !self.begin()? {
                break;
            }
            if self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let block = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.input, block).map_err(io::Error::other)?;
            }
            match self.decoder.read(buf)? {
                0 if self.decoder.is_finished() => self.end()?,
                0 => {}
                read => return Ok(read),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Unpacked::new(bytes)?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn text(len: u32) -> Vec<u8> {
        (0..len).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    #[test]
    fn all_parts_of_a_stream_are_unpacked() {
        let (one, two) = (text(300_000), text(12));
        let both = [&one[..], &two].concat();
        let skipped = [&b"\x52\x2a\x4d\x18\x05\0\0\0"[..], b"12345"].concat();
        assert_eq!(unpacked(&[gzip(&one), gzip(&two)].concat()).unwrap(), both);
        let frames = [zstd(&one), skipped.clone(), zstd(&[]), zstd(&two), skipped];
        assert_eq!(unpacked(&frames.concat()).unwrap(), both);
        for plain in [&both[..], b"", b"\x1f", b"\x28\xb5\x2f"] {
            assert_eq!(unpacked(plain).unwrap(), plain);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let contents = text(40_000);
        for (form, good) in [("gzip", gzip(&contents)), ("zstd", zstd(&contents))] {
            for len in [good.len() - 1, good.len() / 2, 5] {
                let error = unpacked(&good[..len]).unwrap_err().to_string();
                assert!(error.starts_with(&format!("unpacking {form}: ")), "{len}: {error}");
            }
            let mut bad = good.clone();
            let last = bad.len() - 1;
            bad[last] ^= 1;
            assert!(unpacked(&bad).is_err(), "{form}: the checksum");
            assert_eq!(unpacked(&good).unwrap(), contents);
        }
    }
}
