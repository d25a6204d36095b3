//! One command line for both programs: the arguments of mke2fs, parsed into options of the engine.

use std::path::Path;

use nextent::mkfs::{self, FsType, MkfsError, MkfsOptions, Plan};
use nextent_device::{FileDevice, FileOptions};
use uuid::Uuid;

pub(crate) const CLOCK: u64 = 1_700_000_000;
pub(crate) const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// A size, options, and the arguments of mke2fs without size, UUID and seed.
pub(crate) struct MkfsCase {
    pub(crate) size: u64,
    pub(crate) options: MkfsOptions,
    pub(crate) words: Vec<String>,
}

pub(crate) fn size(text: &str) -> u64 {
    let (digits, shift) = match text.as_bytes()[text.len() - 1] {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        b't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().expect("a size") << shift
}

fn extended(options: &mut MkfsOptions, pair: &str) {
    let (key, value) = pair.split_once('=').expect("key=value");
    let n: u32 = value.parse().expect("a number");
    match key {
        "stride" => options.extended.stride = n,
        "mmp_update_interval" => options.extended.mmp_update_interval = Some(n as u16),
        "stripe_width" => options.extended.stripe_width = n,
        "resize" => options.extended.resize = Some(n.into()),
        "packed_meta_blocks" => options.extended.packed_meta_blocks = n == 1,
        "lazy_itable_init" => options.extended.lazy_itable_init = Some(n == 1),
        "num_backup_sb" => options.extended.backup_supers = n as u8,
        _ => panic!("unknown key {key}"),
    }
}

/// Parses a line.
pub(crate) fn parse(line: &str) -> MkfsCase {
    let mut words = line.split_whitespace();
    let size = size(words.next().expect("a size"));
    let rest: Vec<&str> = words.collect();
    let uuid = Uuid::parse_str(UUID).expect("a UUID");
    let mut options = MkfsOptions::default();
    options.uuid = Some(uuid);
    options.clock = Some(CLOCK);
    options.extended.hash_seed = Some(uuid);
    let mut seed = format!("hash_seed={UUID}");
    let mut theirs: Vec<String> = Vec::new();
    for pair in rest.chunks(2) {
        let (flag, value) = (pair[0], pair[1]);
        let number = || value.parse().expect("a number");
        match flag {
            "-t" if value == "ext2" => options.fs_type = FsType::Ext2,
            "-t" if value == "ext3" => options.fs_type = FsType::Ext3,
            "-b" => options.block_size = Some(number()),
            "-I" => options.inode_size = Some(number()),
            "-i" => options.bytes_per_inode = Some(number().into()),
            "-N" => options.inode_count = Some(number().into()),
            "-g" => options.blocks_per_group = Some(number()),
            "-G" => options.flex_groups = Some(number()),
            "-O" => options.features = value.to_owned(),
            "-m" => options.reserved_percent = value.parse().expect("a percentage"),
            "-L" => options.label = value.to_owned(),
            "-J" => options.journal.size = Some(u64::from(number()) << 20),
            "-r" => options.revision_0 = value == "0",
            "-E" => {
                value.split(',').for_each(|pair| extended(&mut options, pair));
                seed = format!("{value},{seed}");
                continue;
            }
            _ => panic!("unknown option {flag} {value}"),
        }
        let value = if flag == "-J" { format!("size={value}") } else { value.to_owned() };
        theirs.extend([flag.to_owned(), value]);
    }
    if !rest.contains(&"-t") {
        theirs.extend(["-t".to_owned(), "ext4".to_owned()]);
    }
    theirs.extend(["-U".to_owned(), UUID.to_owned(), "-E".to_owned(), seed]);
    MkfsCase { size, options, words: theirs }
}

/// Makes an image at `path`, in a new sparse file.
pub(crate) fn make(path: &Path, case: &MkfsCase) -> Result<Plan, MkfsError> {
    let file = std::fs::File::create(path).expect("the test's directory can be written");
    file.set_len(case.size).expect("a sparse file takes no space");
    drop(file);
    // A child process that another test forks has a copy of every descriptor, and of its lock.
    let how = FileOptions::new().unlocked(true);
    let device = FileDevice::open(path, &how).expect("the image opens");
    mkfs::make(&device, &case.options)
}
