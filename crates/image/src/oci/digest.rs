//! Digests of blobs.

use sha2::{Digest as _, Sha256, Sha512};
use std::fmt::Write;
use std::io::{self, Read};

/// A digest: `sha256:` or `sha512:`, and hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Digest {
    /// # Errors
    /// What is wrong with it. Nothing of it can then be part of a path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (algorithm, len, hex) = match text.split_once(':') {
            Some(("sha256", hex)) => (Algorithm::Sha256, 64, hex),
            Some(("sha512", hex)) => (Algorithm::Sha512, 128, hex),
            _ => return Err("a digest of another form than sha256:HEX or sha512:HEX".to_owned()),
        };
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match hex.len() == len && hex.bytes().all(is_hex) {
            true => Ok(Self { algorithm, hex: hex.to_owned() }),
            false => Err("a digest whose digits are wrong".to_owned()),
        }
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    pub(super) fn hex(&self) -> &str {
        &self.hex
    }
}

enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

/// A stream whose digest is computed while it is read.
pub(super) struct Checked<'d, R> {
    input: R,
    hasher: Hasher,
    digest: &'d Digest,
}

impl<'d, R: Read> Checked<'d, R> {
    pub(super) fn new(input: R, digest: &'d Digest) -> Self {
        let hasher = match digest.algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
        };
        Self { input, hasher, digest }
    }

    /// Reads the rest.
    ///
    /// # Errors
    /// The digest differs, or the error of the stream.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink())?;
        let mut hex = String::new();
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                // A string takes everything.
                let _ = write!(hex, "{byte:02x}");
            }
        };
        match &mut self.hasher {
            Hasher::Sha256(hasher) => add(&hasher.finalize_reset()),
            Hasher::Sha512(hasher) => add(&hasher.finalize_reset()),
        }
        if hex == self.digest.hex {
            return Ok(());
        }
        let text = "its contents do not have the digest of its descriptor";
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

impl<R: Read> Read for Checked<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buf)?;
        match &mut self.hasher {
            Hasher::Sha256(hasher) => hasher.update(&buf[..read]),
            Hasher::Sha512(hasher) => hasher.update(&buf[..read]),
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of "abc", from FIPS 180-2.
    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digests_are_compared() {
        let digest = Digest::parse(ABC).unwrap();
        let mut some = [0; 2];
        let mut good = Checked::new(&b"abc"[..], &digest);
        good.read_exact(&mut some).unwrap();
        good.finish().unwrap();
        for bad in [&b"abd"[..], b"abc ", b"ab", b""] {
            assert!(Checked::new(bad, &digest).finish().is_err());
        }
    }

    #[test]
    fn a_digest_is_no_path() {
        let upper = ABC.to_uppercase();
        for bad in ["", "sha256:", "sha256:../../x", "md5:00", &ABC[..70], &upper] {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }
}
