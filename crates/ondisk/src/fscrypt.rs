//! Encrypted names and link targets, in the form that Linux shows without the key.
//!
//! A *no-key name* is text in the alphabet of URL-safe base64, without padding, of these bytes:
//!
//! | bytes | contents |
//! |---|---|
//! | 0..8 | the two words of the name's hash, little-endian; zero if the directory has no index |
//! | 8..157 | up to 149 bytes of the ciphertext |
//! | 157..189 | only if the ciphertext is longer: SHA-256 of the rest |
//!
//! The text of a longer name has 252 characters, so each no-key name can be a file name.
//! Source: Linux's documentation, "Filesystem-level encryption (fscrypt)", and the names that
//! Linux 6.18 shows.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::htree::NameHash;
use crate::{Corrupt, Structure};

/// The fewest bytes of an encrypted name: one block of the cipher.
pub const LEAST_NAME: usize = 16;

/// Bytes of the two words of the hash.
const HASH: usize = 8;
/// The most bytes of ciphertext that a no-key name holds.
const WHOLE: usize = 149;
/// Bytes of a no-key name that holds a digest.
const LONG: usize = HASH + WHOLE + 32;
/// The longest text of a no-key name.
const LONGEST_TEXT: usize = text_len(LONG);
/// Bytes of the length before the ciphertext of a link's target.
const TARGET_AT: usize = 2;

const fn text_len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// An entry's name, as a no-key name describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKeyName {
    /// The ciphertext.
    Whole(Vec<u8>),
    /// The ciphertext is too long for the no-key name.
    Long(LongName),
}

/// The hash, the first bytes and a digest of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongName {
    major: u32,
    start: [u8; WHOLE],
    digest: [u8; 32],
}

impl LongName {
    /// The index key that the no-key name gives.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Whether an entry has this name.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let Some((start, rest)) = name.split_at_checked(WHOLE) else { return false };
        !rest.is_empty() && start == self.start && Sha256::digest(rest)[..] == self.digest
    }
}

impl NoKeyName {
    /// Parses the text; `None` if no name is shown like this.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > LONGEST_TEXT {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (hash, rest) = bytes.split_first_chunk::<HASH>()?;
        match rest.len() {
            0 => None,
            1..=WHOLE => Some(Self::Whole(rest.to_vec())),
            _ if bytes.len() == LONG => {
                let (start, digest) = rest.split_first_chunk()?;
                let (major, _) = hash.split_first_chunk()?;
                let (start, digest) = (*start, digest.try_into().ok()?);
                Some(Self::Long(LongName { major: u32::from_le_bytes(*major), start, digest }))
            }
            _ => None,
        }
    }
}

/// The no-key name of an entry's `name`, whose hash is `hash`.
///
/// # Errors
/// [`Corrupt`] if the name is too short for an encrypted one.
pub fn no_key_name(hash: NameHash, name: &[u8]) -> Result<String, Corrupt> {
    if name.len() < LEAST_NAME {
        return Err(Corrupt::too_short(Structure::Directory, LEAST_NAME, name.len()));
    }
    Ok(text(hash, name))
}

fn text(hash: NameHash, name: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(LONG);
    bytes.extend_from_slice(&hash.major.to_le_bytes());
    bytes.extend_from_slice(&hash.minor.to_le_bytes());
    let (start, rest) = name.split_at(name.len().min(WHOLE));
    bytes.extend_from_slice(start);
    if !rest.is_empty() {
        bytes.extend_from_slice(&Sha256::digest(rest));
    }
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// What an encrypted symbolic link shows without the key. `stored` is the link's target on disk:
/// a length of two bytes, then the ciphertext.
///
/// # Errors
/// [`Corrupt`] if the target is too short.
pub fn no_key_target(stored: &[u8]) -> Result<String, Corrupt> {
    let short = |need| Corrupt::too_short(Structure::Symlink, need, stored.len());
    let (len, rest) = stored.split_first_chunk::<TARGET_AT>().ok_or_else(|| short(TARGET_AT))?;
    let len = usize::from(u16::from_le_bytes(*len));
    let target = rest.get(..len).ok_or_else(|| short(TARGET_AT + len))?;
    if len < LEAST_NAME {
        return Err(Corrupt::too_short(Structure::Symlink, LEAST_NAME, len));
    }
    Ok(text(NameHash::default(), target))
}

/// How many bytes [`no_key_target`] gives for a link of `size` bytes.
#[must_use]
pub fn no_key_target_len(size: u64) -> u64 {
    let cipher = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(TARGET_AT);
    text_len(if cipher <= WHOLE { HASH + cipher } else { LONG }) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pairs that Linux 6.18 made: the length of the ciphertext and the text.
    const OF_LINUX: [(usize, &str); 2] =
        [(16, "kNl5pZjQSXS-Mhi_36wzbLsA7XaqUPX9"), (16, "0gKv2DzcFS8m0SecMPdr9qAJxzNVTw6v")];

    #[test]
    fn names_of_linux_are_parsed() {
        for (len, text) in OF_LINUX {
            let Some(NoKeyName::Whole(name)) = NoKeyName::parse(text.as_bytes()) else {
                panic!("{text}")
            };
            assert_eq!(name.len(), len);
        }
    }

    #[test]
    fn other_names_are_refused() {
        let text = OF_LINUX[0].1;
        let cut = &text[..text.len() - 1];
        let padded = format!("{text}=");
        let longer = "A".repeat(LONGEST_TEXT + 1);
        // More than ciphertext and less than a digest, and a hash alone.
        let between = BASE64_URL_SAFE_NO_PAD.encode([7; LONG - 1]);
        let hash = BASE64_URL_SAFE_NO_PAD.encode([7; HASH]);
        for bad in ["", "a", "name", cut, &padded, &longer, &between, &hash, "+/////////////////"] {
            assert_eq!(NoKeyName::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_target_is_checked() {
        let mut stored = vec![16, 0];
        stored.extend_from_slice(&[1; 16]);
        let text = no_key_target(&stored).unwrap();
        assert_eq!(text.len() as u64, no_key_target_len(18));
        assert!(text.starts_with("AAAAAAAAAAA"));
        for bad in [&stored[..1], &stored[..17], &[0, 0], &[3, 0, 1, 2, 3]] {
            assert!(no_key_target(bad).is_err(), "{bad:?}");
        }
        let long: Vec<u8> = [44, 1].into_iter().chain([9; 300]).collect();
        let len = no_key_target(&long).unwrap().len();
        assert_eq!((len, len as u64), (252, no_key_target_len(302)));
    }

    proptest! {
        #[test]
        fn a_name_is_found_by_what_is_shown(
            name in prop::collection::vec(any::<u8>(), LEAST_NAME..256),
            major: u32,
            minor: u32,
        ) {
            let text = no_key_name(NameHash { major, minor }, &name).unwrap();
            prop_assert!(text.len() <= 255 && !text.contains('/'));
            match NoKeyName::parse(text.as_bytes()).unwrap() {
                NoKeyName::Whole(found) => prop_assert_eq!(found, name),
                NoKeyName::Long(long) => {
                    prop_assert!(name.len() > WHOLE && long.matches(&name));
                    prop_assert_eq!(long.major(), major);
                    let mut other = name.clone();
                    *other.last_mut().unwrap() ^= 1;
                    prop_assert!(!long.matches(&other) && !long.matches(&name[..WHOLE]));
                }
            }
        }

        #[test]
        fn any_text_is_parsed(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (NoKeyName::parse(&text), no_key_target(&text));
        }
    }
}
