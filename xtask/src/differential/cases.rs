//! Random sizes and options that both programs accept.

use std::fmt;

/// A small random generator, with the same numbers on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    /// The numbers of case `n` of a run.
    pub(crate) fn new(seed: u64, n: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xd134_2543));
        rng.below(1);
        rng
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).expect("an index")]
    }
}

/// Features that both programs support; some get a `^`.
const FEATURES: &[&str] = &[
    "has_journal",
    "extents",
    "64bit",
    "flex_bg",
    "metadata_csum",
    "uninit_bg",
    "sparse_super",
    "sparse_super2",
    "meta_bg",
    "resize_inode",
    "large_file",
    "huge_file",
    "dir_index",
    "filetype",
    "ext_attr",
    "dir_nlink",
    "extra_isize",
    "orphan_file",
    "fast_commit",
    "metadata_csum_seed",
    "stable_inodes",
];

/// Options with a value: probability in percent, letter, values.
const OPTIONS: &[(u64, &str, &[&str])] = &[
    // Without it mke2fs makes ext2, and this program makes ext4.
    (100, "-t", &["ext2", "ext3", "ext4", "ext4", "ext4"]),
    (60, "-b", &["1024", "1024", "2048", "4096", "4096", "8192", "16384", "65536", "3000"]),
    (20, "-I", &["128", "256", "512", "1024", "4096", "100"]),
    (15, "-i", &["512", "1024", "2048", "4096", "65536", "1048576", "16777216", "67108864"]),
    (10, "-N", &["1", "11", "12", "16", "100", "5000", "100000"]),
    (20, "-g", &["256", "512", "1000", "1001", "1024", "2048", "8192", "32768", "65528"]),
    (15, "-G", &["1", "2", "4", "8", "64", "3"]),
    (10, "-m", &["0", "1", "7.3", "50", "51"]),
    (15, "-J", &["size=1", "size=2", "size=4", "size=8", "size=64", "size=100000"]),
    (4, "-J", &["location=5000", "fast_commit_size=256", "size=4,fast_commit_size=512"]),
    (4, "-r", &["0", "1"]),
    (5, "-L", &["label", "a-label-of-16-byt"]),
    (4, "-T", &["small", "floppy", "news", "largefile", "largefile4", "big"]),
    (10, "-E", &["packed_meta_blocks=1"]),
    (5, "-E", &["stride=16", "stride=4,stripe_width=8"]),
    (8, "-E", &["resize=1000", "resize=1000000", "resize=100000000"]),
    (5, "-E", &["num_backup_sb=0", "num_backup_sb=1", "num_backup_sb=2", "num_backup_sb=3"]),
    (5, "-E", &["lazy_itable_init=0", "lazy_itable_init=1", "lazy_journal_init=1"]),
    (4, "-E", &["orphan_file_size=1m", "orphan_file_size=100k", "root_owner=7:8", "test_fs"]),
];

/// Ranges of sizes, and probabilities in percent.
const SIZES: &[(u64, u64, u64)] = &[
    (15, 60 << 10, 2 << 20),
    (35, 2 << 20, 20 << 20),
    (30, 20 << 20, 200 << 20),
    (15, 200 << 20, 3 << 30),
    (5, 3 << 30, 40 << 30),
];

/// One comparison.
pub(crate) struct Case {
    /// Bytes of the image file.
    pub(crate) bytes: u64,
    /// The size in KiB on the command line; without it, the size of the file counts.
    pub(crate) kib: Option<u64>,
    /// Options, without `-E`.
    pub(crate) words: Vec<String>,
    /// Values of `-E`.
    pub(crate) extended: Vec<String>,
}

impl Case {
    /// Draws a case.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let (words, mut extended) = (Vec::new(), Vec::new());
        let bytes = size(rng);
        let kib = rng.percent(50).then_some(bytes >> 10);
        let bytes = kib.map_or(bytes, |kib| kib << 10);
        let mut case = Self { bytes, kib, words, extended: Vec::new() };
        for (chance, letter, values) in OPTIONS {
            if !rng.percent(*chance) || case.has(letter) {
                continue;
            }
            let value = rng.one(values).to_owned();
            match *letter {
                "-E" => extended.push(value),
                _ => case.words.extend([(*letter).to_owned(), value]),
            }
        }
        if rng.percent(3) {
            case.words.push("-j".into());
        }
        let count = rng.below(4);
        let mut features = Vec::new();
        for _ in 0..count {
            let sign = if rng.percent(60) { "^" } else { "" };
            features.push(format!("{sign}{}", rng.one(FEATURES)));
        }
        if !features.is_empty() {
            case.words.extend(["-O".into(), features.join(",")]);
        }
        case.extended = extended;
        case
    }

    /// Whether the case has an option.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// The value of an option.
    pub(crate) fn value(&self, letter: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == letter)?;
        self.words.get(at + 1).map(String::as_str)
    }
}

fn size(rng: &mut Rng) -> u64 {
    let mut roll = rng.below(100);
    for (chance, from, to) in SIZES {
        if roll < *chance {
            let bytes = from + rng.below(to - from);
            // Round numbers, whole blocks, and any number of bytes.
            return match rng.below(4) {
                0 => bytes >> 20 << 20,
                1 | 2 => bytes >> 10 << 10,
                _ => bytes,
            }
            .max(60 << 10);
        }
        roll -= chance;
    }
    64 << 20
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "truncate -s {} IMAGE; mke2fs -F {}", self.bytes, self.words.join(" "))?;
        if !self.extended.is_empty() {
            write!(f, " -E {}", self.extended.join(","))?;
        }
        write!(f, " IMAGE")?;
        self.kib.map_or(Ok(()), |kib| write!(f, " {kib}k"))
    }
}
