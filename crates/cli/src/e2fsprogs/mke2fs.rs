//! `mke2fs`, `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`: mke2fs's arguments and output, for
//! [`mkfs`].

mod report;

use super::conf::Conf;
use super::defaults::{self, Defaults};
use super::fields::MOUNT_OPTIONS;
use super::getopt::Words;
use super::{Call, misused, spec, split, to_stderr, utf8, version};
use crate::commands::mkfs;
use crate::failure::{Failure, Result, say};
use crate::show;
use crate::size::Size;
use crate::target;
use clap::Parser;
use nextent::mkfs::{CreatorOs, JournalPlan, MkfsOptions, NameHash};
use nextent_ondisk::superblock::mount_opts;
use nextent_ondisk::{Geometry, Superblock};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) use report::creator;

/// Letters, with a colon after those that take a value.
const LETTERS: &str = "b:cC:d:De:E:FG:g:i:I:jJ:Kl:L:m:M:nN:o:O:qr:R:s:St:T:U:vVz:";

/// Letters that cannot be honoured, and why.
const REFUSED: [(char, &str); 5] = [
    ('c', "blocks are not tested; use badblocks(8) before"),
    ('C', "clusters (bigalloc) are not supported"),
    ('l', "lists of bad blocks are not supported"),
    ('s', "use -O sparse_super"),
    ('z', "undo files are not supported"),
];

/// The page size that a negative block size of mke2fs.conf stands for.
const PAGE: u32 = 4096;

/// What mke2fs takes from elsewhere than its options.
#[derive(Debug)]
struct Mke2fs {
    conf: Conf,
    fs_type: String,
    usages: Option<String>,
    /// Letters that were given.
    letters: Vec<char>,
    /// The least block size, from a negative `-b`.
    least_block_size: u32,
    /// Bytes of a sector of the device.
    sector: u32,
}

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [-b block-size] [-d directory|tarball] [-D] [-e errors-behavior]\n\
         \t[-E extended-option[,...]] [-F] [-g blocks-per-group] [-G flex-group-size]\n\
         \t[-i bytes-per-inode] [-I inode-size] [-j] [-J journal-option[,...]]\n\
         \t[-L label] [-m reserved-percentage] [-M last-mounted-directory] [-n]\n\
         \t[-N number-of-inodes] [-o creator-os] [-O feature[,...]] [-q]\n\
         \t[-r fs-revision] [-t fs-type] [-T usage-type[,...]] [-U UUID] [-v] [-V]\n\
         \tdevice [size]\n\
         Not supported: -c -C -l -S -z. `nextent mkfs --help` describes the others."
    )
}

/// Makes a file system as mke2fs does.
pub(super) fn run(call: &Call) -> Result<ExitCode> {
    let name = &call.name;
    let words = split(call, LETTERS, &usage(name))?;
    if words.has('V') {
        to_stderr(&version("mke2fs"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((letter, why)) = REFUSED.iter().find(|(letter, _)| words.has(*letter)) {
        return Err(Failure::new(format!("-{letter} is not supported: {why}")));
    }
    if !words.has('q') {
        to_stderr(&version("mke2fs"));
    }
    let (Some(image), true) = (words.operands.first(), words.operands.len() < 3) else {
        return Err(misused(&usage(name), 1));
    };
    let size = words.operands.get(1);
    let target = spec(image)?;
    if size.is_none() && target::is_file(target.path()) && !target.path().exists() {
        let image = show::path(image);
        let text = format!("The file {image} does not exist and no size was specified.");
        to_stderr(&text);
        return Err(Failure::reported(1));
    }
    let (conf, image) = (defaults::read()?, PathBuf::from(image));
    let fs_type = fs_type(name, &words, &conf, &image)?;
    let known = matches!(fs_type.as_str(), "ext2" | "ext3" | "ext4");
    if !known && !conf.has(&["fs_types", &fs_type]) {
        let text = show::line(&fs_type);
        say!("\nYour mke2fs.conf file does not define the {text} filesystem type.");
        say!("Aborting...");
        return Err(Failure::reported(1));
    }
    let mut args = arguments(&words, &image)?;
    args.front = Some(Box::new(Mke2fs {
        usages: usages(&words, &conf, &image)?,
        letters: words.options.iter().map(|(letter, _)| *letter).collect(),
        least_block_size: least_block_size(&words)?,
        sector: sector(target.path())?,
        conf,
        fs_type,
    }));
    if !args.dry_run && target::is_file(args.path()) && !args.path().exists() {
        say!("Creating regular file {}", show::path(args.path()));
    }
    mkfs::run(&args)
}

/// The first of: that of `-t`, ext2 for the Hurd, that of the program's name, that of the file for
/// the device, that of the file in general, ext3 for a journal, ext2.
fn fs_type(name: &str, words: &Words, conf: &Conf, image: &Path) -> Result<String> {
    if let Some(given) = words.last('t') {
        return Ok(utf8("-t", given)?.to_owned());
    }
    // Only -t makes another type for the Hurd.
    let creator = words.last('o').map(|given| utf8("-o", given)).transpose()?;
    if creator.and_then(|name| mkfs::values::creator(name).ok()) == Some(CreatorOs::Hurd) {
        return Ok("ext2".to_owned());
    }
    if let Some(of_name) = name.strip_prefix("mkfs.") {
        return Ok(of_name.to_owned());
    }
    let device = image.to_string_lossy();
    let found = conf.value(&["devices", &device, "fs_type"]);
    let journal = words.has('j') || words.has('J');
    let found = found.or_else(|| conf.value(&["defaults", "fs_type"]));
    Ok(found.unwrap_or(if journal { "ext3" } else { "ext2" }).to_owned())
}

fn usages(words: &Words, conf: &Conf, image: &Path) -> Result<Option<String>> {
    if let Some(given) = words.last('T') {
        return Ok(Some(utf8("-T", given)?.to_owned()));
    }
    let device = image.to_string_lossy();
    Ok(conf.value(&["devices", &device, "usage_types"]).map(str::to_owned))
}

/// The size after the minus sign of `-b`.
fn least_block_size(words: &Words) -> Result<u32> {
    let Some(given) = words.last('b') else { return Ok(0) };
    let text = utf8("-b", given)?;
    let Some(least) = text.strip_prefix('-') else { return Ok(0) };
    let size: Option<Size> = least.parse().ok();
    let bytes = size.and_then(|size| size.bytes(1)).and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| bytes.is_power_of_two() && (1024..=65536).contains(bytes));
    bytes.ok_or_else(|| Failure::new(format!("invalid block size - {}", show::line(text))))
}

/// Bytes of a sector: those of the environment, which systemd sets for files, or of the device.
fn sector(image: &Path) -> Result<u32> {
    const NAME: &str = "MKE2FS_DEVICE_SECTSIZE";
    if let Ok(text) = std::env::var(NAME) {
        let sector = text.parse().ok().filter(|sector: &u32| *sector > 0);
        return sector.ok_or_else(|| Failure::new(format!("{NAME}: not a number of bytes")));
    }
    let Ok(file) = std::fs::File::open(image) else { return Ok(0) };
    Ok(rustix::fs::ioctl_blksszget(file).unwrap_or(0))
}

/// The arguments of `nextent mkfs`.
fn arguments(words: &Words, image: &Path) -> Result<mkfs::Args> {
    let mut list: Vec<OsString> = vec!["mkfs".into()];
    let negative = |value: &OsStr| value.as_encoded_bytes().starts_with(b"-");
    list.extend(words.arguments(|letter, value| match letter {
        // Types and usages may be those of a file.
        't' | 'T' => None,
        'b' if value.is_some_and(negative) => None,
        // The old name of -E.
        'R' => Some('E'),
        letter => Some(letter),
    }));
    list.push("--".into());
    list.push(image.into());
    list.extend(words.operands.get(1).cloned());
    mkfs::Args::try_parse_from(list).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        Failure::new(line.strip_prefix("error: ").unwrap_or(line))
    })
}

impl Mke2fs {
    fn complete_or_fail(&self, options: &mut MkfsOptions, bytes: u64) -> Result<()> {
        let defaults = self.defaults(options, bytes);
        for usage in defaults.undefined() {
            let usage = show::line(usage);
            to_stderr(&format!("\nWarning: the fs_type {usage} is not defined in mke2fs.conf\n"));
        }
        self.sizes(&defaults, options)?;
        self.superblock(&defaults, options)?;
        if !options.revision_0 {
            options.features = defaults.features(&options.features);
            let blocks = bytes / u64::from(options.block_size.unwrap_or(PAGE));
            let wide = defaults.switch("auto_64-bit_support")? == Some(true);
            if wide && blocks > u64::from(u32::MAX) {
                options.features.push_str(",64bit,^resize_inode");
            }
        }
        Ok(())
    }

    /// The defaults for a file system of `bytes`.
    fn defaults(&self, options: &MkfsOptions, bytes: u64) -> Defaults<'_> {
        let usages = self.usages.as_deref();
        let mut defaults = Defaults::new(&self.conf, &self.fs_type, usages, bytes);
        if options.creator_os == CreatorOs::Hurd {
            defaults.push("hurd");
        }
        defaults
    }

    /// The type and the usages of a file system of `bytes`.
    fn types(&self, bytes: u64) -> Vec<String> {
        self.defaults(&MkfsOptions::default(), bytes).types().to_vec()
    }

    fn given(&self, letter: char) -> bool {
        self.letters.contains(&letter)
    }

    fn sizes(&self, defaults: &Defaults<'_>, options: &mut MkfsOptions) -> Result<()> {
        let block_size = match options.block_size {
            Some(given) if given < self.sector => {
                let text =
                    format!("block size {given} is too small for sectors of {}", self.sector);
                return Err(Failure::new(text));
            }
            Some(given) => given,
            None => {
                let found: i64 = defaults.number("blocksize")?.unwrap_or(PAGE.into());
                let found = u32::try_from(found).unwrap_or(PAGE);
                found.max(self.sector).max(self.least_block_size)
            }
        };
        options.block_size = Some(block_size);
        options.usage = Vec::new();
        if options.inode_size.is_none() {
            options.inode_size = Some(defaults.number("inode_size")?.unwrap_or(128));
        }
        if options.bytes_per_inode.is_none() {
            let ratio: u64 = defaults.number("inode_ratio")?.unwrap_or(8192);
            options.bytes_per_inode = Some(ratio.max(block_size.into()));
        }
        if !self.given('m') {
            options.reserved_percent = defaults.number("reserved_ratio")?.unwrap_or(5.0);
        }
        if options.flex_groups.is_none() && defaults.text("flex_bg_size").is_some() {
            options.flex_groups = defaults.number("flex_bg_size")?;
        }
        Ok(())
    }

    fn superblock(&self, defaults: &Defaults<'_>, options: &mut MkfsOptions) -> Result<()> {
        let bad = |text: String| Failure::new(format!("mke2fs.conf: {text}"));
        if let (Some(word), false) = (defaults.text("errors"), self.given('e')) {
            options.on_error = mkfs::values::on_error(word).map_err(bad)?;
        }
        if let Some(list) = defaults.text("default_mntopts") {
            options.default_mount_options = mount_options(0, list).map_err(bad)?;
        }
        options.periodic_checks = defaults.switch("enable_periodic_fsck")?.unwrap_or(false);
        options.name_hash = match defaults.text("hash_alg") {
            None | Some("half_md4") => NameHash::HalfMd4,
            Some("tea") => NameHash::Tea,
            Some("legacy") => NameHash::Legacy,
            Some(other) => return Err(bad(format!("hash_alg: {other} is unknown"))),
        };
        if defaults.switch("make_hugefiles")? == Some(true) {
            return Err(bad("make_hugefiles is not supported".into()));
        }
        Ok(())
    }
}

impl mkfs::Front for Mke2fs {
    fn complete(&self, options: &mut MkfsOptions, bytes: u64) -> std::result::Result<(), String> {
        self.complete_or_fail(options, bytes).map_err(|failure| failure.to_string())
    }

    /// mke2fs reads the texts of the file before those of the command line.
    fn extended(
        &self,
        options: &MkfsOptions,
        bytes: u64,
    ) -> std::result::Result<Vec<String>, String> {
        let defaults = self.defaults(options, bytes);
        let mut all = Vec::new();
        for key in ["lazy_itable_init", "lazy_journal_init", "packed_meta_blocks"] {
            let found = defaults.switch(key).map_err(|failure| failure.to_string())?;
            all.extend(found.map(|on| format!("{key}={}", u8::from(on))));
        }
        if let Some(count) = defaults.text("num_backup_sb") {
            all.push(format!("num_backup_sb={count}"));
        }
        let discard = defaults.switch("discard").map_err(|failure| failure.to_string())?;
        all.extend((discard == Some(false)).then(|| "nodiscard".to_owned()));
        all.extend(defaults.text("options").map(str::to_owned));
        Ok(all)
    }

    fn show_journal(&self, args: &mkfs::Args, plan: &JournalPlan) -> Result<()> {
        report::show_journal(args, plan)
    }

    fn show(&self, args: &mkfs::Args, sb: &Superblock, geometry: &Geometry) -> Result<()> {
        report::show(self, args, sb, geometry)
    }
}

/// Default mount options with those of a list, where `^` removes one.
pub(crate) fn mount_options(mut bits: u32, list: &str) -> std::result::Result<u32, String> {
    for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
        let (name, on) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
        let known = MOUNT_OPTIONS.iter().find(|(known, _)| *known == name);
        let (_, bit) = known.ok_or_else(|| format!("default_mntopts: {word} is unknown"))?;
        // The journal modes share bits.
        let mask =
            if bit & mount_opts::JOURNAL_MODE != 0 { mount_opts::JOURNAL_MODE } else { *bit };
        bits &= !mask;
        if on {
            bits |= bit;
        }
    }
    Ok(bits)
}
