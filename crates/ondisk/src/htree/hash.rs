//! Hash functions of directory names.
//!
//! | hash | source |
//! |---|---|
//! | half MD4 | RFC 1320, cut to three rounds of eight steps |
//! | TEA | the cipher of Wheeler and Needham (1994) |
//! | SipHash-2-4 | Aumasson and Bernstein (2012) |
//!
//! Source of their use: ext4 disk layout documentation, "Hash Tree Directories".

/// The hash function of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// The original hash. Similar names get similar hashes.
    Legacy,
    /// Half of MD4, the default.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
    /// [`Self::Legacy`] with bytes above 127 as positive numbers.
    LegacyUnsigned,
    /// [`Self::HalfMd4`] with bytes above 127 as positive numbers.
    HalfMd4Unsigned,
    /// [`Self::Tea`] with bytes above 127 as positive numbers.
    TeaUnsigned,
    /// SipHash, for encrypted directories that ignore case.
    SipHash,
}

impl HashVersion {
    /// The function with the number `code` in a directory or superblock. `unsigned` is the
    /// superblock's flag.
    #[must_use]
    pub fn of_code(code: u8, unsigned: bool) -> Option<Self> {
        Some(match (code, unsigned) {
            (0, false) => Self::Legacy,
            (1, false) => Self::HalfMd4,
            (2, false) => Self::Tea,
            (0, true) | (3, _) => Self::LegacyUnsigned,
            (1, true) | (4, _) => Self::HalfMd4Unsigned,
            (2, true) | (5, _) => Self::TeaUnsigned,
            (6, _) => Self::SipHash,
            _ => return None,
        })
    }

    /// The number that a directory stores: signed and unsigned functions share one.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Legacy | Self::LegacyUnsigned => 0,
            Self::HalfMd4 | Self::HalfMd4Unsigned => 1,
            Self::Tea | Self::TeaUnsigned => 2,
            Self::SipHash => 6,
        }
    }

    fn is_unsigned(self) -> bool {
        matches!(self, Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned)
    }
}

/// The hash of a name. The index is sorted by it, and a listing distinguishes names of equal
/// `major` by `minor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// The index key. Its lowest bit is 0, and it is never 0xffff_fffe, which means the end.
    pub major: u32,
    /// Further bits of the hash.
    pub minor: u32,
}

/// The largest index key of a name.
pub const MAX_MAJOR: u32 = 0xffff_fffc;

/// The hash of a directory: function and seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    /// The algorithm.
    pub version: HashVersion,
    /// The superblock's seed. All zeros select the function's own seed; for SipHash it is the key.
    pub seed: [u32; 4],
}

impl Hasher {
    /// The hash of `name`. For a directory that ignores case, pass the folded name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let unsigned = self.version.is_unsigned();
        let (major, minor) = match self.version {
            HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
            HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
                let mut state = self.start();
                for (at, _) in name.iter().enumerate().step_by(32) {
                    half_md4(&mut state, &words::<8>(&name[at..], unsigned));
                }
                (state[1], state[2])
            }
            HashVersion::Tea | HashVersion::TeaUnsigned => {
                let mut state = self.start();
                for (at, _) in name.iter().enumerate().step_by(16) {
                    tea(&mut state, &words::<4>(&name[at..], unsigned));
                }
                (state[0], state[1])
            }
            HashVersion::SipHash => {
                let [a, b, c, d] = self.seed.map(u64::from);
                let sum = siphash(a | b << 32, c | d << 32, name);
                ((sum >> 32) as u32, sum as u32)
            }
        };
        NameHash { major: (major & !1).min(MAX_MAJOR), minor }
    }

    fn start(&self) -> [u32; 4] {
        if self.seed == [0; 4] {
            [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476]
        } else {
            self.seed
        }
    }
}

fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(byte) } else { byte as i8 as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut now, mut before) = (0x12a3_fe2du32, 0x37ab_e8f9u32);
    for &byte in name {
        let mixed = now ^ widen(byte, unsigned).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(mixed);
        if next >> 31 == 1 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        (before, now) = (now, next);
    }
    now << 1
}

/// The next `N` words of a name: four bytes each, first byte highest, padded with the remaining
/// length of the name.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let pad = (rest.len() as u32 & 0xff) * 0x0101_0101;
    let mut out = [pad; N];
    for (word, bytes) in out.iter_mut().zip(rest.chunks(4)) {
        for &byte in bytes {
            *word = (*word << 8).wrapping_add(widen(byte, unsigned));
        }
    }
    out
}

/// A reduced MD4 block: eight words instead of sixteen, each used once a round.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    const ROUNDS: [([usize; 8], [u32; 4], u32); 3] = [
        ([0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], 0),
        ([1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], 0x5A82_7999),
        ([3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], 0x6ED9_EBA1),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (round, (order, shifts, constant)) in ROUNDS.iter().enumerate() {
        for (step, &word) in order.iter().enumerate() {
            let mixed = match round {
                0 => (b & c) | (!b & d),
                1 => (b & c) | (b & d) | (c & d),
                _ => b ^ c ^ d,
            };
            let sum = a.wrapping_add(mixed).wrapping_add(input[word]).wrapping_add(*constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d]) {
        *old = old.wrapping_add(new);
    }
}

/// Sixteen cycles of TEA over the first two words of the state, with words of the name as the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let mix = |value: u32, sum: u32, k0: u32, k1: u32| {
        (value << 4).wrapping_add(k0) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(k1)
    };
    let (mut y, mut z, mut sum) = (state[0], state[1], 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        y = y.wrapping_add(mix(z, sum, key[0], key[1]));
        z = z.wrapping_add(mix(y, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(y);
    state[1] = state[1].wrapping_add(z);
}

/// SipHash-2-4 of `bytes` under a key of two words.
#[must_use]
pub fn siphash(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let load = |chunk: &[u8]| chunk.iter().rev().fold(0u64, |word, &b| word << 8 | u64::from(b));
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = load(chunk);
        v[3] ^= word;
        sip_rounds(&mut v, 2);
        v[0] ^= word;
    }
    let last = load(chunks.remainder()) | (bytes.len() as u64) << 56;
    v[3] ^= last;
    sip_rounds(&mut v, 2);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sip_rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}
